"""The steps that are predicted and measured, and the fixes to each: by hand, and by fault."""

from __future__ import annotations

# A fix: the options that make it by hand, and the faults whose fixing predicts it.
Fix = tuple[str, list[str]]
LANGUAGE: dict[str, Fix] = {
    "fused": ("--fused", ["unfused-optimizer"]),
    "sdpa": ("--attention sdpa", ["materialised-attention"]),
    "compile": ("--compile", ["unfused-operators"]),
    "graphs": ("--graphs", ["eager-launches"]),
    "sdpa + fused": ("--attention sdpa --fused", ["materialised-attention", "unfused-optimizer"]),
    "compile + sdpa + fused": (
        "--compile --attention sdpa --fused",
        ["unfused-operators", "materialised-attention", "unfused-optimizer"],
    ),
    "graphs + sdpa + fused": (
        "--graphs --attention sdpa --fused",
        ["eager-launches", "materialised-attention", "unfused-optimizer"],
    ),
}
VISION: dict[str, Fix] = {
    "fused": ("--fused", ["unfused-optimizer"]),
    "compile": ("--compile", ["unfused-operators"]),
    "graphs": ("--graphs", ["eager-launches"]),
    "compile + fused": ("--compile --fused", ["unfused-operators", "unfused-optimizer"]),
    "graphs + fused": ("--graphs --fused", ["eager-launches", "unfused-optimizer"]),
}
CONVOLUTIONS: dict[str, Fix] = {
    **VISION,
    "channels last": ("--channels-last", ["layout-copies"]),
    "channels last + graphs": ("--channels-last --graphs", ["layout-copies", "eager-launches"]),
}
EVALUATION: dict[str, Fix] = {fix: VISION[fix] for fix in ("compile", "graphs")}
PRECISION: dict[str, Fix] = {
    "tf32": ("--precision tf32", ["float32-products"]),
    "bf16": ("--precision bf16", ["float32-activations"]),
}


def batches(batch: int) -> dict[str, Fix]:
    """Twice and four times the batch: predicted as the new step's time, not as a saving."""
    return {f"batch {n}x": (f"--batch {n * batch}", [f"batch-{n}x"]) for n in (2, 4)}


# What is diagnosed, by name: its options, and the fixes to it.
CASES: dict[str, tuple[str, dict[str, Fix]]] = {
    "bert": ("bert", {**LANGUAGE, **batches(8)}),
    "bert float32": ("bert --precision float32", PRECISION),
    "gpt2": ("gpt2", {**LANGUAGE, **batches(8)}),
    "llama": ("llama", {**LANGUAGE, **batches(4)}),
    "resnet50": ("resnet50", {**CONVOLUTIONS, **batches(64)}),
    "resnet50 float32": ("resnet50 --precision float32", {"bf16": PRECISION["bf16"]}),
    "vit": ("vit", {**VISION, **batches(64)}),
    "vit float32": ("vit --precision float32", PRECISION),
    # Its group norms undo channels-last, which boundby does not advise there: 11.1 to 14.0 ms.
    "unet": ("unet", {**VISION, **batches(16)}),
    "bert-base-b1": ("bert-base-b1", {**LANGUAGE, **batches(1)}),
    "convnext": ("convnext", {**CONVOLUTIONS, **batches(64)}),
    "swin": ("swin", {**VISION, **batches(64)}),
    "efficientnet": ("efficientnet", {**CONVOLUTIONS, **batches(64)}),
    "t5": ("t5", {**VISION, **batches(8)}),
    "bert-short": ("bert-short", {**LANGUAGE, **batches(64)}),
    # Its layers are cuDNN's, which no compiler touches.
    "lstm": ("lstm", {**VISION, **batches(32)}),
    # Its logits grow with the square of the batch.
    "contrastive": ("contrastive", {**VISION, **batches(8192)}),
    "bert compiled": (
        "bert --compile",
        {
            **{fix: LANGUAGE[fix] for fix in ("fused", "sdpa", "sdpa + fused", "graphs")},
            **batches(8),
        },
    ),
    "resnet50 evaluated": (
        "resnet50 --evaluate",
        {
            **EVALUATION,
            "channels last": CONVOLUTIONS["channels last"],
            "channels last + graphs": CONVOLUTIONS["channels last + graphs"],
            **batches(64),
        },
    ),
    "bert evaluated": (
        "bert --evaluate",
        {
            **EVALUATION,
            "sdpa": LANGUAGE["sdpa"],
            "graphs + sdpa": (
                "--graphs --attention sdpa",
                ["eager-launches", "materialised-attention"],
            ),
            **batches(8),
        },
    ),
    "resnet50 compiled": ("resnet50 --compile --channels-last --fused", batches(64)),
}
