"""What a notebook shows: every object as a table, labels escaped, long ones shortened."""

import sys

import numpy as np
import pytest

import residua as rs

SCHEMA = rs.Schema({"age": rs.Integer(0, 49), "<sex>": rs.Categorical("<F>", "M")})
WORK = rs.marginals(SCHEMA, up_to=2, name=None)
PLAN = rs.plan(WORK, rs.zcdp("0.1"))
CODES = np.stack([np.arange(500) % 50, np.arange(500) % 2], 1)
RELEASE = rs.measure(PLAN, CODES, ledger=None, noise=rs.simulated(seed=1))


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (SCHEMA, ["Schema of 2 attributes", "Integer(0, 49)", "&lt;sex&gt;"]),
        (WORK, ["Workload of 4 tables, 153 queries", "age x &lt;sex&gt;"]),
        (PLAN, ["Plan for 4 tables with 153 queries", "typical error", "rho = 0.1"]),
        (
            rs.compare(PLAN, rs.plan(WORK, rs.zcdp("0.1"), method="identity")),
            ["Plans side by side", "identity"],
        ),
        (RELEASE, ["Release of Workload", "protects nobody", RELEASE.hash]),
        (RELEASE.table("age", "<sex>"), ["age x &lt;sex&gt;", "stddev", "&lt;F&gt;", "... and 80 more"]),
        (RELEASE.share("<sex>"), ["&lt;sex&gt;", "lower"]),
        (RELEASE.crosstab("<sex>"), ["<caption>", "&lt;F&gt;"]),
    ],
)
def test_things_show_themselves_and_nothing_that_a_page_would_obey(thing, words):
    page = thing._repr_html_()
    for word in words:
        assert word in page
    assert "<F>" not in page
    assert "<sex>" not in page
    assert page.count("<table") == page.count("</table>") == 1


def test_long_things_are_shortened():
    wide = rs.Schema.of_sizes([2] * 60)
    assert "... and 40 more" in wide._repr_html_()
    assert "... and 34,200 more" in rs.marginals(wide, ways=3)._repr_html_()


def test_a_ledger_shows_its_entries(tmp_path):
    ledger = rs.Ledger.create(tmp_path / "b.db", rs.zcdp(1), dataset="<people>")
    rs.measure(PLAN, CODES, ledger=ledger, note="first")
    page = ledger._repr_html_()
    assert "Ledger of &lt;people&gt;" in page
    assert "first" in page


def test_plots_name_the_extra_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    for thing in (PLAN, RELEASE.table("age")):
        with pytest.raises(rs.ResiduaError, match=r"residua\[report\]"):
            thing.plot()
