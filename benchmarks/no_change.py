"""A fix that changes nothing, for `boundby prove --plugin benchmarks.no_change`: A against A."""

import contextlib
from collections.abc import Iterator

from boundby import faults as remedies
from boundby.faults import HEADINGS, Fault, Fix
from boundby.fixes.log import note


@contextlib.contextmanager
def change_nothing() -> Iterator[None]:
    note("nothing at all")
    yield


remedies.register(
    Fault(
        id="no-change",
        title="Nothing is wrong",
        group="overhead",
        document="Nothing is wrong.\n\n" + "\n".join(HEADINGS),
        detect=lambda step_model: None,
        fixes=(Fix(name="nothing", change="# nothing", apply=change_nothing),),
    )
)
