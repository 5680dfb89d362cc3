"""The XLA programs that a profile carries: their instructions, lines and memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from boundby.capture.xplane import hlo_schema as schema
from boundby.capture.xplane.hlo_instruction import Attributes, read_attributes
from boundby.capture.xplane.moved_arguments import copies_argument, transposes_argument
from boundby.capture.xplane.stack_frames import StackFrames, read_stack_frames
from boundby.capture.xplane.wire import Field, fields, packed, signed, text
from boundby.model import HloComputation, HloInstruction, Tensor

_LOW = 0xFFFF_FFFF  # 32 bits
_DEEPEST = 24  # of computations that call computations
# What moves an array from one sharding to another, and what asks for it in the script. One of the
# partitioner's has the name of the operator that it was put before.
_RESHARDING = "all-to-all"
_ASKED_FOR = re.compile(r"shard_map|all_to_all|sharding_constraint")


@dataclass(slots=True, frozen=True)
class Place:
    """The place in the user's program that an instruction comes from."""

    op_name: str  # "jit(step)/transpose(jvp(block))/dot_general"
    frame: int  # of the module's stack frames, 0 for none


@dataclass(slots=True)
class Node:
    """An instruction as in the file."""

    id: int
    name: str
    opcode: str
    results: tuple[Tensor, ...]
    operands: list[int]
    called: list[int]
    place: Place
    attributes: Attributes


@dataclass(slots=True)
class Computation:
    name: str = ""
    id: int = 0
    root: int = 0
    nodes: list[Node] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # ids in the order in which they are executed

    def scheduled(self) -> list[Node]:
        if not self.order:
            return self.nodes
        by_id = {node.id: node for node in self.nodes}
        return [by_id[one] for one in self.order if one in by_id] or self.nodes


