"""Switches variants (one fix or several together) on a live program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boundby.fixes import Fix
from boundby.fixes.log import changes_made
from boundby.fixes.switch import Program, Switch
from boundby.prove.evidence import BASELINE, Variant


class Switchboard:
    """Keeps one `Switch` for each fix, and what is on now, in order."""

    def __init__(self, program: Program, fixes: Mapping[str, Fix]) -> None:
        self.on: Variant = BASELINE
        self.changes_made: dict[str, set[str]] = {}  # by fix: descriptions of what it has changed
        self._program = program
        self._fixes = fixes
        self._switches: dict[str, Switch | None] = {}

    def set(self, variant: Variant) -> None:
        """Switch off in reverse order down to the common prefix, then on. All off if one fails."""
        for key in variant:
            self.switch(key)
        common = 0
        while common < min(len(variant), len(self.on)) and variant[common] == self.on[common]:
            common += 1
        self._note()
        for key in reversed(self.on[common:]):
            self.on = self.on[:-1]
            switch = self._switches[key]
            if switch is not None:
                switch.off()
        changes_made.clear()
        for key in variant[common:]:
            switch = self.switch(key)
            if switch is not None:
                try:
                    switch.on()
                except Exception:
                    switch.off()
                    raise
            self.on = (*self.on, key)

    def switch(self, key: str) -> Switch | None:
        """The switch of a fix; None if it has nothing to change in this program.

        When it is made, all others are off: it looks at the program as the script made it.
        """
        if key not in self._switches:
            self.set(BASELINE)
            self._switches[key] = self._fixes[key].switch_for(self._program)
        return self._switches[key]

    def has_changed(self, key: str) -> bool:
        """Whether a fix that is on by itself has changed anything so far."""
        self._note()
        return bool(self.changes_made.get(key))

    def _note(self) -> None:
        """Record changes since the last call, for all fixes that are on."""
        words = {word for word, count in changes_made.items() if count}
        for key in self.on:
            self.changes_made.setdefault(key, set()).update(words)

    def objects(self, key: str) -> Sequence[object]:
        switch = self._switches.get(key)
        return switch.objects if switch is not None else ()
