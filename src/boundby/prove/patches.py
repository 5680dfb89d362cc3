"""The kept fixes as a patch, in the form that the final check and the command line use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from boundby.prove.patch import Known, make_patch
from boundby.prove.sites import ChosenFix, ProgramSites


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePatch:
    """`diff` is what `git apply` takes; `sources` are the patched files' contents."""

    diff: bytes = b""
    sources: dict[Path, bytes] = field(default_factory=dict)
    written: tuple[str, ...] = ()  # names of the fixes that it contains
    manual: tuple[str, ...] = ()  # what is left to do by hand

    def text(self) -> bytes:
        lines = (line for step in self.manual for line in step.splitlines())
        return "".join(f"# {line}\n" for line in lines).encode() + self.diff


def write_source_patch(
    sites: ProgramSites, fixes: Sequence[ChosenFix], *, script: Path
) -> SourcePatch:
    known = Known(modules=[one.type_name for one in sites.models], device=sites.device)
    written = []
    found = make_patch(script, [(one.fix, one.change) for one in fixes], known)
    for one in fixes:
        alone = make_patch(script, [(one.fix, one.change)], known)
        if alone.diff:
            written.append(one.fix)
    sources = {script.absolute(): found.after.encode()} if found.diff else {}
    return SourcePatch(
        diff=found.diff.encode(),
        sources=sources,
        written=tuple(written),
        manual=tuple(found.notes),
    )
