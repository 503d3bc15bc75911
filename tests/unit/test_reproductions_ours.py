"""A fast part of the comparison of our own decomposition with QuerySmasher's tables."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "reproductions"


@pytest.fixture
def ours(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("querysmasher_ours")


@pytest.mark.parametrize(
    "name", ["2 CPS 1-way", "2 CPS 2-way", "2 CPS 3-way", "2 CPS <=3-way", "4 n=10 marginal", "4 n=10 prefix"]
)
def test_ours_is_below_what_is_printed(ours, name, capsys):
    (row,) = [each for each in ours.rows() if each.name == name]
    assert ours.compare(row) == []
    assert "holds" in capsys.readouterr().out


def test_a_figure_that_is_not_reached_fails_the_comparison(ours):
    row = next(iter(ours.rows()))
    other = ours.Row(row.name, row.work, "0.100", 0.0, 0.5)
    assert len(ours.compare(other)) == 2
