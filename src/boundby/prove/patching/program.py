"""The user's files with what the measured run saw in them: used to find the places of fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import libcst as cst
from libcst import matchers

from boundby.prove.patching.source_file import (
    CannotWriteError,
    SourceFile,
    Statement,
    inner_statements,
)
from boundby.prove.sites import ObjectSite, ProgramSites, Site

Call = tuple[SourceFile, cst.Call]


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement that binds an object to a name."""

    file: SourceFile
    statement: Statement
    name: str  # as it is written: `model`, `self.net`


class Program:
    def __init__(self, sites: ProgramSites, script: Path) -> None:
        self.sites = sites
        self.files: dict[Path, SourceFile] = {}
        self.names: dict[Path, Path] = {}  # as the program names them: links are resolved here
        self.unreadable: dict[Path, str] = {}
        for name, lines in sites.executed.items():
            path = Path(name).resolve()
            self.names[path] = Path(name)
            try:
                self.files[path] = SourceFile(path, lines)
            except (OSError, ValueError, RecursionError, cst.ParserSyntaxError) as error:
                self.unreadable[path] = f"{path.name} cannot be parsed ({type(error).__name__})"
        self._script = script.resolve()

    @property
    def device(self) -> str:
        return self.sites.device

    @property
    def script(self) -> SourceFile:
        return self._file(self._script)

    def file_of(self, site: Site) -> SourceFile:
        return self._file(Path(site.file).resolve())

    def _file(self, path: Path) -> SourceFile:
        if path not in self.files:
            why = self.unreadable.get(path, f"{path.name} is not one of the user's executed files")
            raise CannotWriteError(why)
        return self.files[path]

    def snapshot(self) -> Callable[[], None]:
        restores = [file.snapshot() for file in self.files.values()]

        def restore() -> None:
            for undo in restores:
                undo()

        return restore

    def executed_calls(self) -> Iterator[Call]:
        for file in self.files.values():
            for call in file.executed_calls():
                yield file, call

    def calls_at(self, site: Site) -> list[Call]:
        """The calls that cover a line, the shortest first: the innermost of nested ones."""
        file = self.file_of(site)
        calls = [call for call in file.executed_calls() if site.line in file.lines_of(call)]
        return [(file, call) for call in sorted(calls, key=lambda call: len(file.code(call)))]

    def constructor(self, made: ObjectSite) -> Call:
        """The call that makes an object: by its class's name, or by a variable that holds it."""
        if not made.made:
            raise CannotWriteError(f"the place where {made.type_name} is made was not seen")
        calls = self.calls_at(made.made[0])
        named = [
            (file, call)
            for file, call in calls
            if made.type_name
            in (last_name(call.func), file.full_name(call.func).rpartition(".")[2])
        ]
        matching = named or [call for call in calls if _is_variable(*call)]
        if len(matching) != 1:
            where = made.made[0].where
            raise CannotWriteError(f"the call that makes {made.type_name} at {where} is not clear")
        return matching[0]

    def bound(self, made: ObjectSite) -> Bound:
        """The statement that assigns an object to a name: in the function that makes it, or in one
        that it is returned to."""
        for site in made.made:
            file = self.file_of(site)
            statement = file.statements_at(site.line)
            if not isinstance(statement, cst.SimpleStatementLine):
                break
            name = self._target(file, statement, made)
            if name is not None:
                return Bound(file, statement, name)
            if not isinstance(statement.body[-1], cst.Return):
                break
        raise CannotWriteError(f"no variable is seen to hold the {made.type_name}")

    def _target(
        self, file: SourceFile, statement: cst.SimpleStatementLine, made: ObjectSite
    ) -> str | None:
        small = _small_statement(statement, made.type_name)
        if isinstance(small, cst.AnnAssign) and small.value is not None:
            return file.code(small.target)
        if not isinstance(small, cst.Assign):
            return None
        target = small.targets[0].target
        if isinstance(target, (cst.Name, cst.Attribute)):
            return file.code(target)
        if isinstance(target, cst.Tuple):
            names = [file.code(element.value) for element in target.elements]
            called = [name for name in names if name in self._called_names(made.used)]
            return called[0] if len(called) == 1 else None
        return None

    def _called_names(self, used: Sequence[Site]) -> set[str]:
        calls = (call for site in used for call in self.calls_at(site))
        return {file.code(call.func).split(".")[0] for file, call in calls}

    def model_call(self, site: Site, models: Sequence[ObjectSite]) -> Call:
        """The call of a model at a line that calls one."""
        names = set()
        for model in models:
            try:
                names.add(self.bound(model).name.rpartition(".")[2])
            except CannotWriteError:
                continue
        calls = self.calls_at(site)
        matching = [call for call in calls if last_name(call[1].func) in names]
        matching = matching or [call for call in calls if self._may_be_model(*call)]
        if len(matching) != 1:
            raise CannotWriteError(f"the call of the model at {site.where} is not clear")
        return matching[0]

    def _may_be_model(self, file: SourceFile, call: cst.Call) -> bool:
        """A variable that is called: not a function or class, nor a method of a value."""
        name = last_name(call.func)
        if name is None or name in self.functions or "." in file.full_name(call.func).lstrip("."):
            return False
        if isinstance(call.func, cst.Attribute):
            return file.code(call.func.value) == "self"
        return not file.full_name(call.func).startswith("builtins")

    @cached_property
    def functions(self) -> dict[str, list[tuple[SourceFile, cst.FunctionDef]]]:
        by_name: dict[str, list[tuple[SourceFile, cst.FunctionDef]]] = {}
        for file in self.files.values():
            for function in file.find(cst.FunctionDef):
                by_name.setdefault(function.name.value, []).append((file, function))
        return by_name


