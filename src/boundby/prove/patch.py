"""What a user would change in the script to get what was proven, as a unified diff.

Where the place is known the change is made in a copy of the text; else it is a note. The script
itself is never touched.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from boundby.fixes.loaders import most_workers, spare_workers
from boundby.prove.source import Source, last_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the trials saw of the program."""

    modules: Sequence[str]  # classes of the outermost modules
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    diff: str
    notes: list[str]
    after: str

    def text(self) -> str:
        """A file that `patch` and `git apply` take: what stands before the diff is passed over."""
        lines = (line for note in self.notes for line in note.splitlines())
        return "".join(f"# {line}\n" for line in lines) + self.diff


_AUTOCASTS = ("torch.autocast", "torch.amp.autocast", "amp.autocast", "autocast")
# Edits the source and says True, or knows no place for it.
Editor = Callable[[Source, Known], bool]


def make_patch(path: Path, changes: Sequence[tuple[str, str]], known: Known) -> Patch:
    """`changes`: a treatment's name and its words, for each that was kept."""
    before = text = path.read_text()
    notes = []
    for name, words in changes:
        editor = _EDITORS.get(name)
        edited = _edit(text, editor, known) if editor is not None else None
        if edited is None:
            notes.append(f"{name}, by hand: {words}")
        else:
            text = edited
    diff = difflib.unified_diff(
        before.splitlines(keepends=True),
        text.splitlines(keepends=True),
        fromfile=f"a/{path.name}",
        tofile=f"b/{path.name}",
    )
    return Patch(diff="".join(diff), notes=notes, after=text)


def _edit(text: str, editor: Editor, known: Known) -> str | None:
    """The text with one change made; None where no place was found, or it would not parse."""
    source = Source(text)
    try:
        return source.edited() if editor(source, known) else None
    except SyntaxError:
        return None


def _fuse_optimizers(source: Source, known: Known) -> bool:
    calls = list(source.calls("Adam", "AdamW", "SGD", "Adagrad"))
    for call in calls:
        source.set_keywords(call, {"fused": "True"}, drop=("foreach",))
    return bool(calls)


def _feed_from_workers(source: Source, known: Known, count: int | None = None) -> bool:
    calls = list(source.calls("DataLoader"))
    values = {"num_workers": str(count or spare_workers()), "persistent_workers": "True"}
    if known.device == "cuda":
        values["pin_memory"] = "True"
    for call in calls:
        source.set_keywords(call, values)
    return bool(calls)


def _pin(source: Source, known: Known) -> bool:
    calls = list(source.calls("DataLoader"))
    for call in calls:
        source.set_keywords(call, {"pin_memory": "True"})
    return bool(calls)


def _set_to_none(source: Source, known: Known) -> bool:
    calls = [call for call in source.calls("zero_grad") if call.args or call.keywords]
    for call in calls:
        source.set_keywords(call, {"set_to_none": "True"})
    return bool(calls)


def _switch_attention(source: Source, known: Known) -> bool:
    chosen = [
        call
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        for call in [node]
        if any(keyword.arg == "attn_implementation" for keyword in call.keywords)
    ]
    calls = chosen or list(source.calls("from_pretrained", "from_config"))
    for call in calls:
        source.set_keywords(call, {"attn_implementation": '"sdpa"'})
    return bool(calls)


def _below_imports(line: str) -> Editor:
    def edit(source: Source, known: Known) -> bool:
        imports = [one for one in source.tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
        if not any(
            alias.name == "torch" and alias.asname is None
            for one in imports
            if isinstance(one, ast.Import)
            for alias in one.names
        ):
            return False
        source.insert_after(imports[-1], "", line)
        return True

    return edit


def _below_model(line: str) -> Editor:
    def edit(source: Source, known: Known) -> bool:
        place = _model_made(source, known)
        if place is None:
            return False
        statement, name = place
        source.insert_after(statement, line.format(model=name))
        return True

    return edit


def _model_made(source: Source, known: Known) -> tuple[ast.stmt, str] | None:
    """The last statement that makes the model, before its parameters are handed out."""
    made = [call.lineno for call in source.calls(*known.modules)] if known.modules else []
    given = {
        call.func.value.id: call.lineno
        for call in source.calls("parameters")
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    }
    for body in source.bodies():
        assigned = [(one, name) for one in body if (name := _assigned(one)) is not None]
        names = [
            name
            for one, name in assigned
            if any(one.lineno <= line <= (one.end_lineno or one.lineno) for line in made)
            or (not made and name in given)
        ]
        for name in names:
            last = given.get(name, float("inf"))
            places = [one for one, other in assigned if other == name and one.lineno <= last]
            if places:
                return places[-1], name
    return None


def _assigned(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def _autocast(source: Source, known: Known) -> bool:
    """From the statement that calls the model to the one that makes the loss."""
    place = _model_made(source, known)
    if place is None:
        return False
    for body in source.bodies():
        first = next((i for i, one in enumerate(body) if _calls(one, place[1])), None)
        roots = [(i, root) for i, one in enumerate(body) if (root := _backward_root(one))]
        if first is None or not roots:
            continue
        end, loss = roots[0]
        makes = [i for i in range(first, end) if _assigned(body[i]) == loss]
        if makes:
            header = f'with torch.autocast("{known.device}", dtype=torch.bfloat16):'
            source.wrap(body[first], body[makes[-1]], header)
            return True
    return False


def _switch_autocast_off(source: Source, known: Known) -> bool:
    """On this kind of device: on another, autocast may be what makes it fast."""
    edited = False
    for call in source.calls("autocast"):
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        device = call.args[0] if call.args else named.get("device_type")
        # Others of the name have no device, or take `enabled` in its place.
        if ast.unparse(call.func) not in _AUTOCASTS or device is None or len(call.args) > 2:
            continue
        is_named = isinstance(device, ast.Constant)
        if not is_named or ast.literal_eval(device) == known.device:
            off = "False" if is_named else f'{ast.unparse(device)} != "{known.device}"'
            source.set_keywords(call, {"enabled": off})
            edited = True
    return edited


def _calls(statement: ast.stmt, name: str) -> bool:
    # Loops and functions hold other bodies: the call is to be in the statement itself.
    if not isinstance(statement, (ast.Assign, ast.Expr, ast.AugAssign, ast.AnnAssign)):
        return False
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        for node in ast.walk(statement)
    )


def _backward_root(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        if isinstance(called, ast.Attribute) and called.attr == "backward":
            return last_name(called.value)
    return None


_EDITORS: dict[str, Editor] = {
    "fused": _fuse_optimizers,
    "set-to-none": _set_to_none,
    "workers": _feed_from_workers,
    "workers:all": partial(_feed_from_workers, count=most_workers()),
    "pinned": _pin,
    "sdpa": _switch_attention,
    "tf32": _below_imports('torch.set_float32_matmul_precision("high")'),
    "bf16-products": _below_imports('torch.set_float32_matmul_precision("medium")'),
    "one-thread": _below_imports("torch.set_num_threads(1)"),
    "compile": _below_model("{model} = torch.compile({model})"),
    "compile:reduce-overhead": _below_model(
        '{model} = torch.compile({model}, mode="reduce-overhead")'
    ),
    "compile:max-autotune": _below_model('{model} = torch.compile({model}, mode="max-autotune")'),
    "channels-last": _below_model("{model} = {model}.to(memory_format=torch.channels_last)"),
    "autocast": _autocast,
    "no-autocast": _switch_autocast_off,
}
