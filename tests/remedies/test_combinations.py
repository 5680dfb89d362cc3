"""Several remedies together."""

from boundby.picture import Change, Picture
from boundby.remedies.combinations import combined
from boundby.remedies.remedy import Imagined, Remedy
from tests.remedies.test_contract import picture_of
from tests.test_replay import PRODUCT, scene_of


def shortening(fault: str, part: float) -> Remedy:
    """Every kernel takes this part of its time."""

    def imagine(picture: Picture) -> Imagined:
        times = {index: part * work.ns for index, work in enumerate(picture.works)}
        return certainly(picture.shortened(times))

    return Remedy(fault=fault, group="compute", document="", imagine=imagine)


def launching(picture: Picture) -> Imagined:
    assert picture.script is not None
    return certainly(Change(host_ns=picture.script.host_ns * 0.01))


def certainly(change: Change) -> Imagined:
    return Imagined(
        worst=change, expected=change, best=change, where=[], change="", assumes="nothing"
    )


def test_what_saves_only_beside_others_is_combined_before_what_saves_little() -> None:
    """Launches are free where kernels are long; once those are short, they are what is left."""
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=50).timeline()
    picture = picture_of(timeline)
    little = [shortening(f"little-{part}", part) for part in (0.99, 0.985, 0.98, 0.975, 0.97)]
    launches = Remedy(fault="launches", group="overhead", document="", imagine=launching)
    rows = combined([picture], [*little, shortening("much", 0.2), launches])
    alone = {row.faults[0]: row.wall_ns.expected for row in rows if len(row.faults) == 1}
    assert set(alone) == {"little-0.985", "little-0.98", "little-0.975", "little-0.97"} | {
        "much",
        "launches",
    }
    assert alone["launches"] > alone["little-0.985"]
