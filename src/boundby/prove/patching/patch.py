"""The fixes that were kept, as a patch to the user's source, and what is left to do by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from boundby.fixes.debug_settings import UNCHECKED_DISTRIBUTIONS, UNFILLED_MEMORY
from boundby.fixes.frameworks import Argument, Framework, argument_of, words_of
from boundby.fixes.threads import usable_cores
from boundby.prove.patching.attention import write_sdpa
from boundby.prove.patching.autocast import write_autocast
from boundby.prove.patching.checkpointing import write_no_checkpoints
from boundby.prove.patching.debug_settings import (
    write_cudnn_benchmark,
    write_line,
    write_no_anomaly_detection,
    write_not_deterministic,
    write_threads_as_cores,
)
from boundby.prove.patching.diff import unified_diff
from boundby.prove.patching.dropout import write_short_masks
from boundby.prove.patching.frameworks import framework_of, write_argument
from boundby.prove.patching.gradients import write_no_grad
from boundby.prove.patching.loaders import write_all_workers, write_pinned, write_workers
from boundby.prove.patching.models import write_channels_last, write_compiled
from boundby.prove.patching.optimizers import write_fused, write_set_to_none
from boundby.prove.patching.process_settings import (
    write_attention_backend,
    write_bfloat16_products,
    write_environment,
    write_no_autocast,
    write_one_thread,
    write_tf32,
)
from boundby.prove.patching.program import Program
from boundby.prove.patching.source_file import CannotWriteError
from boundby.prove.sites import ChosenFix, ProgramSites

# Plans the edits of one fix; raises CannotWriteError if the place is unclear.
Writer = Callable[[Program, ChosenFix], None]

# In the order in which they are written: a model is converted before it is compiled.
WRITERS: dict[str, Writer] = {
    "sleeping-threads": write_environment,
    "expandable-segments": write_environment,
    "kept-memory": write_environment,
    "tf32": write_tf32,
    "bf16-products": write_bfloat16_products,
    "one-thread": write_one_thread,
    "as-many-threads-as-cores": partial(write_threads_as_cores, cores=usable_cores()),
    "no-anomaly-detection": write_no_anomaly_detection,
    "not-deterministic": write_not_deterministic,
    "unfilled-memory": partial(write_line, line=UNFILLED_MEMORY.change),
    "cudnn-benchmark": write_cudnn_benchmark,
    "unchecked-distributions": partial(write_line, line=UNCHECKED_DISTRIBUTIONS.change),
    "sdpa:flash": write_attention_backend,
    "sdpa:cudnn": write_attention_backend,
    "sdpa:efficient": write_attention_backend,
    "short-masks": write_short_masks,
    "sdpa": write_sdpa,
    "no-checkpoints": write_no_checkpoints,
    "channels-last": write_channels_last,
    "compile": write_compiled,
    "compile:reduce-overhead": partial(write_compiled, mode="reduce-overhead"),
    "compile:max-autotune": partial(write_compiled, mode="max-autotune"),
    "fused": write_fused,
    "set-to-none": write_set_to_none,
    "workers": write_workers,
    "workers:all": write_all_workers,
    "pinned": write_pinned,
    "autocast": write_autocast,
    "no-autocast": write_no_autocast,
    "no-grad": write_no_grad,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualStep:
    """A fix that the patch does not contain: what to write, and why it was not written."""

    fix: str
    change: str
    why: str

    def __str__(self) -> str:
        return f"{self.fix}, by hand: {self.change} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePatch:
    """`diff` applies with `git apply` in `root`; `sources` are the patched files' contents, by the
    file names that the program used."""

    root: Path
    diff: bytes
    sources: Mapping[Path, bytes]
    written: tuple[str, ...]  # names of the fixes that it contains
    manual: tuple[ManualStep, ...]
    words: Mapping[str, str]  # by fix: its change as an argument of the script's framework

    def text(self) -> bytes:
        """A file for `git apply`, which ignores the lines before the diff."""
        lines = [f"# {line}\n" for step in self.manual for line in str(step).splitlines()]
        return "".join(lines).encode() + self.diff


def write_patch(
    sites: ProgramSites, fixes: Sequence[ChosenFix], *, script: Path, folder: Path | None = None
) -> SourcePatch:
    """Write fixes into copies of the user's files. The files themselves are not changed.

    `script`: the file that was run; `folder`: the one it was started in, by default the current.
    """
    program = Program(sites, script)
    framework = framework_of(program)
    written: list[str] = []
    manual: list[ManualStep] = []
    words: dict[str, str] = {}
    order = list(WRITERS)
    writable = [fix for fix in fixes if fix.fix in WRITERS]
    for fix in sorted(writable, key=lambda fix: order.index(fix.fix)):
        argument = argument_of(framework, fix.fix) if framework is not None else None
        change, writer = fix.change, WRITERS[fix.fix]
        if framework is not None and argument is not None:
            change = words[fix.fix] = words_of(framework, argument)
            writer = _argument_writer(framework, argument)
        why = _why_not_written(program, fix, writer)
        if why is None:
            written.append(fix.fix)
        else:
            manual.append(ManualStep(fix=fix.fix, change=change, why=why))
    manual += [
        ManualStep(fix=fix.fix, change=fix.change, why="it cannot be written as a patch")
        for fix in fixes
        if fix.fix not in WRITERS
    ]
    changed = {
        path: after
        for path, file in program.files.items()
        if (after := file.after()) != file.before
    }
    root = diff_root(list(changed), folder or Path.cwd())
    diffs = [
        unified_diff(path.relative_to(root).as_posix(), program.files[path].before, changed[path])
        for path in sorted(changed)
    ]
    return SourcePatch(
        root=root,
        diff=b"".join(diffs),
        sources={program.names[path]: content for path, content in changed.items()},
        written=tuple(written),
        manual=tuple(manual),
        words=words,
    )


def _argument_writer(framework: Framework, argument: Argument) -> Writer:
    return lambda program, _: write_argument(program, framework, argument)


def _why_not_written(program: Program, fix: ChosenFix, writer: Writer) -> str | None:
    """Write one fix; if that fails, none of its edits is kept."""
    restore = program.snapshot()
    try:
        writer(program, fix)
        for file in program.files.values():
            file.after()
    except CannotWriteError as error:
        restore()
        return str(error)
    except SyntaxError as error:
        restore()
        return f"the patched source would not parse: {error}"
    except Exception as error:  # noqa: BLE001 - what was proven must not be lost with its patch
        restore()
        return f"boundby could not write it: {type(error).__name__}: {error}"
    return None


def diff_root(files: Sequence[Path], folder: Path) -> Path:
    """The root of the diff's paths: the repository's root, otherwise the start folder, or one that
    contains all of the files."""
    folder = folder.resolve()
    start = files[0].parent if files else folder
    repository = next(
        (candidate for candidate in (start, *start.parents) if (candidate / ".git").exists()), None
    )
    for root in (repository, folder, *folder.parents):
        if root is not None and all(file.is_relative_to(root) for file in files):
            return root
    return Path(start.anchor)
