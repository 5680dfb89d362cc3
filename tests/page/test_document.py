"""The page as a file: whole in itself, within its size, and closed to what names may try."""

import base64
import hashlib
import html
import json
import re

import pytest

from boundby.analysis.comparison import compare
from boundby.report.page import comparison_page, diagnosis_page, in_notebook
from tests.diagnoses import EVIL, evil_diagnosis, full_diagnosis, large_diagnosis, real_diagnosis


def test_the_largest_page_stays_within_its_size() -> None:
    assert len(diagnosis_page(large_diagnosis()).encode()) < 1_600_000


def test_content_policy_allows_only_own_script_and_style() -> None:
    page = diagnosis_page(full_diagnosis())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
    assert directives["default-src"] == "'none'"
    assert not {"connect-src", "unsafe-inline", "unsafe-eval"} & set(re.split(r"[ ';]+", policy[1]))
    for element, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(f"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert directives[directive] == f"'sha256-{digest}'"


def test_names_are_never_markup() -> None:
    page = diagnosis_page(evil_diagnosis())
    assert EVIL not in page
    assert "<img" not in page
    assert page.count("</script>") == 2
    content = _content(page)
    assert not set("<>&\u2028\u2029") & set(content)
    told = json.loads(content)
    assert told["verdict"]["why"] == EVIL
    assert EVIL in told["strings"]


def test_page_content_is_the_diagnosis() -> None:
    diagnosis = full_diagnosis()
    told = json.loads(_content(diagnosis_page(diagnosis)))
    strings = told["strings"]
    names = [strings[number] for number in told["ops"]["fields"]["name"]["s"]]
    assert names == [row.name for row in diagnosis.ops]
    assert told["ops"]["fields"]["ns"]["v"] == pytest.approx([row.ns for row in diagnosis.ops])
    assert sum(len(lane["ns"]) for lane in told["lanes"]) == len(diagnosis.timeline)
    assert [finding["why"] for finding in told["findings"]] == ["it has to wait"] * 3


def test_page_without_scripts_shows_the_report_as_text() -> None:
    page = diagnosis_page(real_diagnosis())
    (text,) = re.findall(r"<noscript><pre>(.*?)</pre></noscript>", page, re.DOTALL)
    assert "Overhead-bound" in html.unescape(text)


def test_page_includes_licences_of_its_parts() -> None:
    page = html.unescape(diagnosis_page(real_diagnosis()))
    for words in ("Apache ECharts", "Apache License", "Baidu", "Microsoft Corporation"):
        assert words in page


def test_comparison_has_a_page() -> None:
    page = comparison_page(compare(real_diagnosis(), evil_diagnosis(), names=("a", EVIL)))
    assert EVIL not in page
    assert json.loads(_content(page))["after"]["name"] == EVIL


def test_notebook_shows_page_in_its_own_frame() -> None:
    diagnosis = evil_diagnosis()
    shown = diagnosis._repr_mimebundle_()
    assert shown["text/html"] == in_notebook(diagnosis)
    assert shown["text/plain"] == str(diagnosis)
    frame = shown["text/html"]
    assert 'sandbox="allow-scripts' in frame
    assert "allow-same-origin" not in frame
    assert frame.count("<") == 2, "the frame itself, and nothing out of it"


def _content(page: str) -> str:
    (content,) = re.findall(
        r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL
    )
    found: str = content
    return found
