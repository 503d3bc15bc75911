"""Tables with rows and columns: margins that add up, escaped labels, marked and suppressed cells."""

import re

import numpy as np
import pytest

import residua as rs

SCHEMA = rs.Schema(
    age=rs.Categorical("young", "old"),
    sex=rs.Categorical("F", "M"),
    work=rs.Categorical("<b>", "none|ever", "a"),
)
CODES = np.stack([np.arange(900) % 2, np.arange(900) % 3 // 2, (np.arange(900) % 7) // 3], 1)


@pytest.fixture(scope="module")
def release() -> rs.Release:
    plan = rs.plan(rs.marginals(SCHEMA, up_to=3), rs.zcdp("0.5"))
    return rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=1))


def test_margins_are_the_sums_of_what_they_stand_beside(release):
    found = release.crosstab(["age", "sex"], "work")
    np.testing.assert_allclose(found.values[:-1].sum(axis=0), found.values[-1])
    np.testing.assert_allclose(found.values[:, :-1].sum(axis=1), found.values[:, -1])
    np.testing.assert_allclose(
        found.values[:-1, :-1].reshape(2, 2, 3), release.table("age", "sex", "work").values
    )
    assert found.rows[-1] == ("Total", "Total")


def test_pandas_has_headings_and_every_figure(release):
    frame = release.crosstab("sex", ["age", "work"]).to_pandas("stddev")
    assert frame.columns.names == ["age", "work"]
    assert frame.index.tolist() == ["F", "M", "Total"]
    assert frame.shape == (3, 7)
    assert release.crosstab("sex", margins=False).to_pandas().shape == (2, 1)


def test_html_escapes_labels_and_spans_headings(release):
    page = release.crosstab("sex", ["age", "work"]).to_html()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert '<th scope="col" colspan=3>young</th>' in page
    assert page.count("<tr>") == 2 + 3 + 1
    assert "± is half the width of the 95% interval, from" in page
    assert "±" not in release.crosstab("sex", "work").to_html(errors=False)


def test_markdown_escapes_bars(release):
    lines = release.crosstab("sex", "work").to_markdown().splitlines()
    assert lines[0] == "| sex | <b> | none\\|ever | a | Total |"
    assert re.fullmatch(r"\| F \| [\d,]+ ± [\d.]+ .*\|", lines[2])


def test_unreliable_cells_are_marked_or_suppressed_by_a_rule_that_is_stated(release):
    marked = release.crosstab("sex", "work", reliability=0.02)
    assert marked.unsure.any()
    assert not marked.unsure.all()
    assert "in italics" in marked.to_html()
    assert 'class="unsure"' in marked.to_html()
    left_out = release.crosstab("sex", "work", reliability=0.02, unreliable="suppress")
    assert left_out.to_pandas().isna().to_numpy().sum() == marked.unsure.sum()
    assert ".." in left_out.to_markdown()
    assert ".." in str(left_out)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda r: r.crosstab("sex", "sex"), "none of them again for its columns"),
        (lambda r: r.crosstab([], "sex"), "needs attributes for its rows"),
        (lambda r: r.crosstab("sex", unreliable="hide"), "marked or suppressed, not 'hide'"),
    ],
)
def test_what_is_no_table_is_refused(release, ask, words):
    with pytest.raises(rs.WorkloadError, match=words):
        ask(release)
