"""Triangles: their inverses, and roots of grams that are surely of full rank."""

import math

import numpy as np

from residua._arrays import Array

SMALL_TRIANGLE = 64  # rows up to which halving a triangle gains nothing


def triangle_inverse(upper: Array) -> Array:
    """The inverse of an upper triangle, half by half: a sixth of the work of any other matrix's."""
    rows = len(upper)
    if rows <= SMALL_TRIANGLE:
        return np.asarray(np.linalg.inv(upper))
    half = rows // 2
    result = np.zeros_like(upper)
    result[:half, :half] = first = triangle_inverse(upper[:half, :half])
    result[half:, half:] = last = triangle_inverse(upper[half:, half:])
    result[:half, half:] = -(first @ (upper[:half, half:] @ last))
    return result


SURE_GRAM = 1e7  # at most the ratio of eigenvalues of a gram whose root has digits enough


def sure_root(gram: Array) -> tuple[Array, Array] | None:
    """The upper triangle R with `R'R = gram`, and its inverse; None where the rank is not surely full.

    A few times quicker than a QR decomposition of the rows, and as good where eigenvalues are alike.
    """
    try:
        root = np.ascontiguousarray(np.linalg.cholesky(gram).T)
    except np.linalg.LinAlgError:
        return None
    inverse = triangle_inverse(root)
    # The square of the largest singular value is at most the largest sum of a row times that of a column.
    ratio = math.prod(float(np.linalg.norm(each, kind)) for each in (root, inverse) for kind in (1, np.inf))
    return (root, inverse) if ratio <= SURE_GRAM else None
