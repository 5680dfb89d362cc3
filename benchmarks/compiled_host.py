"""A compiled step's host, phase by phase: as predicted from the eager step, and as it is.

    python benchmarks/compiled_host.py convnext bert

Each step is diagnosed in a fresh process. What `boundby run` says of the compiled step's host is
taken apart into generated kernels and calls of libraries, and held against the compiled step's own:
where the prediction is off, this says whether it is the launches' number or what each takes.
Nothing is kept.
"""

from __future__ import annotations

from typing import Any

from looks import for_each_model, look

from fixes import CASES

COMPILE = "compile"


def launches_by_phase(step_model: Any) -> dict[str, Any]:
    """For each phase: its launches and host time as they are, and as imagined compiled."""
    from boundby.faults import unfused_operators
    from boundby.model import Phase
    from boundby.step import compiled_host

    launches, device = step_model.launches, step_model.timeline.device
    if step_model.device == "cpu":
        raise SystemExit("there is no device whose host could be late")
    names = [step_model.timeline.names[name] for name in device.name[launches.order]]
    detection = unfused_operators.detect(step_model)
    libraries = compiled_host._marked(step_model, compiled_host._libraries(step_model))
    rows: dict[str, Any] = {}
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        mine = launches.phase == phase
        issued = [
            names[at]
            for action in mine.nonzero()[0]
            for at in range(launches.first[action], launches.first[action + 1])
        ]
        generated = sum(name.startswith("triton_") for name in issued)
        row = {
            "ms": float(launches.host_ns[mine].sum()) / 1e6,
            "generated": generated,
            "others": len(issued) - generated,
        }
        if detection is not None:
            host = step_model.apply(detection.expected).launches.host_ns
            left = mine & (host > 0)
            for name, some in (("generated", left & ~libraries), ("others", left & libraries)):
                row[f"said_{name}"] = int(some.sum())
                row[f"said_{name}_ms"] = float(host[some].sum()) / 1e6
        rows[phase.name.lower()] = row
    return {
        "phases": rows,
        "launch_us": [ns / 1e3 for ns in compiled_host.launch_costs(step_model)],
    }


def compare(name: str) -> None:
    base, fixes = CASES[name]
    if COMPILE not in fixes:
        print(f"{name}: it is not compiled (benchmarks/fixes.py)")
        return
    both = (base, f"{base} {fixes[COMPILE][0]}")
    eager, compiled = (look(__file__, words.split()) for words in both)
    costs = ", ".join(f"{us:.1f}" for us in eager["launch_us"])
    print(
        f"{name}: us for a generated kernel at worst, as expected and at best: {costs}; "
        f"as expected at the pace of the compiled step's host: {compiled['launch_us'][1]:.1f}"
    )
    for phase, was in eager["phases"].items():
        now = compiled["phases"][phase]
        print(
            f"  {phase}: eager {was['ms']:.2f} ms, {was['generated'] + was['others']} kernels; "
            f"compiled, predicted {was.get('said_generated', 0)} generated in "
            f"{was.get('said_generated_ms', 0):.2f} ms and {was.get('said_others', 0)} others in "
            f"{was.get('said_others_ms', 0):.2f}; seen {now['generated']} and {now['others']}, "
            f"{now['ms']:.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    for_each_model(__doc__, launches_by_phase, compare)
