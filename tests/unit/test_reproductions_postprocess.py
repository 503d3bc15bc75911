"""The fast part of the reproductions of post-processing, on invented people in place of Adult."""

import importlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import residua as rs

FOLDER = Path(__file__).parents[2] / "reproductions"
SCHEMA = rs.Schema.of_sizes([30, 20, 15])


@pytest.fixture
def script(monkeypatch):
    """A function from a script's name to its module, imported as running it would."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@pytest.fixture
def records():
    return (np.random.default_rng(0).random((2000, 3)) ** 4 * SCHEMA.sizes).astype(np.int64)


def test_non_negative_tables_are_a_quarter_better_and_none_is_worse(script, records, capsys):
    compared = script("nonnegative_adult").compare(SCHEMA, records, rs.marginals(SCHEMA, ways=2), releases=2)
    assert compared.exit_code() == 0
    assert "7 figures, 0 failed" in capsys.readouterr().out


def test_scripts_without_their_data_are_left_out_and_say_so(script, tmp_path, capsys):
    for name in ("nonnegative_adult", "hdmm_pgm"):
        assert script(name).main([str(tmp_path)]) == 0
        assert "left out" in capsys.readouterr().out


def test_the_workloads_of_the_model_comparison_are_two_way(script):
    pgm = script("hdmm_pgm")
    schema = rs.Schema({name: rs.Integer(0, 1) for name in (*pgm.CLIQUE, "age")})
    assert pgm.star(schema).tables == 8
    assert pgm.clique(schema).tables == 28
    assert {len(group.attributes) for group in pgm.clique(schema).groups()} == {2}


def test_the_model_comparison_is_left_out_where_its_package_is_not_installed(script, monkeypatch, capsys):
    pgm = script("hdmm_pgm")
    monkeypatch.setattr(pgm, "folder_given", lambda arguments: FOLDER)
    monkeypatch.setattr(pgm, "find_spec", lambda name: None)
    assert find_spec("numpy") is not None
    assert pgm.main([]) == 0
    assert "mbi is not installed" in capsys.readouterr().out


def test_counts_of_marginals_are_those_of_the_records(script, records):
    work = rs.table(SCHEMA, ["a2", "a0"])
    (found,) = script("_adult").true_counts(records, work)
    expected = np.histogram2d(records[:, 2], records[:, 0], bins=[np.arange(16), np.arange(31)])[0]
    assert np.array_equal(found.reshape(15, 30), expected)
