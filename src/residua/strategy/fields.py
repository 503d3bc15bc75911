"""The parts of strategies as files of any format hold them, each read with its types and its bounds."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._manifests import (
    BOUND,
    Arrays,
    Manifest,
    array_of,
    checked_array,
    digits,
    entry,
    listed,
    whole,
    wholes,
)
from residua.answering.blocks import Layer, Shape
from residua.answering.coarsened.query_split import QuerySplit
from residua.errors import FileFormatError
from residua.kernel.measurement import LARGEST_ENTRY
from residua.linalg.centring import Measure
from residua.linalg.classes import Classes, JointClasses
from residua.workload.combined import MOST_KINDS, kinds_of_record
from residua.workload.joint import WIDEST
from residua.workload.queries import MATRIX_LIMIT
from residua.workload.views import View

Array = NDArray[np.float64]

LARGEST_GRAIN = 1_000  # two to this, and one over it, are floats
LARGEST_SHARE = 2**63 - 1
LARGEST_MULTIPLIER = 2**53
SUM_TO_ONE = 1e-6  # what rounding may take off a sum of weights


def grain_of(manifest: Manifest) -> int | None:
    """The grain of an integer strategy; None of a real one."""
    if entry(manifest, "grain") is None:
        return None
    return whole(manifest, "grain", least=-LARGEST_GRAIN, most=LARGEST_GRAIN)


def share_of(manifest: Manifest, grain: int | None) -> int | None:
    """The share, in grains, of what an integer strategy measures; a real one has none."""
    if (entry(manifest, "share") is None) != (grain is None):
        raise FileFormatError("a strategy in integers has a grain and a share of it, any other has neither")
    share = None if grain is None else digits(manifest, "share")
    if share is not None and share > LARGEST_SHARE:
        raise FileFormatError("a share has more grains than any budget")
    return share


def multiplier_of(manifest: Manifest) -> int:
    """What measured numbers are multiplied by."""
    return whole(manifest, "multiplier", least=1, most=LARGEST_MULTIPLIER)


def matrix_of(found: NDArray[Any], sizes: Sequence[int], grain: int | None) -> Array:
    """A measured matrix on cells of these sizes; of whole numbers in an integer strategy."""
    matrix = checked_array(found, "of a measured matrix", "if", (None, math.prod(sizes)))
    if not matrix.any() or matrix.size > MATRIX_LIMIT:
        raise FileFormatError("a measured matrix is empty, or larger than any that is planned")
    if grain is not None and matrix.dtype.kind != "i":
        raise FileFormatError("a strategy in integers has matrices of integers")
    if not (np.abs(matrix.astype(np.float64)) <= LARGEST_ENTRY).all():
        raise FileFormatError("a measured matrix has entries beyond those that are planned")
    return matrix.astype(np.float64)


def shape_of(part: Manifest, found: NDArray[Any], grain: int | None) -> Shape:
    """A matrix whose rank is stated."""
    sizes = wholes(part, "sizes", least=1)
    matrix = matrix_of(found, sizes, grain)
    return Shape(sizes, matrix, whole(part, "rank", least=1, most=min(matrix.shape)))


def ranked_shape(sizes: Sequence[int], found: NDArray[Any], grain: int | None) -> Shape:
    """A matrix whose rank is found out, which takes a square matrix over its cells."""
    if math.prod(sizes) > WIDEST:
        raise FileFormatError(f"a measured matrix has more than the {WIDEST:,} cells of any that is planned")
    return Shape.of(sizes, matrix_of(found, sizes, grain))


def measure_of(weights: NDArray[Any]) -> Measure:
    """Weights on the cells of an attribute: whole numbers, or numbers that sum to one."""
    if weights.dtype.kind == "f":
        if abs(float(weights.sum()) - 1.0) > SUM_TO_ONE:
            raise FileFormatError("weights of cells do not sum to one")
        return Measure.of(weights)
    exact = weights.tolist()
    if not sum(exact):
        raise FileFormatError("weights of cells sum to nothing")
    return Measure.whole(exact)


def measures_of(
    manifest: Manifest, start: str, arrays: Arrays
) -> tuple[tuple[int, ...], tuple[Measure, ...]]:
    """Sizes of all attributes, and the weights on their cells: even ones, but for those that are listed."""
    sizes = wholes(manifest, "sizes", least=1)
    measures = [Measure(size) for size in sizes]
    for at in wholes(manifest, "measures", least=0, most=len(sizes) - 1):
        measures[at] = measure_of(array_of(arrays, f"{start}.{at}", "if", (sizes[at],)))
    return sizes, tuple(measures)


def layer_of(part: Manifest, start: str, arrays: Arrays, grain: int | None) -> Layer:
    """A run of blocks, with as many numbers of each sort as it has blocks."""
    layout = tuple(wholes({"layout": places}, "layout") for places in listed(part, "layout"))
    ways = sum(map(len, layout))
    if sorted(place for places in layout for place in places) != list(range(ways)) or not all(layout):
        raise FileFormatError("a layout shares out the attributes of a block, each once")
    subsets = array_of(arrays, f"{start}.subsets", "i", (None, ways)).astype(np.int32, copy=False)
    blocks = len(subsets)
    shapes = array_of(arrays, f"{start}.shapes", "i", (blocks, len(layout)))
    noise = array_of(arrays, f"{start}.noise", "f", (blocks,))
    shares = None if grain is None else array_of(arrays, f"{start}.shares", "i", (blocks,))
    if shares is not None and grain is not None and f"{start}.costs" not in arrays:
        costs = shares * 2.0**-grain
    else:
        costs = array_of(arrays, f"{start}.costs", "f", (blocks,))
    if not blocks or not ((noise >= 1 / BOUND) & (noise <= BOUND)).all():
        raise FileFormatError("a run of blocks is empty, or has noise that cannot be")
    if not ((costs >= 1 / BOUND) & (costs <= BOUND)).all() or (shares is not None and shares.min() < 1):
        raise FileFormatError("blocks have costs that cannot be")
    domain = whole(part, "domain", least=0) if "domain" in part else 0
    return Layer(subsets, layout, shapes, costs, noise, multiplier_of(part), shares, domain)


def view_of(parts: Sequence[Any], start: str, arrays: Arrays) -> View:
    """Which attributes are seen by kinds of their cells, and which as one by joint kinds."""
    found = []
    for number, written in enumerate(parts):
        attributes = wholes({"view": written}, "view")
        kinds = _kinds([f"{start}.{number}.{place}" for place in range(len(attributes))], arrays)
        joint = kinds_of_record(array_of(arrays, f"{start}.{number}", "i", (None,)), f"{start}.{number}")
        found.append(JointClasses(attributes, kinds, joint))
    return View(tuple(found))


def query_split_of(part: Manifest, start: str, arrays: Arrays) -> QuerySplit:
    """How queries are split between blocks that see cells and blocks that see kinds of them."""
    attributes = wholes(part, "attributes")
    kinds = _kinds([f"{start}.kinds.{at}" for at in attributes], arrays)
    cells = math.prod(own.count for own in kinds)
    rows = array_of(arrays, f"{start}.rows", "f", (None, cells))
    settled = tuple(wholes({"settled": known}, "settled") for known in listed(part, "settled"))
    if not rows.any():
        raise FileFormatError("there are no rows to split queries by")
    return QuerySplit(attributes, kinds, rows, settled)


def _kinds(names: Sequence[str], arrays: Arrays) -> tuple[Classes, ...]:
    found = tuple(kinds_of_record(array_of(arrays, name, "i", (None,)), name) for name in names)
    if not found or math.prod(own.count for own in found) > MOST_KINDS:
        raise FileFormatError("there are no kinds of cells, or more than can be held")
    return found
