"""What a script that boundby ended leaves running: threads and processes that wait for it.

Python waits for them before a process ends. A thread that fills a queue, or a process that awaits
its next task, waits for ever for the script that is gone.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from typing import Any, TextIO

import click

from boundby.cli.own_streams import flush_all

# How long they may take until they are named, and from then on until they are ended: what they
# write, such as a checkpoint, may take a while.
_UNNAMED_S = 3.0
_NAMED_S = 30.0
_MOST_AT_EXIT_S = 10.0


def end_what_is_left(exit_code: int) -> None:
    """Name what is still running after some seconds; end it, and this process, after some more."""
    if _threads() or _processes():
        threading.Thread(target=_end, args=(exit_code, sys.stderr), daemon=True).start()


def _end(exit_code: int, stream: TextIO) -> None:
    time.sleep(_UNNAMED_S)
    names = ", ".join(one.name for one in (*_threads(), *_processes()))
    if not names:
        return
    click.echo(
        f"boundby: done, but threads or processes of the script are still running ({names}): "
        f"they are ended in {_NAMED_S:.0f} s",
        file=stream,
    )
    time.sleep(_NAMED_S)
    for process in _processes():
        process.terminate()
    if _threads():
        # Python runs the exit handlers only after all threads have ended.
        handlers = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
        handlers.start()
        handlers.join(_MOST_AT_EXIT_S)
        flush_all()
        os._exit(exit_code)


def _threads() -> list[threading.Thread]:
    main, own = threading.main_thread(), threading.current_thread()
    return [
        one
        for one in threading.enumerate()
        if one not in (main, own) and not one.daemon and one.is_alive()
    ]


def _processes() -> list[Any]:
    """Those that Python waits for; it ends the others itself."""
    import multiprocessing

    return [one for one in multiprocessing.active_children() if not one.daemon]
