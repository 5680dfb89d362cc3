"""Writes `with torch.autocast(...)` around the statements from a model's call to the loss.

The last one is the statement that makes the tensor on which backward is called. Only executed
statements are put under the `with`: a branch that never ran stays outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import libcst as cst

from boundby.prove.patching.process_settings import require_torch
from boundby.prove.patching.program import Program, Reach, last_name
from boundby.prove.patching.source_file import (
    Block,
    CannotWriteError,
    SourceFile,
    Statement,
    blocks_of,
    inner_statements,
)
from boundby.prove.sites import ChosenFix, Site


def write_autocast(program: Program, fix: ChosenFix) -> None:
    forward = [site for model in fix.objects for site in model.used]
    forward = forward or list(program.sites.forward_calls)
    if not forward:
        raise CannotWriteError("no call of a model was seen in the user's files")
    _Autocast(program, forward).write()


class _Autocast:
    def __init__(self, program: Program, forward: Sequence[Site]) -> None:
        self._program = program
        self._forward = forward
        self._calls_model = Reach(program, forward)
        self._leads_to_backward = Reach(program, program.sites.backward_calls)
        self._context = f'torch.autocast("{program.device}", dtype=torch.bfloat16)'

    def write(self) -> None:
        if not self._program.sites.backward_calls:
            self._write_without_backward()
            return
        written = False
        for file in self._program.files.values():
            for body in _bodies(file):
                written |= self._write_in(file, body)
        if not written:
            raise CannotWriteError(
                "the statements between the model's call and backward are not clear"
            )

    def _write_without_backward(self) -> None:
        """Inference, or a framework that calls backward on the result of a user's function."""
        is_training = bool(self._program.sites.optimizers)
        for site in self._forward:
            file = self._program.file_of(site)
            statement = file.statements_at(site.line)
            if not isinstance(statement, cst.SimpleStatementLine):
                raise CannotWriteError(f"the call of the model at {site.where} is in a condition")
            body = list(_siblings(file, statement))
            place = body.index(statement)
            self._cover(file, body[place:] if is_training else [statement])

    def _write_in(self, file: SourceFile, body: Sequence[Statement]) -> bool:
        written = False
        place = 0
        while place < len(body):
            first = body[place]
            place += 1
            if not self._calls_model(file, first):
                continue
            if self._leads_to_backward(file, first):
                written |= self._write_same_statement(file, first)
                continue
            end = next(
                (at for at in range(place, len(body)) if self._leads_to_backward(file, body[at])),
                None,
            )
            if end is None or self._only_trains_there(file, body[end]):
                continue
            self._cover(file, _up_to_loss(file, body[place - 1 : end], body[end]))
            written = True
            place = end
        return written

    def _only_trains_there(self, file: SourceFile, statement: Statement) -> bool:
        """Whether backward belongs only to calls of the model in that statement itself."""
        return self._calls_model(file, statement)

    def _write_same_statement(self, file: SourceFile, statement: Statement) -> bool:
        """`criterion(model(x), y).backward()`: the loss gets a name."""
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return False
        if not (
            self._calls_model.directly(file, statement)
            and self._leads_to_backward.directly(file, statement)
        ):
            return False
        small = statement.body[0]
        call = small.value if isinstance(small, cst.Expr) else None
        if not isinstance(call, cst.Call) or last_name(call.func) != "backward":
            return False
        root = call.func.value if isinstance(call.func, cst.Attribute) else None
        if not isinstance(root, cst.Call):
            root = call.args[0].value if call.args else None
        if not isinstance(root, cst.Call):
            return False
        names = {node.value for node in file.find(cst.Name)}
        name = next(
            candidate
            for candidate in ("loss", "autocast_loss", "_autocast_loss")
            if candidate not in names
        )
        code = file.code(root)
        require_torch(file)
        file.insert_above(statement, f"with {self._context}:\n    {name} = {code}\n")
        file.change(root, lambda _: cst.Name(name))
        return True

    def _cover(self, file: SourceFile, statements: Sequence[Statement]) -> None:
        """Put the statements under the `with`, in as few parts as statements that never ran
        allow."""
        if len(statements) == 1 and isinstance(statements[0], cst.With):
            body = cast(list[Statement], inner_statements(statements[0]))
            starts = [
                at
                for at, inner_statement in enumerate(body)
                if self._calls_model(file, inner_statement)
            ]
            if starts:
                self._cover(file, body[starts[0] :])
                return
        run: list[Statement] = []
        for statement in statements:
            if file.is_fully_executed(statement):
                run.append(statement)
                continue
            self._wrap(file, run)
            run = []
            if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                continue
            for block in blocks_of(statement):
                inner = [
                    child
                    for child in block.children
                    if _is_statement(child) and file.is_executed(child)
                ]
                if any(self._calls_model(file, child) for child in inner):
                    self._cover(file, cast(list[Statement], inner))
        self._wrap(file, run)

    def _wrap(self, file: SourceFile, run: Sequence[Statement]) -> None:
        if run:
            require_torch(file)
            file.wrap(run[0], run[-1], self._context)


def _up_to_loss(
    file: SourceFile, statements: Sequence[Statement], backward: Statement
) -> Sequence[Statement]:
    """The statements without the last ones that make nothing that the backward reads."""
    needed = set(_names(file, backward))
    makes = [
        at for at, statement in enumerate(statements) if needed & set(_assigned(file, statement))
    ]
    return statements[: makes[-1] + 1] if makes else statements


def _bodies(file: SourceFile) -> Iterator[list[Statement]]:
    blocks: list[Block] = [file.module, *file.find(cst.IndentedBlock)]
    for block in blocks:
        yield [
            cast(Statement, statement)
            for statement in block.body
            if _is_statement(statement) and _may_run(file, statement)
        ]


def _siblings(file: SourceFile, statement: Statement) -> Iterator[Statement]:
    block = file.parent(statement)
    if isinstance(block, (cst.Module, cst.IndentedBlock)):
        yield from (cast(Statement, sibling) for sibling in block.body)
    else:
        raise CannotWriteError("it is written in one line with a loop or a condition")


def _is_statement(node: cst.CSTNode) -> bool:
    return isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement))


def _may_run(file: SourceFile, node: cst.CSTNode) -> bool:
    return file.is_executed(node) or file.is_fully_executed(node)


def _names(file: SourceFile, node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Attribute):
        yield file.code(node)
    if isinstance(node, cst.Name):
        yield node.value
    for child in node.children:
        yield from _names(file, child)


def _assigned(file: SourceFile, node: cst.CSTNode) -> Iterator[str]:
    targets: Iterable[cst.CSTNode] = ()
    if isinstance(node, cst.Assign):
        targets = [target.target for target in node.targets]
    elif isinstance(node, (cst.AugAssign, cst.AnnAssign, cst.NamedExpr)):
        targets = [node.target]
    for target in targets:
        yield file.code(target)
        if isinstance(target, (cst.Tuple, cst.List)):
            yield from (file.code(element.value) for element in target.elements)
    for child in node.children:
        yield from _assigned(file, child)
