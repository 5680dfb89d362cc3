"""What every fault must keep, tested by looping over the list of all."""

import pytest

import boundby
from boundby import faults
from boundby.analysis.account import attribute_step
from boundby.faults import FAULTS, HEADINGS, Fault
from boundby.faults.overlaps import without_repeats
from boundby.model import Timeline
from boundby.model.estimate import Estimate
from boundby.model.finding import Finding
from boundby.step.build import build_step_model
from boundby.step.model import StepModel
from tests.machines import round_machine
from tests.step.test_replay import GELU, PRODUCT, scene_of

every = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.id))


def step_model_of(timeline: Timeline) -> StepModel:
    machine = round_machine()
    wall = float(timeline.wall_ns)
    attribution = attribute_step(timeline, machine, wall_ns=wall)
    return build_step_model(timeline, machine, attribution, wall_ns=wall, phases={})


@every
def test_documentation_has_every_heading_in_order(fault: Fault) -> None:
    lines = [line.strip() for line in fault.document.splitlines()]
    places = [lines.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    assert fault.summary.endswith(".")
    assert fault.id == fault.id.lower()


@every
def test_step_at_roof_has_no_saving(fault: Fault) -> None:
    """Large bf16 products back to back at their roof, a host far ahead: nothing is left."""
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=5).timeline()
    step_model = step_model_of(timeline)
    detection = fault.find_in(step_model)
    if detection is not None:
        for change in (detection.low, detection.expected, detection.high):
            assert step_model.saving(change) <= 0.05 * step_model.wall_ns


def test_faults_are_named_once_and_exclude_known_ones() -> None:
    fault_ids = [fault.id for fault in FAULTS]
    assert len(set(fault_ids)) == len(fault_ids)
    assert all(other in fault_ids for fault in FAULTS for other in fault.excludes)


@every
def test_fault_has_a_title_and_fixes_for_its_devices(fault: Fault) -> None:
    assert fault.title and not fault.title.endswith(".")
    assert all(set(fix.devices) & set(fault.devices) for fix in fault.fixes)


def test_faults_are_listed_in_the_order_of_their_stages() -> None:
    stages = [fault.stage for fault in FAULTS]
    assert stages == sorted(stages)


def test_fault_id_cannot_be_registered_twice() -> None:
    with pytest.raises(ValueError, match="already"):
        faults.register(FAULTS[0])


def test_registered_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def detect(step_model: StepModel) -> faults.Detection:
        mine = {
            index: 0.0 for index, work in enumerate(step_model.op_records) if "gelu" in work.name
        }
        gone = faults.Edit.set_time(mine)
        return faults.Detection(
            low=faults.Edit(), expected=gone, high=gone, where=[], change="", assumes=""
        )

    monkeypatch.setattr(faults, "FAULTS", [])
    own = Fault(
        id="needless-gelu", title="GELU", group="bandwidth", document="GELU.", detect=detect
    )
    boundby.faults.register(own)
    timeline = scene_of([(GELU, 104.0), (PRODUCT, 138.0)] * 10, host_us=5).timeline()
    (finding,) = faults.find([step_model_of(timeline)])
    assert finding.fault == "needless-gelu"
    # Ten of 104 us, on a device that is the limit.
    assert finding.saving_ns.expected == pytest.approx(1040e3, rel=0.02)
    assert finding.saving_ns.low == 0


def test_overhead_bound_step_is_advised_to_launch_less() -> None:
    timeline = scene_of([(GELU, 104.0), (PRODUCT, 138.0)] * 10, host_us=400).timeline()
    findings = faults.find([step_model_of(timeline)])
    assert findings[0].fault == "eager-launches"
    saving = findings[0].saving_ns
    # 8.0 ms of host against 2.4 ms of device: with a tenth of the host, the device is the limit.
    assert saving.expected == pytest.approx(timeline.wall_ns - 20 * 121e3 - 20e3, rel=0.1)
    assert saving.low <= saving.expected <= saving.high


def test_two_faults_with_the_same_fix_are_one_finding() -> None:
    def found(fault: str, expected: float, fixes: list[str], *excludes: str) -> Finding:
        saving = Estimate(low=0, expected=expected, high=2 * expected)
        return Finding(
            fault=fault,
            group="bandwidth",
            saving_ns=saving,
            change="",
            fixes=fixes,
            excludes=list(excludes),
        )

    one = found("one", 5e6, ["compile", "tune"])
    other, third = found("two", 4e6, ["compile"], "one"), found("three", 1e6, ["compile"])
    kept = without_repeats([one, other, third])
    assert [(finding.fault, finding.also) for finding in kept] == [("one", ["two"]), ("three", [])]
