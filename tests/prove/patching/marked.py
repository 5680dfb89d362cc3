"""Sources with marks in their comments that say what a run would have seen.

`#@ model Net`, `#@ optimizer AdamW`, `#@ loader`: made at this line; `#@ forward`, `#@ backward`,
`#@ for-loader`, `#@ returned-to model Net` (the next frame out); `#@ never`: not executed;
`#@ both`: forward and backward; `#@ evaluation`: forward in evaluation mode. One line lists the
fixes: `#@ fixes fused autocast on cuda`.
"""

from __future__ import annotations

import re
from pathlib import Path

from boundby.prove.sites import ChosenFix, ObjectSite, ProgramSites, Site

_MARK = re.compile(r"#@ (.*)$")
_SETTINGS = {
    "sleeping-threads": {"OMP_WAIT_POLICY": "passive"},
    "kept-memory": {"MALLOC_MMAP_MAX_": "0"},
}
_ALSO = {"forward": ("both", "evaluation"), "backward": ("both",), "trained": ("forward", "both")}
_MODULES = {
    "optimizer": "torch.optim",
    "model": "__main__",
    "loader": "torch.utils.data.dataloader",
}


def read_marks(path: Path) -> tuple[ProgramSites, list[ChosenFix]]:
    lines = path.read_text(encoding="utf-8").split("\n")
    marks = [
        (number, found[1].split())
        for number, line in enumerate(lines, 1)
        if (found := _MARK.search(line.rstrip("\r")))
    ]
    never = {number for number, (word, *_) in marks if word == "never"}
    executed = [number for number, line in enumerate(lines, 1) if number not in never and line]

    def at(word: str) -> list[Site]:
        return [
            Site(file=str(path), line=number)
            for number, (one, *_) in marks
            if one == word or one in _ALSO.get(word, ())
        ]

    def made(kind: str) -> list[ObjectSite]:
        outer = [
            Site(file=str(path), line=number)
            for number, words in marks
            if words[:2] == ["returned-to", kind]
        ]
        return [
            ObjectSite(
                type_name=words[1] if len(words) > 1 else "DataLoader",
                module_name=_MODULES[kind],
                made=[Site(file=str(path), line=number), *outer],
                used=at({"model": "forward", "loader": "for-loader"}.get(kind, "-")),
                recorded_evaluations=at("evaluation") if kind == "model" else [],
                trained=at("trained") if kind == "model" else [],
            )
            for number, words in marks
            if words[0] == kind
        ]

    _, *names, _, device = next(words for _, words in marks if words[0] == "fixes")
    sites = ProgramSites(
        device=device,
        models=made("model"),
        optimizers=made("optimizer"),
        loaders=made("loader"),
        forward_calls=at("forward"),
        backward_calls=at("backward"),
        executed={str(path): executed},
    )
    fixes = [
        ChosenFix(fix=name, change=f"do {name}", environment=_SETTINGS.get(name, {}))
        for name in names
    ]
    return sites, fixes
