"""Profiles of small steps, made with the encoder."""

from __future__ import annotations

from pathlib import Path

from tests.capture.xplane_files import (
    Event,
    computation,
    field,
    frames,
    hlo,
    instruction,
    message,
    plane,
    programs,
    space,
)

USER = "/home/user/work/train.py"
LIBRARY = "/usr/lib/python3/site-packages/optax/_src/update.py"
STEPS = 3
STEP_NS = 1_000_000


def program() -> bytes:
    """One product by a library, two fusions of the same name, and what they need."""
    fused = computation(
        2,
        "fused",
        [
            instruction(20, "a", "parameter", "bf16[64,256]", (), (), (9, 0)),
            instruction(21, "b", "add", "bf16[64,256]", (20, 20)),
        ],
        21,
    )
    config = (
        b'{"gemm_backend_config":{"dot_dimension_numbers":'
        b'{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
    )
    entry = computation(
        1,
        "main",
        [
            instruction(1, "x", "parameter", "bf16[64,128]", (), (), (9, 0)),
            instruction(2, "w", "parameter", "bf16[128,256]", (), (), (9, 1)),
            instruction(
                3,
                "custom-call.1",
                "custom-call",
                "bf16[64,256]",
                (1, 2),
                (),
                (28, "__cublas$lt$matmul"),
                (43, config),
                op_name="jit(step)/jvp(block)/attn/dot_general",
                frame=2,
            ),
            instruction(
                4,
                "loop_add_fusion.1",
                "fusion",
                "bf16[64,256]",
                (3,),
                (2,),
                op_name="jit(step)/transpose(jvp(block))/add",
                frame=2,
            ),
            instruction(5, "loop_add_fusion", "fusion", "bf16[64,256]", (4,), (2,), frame=3),
        ],
        5,
    )
    stack = frames([USER, LIBRARY], [(1, 60), (1, 12), (2, 99)], [0, 1, 1])
    buffers = b"".join(
        field(3, message((2, size), *flags))
        for size, flags in (
            (16384, [(5, 1)]),
            (65536, [(5, 1), (7, 1)]),
            (32768, [(7, 1)]),
            (1000, []),
            (7, [(12, 1)]),
            (9, [(3, 1)]),
        )
    )
    return hlo("jit_step", [entry, fused], 1, [1, 2, 3, 4, 5], stack, buffers)


def graphed() -> bytes:
    """Steps of one program, launched as a command buffer; the product has two kernels."""
    device, host = [], []
    for step in range(STEPS):
        at = step * STEP_NS
        noted: dict[str, int | str] = {
            "correlation_id": step + 1,
            "hlo_op": "command_buffer_1",
            "hlo_module": "jit_step",
            "program_id": 7,
            "cuda_graph_id": 3,
        }
        host += [
            Event("PjitFunction(step)", at + 1_000, 200_000, {}),
            Event("GpuExecutable::ExecuteThunks", at + 50_000, 100_000, {}),
            Event("cuGraphLaunch (CudaGraph:3)", at + 60_000, 40_000, {"correlation_id": step + 1}),
            Event("np.asarray(jax.Array)", at + 300_000, 600_000, {}),
        ]
        for name, start, length in (
            ("Memset 0", 110_000, 1_000),
            ("nvjet_sm90_tst", 120_000, 500_000),
            ("splitKreduce_kernel", 620_000, 20_000),
            ("loop_add_fusion", 640_000, 100_000),
            ("loop_add_fusion", 740_000, 100_000),
        ):
            device.append(Event(name, at + start, length, noted))
    return space(
        programs({"jit_step(7)": program()}),
        plane(
            "/device:GPU:0",
            {"Stream #14(Compute)": device},
            {"gpu_device_name": "NVIDIA H200", "memory_size": 150_109_880_320},
        ),
        plane("/host:CPU", {"python3": host}),
    )


def written(folder: Path, data: bytes, name: str = "profile.xplane.pb") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path
