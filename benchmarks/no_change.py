"""A fix that changes nothing, for `boundby prove --plugin benchmarks.no_change`: A against A."""

import contextlib
from collections.abc import Iterator

from boundby import remedies
from boundby.program.touched import note
from boundby.remedies import HEADINGS, Remedy, Treatment


@contextlib.contextmanager
def change_nothing() -> Iterator[None]:
    note("nothing at all")
    yield


remedies.register(
    Remedy(
        fault="no-change",
        group="overhead",
        document="Nothing is wrong.\n\n" + "\n".join(HEADINGS),
        imagine=lambda picture: None,
        treatments=(Treatment(name="nothing", change="# nothing", apply=change_nothing),),
    )
)
