"""Training frameworks: the arguments that apply a fix if a framework runs the step.

A script that passes its model to a trainer has no call of the model and no backward of its own; the
fix is an argument of the framework's class.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from boundby.fixes.loaders import most_workers, spare_workers


class Framework(enum.Enum):
    """`packages` is the first part of its classes' full names, `settings` the classes that take the
    arguments, `runs` those that show that it is in use."""

    TRANSFORMERS = (
        ("transformers",),
        ("TrainingArguments", "Seq2SeqTrainingArguments"),
        ("Trainer", "Seq2SeqTrainer"),
    )
    SENTENCE_TRANSFORMERS = (
        ("sentence_transformers",),
        ("SentenceTransformerTrainingArguments", "CrossEncoderTrainingArguments"),
        ("SentenceTransformerTrainer", "CrossEncoderTrainer"),
    )
    LIGHTNING = (("lightning", "pytorch_lightning"), ("Trainer",), ("Trainer",))
    ACCELERATE = (("accelerate",), ("Accelerator",), ("Accelerator",))

    def __init__(
        self, packages: tuple[str, ...], settings: tuple[str, ...], runs: tuple[str, ...]
    ) -> None:
        self.packages, self.settings, self.runs = packages, settings, runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A fix as arguments of a framework's class, and as options of its scripts if it has them."""

    values: Mapping[str, str]
    option: str = ""


def framework_named(package: str | None) -> Framework | None:
    """The framework that this package is."""
    return next((one for one in Framework if package in one.packages), None)


def argument_of(framework: Framework, fix: str) -> Argument | None:
    """The framework's arguments for a fix; None if it is written as in any script."""
    return _ARGUMENTS.get((framework, fix))


def words_of(framework: Framework, argument: Argument) -> str:
    """The change in the framework's own terms."""
    given = ", ".join(f"{name}={value}" for name, value in argument.values.items())
    call = f"{framework.settings[0]}({given})"
    return f"{argument.option}, or {call}" if argument.option else call


def _workers(count: int) -> Argument:
    return Argument(
        values={"dataloader_num_workers": str(count)}, option=f"--dataloader_num_workers {count}"
    )


def _compiled(mode: str) -> Argument:
    return Argument(
        values={"torch_compile": "True", "torch_compile_mode": f'"{mode}"'},
        option=f"--torch_compile --torch_compile_mode {mode}",
    )


_ARGUMENTS: dict[tuple[Framework, str], Argument] = {
    (Framework.TRANSFORMERS, "autocast"): Argument(values={"bf16": "True"}, option="--bf16"),
    (Framework.TRANSFORMERS, "tf32"): Argument(values={"tf32": "True"}, option="--tf32 True"),
    (Framework.TRANSFORMERS, "fused"): Argument(
        values={"optim": '"adamw_torch_fused"'}, option="--optim adamw_torch_fused"
    ),
    (Framework.TRANSFORMERS, "compile"): Argument(
        values={"torch_compile": "True"}, option="--torch_compile"
    ),
    (Framework.TRANSFORMERS, "compile:reduce-overhead"): _compiled("reduce-overhead"),
    (Framework.TRANSFORMERS, "compile:max-autotune"): _compiled("max-autotune"),
    (Framework.TRANSFORMERS, "no-checkpoints"): Argument(
        values={"gradient_checkpointing": "False"}, option="--gradient_checkpointing False"
    ),
    (Framework.TRANSFORMERS, "workers"): _workers(spare_workers()),
    (Framework.TRANSFORMERS, "workers:all"): _workers(most_workers()),
    (Framework.LIGHTNING, "autocast"): Argument(values={"precision": '"bf16-mixed"'}),
    (Framework.ACCELERATE, "autocast"): Argument(values={"mixed_precision": '"bf16"'}),
}
# Its arguments are those of transformers; its scripts have no options for them.
_ARGUMENTS |= {
    (Framework.SENTENCE_TRANSFORMERS, fix): Argument(values=argument.values)
    for (framework, fix), argument in _ARGUMENTS.items()
    if framework is Framework.TRANSFORMERS
}
