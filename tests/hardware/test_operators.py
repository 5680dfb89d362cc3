"""Operators are benchmarked as recorded, with any part of the call missing."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.hardware import op_benchmark as operators  # noqa: E402
from boundby.hardware.op_benchmark import OpBenchmark, Value, _work, time_operators  # noqa: E402
from boundby.hardware.stopwatch import Workload  # noqa: E402
from boundby.model import Tensor  # noqa: E402


def tensor(*shape: int, strides: tuple[int, ...] | None = None, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype, strides=strides)


X = tensor(8, 16, strides=(16, 1))
CALLS: dict[str, tuple[Value, ...]] = {
    # alpha comes by name, and is recorded last
    "aten::add": (X, X, 1),
    "aten::add_": (X, X, 1),
    # a vector of axes, and a dtype that was not given
    "aten::sum": (X, (0,), True, None),
    # the name of an approximation: words are not recorded
    "aten::gelu": (X, None),
    "aten::gelu_backward": (X, X, None),
    "aten::cat": ((tensor(8, 1, 4, strides=(0, 4, 1)), tensor(8, 3, 4, strides=(12, 1, 3))), 1),
    "aten::copy_": (X, tensor(8, 16, strides=(0, 1)), False),
    "aten::div": (tensor(4, 8, 6, strides=(8, 1, 0)), tensor(dtype="int64", strides=())),
    "aten::mul": (X, 2.0),
    # recorded by a torch that had fewer arguments
    "aten::mean": (X, (0,)),
    "aten::_softmax": (X, 1, False),
    "aten::native_layer_norm": (X, (16,), tensor(16), tensor(16), 1e-5),
    # with an output buffer for another batch, as compiled code has
    "aten::mm": (X, tensor(16, 4), tensor(2, 4)),
    "aten::addmm": (tensor(4), X, tensor(16, 4), 1, 1, tensor(8, 4)),
}


@pytest.mark.parametrize("name", CALLS)
def test_recorded_call_is_replayed(name: str) -> None:
    (took,) = time_operators([OpBenchmark(name=name, args=CALLS[name])], kind="cpu", index=0)
    assert took is not None and took > 0


def test_replayed_call_computes_the_recorded_operator() -> None:
    summed = _work(torch, OpBenchmark(name="aten::sum", args=CALLS["aten::sum"]), "cpu")()
    assert summed.shape == (1, 16)  # type: ignore[attr-defined]
    joined = _work(torch, OpBenchmark(name="aten::cat", args=CALLS["aten::cat"]), "cpu")()
    assert joined.shape == (8, 4, 4)  # type: ignore[attr-defined]
    product = _work(torch, OpBenchmark(name="aten::mm", args=CALLS["aten::mm"]), "cpu")()
    assert product.shape == (8, 4)  # type: ignore[attr-defined]
    scaled = _work(torch, OpBenchmark(name="aten::add", args=(X, X, 3)), "cpu")
    assert scaled().std() > 0.05  # type: ignore[attr-defined]  # of 0.02 and 3 x 0.02, not 2 x


def many(*shape: int) -> Tensor:
    return tensor(*shape, dtype="int64")


@pytest.mark.parametrize(
    ("name", "args", "rows"),
    [
        ("aten::embedding", (tensor(1000, 4), many(64), -1, False, False), 64),
        # The same places for all samples.
        ("aten::embedding", (tensor(1000, 4), tensor(2, 64, strides=(0, 1), dtype="int64")), 128),
        ("aten::embedding_dense_backward", (tensor(64, 4), many(64), 1000, -1, False), 1000),
        ("aten::_embedding_bag", (tensor(1000, 4), many(64), many(16), False, 0), 16),
        (
            "aten::_embedding_bag_dense_backward",
            (tensor(16, 4), many(64), many(64), many(16), many(0), 1000, False, 0, None, -1),
            1000,
        ),
    ],
)
def test_replayed_indices_cover_the_whole_table(
    name: str, args: tuple[Value, ...], rows: int
) -> None:
    """Of 1000 rows 64 indices hit 62 on average; all bags hold some."""
    result = _work(torch, OpBenchmark(name=name, args=args), "cpu")()
    taken: Any = result[0] if isinstance(result, tuple) else result
    assert taken.flatten(0, -2).shape == (rows, 4)
    different = len(taken.flatten(0, -2).unique(dim=0))
    assert different >= min(16, rows)
    assert (taken.flatten(0, -2).abs().sum(1) > 0).sum() >= min(16, rows)


def test_expanded_tensor_takes_its_real_memory() -> None:
    expanded = tensor(1 << 20, 4, strides=(0, 1))
    made = _work(torch, OpBenchmark(name="aten::relu", args=(expanded,)), "cpu")
    assert made().shape == (1 << 20, 4)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten::add", (X, tensor(7, 3), 1)),
        ("aten::no_such_operator", (X,)),
        ("aten::add", (X,) * 9),
        # They would write past the end of their arguments.
        ("aten::mkldnn_rnn_layer_backward", (X,) * 23),
    ],
)
def test_operator_that_cannot_run_is_skipped(name: str, args: tuple[Value, ...]) -> None:
    assert time_operators([OpBenchmark(name=name, args=args)], kind="cpu", index=0) == [None]


def test_operator_with_a_delayed_error_is_skipped_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a kernel does that writes over the random numbers' state."""

    def broken(_: object) -> None:
        raise RuntimeError("Invalid mt19937 state")

    fine = OpBenchmark(name="aten::relu", args=(X,))
    with monkeypatch.context() as patched:
        patched.setattr(torch, "set_rng_state", broken)
        patched.setattr(torch.random, "set_rng_state", broken)
        assert time_operators([fine, fine], kind="cpu", index=0) == [None, None]


@pytest.mark.parametrize("name", ["sqrt", "log", "rsqrt_"])
def test_arguments_of_square_roots_are_positive(name: str) -> None:
    """Of a negative number a CPU's library makes an exception, which takes it far longer."""
    given = tensor(4, 64, strides=(64, 1))
    result: Any = _work(torch, OpBenchmark(name=f"aten::{name}", args=(given,)), "cpu")()
    assert result.isfinite().all()


def test_onednn_setting_is_local_to_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = torch.backends.mkldnn
    seen: list[bool] = []

    def switching_off(_torch: Any, _args: list[Any]) -> Workload:
        seen.append(switch.enabled)
        switch.enabled = False
        return lambda: None

    monkeypatch.setitem(operators._OWN, "switching off", switching_off)
    exercise = OpBenchmark(name="switching off", args=())
    time_operators([exercise, exercise], kind="cpu", index=0)
    assert seen == [True, True]
    assert switch.enabled
