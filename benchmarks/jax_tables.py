"""Write the tables of docs/figures/jax.md from rows of `jax_accounts.py` and `jax_fixes.py`.

python benchmarks/jax_tables.py
python benchmarks/jax_tables.py --add rows.jsonl   # into the ledger first, from another machine
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from jax_programs import PROGRAMS
from jax_rows import rows_of
from ledger import ROOT, Ledger, Row

ACCOUNTS = Ledger("jax_accounts", key=("device", "scale", "program"))
FIXES = Ledger("jax_fixes", key=("device", "scale", "case"))
DOCUMENT = ROOT / "docs" / "figures" / "jax.md"
_GROUPS = ("compute", "bandwidth", "overhead", "unknown")
_SIDE_BY_SIDE = ("torch", "torch-compile", "gpt")
# A repair that changes the step by less is within the noise.
_LEAST_MEASURED = 0.04


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--add", type=Path, nargs="*", default=[], help="files of rows")
    for path in options.parse_args().add:
        for row in rows_of(path):
            (ACCOUNTS if "program" in row else FIXES).append(row)
    text = DOCUMENT.read_text()
    text = _replaced(text, "accounts", "\n".join(_accounts()))
    text = _replaced(text, "fixes", "\n".join(_fixes()))
    DOCUMENT.write_text(text)
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


def _replaced(text: str, name: str, part: str) -> str:
    """The document with another text between the marks of a part."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{part}\n{end}{after}"


def _by_place(ledger: Ledger) -> dict[tuple[str, int], list[Row]]:
    """The newest rows by device and scale; a program that failed has no device."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in ledger.newest().values():
        if row["device"] is not None:
            found.setdefault((row["device"], row["scale"]), []).append(row)
    return found


def _accounts() -> Iterable[str]:
    for (device, scale), rows in _by_place(ACCOUNTS).items():
        named = {row["program"]: row for row in rows}
        yield f"### {device}, scale {scale}\n"
        yield from _account_table([row for name, row in named.items() if "torch" not in name])
        beside = [named[name] for name in _SIDE_BY_SIDE if name in named]
        if len(beside) > 1:
            yield "The same GPT in torch and in JAX:\n"
            yield from _account_table(beside)


def _account_table(rows: Sequence[Row]) -> Iterable[str]:
    yield (
        "| program | step ms | compute | bandwidth | overhead | unknown | unknown of work "
        "| of roof | operators | dilation | replay | MFU | first finding |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        shares = " | ".join(f"{row['shares'][group]:.0%}" for group in _GROUPS)
        near = f"{row['nearest'][2]:.0%}" if row["nearest"] else "-"
        finding = f"{row['finding']}, {row['saving']:.0%}" if row["finding"] else "-"
        cells = [
            PROGRAMS[row["program"]][0],
            f"{row['wall_ms']:.2f}",
            shares,
            f"{row['unknown_of_work']:.1%}",
            near,
            str(row["operators"]),
            f"{row['dilation']:.2f}" if row["dilation"] else "-",
            f"{row['replay_error']:+.0%}" if row["replay_error"] is not None else "-",
            f"{row['mfu']:.1%}" if row["mfu"] is not None else "-",
            finding,
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _fixes() -> Iterable[str]:
    for (device, scale), rows in _by_place(FIXES).items():
        done = [row for row in rows if row.get("measured") is not None]
        yield f"### {device}, scale {scale}\n"
        yield "| case | finding | place | predicted | measured | meets |"
        yield "|---|---|---|---|---|---|"
        for row in done:
            saved, measured = row.get("saved"), row["measured"]
            predicted = "not found" if saved is None else _shares(saved, "expected")
            meets = "" if saved is None else "yes" if _meets(row) else "no"
            yield (
                f"| {row['case']} | {row['fault']} | {row['place'] or '-'} | {predicted} "
                f"| {_shares(measured, 'middle')} | {meets} |"
            )
        yield ""
        yield _summary(done)
        yield ""


def _summary(rows: Sequence[Row]) -> str:
    matter = [row for row in rows if row["measured"]["middle"] >= _LEAST_MEASURED]
    found = [row for row in matter if row.get("saved") is not None]
    errors = [
        abs(row["saved"]["expected"] - row["measured"]["middle"]) / row["measured"]["middle"]
        for row in found
    ]
    if not errors:
        return "Nothing was measured."
    inside = sum(map(_meets, found))
    return (
        f"Of {len(rows)} cases {len(matter)} save {_LEAST_MEASURED:.0%} or more; {len(found)} of "
        f"them are found. Error of the time saved: median {statistics.median(errors):.0%}. "
        f"{inside} of {len(found)} predicted ranges meet the measured quartiles."
    )


def _meets(row: Row) -> bool:
    saved, measured = row["saved"], row["measured"]
    low, high = saved["low"] <= measured["high"], measured["low"] <= saved["high"]
    return bool(low and high)


def _shares(saved: dict[str, float], middle: str) -> str:
    return f"{saved[middle]:.0%} ({saved['low']:.0%} to {saved['high']:.0%})"


if __name__ == "__main__":
    main()
