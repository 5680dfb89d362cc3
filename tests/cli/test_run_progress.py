"""Lines about a run's windows, for a terminal alone."""

import io

from boundby.capture.process.windows import Window
from boundby.cli.run_progress import RunProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(progress: RunProgress) -> None:
    for window, steps in (
        (Window.ISSUE, 6),
        (Window.CLEAN, 9),
        (Window.ISSUE, 19),
        (Window.PROFILED, 22),
        (Window.EVIDENCE, 26),
        (Window.DONE, 29),
    ):
        progress.opened(window, steps, "train 4x8")


def test_terminal_gets_a_line_per_window_change() -> None:
    stream = Terminal()
    play(RunProgress(shown=True, stream=stream))
    assert stream.getvalue().splitlines() == [
        "boundby: steps found (train 4x8); measuring, after 6 steps of warm-up",
        "boundby: profiling, after 22 steps",
        "boundby: measured and profiled, after 26 steps",
    ]


def test_quiet_run_and_pipe_get_no_progress() -> None:
    for shown, stream in ((False, Terminal()), (True, io.StringIO())):
        play(RunProgress(shown=shown, stream=stream))
        assert stream.getvalue() == ""
