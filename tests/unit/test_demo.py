"""The demo: what it promises is there, it fits a terminal, and its numbers are those of its plans."""

import re

import numpy as np
import pytest

import residua as rs
from residua import demo
from residua.spec import load_spec


@pytest.fixture(scope="module")
def shown() -> list[str]:
    return list(demo.story(demo.census()))


@pytest.fixture(scope="module")
def plan() -> rs.Plan:
    return rs.plan(demo.census(), demo.LEVELS[demo.SHOWN])


def numbers(lines: list[str], start: str) -> list[float]:
    """The numbers at the end of the one line that starts like this."""
    [line] = [line for line in lines if line.strip().startswith(start)]
    return [float(word.replace(",", "")) for word in re.findall(r"(?<=\s)[\d,]+\.?\d*(?=\s|$)", line)]


def test_the_lines_fit_a_terminal_and_are_plain_text(shown):
    assert all(line.isascii() and line == line.rstrip() for line in shown)
    assert max(map(len, shown)) <= 100
    assert len(shown) < 80


def test_every_table_has_its_error_at_every_level(shown, plan):
    section = shown[next(at for at, line in enumerate(shown) if line.startswith("2. ")) :]
    for row in plan.summary():
        [shown_at_level] = [
            numbers([line], row.name) for line in section if line.strip().startswith(row.name)
        ]
        assert len(shown_at_level) == len(demo.LEVELS)
        assert shown_at_level[demo.SHOWN] == pytest.approx(row.rmse, abs=0.051)
        assert shown_at_level == sorted(shown_at_level, reverse=True)


def test_the_certificate_is_that_of_the_plan(shown, plan):
    assert numbers(shown, "sum of the")[-1] == pytest.approx(plan.total_variance, abs=0.051)
    assert numbers(shown, "proved: no")[-1] == pytest.approx(plan.certificate.lower_bound, abs=0.051)
    assert plan.certificate.scope == "all mechanisms"


def test_every_baseline_is_worse_than_the_plan(shown, plan):
    for method in demo.BASELINES:
        error, times, rho = numbers(shown, method)
        assert error == pytest.approx(rs.plan(plan.workload, plan.budget, method=method).rmse, abs=0.051)
        assert times == pytest.approx(error / plan.rmse, abs=0.1)
        assert rho == pytest.approx(0.05 * (error / plan.rmse) ** 2, abs=0.02)
        assert times > 1.5


def test_the_demo_prints_both_stories(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(demo, "story", lambda work: iter(["one", f"{work.tables} tables"]))
    monkeypatch.setattr(demo, "release_story", lambda folder: iter([folder.name]))
    demo.main(tmp_path / "files")
    assert capsys.readouterr().out == "one\n8 tables\nfiles\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def told(folder) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "PEOPLE", 5_000)
        return list(demo.release_story(folder))


def test_the_release_story_fits_a_terminal(told, folder):
    shown = [line.replace(str(folder), "DIR") for line in told]
    assert all(line == line.rstrip() and len(line) <= 100 for line in shown)


def test_the_spec_of_the_demo_asks_for_the_tables_of_the_demo(told, folder):
    assert load_spec(folder / "census.yaml").asks_what(demo.census())


def test_the_demo_leaves_a_release_and_a_ledger_that_paid_for_it(told, folder):
    release = rs.Release.load(folder / "census.release")
    [entry] = rs.Ledger.open(folder / "budget.db").entries()
    assert entry.release_hash == release.hash
    assert not release.simulated


def test_published_counties_are_near_the_truth(told):
    rows = [line.split() for line in told if "/" in line and " to " in line]
    assert len(rows) == demo.census().schema["place"].size
    for row in rows:
        assert abs(float(row[-1])) < 7 * float(row[2])


def test_exact_answers_are_those_of_counting():
    schema = rs.Schema.of_sizes([3, 2, 4])
    histogram = np.arange(24).reshape(3, 2, 4)
    [group] = rs.table(schema, {"a2": rs.identity, "a0": rs.prefix}).groups()
    expected = histogram.sum(axis=1).T.cumsum(axis=1)
    assert np.array_equal(demo.exact_answers(group, histogram), expected.reshape(-1))
