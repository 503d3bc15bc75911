"""QR with column pivoting in numpy: a decomposition, in SciPy's order, and small triangles' inverses."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from residua.answering.coupled import system
from residua.linalg import matrices
from residua.linalg.pivoting import householder_qr, is_small

SIZES = st.tuples(st.integers(1, 12), st.integers(1, 12))


@given(SIZES, st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_columns_come_apart_as_in_scipy(shape, rank, seed):
    chance = np.random.default_rng(seed)
    matrix = chance.normal(size=(shape[0], rank)) @ chance.normal(size=(rank, shape[1]))
    turn, triangle, order = householder_qr(matrix)
    np.testing.assert_allclose(turn @ triangle, matrix[:, order], atol=1e-12)
    np.testing.assert_allclose(turn.T @ turn, np.eye(shape[0]), atol=1e-12)
    sizes = np.abs(np.diagonal(triangle))
    assert (np.diff(sizes) <= 1e-9 * max(sizes.max(), 1)).all()
    _, other, _ = scipy.linalg.qr(matrix, pivoting=True)
    np.testing.assert_allclose(sizes, np.abs(np.diagonal(other)), atol=1e-9)


@pytest.mark.parametrize("mode", ["economic", "r", "full"])
@pytest.mark.parametrize("shape", [(30, 7), (7, 30)])
def test_modes_have_the_shapes_of_scipy(mode, shape, monkeypatch):
    matrix = np.random.default_rng(1).normal(size=shape)
    small = matrices.pivoted_qr(matrix, mode)
    monkeypatch.setattr(matrices, "is_small", lambda _: False)
    large = matrices.pivoted_qr(matrix, mode)
    assert [part.shape for part in small] == [part.shape for part in large]
    assert small[-1].tolist() == large[-1].tolist()
    np.testing.assert_allclose(np.abs(small[-2]), np.abs(large[-2]), atol=1e-12)


def test_size_alone_decides():
    assert is_small(np.zeros((100, 200)))
    assert not is_small(np.zeros((129, 129)))
    assert not is_small(np.zeros((10, 2_001)))


@given(st.integers(0, 9), st.floats(-12, 0), st.integers(0, 2**32 - 1))
def test_small_inverses_are_those_of_lapack(size, power, seed):
    rows = np.random.default_rng(seed).normal(size=(size + 2, size)) * np.logspace(0, power, size)
    square = rows.T @ rows
    small = system._small_inverse(square)
    if small is not None:
        np.testing.assert_allclose(small @ square, np.eye(size), atol=1e-5)
    elif np.linalg.cond(square) < 1e4:
        pytest.fail("a matrix that is far from singular has an inverse")


def test_affine_pairs_are_planned_without_loading_scipy():
    program = (
        "import sys, residua as rs; schema = rs.Schema.of_sizes([10] * 4);"
        "tables = [rs.table(schema, {(f'a{i}', f'a{j}'): rs.affine}) for j in range(4) for i in range(j)];"
        "rs.plan(sum(tables[1:], tables[0]), rs.zcdp(1));"
        "sys.exit('scipy.linalg' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
