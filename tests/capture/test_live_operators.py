"""Real profiles of small scripts: every operator stands at its own line.

A script names behind each line the operators that it runs: nothing else may stand there, and
nothing without a line may run.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.capture import kineto  # noqa: E402
from boundby.capture.torch.device import TorchDevice  # noqa: E402
from boundby.capture.torch.enrich import enrich_timeline  # noqa: E402
from boundby.capture.torch.profiler import TorchProfiler  # noqa: E402
from boundby.capture.torch.profiler_tree import read_profiler_tree  # noqa: E402
from boundby.model import HostKind, Phase, Timeline  # noqa: E402

Lines = dict[int, Counter[str]]


def profile(folder: Path, source: str) -> tuple[str, Timeline]:
    """The second of two profiled calls of the script's `step`, after one that is not."""
    path = folder / "script.py"
    path.write_text(text := dedent(source))
    module: dict[str, Any] = {"torch": torch, "__name__": "script"}
    exec(compile(text, str(path), "exec"), module)
    step: Callable[[], None] = module["step"]
    step()
    profiler = TorchProfiler(torch, TorchDevice(torch), folder)
    assert profiler.start(), profiler.problem
    step()
    profiler.step()
    step()
    profiler.stop()
    assert profiler.problem is None
    timeline = kineto.read(profiler.trace).timeline(1)
    return text, enrich_timeline(
        timeline, read_profiler_tree(profiler.results, profiler.line_tracer.trace), {}
    )


def lines(timeline: Timeline, phase: Phase = Phase.FORWARD) -> Lines:
    """Line -> the outermost operators that ran there, as a person would name them."""
    host = timeline.host
    found: Lines = {}
    for row in range(len(host)):
        name = timeline.names[host.name[row]]
        parent = host.parent[row]
        inside = parent >= 0 and timeline.names[host.name[parent]].startswith("aten::")
        if host.kind[row] != HostKind.OP or not name.startswith("aten::"):
            continue
        if inside:
            assert host.source[row] == host.source[parent], name
            continue
        if host.phase[row] == phase:
            source = timeline.sources[host.source[row]] if host.source[row] >= 0 else "nowhere:0"
            assert source.rpartition(":")[0].endswith("script.py"), (name, source)
            line = int(source.rpartition(":")[2])
            found.setdefault(line, Counter())[name.removeprefix("aten::")] += 1
    return found


def named(text: str) -> Lines:
    """What the script itself says of its lines: `x = a * b  # mul`, `# 2 mul` if it does twice."""
    found: Lines = {}
    for number, line in enumerate(text.splitlines(), 1):
        for times, name in re.findall(r"(\d+ )?(\w+)", line.partition("# ")[2]):
            found.setdefault(number, Counter())[name] += int(times or 1)
    return found


def check(folder: Path, source: str) -> None:
    text, timeline = profile(folder, source)
    assert lines(timeline) == named(text)


def test_every_operator_has_its_source_line(tmp_path: Path) -> None:
    check(
        tmp_path,
        """
        a, b = torch.rand(4, 4) + 1, torch.rand(4, 4) + 1
        flags, rows = torch.tensor([True, False]), torch.tensor([1, 2])

        def step():
            n = 2 + 3 * 4
            c = a.clone()  # clone
            d = a @ b  # matmul
            d = d * 2  # mul
            d = n * d  # mul
            d = d + 1  # add
            d = 1 + d  # add
            d = d - b  # sub
            d = 1 - d  # rsub
            d = d / n  # div
            d = 1 / d  # reciprocal mul
            d = d ** 2  # pow
            d = 2 ** b  # pow
            d = b % 2  # remainder
            d = b // 2  # floor_divide
            d = -b  # neg
            d = +b  # positive
            d = abs(b)  # abs
            n = n // 5
            c += a  # add_
            c -= a  # sub_
            c *= 2  # mul_
            c /= n  # div_
            e = a < b  # lt
            e = a <= b  # le
            e = a == b  # eq
            e = a != b  # ne
            e = a > b  # gt
            e = 3 > a  # lt
            f = flags & flags  # __and__
            f = flags | flags  # __or__
            f = flags ^ flags  # __xor__
            f = ~flags  # bitwise_not
            f |= flags  # __ior__
            n = n << 1
            g = rows << 1  # __lshift__
            g = a[0]  # select
            g = a[rows]  # index
            g = a[1:3]  # slice
            g = a[None]  # unsqueeze
            g = a[..., 0]  # select
            c[0] = a[1]  # 2 select copy_
            c[e] = 0  # lift_fresh index_put_
            h = a.T  # numpy_T
            h = a.mT  # mT
            h = a.view(16)  # view
            h = a.softmax(-1)  # softmax
        """,
    )


def test_functions_that_read_tensor_values_have_their_lines(tmp_path: Path) -> None:
    check(
        tmp_path,
        """
        one = torch.tensor(1)
        ones = torch.ones(3)

        def step():
            torch.relu(ones)  # relu
            if one:  # is_nonzero
                pass
            while not one:  # is_nonzero
                pass
            x = float(one)  # item
            x = int(one)  # item
            x = complex(one)  # item
            x = [0] * 3
            x = x[one]  # item
            for i in range(one):  # item
                pass
            for i in ones:  # unbind
                pass
            x = one in ones  # eq any item
            assert one == 1  # eq is_nonzero
        """,
    )


