"""Lines that make float64 tensors are found from the values of names, not from the text."""

import ast

import pytest

from boundby.capture.torch.evidence.float64_entries import float64_entries, scopes_on_stack

torch = pytest.importorskip("torch")

SCRIPT = """\
x = torch.tensor(table)
y = x[:, :1].sin()
z = torch.tensor(table, dtype=torch.float32)
if True:
    w, v = make()
def main():
    held = load()
    return held
def other():
    held = load()
"""


def test_lines_that_create_float64_from_other_dtypes_are_found() -> None:
    wide, narrow = torch.zeros(2, dtype=torch.float64), torch.zeros(2)
    names = {"x": wide, "y": wide, "z": narrow, "w": wide, "v": narrow, "torch": torch}
    tree = ast.parse(SCRIPT)
    assert list(float64_entries(tree, names, {})) == [1, 5]
    # The names of a function are known while it runs.
    running = {("main", 6): {**names, "held": wide}}
    assert list(float64_entries(tree, names, running)) == [1, 5, 7]


def test_running_functions_are_found_by_qualified_name() -> None:
    held = 3
    scopes = scopes_on_stack(__file__)
    code = test_running_functions_are_found_by_qualified_name.__code__
    assert scopes[code.co_name, code.co_firstlineno]["held"] == held


def test_lines_that_convert_a_module_are_entries_and_those_that_move_it_are_not() -> None:
    text = "\n".join(
        [
            "net = net.to(sample.dtype)",
            "net = net.to(device)",
            "net.double()",
            "net.to('cpu', dtype=kind)",
            "other = other.to(sample.dtype)",
        ]
    )
    names = {
        "net": torch.nn.Linear(2, 2).double(),
        "other": torch.nn.Linear(2, 2),
        "device": "cpu",
        "kind": torch.float64,
        "sample": None,
    }
    assert list(float64_entries(ast.parse(text), names, {})) == [1, 3, 4]
