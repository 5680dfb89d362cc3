"""Output of a command besides the terminal: files, a page, a browser."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from boundby.model.units import printable

if TYPE_CHECKING:
    from boundby.model.diagnosis import Diagnosis

Command = TypeVar("Command", bound=Callable[..., Any])


def page_options(command: Command) -> Command:
    """--html, --perfetto and --open, for every command that ends with a diagnosis.

    The command gets them as `html_file`, `perfetto_file` and `open_page`, and passes them to
    `write_page`.
    """
    for option in (
        click.option("--open", "open_page", is_flag=True, help="Open the page in a browser."),
        click.option("--perfetto", "perfetto_file", metavar="FILE", help="Write a Perfetto trace."),
        click.option("--html", "html_file", metavar="FILE", help="Write the page, one file."),
    ):
        command = option(command)
    return command


def report_options(command: Command) -> Command:
    """--verbose and --quiet, for every command that prints a diagnosis."""
    for option in (
        click.option("--quiet", is_flag=True, help="Print no report."),
        click.option("--verbose", is_flag=True, help="Print the whole report."),
    ):
        command = option(command)
    return command


def check_writable(*files: str | None, folder: Path | None = None) -> None:
    """Raise for a file that cannot be written, before minutes of work instead of after."""
    for file in files:
        if file and file != "-":
            _check(Path(file), is_folder=False)
    if folder is not None:
        _check(folder, is_folder=True)


def _check(path: Path, *, is_folder: bool) -> None:
    from boundby.model.errors import BoundbyError

    try:
        wrong = _wrong_with(path.absolute(), is_folder=is_folder)
    except OSError as error:
        wrong = error.strerror
    if wrong:
        raise BoundbyError(f"cannot write {path}: {wrong}")


def _wrong_with(path: Path, *, is_folder: bool) -> str | None:
    if path.exists() and path.is_dir() != is_folder:
        return "it is not a folder" if is_folder else "it is a folder"
    above = next(one for one in (path, *path.parents) if one.exists())
    if above == path and not is_folder:
        above = path.parent
    if not above.is_dir():
        return f"{above} is not a folder"
    return None if os.access(above, os.W_OK | os.X_OK) else "permission denied"


def write_page(
    diagnosis: Diagnosis,
    html_file: str | None,
    perfetto_file: str | None,
    *,
    open_page: bool,
    quiet: bool,
) -> None:
    """Write the requested files, and say so; a page that is to be opened is always kept."""
    from boundby.model import store

    if perfetto_file:
        from boundby.report.perfetto import as_perfetto

        store.write_bytes(as_perfetto(diagnosis), Path(perfetto_file))
        if not quiet:
            text = f"boundby: the trace is {perfetto_file}; ui.perfetto.dev shows it"
            click.echo(printable(text), err=True)
    if html_file or open_page:
        from boundby.report.page import diagnosis_page

        path = Path(html_file) if html_file else temporary_page_path()
        store.write_bytes(diagnosis_page(diagnosis).encode(), path)
        announce_page(path, open_page=open_page, quiet=quiet)


def announce_page(path: Path, *, open_page: bool, quiet: bool) -> None:
    """Open a page that was written, or print its path."""
    if open_page:
        open_in_browser(path)
    elif not quiet:
        click.echo(printable(f"boundby: the page is {path}"), err=True)


def write_json(diagnosis: Any, json_file: str | None) -> None:
    """JSON to a file, or to stdout for -."""
    from boundby.model import store

    if json_file == "-":
        click.echo(store.as_json(diagnosis))
    elif json_file:
        store.write(diagnosis, Path(json_file))


def write_csv(diagnosis: Diagnosis, csv_folder: str | None) -> None:
    """All tables of a diagnosis, a file each."""
    if not csv_folder:
        return
    from boundby.model import store
    from boundby.report.csv_tables import csv_tables

    check_writable(folder=Path(csv_folder))
    Path(csv_folder).mkdir(parents=True, exist_ok=True)
    for name, text in csv_tables(diagnosis).items():
        store.write_bytes(text.encode(), Path(csv_folder, name))


def temporary_page_path() -> Path:
    """A path for a page that was only requested to be opened: it must outlive this process."""
    return Path(tempfile.mkdtemp(prefix="boundby-")) / "report.html"


def open_in_browser(path: Path) -> None:
    """Open a page if there is a screen; print its path in any case."""
    import webbrowser

    place = path.resolve()
    if not (_has_display() and webbrowser.open(place.as_uri())):
        click.echo(printable(f"boundby: no display here; the page is {place}"), err=True)
    else:
        click.echo(printable(f"boundby: the page is {place}"), err=True)


def _has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
