"""Places in the user's source, found by the live engine: the patcher's input.

The engine (`prove/live`) fills these while the unmodified script runs; `prove/patching` turns a
`ProgramSites` and the `ChosenFix`es into a patch. Lines are 1-based, files are absolute paths.
"""

from __future__ import annotations

from pathlib import Path

from boundby.model.record import Record


class Site(Record, frozen=True, kw_only=True):
    """A line of a user's file that was being executed."""

    file: str
    line: int
    function: str = ""  # `<module>` at the top level of a file

    @property
    def where(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


class ObjectSite(Record, frozen=True, kw_only=True):
    """An object that a fix may change, and where it was made.

    `made` are the user's frames while it was constructed, innermost first: for a model built by
    `from_pretrained`, the line of that call; for a user's own class, the line `Model(...)`, not the
    class's own `__init__`. Empty if it was constructed before boundby could see it. `used` are the
    lines that use it: calls of a model, `step()` of an optimizer, the `for` of a loader.
    `recorded_evaluations` are the lines that call a model in evaluation mode while autograd
    records, `trained` those that call it in training mode.
    """

    type_name: str  # class name without module
    module_name: str = ""  # `type(object).__module__`
    made: list[Site] = []
    used: list[Site] = []
    recorded_evaluations: list[Site] = []
    trained: list[Site] = []


class ProgramSites(Record, frozen=True, kw_only=True):
    """The objects and lines of one program that patches refer to.

    `executed` holds the lines of each user's file that ran at least once, up to the last measured
    step; a file that is not in it was not executed. Files of installed packages are not in it.
    """

    device: str  # "cpu" or "cuda"
    models: list[ObjectSite] = []
    optimizers: list[ObjectSite] = []
    loaders: list[ObjectSite] = []
    forward_calls: list[Site] = []  # where the outermost modules are called
    backward_calls: list[Site] = []
    optimizer_steps: list[Site] = []
    executed: dict[str, list[int]] = {}

    @property
    def files(self) -> list[str]:
        """The user's files that were executed."""
        return sorted(self.executed)


class ChosenFix(Record, frozen=True, kw_only=True):
    """A fix of the winning combination, with what it changed in the measured program.

    `objects` are the objects that this fix switched; for `autocast` the models whose call it
    surrounds, for `fused` the optimizers. Empty for fixes of the process (`tf32`, threads).
    """

    fix: str  # `Fix.name`, such as "fused" or "compile:max-autotune"
    change: str  # what a user would write, in words
    environment: dict[str, str] = {}
    objects: list[ObjectSite] = []
