"""What generated code says of itself, and what becomes of it in a timeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from boundby import ops as costs
from boundby.capture.torch.compiled_code import CompiledGraph, kernels_of, lines_of
from boundby.capture.torch.compiled_rows import compiled_lines, with_compiled_kernels
from boundby.model import HostKind, OpCall, Tensor, store
from boundby.model.diagnosis import Diagnosis
from tests.machines import round_machine
from tests.timelines import Scene

# As Inductor writes it, without the parts that are not read.
SOURCE = """
cpp_fused_gelu_0 = async_compile.cpp_pybinding(['const float*', 'bfloat16*'], r'''
extern "C"  void  kernel(const float* in_ptr0,
                       bfloat16* out_ptr0)
{ }
''')
cpp_fused_add_1 = async_compile.cpp_pybinding(['float*', 'const float*', 'const int64_t'], r'''
extern "C"  void  kernel(float* in_out_ptr0, const float* in_ptr0, const int64_t ks0) { }
''')
class Runner:
    def call(self, args):
        primals_1, primals_2, primals_3 = args
        args.clear()
        assert_size_stride(primals_1, (256, 512), (512, 1), 'input')
        assert_size_stride(primals_2, (512, 2048), (2048, 1), 'input')
        buf0 = empty_strided_cpu((256, 2048), (2048, 1), torch.float32)
        # [Provenance debug handles] extern_kernels.mm:1
        extern_kernels.mm(primals_1, primals_2, out=buf0)
        buf1 = empty_strided_cpu((256, 2048), (2048, 1), torch.bfloat16)
        # [Provenance debug handles] cpp_fused_gelu_0:2
        cpp_fused_gelu_0(buf0, buf1)
        buf2 = buf0; del buf0  # reuse
        # [Provenance debug handles] extern_kernels.mm:3
        extern_kernels.mm(buf1, primals_3, out=buf2)
        # [Provenance debug handles] cpp_fused_gelu_0:4
        cpp_fused_gelu_0(reinterpret_tensor(buf2, (512, 1024), (1024, 1), 0), buf1)
        # [Provenance debug handles] torch.ops.aten.convolution_backward.default:5
        buf3 = torch.ops.aten.convolution_backward.default(buf1, primals_3)
        assert_size_stride(buf3, (s0, 16), (16, 1))
        cpp_fused_add_1(buf3, buf2, s0)
        return (buf3, )

def get_args():
    from torch._dynamo.testing import rand_strided
    primals_3 = rand_strided((2048, 2048), (2048, 1), device='cpu', dtype=torch.float32)
    return [primals_3]
