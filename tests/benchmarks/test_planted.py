"""The suite of planted mistakes: savings as shares of the step or of the run."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_saving_of_a_run_fault_is_a_share_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from planted import share_of

    parts = [{"name": "import", "ns": 500.0}, {"name": "train", "ns": 60.0}]
    parts.append({"name": "eval", "ns": 40.0})
    diagnosis = {"step": {"wall_ns": 5.0}, "run": {"wall_ns": 600.0, "parts": parts}}
    finding = {"saving_ns": {"expected": 30.0}, "relative_to": "run"}
    assert share_of(finding, diagnosis) == 0.3
    assert (
        share_of({**finding, "saving_ns": {"expected": 1.0}, "relative_to": "step"}, diagnosis)
        == 0.2
    )


def test_mistakes_that_cost_memory_are_marked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from planted import costs_memory, mistakes_of, version

    script = tmp_path / "kept.py"
    script.write_text(
        "# mistake slow: python-in-step\n# memory kept: growing-memory\n"
        "losses.append(loss)  #- kept\n#+ kept: losses.append(loss.item())\n"
    )
    assert mistakes_of(script) == {"slow": ["python-in-step"], "kept": ["growing-memory"]}
    assert costs_memory(script, "kept") and not costs_memory(script, "slow")
    assert version(script, {"kept"}).text == "losses.append(loss)\n"
    assert version(script, set()).text == "losses.append(loss.item())\n"


def test_lines_may_belong_to_several_mistakes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from planted import version

    script = tmp_path / "both.py"
    script.write_text("eager()  #- a\nagain()  #- b\n#+ a|b: step()  #: c\nx = 1  #: a+b\n")
    assert version(script, {"a"}).text == "eager()\nx = 1\n"
    assert version(script, {"a"}).lines == {"a": [1, 2], "b": [2]}
    clean = version(script, set())
    assert clean.text == "step()\nx = 1\n"
    assert clean.lines["c"] == [1]