class Reach:
    """Whether a statement leads to one of some lines, itself or through functions it calls."""

    def __init__(self, program: Program, sites: Iterable[Site]) -> None:
        self._program = program
        self._lines = {(Path(site.file).resolve(), site.line) for site in sites}
        self._functions: dict[str, bool] = {}

    def directly(self, file: SourceFile, node: cst.CSTNode) -> bool:
        return any((file.path, line) in self._lines for line in file.lines_of(node))

    def __call__(self, file: SourceFile, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return False
        if self.directly(file, node):
            return True
        return any(
            self._function(name)
            for call in _calls_in(node)
            if (name := last_name(call.func)) is not None
        )

    def _function(self, name: str) -> bool:
        """A name of several functions is not followed: it may be any of them."""
        if name not in self._functions:
            self._functions[name] = False
            defined = self._program.functions.get(name, [])
            if len(defined) == 1:
                file, function = defined[0]
                self._functions[name] = any(
                    self(file, statement) for statement in inner_statements(function)
                )
        return self._functions[name]


def _calls_in(node: cst.CSTNode) -> Iterator[cst.Call]:
    for child in node.children:
        if isinstance(child, (cst.FunctionDef, cst.ClassDef)):
            continue
        if isinstance(child, cst.Call):
            yield child
        yield from _calls_in(child)


def _small_statement(statement: cst.SimpleStatementLine, type_name: str) -> cst.BaseSmallStatement:
    """The statement of a line that makes an object of this type, or else its last one."""
    for small in statement.body:
        calls = matchers.findall(small, matchers.Call())
        if any(isinstance(call, cst.Call) and last_name(call.func) == type_name for call in calls):
            return small
    return statement.body[-1]


def last_name(node: cst.CSTNode) -> str | None:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else None


def _is_variable(file: SourceFile, call: cst.Call) -> bool:
    """`optimizers[name](...)`, `getattr(torch.optim, name)(...)`, or a name that was assigned."""
    if isinstance(call.func, (cst.Subscript, cst.Call)):
        return True
    if not isinstance(call.func, cst.Name):
        return False
    name = call.func.value
    return any(
        isinstance(target.target, cst.Name) and target.target.value == name
        for assign in file.find(cst.Assign)
        for target in assign.targets
    )
