"""The scripts that are proved, and what a person would try on each with the same fixes."""

from __future__ import annotations

WORKLOADS = "benchmarks/workloads.py"
GRAPHED = ["--compile", "--mode", "reduce-overhead"]
SDPA = ["--attention", "sdpa"]
# Name -> the script, and the flags of what a person would try with the same fixes.
SCRIPTS: dict[str, tuple[list[str], list[list[str]]]] = {
    "bert": (
        [WORKLOADS, "bert"],
        [["--fused", *SDPA, *GRAPHED], ["--fused", *GRAPHED], ["--fused", *SDPA, "--graphs"]],
    ),
    "gpt2": (
        [WORKLOADS, "gpt2"],
        [["--fused", *SDPA, *GRAPHED], ["--fused", *SDPA, "--compile", "--graphs"]],
    ),
    "vit": ([WORKLOADS, "vit"], [["--fused", *GRAPHED], ["--fused", "--compile", "--graphs"]]),
    "resnet50": (
        [WORKLOADS, "resnet50"],
        [["--fused", "--channels-last", *GRAPHED], ["--fused", "--channels-last", "--graphs"]],
    ),
    "llama-decode": (
        [WORKLOADS, "llama-decode", "--steps", "400"],
        # On an H200 with torch 2.11, SDPA took 82 ms a step here, 57 ms compiled: not tried again.
        [["--compile"]],
    ),
    "slow_mlp": (
        ["examples/slow_mlp.py"],
        [["--fused", "--tf32"], ["--fused", "--tf32", "--compile"], ["--fused", "--autocast"]],
    ),
    "char_gpt": (["examples/char_gpt.py"], []),
    "small_mlp": (["examples/slow_mlp.py", "--layers", "8", "--steps", "2000"], []),
    "image_classifier": (["examples/image_classifier.py"], []),
}
ON_GPU = ["bert", "gpt2", "vit", "resnet50", "llama-decode", "slow_mlp"]
