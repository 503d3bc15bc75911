"""The demo: what it promises is there, it fits a terminal, and its numbers are those of its plans."""

import re

import pytest

import residua as rs
from residua import demo


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


def test_the_demo_prints_its_story(monkeypatch, capsys):
    monkeypatch.setattr(demo, "story", lambda work: iter(["one", f"{work.tables} tables"]))
    demo.main()
    assert capsys.readouterr().out == "one\n8 tables\n"