@dataclass(slots=True, frozen=True)
class ModuleMemory:
    """Bytes of device memory that a program needs, by use."""

    argument_bytes: int
    output_bytes: int
    alias_bytes: int  # outputs in the memory of donated arguments
    temporary_bytes: int
    constant_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The memory that is allocated while the program runs."""
        used = self.argument_bytes + self.output_bytes - self.alias_bytes
        return used + self.temporary_bytes + self.constant_bytes


@dataclass(slots=True)
class Module:
    """One program. `nodes` are all its instructions by name, those of fused computations too."""

    name: str
    entry: Computation
    computations: dict[int, Computation]
    nodes: dict[str, Node]
    frames: StackFrames
    memory: ModuleMemory | None
    _by_id: dict[int, Node] = field(default_factory=dict)
    _users: dict[int, list[Node]] = field(default_factory=dict)
    _arguments: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._arguments = {node.id for node in self.entry.nodes if node.opcode == "parameter"}
        self._by_id = {node.id: node for node in self.nodes.values()}
        for node in self.nodes.values():
            for operand in node.operands:
                self._users.setdefault(operand, []).append(node)

    def is_argument(self, node: Node) -> bool:
        return node.id in self._arguments

    def users_of(self, node: Node) -> list[Node]:
        return self._users.get(node.id, [])

    def operands_of(self, node: Node) -> list[Node]:
        return [self._by_id[one] for one in node.operands if one in self._by_id]

    def computation(self, number: int) -> Computation | None:
        found = self.computations.get(number)
        return found if found is not None else self.computations.get(number & _LOW)

    def called_by(self, node: Node) -> list[Computation]:
        found = (self.computation(number) for number in node.called)
        return [one for one in found if one is not None]

    def instruction(self, node: Node) -> HloInstruction:
        """A separate instruction, with the computations that it calls."""
        around = {one: self._by_id[one] for one in node.operands if one in self._by_id}
        first = {number: at for at, number in reversed([*enumerate(node.operands)])}
        found = self._instruction(node, around, first, depth=0)
        if copies_argument(self, node):
            return msgspec.structs.replace(found, copies_argument=True)
        if transposes_argument(self, node):
            return msgspec.structs.replace(found, transposes_argument=True)
        op_name = node.place.op_name
        if node.opcode == _RESHARDING and op_name and not _ASKED_FOR.search(op_name):
            return msgspec.structs.replace(found, reshards=True)
        return found

    def _instruction(
        self, node: Node, around: dict[int, Node], position: dict[int, int], depth: int
    ) -> HloInstruction:
        called: tuple[HloComputation, ...] = ()
        if depth < _DEEPEST:
            called = tuple(self._nested(one, depth + 1) for one in self.called_by(node))
        inputs = tuple(
            around[number].results if number in around else () for number in node.operands
        )
        return HloInstruction(
            name=node.name,
            opcode=node.opcode,
            results=node.results,
            operands=tuple(position.get(number, -1) for number in node.operands),
            inputs=inputs if not depth else (),
            called=called,
            **node.attributes,
        )

    def _nested(self, computation: Computation, depth: int) -> HloComputation:
        around = {node.id: node for node in computation.nodes}
        position = {node.id: at for at, node in enumerate(computation.nodes)}
        instructions = tuple(
            self._instruction(node, around, position, depth) for node in computation.nodes
        )
        root = position.get(computation.root, len(instructions) - 1)
        return HloComputation(instructions=instructions, root=root)


def read_module(data: bytes, start: int, end: int) -> Module | None:
    """The program of an HloProto message; None if there is none."""
    module: Field | None = None
    memory = None
    for part in fields(data, start, end):
        if part.number == schema.MODULE and part.end:
            module = part
        elif part.number == schema.BUFFERS and part.end:
            memory = _memory(data, part)
    return _module(data, module, memory) if module is not None else None


def _module(data: bytes, message: Field, memory: ModuleMemory | None) -> Module | None:
    name, entry_id = "", 0
    computations: dict[int, Computation] = {}
    schedule: dict[int, list[int]] = {}
    frames = StackFrames()
    for part in fields(data, message.value, message.end):
        match part.number:
            case schema.MODULE_NAME:
                name = text(data, part)
            case schema.COMPUTATIONS if part.end:
                computation = _computation(data, part)
                computations[computation.id] = computation
            case schema.ENTRY:
                entry_id = signed(part.value)
            case schema.SCHEDULE if part.end:
                schedule |= _schedule(data, part)
            case schema.STACK_FRAMES if part.end:
                frames = read_stack_frames(data, part)
    for number, order in schedule.items():
        if number in computations:
            computations[number].order = order
    entry = computations.get(entry_id) or computations.get(entry_id & _LOW)
    if entry is None:
        return None
    nodes = {node.name: node for one in computations.values() for node in one.nodes}
    return Module(
        name=name,
        entry=entry,
        computations=computations,
        nodes=nodes,
        frames=frames,
        memory=memory,
    )


def _computation(data: bytes, message: Field) -> Computation:
    computation = Computation()
    for part in fields(data, message.value, message.end):
        match part.number:
            case schema.COMPUTATION_NAME:
                computation.name = text(data, part)
            case schema.COMPUTATION_ID:
                computation.id = signed(part.value)
            case schema.ROOT:
                computation.root = signed(part.value)
            case schema.INSTRUCTIONS if part.end:
                computation.nodes.append(_node(data, part))
    return computation


def _node(data: bytes, message: Field) -> Node:
    name = opcode = ""
    number = 0
    results: tuple[Tensor, ...] = ()
    operands: list[int] = []
    called: list[int] = []
    place = Place("", 0)
    rest: list[Field] = []
    for part in fields(data, message.value, message.end):
        match part.number:
            case schema.NAME:
                name = text(data, part)
            case schema.OPCODE:
                opcode = text(data, part)
            case schema.ID:
                number = signed(part.value)
            case schema.SHAPE if part.end:
                results = tuple(leaves(data, part))
            case schema.OPERANDS:
                operands += packed(data, part)
            case schema.CALLED:
                called += packed(data, part)
            case schema.METADATA if part.end:
                place = _place(data, part)
            case _:
                rest.append(part)
    attributes = read_attributes(data, rest)
    # Zeros are not written.
    if opcode == "parameter":
        attributes.setdefault("parameter", 0)
    elif opcode == "get-tuple-element":
        attributes.setdefault("element", 0)
    return Node(
        id=number,
        name=name,
        opcode=opcode,
        results=results,
        operands=operands,
        called=called,
        place=place,
        attributes=attributes,
    )


def leaves(data: bytes, message: Field, depth: int = 0) -> list[Tensor]:
    """The arrays of a shape: one, or those of a tuple."""
    kind = 0
    extents: list[int] = []
    inside: list[Tensor] = []
    for part in fields(data, message.value, message.end):
        if part.number == schema.ELEMENT_TYPE:
            kind = part.value
        elif part.number == schema.DIMENSIONS:
            extents += packed(data, part)
        elif part.number == schema.LEAVES and part.end and depth < _DEEPEST:
            inside += leaves(data, part, depth + 1)
    if kind == schema.TUPLE or inside:
        return inside
    dtype = schema.DTYPES.get(kind)
    if dtype is None:
        return []
    return [Tensor(shape=tuple(max(0, extent) for extent in extents), dtype=dtype)]


def _place(data: bytes, message: Field) -> Place:
    op_name, frame = "", 0
    for part in fields(data, message.value, message.end):
        if part.number == schema.OP_NAME:
            op_name = text(data, part)
        elif part.number == schema.FRAME and not part.end:
            frame = part.value
    return Place(op_name, frame)


def _schedule(data: bytes, message: Field) -> dict[int, list[int]]:
    """The order of execution: a map from computations to instructions."""
    found: dict[int, list[int]] = {}
    for entry in fields(data, message.value, message.end):
        key, order = 0, []
        for part in fields(data, entry.value, entry.end) if entry.end else ():
            if part.number == 1 and not part.end:
                key = signed(part.value)
            elif part.number == 2 and part.end:
                for one in fields(data, part.value, part.end):
                    order += packed(data, one)
        found[key] = order
    return found


def _memory(data: bytes, message: Field) -> ModuleMemory:
    argument = output = alias = temporary = constant = 0
    for allocation in fields(data, message.value, message.end):
        if allocation.number != schema.ALLOCATIONS or not allocation.end:
            continue
        found = {
            part.number: part.value
            for part in fields(data, allocation.value, allocation.end)
            if not part.end
        }
        size = found.get(schema.SIZE, 0)
        is_argument, live_out = found.get(schema.IS_ARGUMENT, 0), found.get(schema.LIVE_OUT, 0)
        argument += size if is_argument else 0
        output += size if live_out else 0
        alias += size if is_argument and live_out else 0
        if found.get(schema.CONSTANT, 0):
            constant += size
        elif not (is_argument or live_out or found.get(schema.THREAD_LOCAL, 0)):
            temporary += size
    return ModuleMemory(
        argument_bytes=argument,
        output_bytes=output,
        alias_bytes=alias,
        temporary_bytes=temporary,
        constant_bytes=constant,
    )