def test_attention_and_residuals_have_their_module_lines(tmp_path: Path) -> None:
    check(
        tmp_path,
        """
        class Attention(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv = torch.nn.Linear(8, 24)
                self.scale = torch.nn.Parameter(torch.ones(1))

            def forward(self, x):
                B, T, C = x.shape
                q, k, v = self.qkv(x).split(C, dim=2)  # linear split
                scale = C ** -0.5
                att = q @ k.transpose(-2, -1) * scale  # transpose matmul mul
                att = att * self.scale  # mul
                att = att.softmax(-1)  # softmax
                y = att @ v  # matmul
                return y

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = Attention()
                self.norm = torch.nn.LayerNorm(8)

            def forward(self, x):
                x = x + self.attention(self.norm(x))  # layer_norm add
                return x * 2  # mul

        block = Block()
        x = torch.rand(2, 4, 8)

        def step():
            block(x)
        """,
    )


def test_loops_branches_and_nested_functions_have_their_lines(tmp_path: Path) -> None:
    check(
        tmp_path,
        """
        def doubled(function):
            def inside(*given):
                out = function(*given)
                return out * 2  # mul
            return inside

        @doubled
        def shifted(x, by):
            return x + by  # add

        def parts(x):
            for i in range(2):
                yield x[i]  # 2 select
                x = x * 1.5  # 2 mul

        def step():
            x = torch.ones(4)  # ones
            total = 0
            for i in range(3):
                y = x * i  # 3 mul
                n = i * 2
                if i % 2:
                    y = y * 3  # mul
                else:
                    y = y * 4  # 2 mul
                total += y  # add 2 add_
            total -= x  # sub_
            scale = lambda t: t * 5  # mul
            x = scale(x)
            halves = [p / 2 for p in (x, y)]  # 2 div
            both = sum(halves)  # 2 add
            x = shifted(x, 1)
            for part in parts(x):
                part = -part  # 2 neg
            x = x * 2 if n else x  # mul
            x = (x  # mul
                 .relu()  # relu
                 * 2)
            try:
                x @ torch.ones(7)  # ones matmul
            except RuntimeError:
                x = x - 1  # sub
            with torch.no_grad():
                x = x - 1  # sub
        """,
    )


def test_autocast_casts_have_the_line_of_their_consumer(tmp_path: Path) -> None:
    check(
        tmp_path,
        """
        a, b = torch.rand(4, 4), torch.rand(4, 4, requires_grad=True)

        def step():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                c = a * 2  # mul
                d = c @ b  # matmul
                e = d @ d  # matmul
                f = e + c  # add
        """,
    )


def test_backward_has_line_of_its_forward(tmp_path: Path) -> None:
    text, timeline = profile(
        tmp_path,
        """
        w = torch.rand(4, 4, requires_grad=True)
        x = torch.rand(4, 4)

        def step():
            w.grad = None
            h = x @ w  # t mm
            h = h * 2  # mul
            h = h[0]  # select_backward
            h = h * h  # 2 mul add_
            h = h / 3  # div
            loss = h.sum()  # expand
            loss.backward()  # ones_like detach
        """,
    )
    assert lines(timeline, Phase.BACKWARD) == named(text)


def test_python_in_backward_has_its_own_lines(tmp_path: Path) -> None:
    text, timeline = profile(
        tmp_path,
        """
        from torch.utils.checkpoint import checkpoint

        w = torch.rand(4, requires_grad=True)

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                x, = ctx.saved_tensors
                twice = x * 2  # mul
                return grad * twice  # mul

        def block(x):
            y = x.sin()  # sin detach cos mul
            return y.exp()  # exp detach mul

        def hook(grad):
            return grad + 1  # add

        def step():
            w.grad = None
            h = Square.apply(w)
            h.register_hook(hook)
            h = checkpoint(block, h, use_reentrant=False)
            loss = h.sum()  # expand
            loss.backward()  # ones_like detach
        """,
    )
    assert lines(timeline, Phase.BACKWARD) == named(text)


def test_builtin_functions_have_the_line_of_their_call(tmp_path: Path) -> None:
    _, timeline = profile(
        tmp_path,
        """
        import gc

        def step():
            x = torch.ones(4)
            gc.collect()
            x = x * 2
        """,
    )
    host = timeline.host
    named = [timeline.names[name] == "<built-in function collect>" for name in host.name]
    (row,) = [row for row, is_it in enumerate(named) if is_it]
    assert timeline.sources[host.source[row]].endswith("script.py:6")


def test_library_line_is_below_the_user_line(tmp_path: Path) -> None:
    """The user's line that led there, the library's that ran it; torch's own are neither."""
    library = tmp_path / "site-packages" / "layers"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(
        "def scaled(x, w):\n    y = x @ w\n    return (y * 2).sum()\n"
    )
    _, timeline = profile(
        tmp_path,
        f"""
        import sys
        sys.path.insert(0, {str(library.parent)!r})
        from layers import scaled
        x, w = torch.rand(4, 4), torch.rand(4, 4, requires_grad=True)

        def step():
            loss = scaled(x, w)  # matmul mul sum
            (loss + 1).backward()
        """,
    )
    sys.path.remove(str(library.parent))
    host = timeline.host
    assert host.inside is not None
    table = [*timeline.sources, None]
    seen = {
        timeline.names[host.name[row]]: (table[host.source[row]], table[host.inside[row]])
        for row in range(len(host))
        if host.kind[row] == HostKind.OP
    }
    own = f"{tmp_path.name}/script.py"
    assert seen["aten::matmul"] == (f"{own}:8", "layers/__init__.py:2")
    assert seen["aten::sum"] == (f"{own}:8", "layers/__init__.py:3")
    assert seen["aten::add"] == (f"{own}:9", None)
    backward = "autograd::engine::evaluate_function: MmBackward0"
    assert seen[backward] == (f"{own}:8", "layers/__init__.py:2")