"""
BEHIND = {
    "extern_kernels.mm:1": "net.py:3",
    "cpp_fused_gelu_0:2": "net.py:4",
    "extern_kernels.mm:3": "net.py:5",
    "cpp_fused_gelu_0:4": None,
}


def test_kernels_are_read_in_order_with_their_arguments() -> None:
    first, second, third = kernels_of(SOURCE)
    read = Tensor(shape=(256, 2048), dtype="float32", strides=(2048, 1))
    written = Tensor(shape=(256, 2048), dtype="bfloat16", strides=(2048, 1))
    assert first == OpCall(name="cpp_fused_gelu_0", args=(read, written))
    assert [tensor.shape for tensor in second.tensors] == [(512, 1024), (256, 2048)]
    # A size that is only known when it runs: nothing is known of the kernel but its name.
    assert third == OpCall(name="cpp_fused_add_1")
    cost = costs.cost(first)
    assert cost is not None and cost.bytes == 256 * 2048 * (4 + 2)


def test_graph_inputs_are_read_from_its_test_harness() -> None:
    source = SOURCE.replace("cpp_fused_gelu_0(buf0, buf1)", "cpp_fused_gelu_0(primals_3, buf1)")
    first, *_ = kernels_of(source)
    assert first.tensors[0].shape == (2048, 2048)


def test_in_place_update_is_read_and_written() -> None:
    source = SOURCE.replace("(s0, 16)", "(4, 16)").replace(", 'const int64_t'", "")
    source = source.replace(", const int64_t ks0", "").replace("buf2, s0)", "buf2)")
    (*_, updated) = kernels_of(source)
    assert [tensor.shape for tensor in updated.tensors] == [(4, 16), (4, 16), (256, 2048)]


def test_lines_are_read_in_order_by_callee() -> None:
    assert lines_of(SOURCE, BEHIND) == {
        "mm": ["net.py:3", "net.py:5"],
        "cpp_fused_gelu_0": ["net.py:4", None],
        "convolution_backward": [None],
    }


@pytest.mark.parametrize("source", ["", "x = 1", "def call(args):\n    return ()"])
def test_code_without_calls_is_accepted(source: str) -> None:
    assert kernels_of(source) == []
    assert lines_of(source, {}) == {}


def scene(kernels: int) -> Scene:
    """A compiled graph that calls two products and some kernels, and a kernel outside of it."""
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.ANNOTATION, "## Call CompiledFxGraph fabc ##")
    scene.on_host(1, 99, HostKind.PYTHON, "generated.py(9): call")
    scene.on_host(2, 10, call=OpCall(name="aten::mm"))
    scene.on_host(3, 9, call=OpCall(name="aten::mm"))  # inside the first one
    scene.on_host(11, 20, call=OpCall(name="aten::mm"))
    for place in range(kernels):
        start = 21 + 5 * place
        scene.on_host(start, start + 4, HostKind.PYTHON, "<built-in function kernel>")
    scene.on_host(110, 120, HostKind.PYTHON, "<built-in function kernel>")
    return scene


GELU = OpCall(name="cpp_fused_gelu_0", args=(Tensor(shape=(4,), dtype="float32"),))
GRAPH = CompiledGraph(
    kernels=[GELU, GELU],
    lines={"mm": ["net.py:3", "net.py:5"], "cpp_fused_gelu_0": ["net.py:4", None]},
)


def test_only_kernels_of_graphs_become_operators() -> None:
    named = with_compiled_kernels(scene(2).timeline(), {"fabc": GRAPH})
    names = [named.names[index] for index in named.host.name]
    assert names[5:] == ["cpp_fused_gelu_0", "cpp_fused_gelu_0", "<built-in function kernel>"]
    assert named.host.kind[5:].tolist() == [HostKind.OP, HostKind.OP, HostKind.PYTHON]
    assert named.calls[named.host.call[5]] == GELU
    lines = compiled_lines(named, {"fabc": GRAPH})
    assert lines == {2: "net.py:3", 3: "net.py:3", 4: "net.py:5", 5: "net.py:4"}


def test_graph_with_unexpected_calls_is_unchanged() -> None:
    before = scene(3).timeline()
    after = with_compiled_kernels(before, {"fabc": GRAPH})
    assert after.names == before.names
    assert after.host.kind.tolist() == before.host.kind.tolist()
    assert with_compiled_kernels(before, {}).names == before.names


SCRIPT = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

    def forward(self, x):
        y = self.up(x)
        y = torch.nn.functional.gelu(y)
        return self.down(y) + x

model = torch.compile(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(200):
    loss = model(torch.randn(2048, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_compiled_cpu_code_has_lines_of_the_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    store.write(round_machine(), tmp_path / "machine.json")
    options = ["--quiet", "--machine", "machine.json", "--json", "run.json"]
    command = [sys.executable, "-m", "boundby", "run", *options, "train.py"]
    # What was compiled by an earlier test would know the lines of that one's script.
    own = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=own
    )
    assert done.returncode == 0, done.stderr
    diagnosis = msgspec.json.decode((tmp_path / "run.json").read_bytes(), type=Diagnosis)
    assert diagnosis.account.unknown.share < 0.03
    shares = {line.where: line.share for line in diagnosis.lines}
    # The process runs these lines in no other way than compiled.
    assert shares.keys() >= {"train.py:10", "train.py:12"}, shares
    fused = [row for row in diagnosis.ops if row.name.startswith("cpp_fused_")]
    assert fused and all(row.bytes for row in fused), json.dumps(shares)
