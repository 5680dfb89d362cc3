"""Starts the script's process, reads what it writes, and ends it in time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from boundby.capture.process.execution import Target
from boundby.prove.ranks import environment_of_ranks, free_port

# Experiment loggers with an offline mode do not send data.
_OFFLINE = {
    "BOUNDBY": "1",
    "WANDB_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "SWANLAB_MODE": "offline",
}
# The cache folder of torch.compile, shared by all processes.
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
_TAIL = 4000  # display limit, in bytes of a log
_POLL_S = 0.25  # how late the end of a process may be noticed


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings that all processes of one script share."""

    target: Target
    folder: Path  # for the files that processes write
    logs: Path
    step_by: str = "auto"
    plugins: Sequence[str] = ()
    search_path: Sequence[str] = ()  # additional folders in which Python finds modules
    compiled: Path | None = None  # the cache folder of compilers
    ranks: int = 1  # processes that run the script together


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """How a process ended. `late`: boundby ended it at its time limit."""

    problem: str | None
    late: bool
    log: Path
    result: bytes | None
    written_files: list[str]


def launch(
    setting: Setting,
    spec: Mapping[str, object],
    *,
    name: str,
    cwd: Path,
    kill_at: Callable[[], float],
    environment: Mapping[str, str] | None = None,
    follow: Callable[[bytes], None] = lambda _: None,
) -> ProcessResult:
    """Run one process until it ends, or until `kill_at()` on the monotonic clock.

    `follow` is called with its results so far whenever they change. An exception in
    this process, Ctrl-C included, ends the script's process first.
    """
    result, files, spec_file = (
        setting.folder / file_name
        for file_name in ("result.msgpack", "written.txt", "spec.msgpack")
    )
    for path in (result, files):
        path.unlink(missing_ok=True)
    target = setting.target
    spec_content = {
        "target": target.name,
        "args": list(target.args),
        "is_module": target.is_module,
        "step_by": setting.step_by,
        "plugins": list(setting.plugins),
        "result": str(result),
        "files": str(files),
        "began": time.monotonic(),
        "store_port": free_port() if setting.ranks > 1 else None,
        **spec,
    }
    spec_file.write_bytes(msgspec.msgpack.encode(spec_content))
    handle, log_name = tempfile.mkstemp(prefix=f"{name}.", suffix=".log", dir=setting.logs)
    os.close(handle)
    log = Path(log_name)
    with (
        log.open("wb") as output,
        started(
            setting,
            ["-m", "boundby.prove.worker", str(spec_file)],
            environment or {},
            cwd=cwd,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as processes,
    ):
        late = _wait(processes, result, kill_at, follow)
        code = exit_code(processes)
    content = result.read_bytes() if result.exists() else None
    if content is not None:
        follow(content)
    return ProcessResult(
        problem=None if late else _reason(code, log),
        late=late,
        log=log,
        result=content,
        written_files=_written(files),
    )


@contextlib.contextmanager
def started(
    setting: Setting, arguments: Sequence[str], environment: Mapping[str, str], **options: Any
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Python with these arguments, once for each rank; they and all they started end after it."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank_environment in environment_of_ranks(setting.ranks):
            processes.append(  # noqa: PERF401 - those that were started have to be ended
                subprocess.Popen(
                    [sys.executable, *arguments],
                    stdin=subprocess.DEVNULL,
                    env=environment_of(setting, {**environment, **rank_environment}),
                    start_new_session=True,
                    **options,
                )
            )
        yield processes
    finally:
        for process in processes:
            _end_group(process)


def exit_code(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """The first rank's, once it has ended; before that, that of one that failed."""
    codes = [process.poll() for process in processes]
    return codes[0] if codes[0] is not None else next((code for code in codes if code), 0)


def ended(processes: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> bool:
    """Wait for the first rank; whether it ended, or another failed."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        processes[0].wait(timeout=timeout_s)
    return processes[0].returncode is not None or any(process.poll() for process in processes[1:])


def _wait(
    processes: Sequence[subprocess.Popen[bytes]],
    result: Path,
    kill_at: Callable[[], float],
    follow: Callable[[bytes], None],
) -> bool:
    """Wait; return whether the time limit was reached."""
    last_change = 0
    while True:
        if ended(processes, _POLL_S):
            return False
        if time.monotonic() > kill_at():
            return True
        with contextlib.suppress(OSError):
            changed = result.stat().st_mtime_ns
            if changed != last_change:
                last_change = changed
                follow(result.read_bytes())


def environment_of(setting: Setting, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of the script."""
    variables = {**os.environ, **_OFFLINE, **extra}
    if setting.compiled is not None:
        variables[COMPILED] = str(setting.compiled)
    if setting.search_path:
        variables["PYTHONPATH"] = os.pathsep.join(setting.search_path)
    return variables


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and all it has started, in its own group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _written(notes: Path) -> list[str]:
    """The files that a process opened for writing, in order."""
    if not notes.exists():
        return []
    names = (os.fsdecode(line) for line in notes.read_bytes().split(b"\0") if line)
    return list(dict.fromkeys(names))


def ended_by(code: int) -> str:
    """The signal of a negative exit code, in words."""
    name = signal.Signals(-code).name
    return f"ended by {name}" + (": out of memory?" if name == "SIGKILL" else "")


def _reason(code: int, log: Path) -> str | None:
    if code < 0:
        return ended_by(code)
    if code == 0:
        return None
    lines = log.read_bytes()[-_TAIL:].decode(errors="replace").strip().splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("Traceback (")]
    # The exception follows its traceback and may have several lines.
    raised = (
        [line for line in lines[starts[-1] + 1 :] if line[:1].strip()] if starts else lines[-1:]
    )
    return raised[0].strip() if raised else f"exit code {code}"
