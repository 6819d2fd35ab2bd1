"""rapt.lab: reports as Python sees them."""

import html
import json
import re

import pytest

import rapt
from rapt import lab

pytestmark = pytest.mark.skipif(rapt.Tokenizer is None, reason="rapt was built without models")


@pytest.fixture(scope="module")
def report():
    return lab.report("positions", seed=2)


def test_experiments_have_names_and_questions():
    assert list(lab.experiments()) == ["scale", "gradients", "length", "sparsity", "positions"]
    assert all(question.endswith("?") for question in lab.experiments().values())


def test_numbers_are_those_of_the_engine(report):
    slopes = rapt.alibi_slopes(8)
    rows = report.table("positions", "alibi", "rows")
    assert len(rows) > 50
    for row in rows:
        assert row["bias"] == pytest.approx(-slopes[int(row["head"].split()[1]) - 1] * row["distance"])
    for row in report.table("positions", "t5", "rows"):
        past = row["kind"].startswith("decoder")
        assert row["bucket"] == rapt.t5_bucket(-row["distance"], 32, 128, past)
    with pytest.raises(KeyError, match="no table 'positions', 'alibi', 'none'"):
        report.table("positions", "alibi", "none")


def test_shows_itself_in_a_notebook(report):
    shown = report._repr_html_()
    page = html.unescape(re.fullmatch(r'<iframe srcdoc="([^"]*)".*</iframe>', shown, re.S)[1])
    assert page == report.page
    assert "default-src 'none'" in page
    assert repr(report) == f"<rapt.lab.Report: positions, {len(report.data['sections'][0]['figures'])} figures>"


def test_saves_a_page_and_its_numbers(report, tmp_path):
    path = report.save(tmp_path / "new")
    assert path.read_text(encoding="utf-8") == report.page
    assert json.loads((path.parent / "report.json").read_text(encoding="utf-8")) == report.data


def test_progress_is_told_and_may_end_the_work():
    told = []
    lab.report("positions", progress=lambda done, what: told.append((done, what)))
    assert told[0][0] == 0 and told[-1][0] == pytest.approx(1)
    assert told[0][1] == lab.experiments()["positions"]

    def refuse(done, what):
        raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        lab.report("positions", progress=refuse)


def test_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match='no experiment "weather", expected one of scale, gradients'):
        lab.report("weather")
