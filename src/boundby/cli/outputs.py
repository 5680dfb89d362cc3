"""Output of a command besides the terminal: files, a page, a browser."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from boundby.model.units import printable

if TYPE_CHECKING:
    from boundby.model.diagnosis import Diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What a command that ends with a diagnosis writes and prints, as its options say."""

    html_file: str | None
    perfetto_file: str | None
    open_page: bool
    json_file: str | None
    quiet: bool
    csv_folder: str | None = None
    verbose: bool = False

    def check(self, *files: str | None, folder: Path | None = None) -> None:
        """Raise for a file that cannot be written; `files` and `folder` are written too."""
        check_writable(self.json_file, self.html_file, self.perfetto_file, *files, folder=folder)

    def absolute(self) -> Outputs:
        """The same with absolute paths, because scripts may change their folder."""
        return dataclasses.replace(
            self,
            html_file=_absolute(self.html_file),
            perfetto_file=_absolute(self.perfetto_file),
            json_file=_absolute(self.json_file),
        )

    def write(self, diagnosis: Diagnosis) -> None:
        """Write all requested files."""
        write_json(diagnosis, self.json_file)
        self.write_reports(diagnosis)

    def write_reports(self, diagnosis: Diagnosis) -> None:
        """Write all requested files but the JSON."""
        self._write_csv(diagnosis)
        self._write_perfetto(diagnosis)
        self._write_page(diagnosis)

    def show(self, diagnosis: Diagnosis) -> None:
        """Print the report, on stderr if stdout is for the JSON."""
        if self.quiet:
            return
        from boundby.cli.console import error_console, output_console
        from boundby.report.terminal import DiagnosisReport

        console = error_console() if self.json_file == "-" else output_console()
        console.print(DiagnosisReport(diagnosis, verbose=self.verbose))

    def _write_perfetto(self, diagnosis: Diagnosis) -> None:
        if not self.perfetto_file:
            return
        from boundby.model import store
        from boundby.report.perfetto import as_perfetto

        store.write_bytes(as_perfetto(diagnosis), Path(self.perfetto_file))
        if not self.quiet:
            text = f"boundby: the trace is {self.perfetto_file}; ui.perfetto.dev shows it"
            click.echo(printable(text), err=True)

    def _write_page(self, diagnosis: Diagnosis) -> None:
        """Write the page to its file, or to a temporary one that is then opened."""
        if not (self.html_file or self.open_page):
            return
        from boundby.model import store
        from boundby.report.page import diagnosis_page

        path = Path(self.html_file) if self.html_file else temporary_page_path()
        store.write_bytes(diagnosis_page(diagnosis).encode(), path)
        announce_page(path, open_page=self.open_page, quiet=self.quiet)

    def _write_csv(self, diagnosis: Diagnosis) -> None:
        if not self.csv_folder:
            return
        from boundby.model import store
        from boundby.report.csv_tables import csv_tables

        folder = Path(self.csv_folder)
        check_writable(folder=folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in csv_tables(diagnosis).items():
            store.write_bytes(text.encode(), folder / name)


def _absolute(file: str | None) -> str | None:
    return file if file in (None, "", "-") else str(Path(file).absolute())


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
    above = next(folder for folder in (path, *path.parents) if folder.exists())
    if above == path and not is_folder:
        above = path.parent
    if not above.is_dir():
        return f"{above} is not a folder"
    # A user with all rights is refused by some file systems as well.
    with tempfile.TemporaryFile(dir=above):
        return None


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


def temporary_page_path() -> Path:
    """A path for a page that was only requested to be opened: it must outlive this process."""
    return Path(tempfile.mkdtemp(prefix="boundby-")) / "report.html"


def open_in_browser(path: Path) -> None:
    """Open a page if there is a display; print its path in any case."""
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
