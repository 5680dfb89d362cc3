"""The expected duration of the script's processes: to reserve time for them, and to start them in
time."""

from __future__ import annotations

# Steps of a process that measures one variant: those until it is steady, and the timed ones.
MAX_WARM_STEPS, STEPS = 6, 20
# The script without a change and with it.
PAIR = 2
# No process is started if it would end this close to the end of the budget. With 1.15, the second
# process of a final check was cut short beside other programs.
_MARGIN = 1.25
# To end the live process and to write the patch, before the final check.
PATCHING_S = 3.0


def needed_s(processes: int, process_s: float, *, margin: float = _MARGIN) -> float:
    """The time that must be left to start this many processes."""
    return processes * margin * process_s


def process_s(start_s: float, step_s: float) -> float:
    """The duration of one process: until its first step, and the steps that it measures."""
    return start_s + STEPS * step_s


def reserved_s(fixes: int, process_s: float, most_s: float) -> float:
    """The time kept for measuring fixes of the start, as many as fit before the final check.

    Nothing, if not even one of them would fit: the time would be left over.
    """
    for count in range(fixes, 0, -1):
        if needed_s(PAIR * count + PAIR, process_s) <= most_s:
            return needed_s(PAIR * count, process_s)
    return 0.0
