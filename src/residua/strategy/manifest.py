"""A strategy from a manifest beside named arrays, read field by field and checked as a whole."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from residua._arrays import AnyArray, Array, Arrays, Manifest
from residua._limits import CELL_CLASSES, MATRIX_ENTRIES, MOST_RESIDUALS, TABLE_ATTRIBUTES, WIDEST
from residua._manifests import (
    BOUND,
    array_of,
    checked_array,
    digits,
    listed,
    optional,
    submanifests,
    text,
    whole,
    wholes,
)
from residua.answering.blocks import Layer, Shape
from residua.answering.coarsened import QuerySplit
from residua.errors import FileFormatError
from residua.kernel.measurement import LARGEST_ENTRY
from residua.linalg.classes import Classes, JointClasses
from residua.linalg.matrices import Measure
from residua.linalg.trees import Nest
from residua.privacy.budgets import noise_law
from residua.strategy.strategy import Domain, Strategy
from residua.workload.explicit import classes_from_array
from residua.workload.views import View

T = TypeVar("T")

LARGEST_GRAIN = 1_000  # two to this, and one over it, are floats
LARGEST_SHARE = 2**63 - 1
LARGEST_MULTIPLIER = 2**53
SUM_TO_ONE = 1e-6  # what rounding may take off a sum of weights


def grain_of(manifest: Manifest) -> int | None:
    """The grain of an integer strategy; None of a real one."""
    return optional(partial(whole, least=-LARGEST_GRAIN, most=LARGEST_GRAIN), manifest, "grain")


def share_of(manifest: Manifest, grain: int | None) -> int | None:
    """The share, in grains, of what an integer strategy measures; a real one has none."""
    share = optional(digits, manifest, "share")
    if (share is None) != (grain is None):
        raise FileFormatError("a strategy in integers has a grain and a share of it, any other has neither")
    if share is not None and share > LARGEST_SHARE:
        raise FileFormatError("a share has more grains than any budget")
    return share


def multiplier_of(manifest: Manifest) -> int:
    """What measured numbers are multiplied by."""
    return whole(manifest, "multiplier", least=1, most=LARGEST_MULTIPLIER)


def matrix_of(found: AnyArray, sizes: Sequence[int], grain: int | None) -> Array:
    """A measured matrix on cells of these sizes; of whole numbers in an integer strategy."""
    matrix = checked_array(found, "of a measured matrix", "if", (None, math.prod(sizes)))
    if not matrix.any() or matrix.size > MATRIX_ENTRIES:
        raise FileFormatError("a measured matrix is empty, or larger than any that is planned")
    if grain is not None and matrix.dtype.kind != "i":
        raise FileFormatError("a strategy in integers has matrices of integers")
    if not (np.abs(matrix.astype(np.float64)) <= LARGEST_ENTRY).all():
        raise FileFormatError("a measured matrix has entries beyond those that are planned")
    return matrix.astype(np.float64)


def shape_of(part: Manifest, name: str, arrays: Arrays, grain: int | None) -> Shape:
    """A matrix whose rank is stated."""
    sizes = wholes(part, "sizes", least=1)
    matrix = matrix_of(array_of(arrays, name, "if", (None, None)), sizes, grain)
    return Shape(sizes, matrix, whole(part, "rank", least=1, most=min(matrix.shape)))


def ranked_shape(sizes: Sequence[int], found: AnyArray, grain: int | None) -> Shape:
    """A matrix whose rank is found out, which takes a square matrix over its cells."""
    if math.prod(sizes) > WIDEST:
        raise FileFormatError(f"a measured matrix has more than the {WIDEST:,} cells of any that is planned")
    return Shape.of(sizes, matrix_of(found, sizes, grain))


def measure_of(weights: AnyArray) -> Measure:
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
    """A run of blocks, whose arrays all have as many rows as it has blocks."""
    layout = tuple(wholes({"layout": places}, "layout") for places in listed(part, "layout"))
    ways = sum(map(len, layout))
    if sorted(place for places in layout for place in places) != list(range(ways)) or not all(layout):
        raise FileFormatError("a layout shares out the attributes of a block, each once")
    subsets = array_of(arrays, f"{start}.subsets", "i", (None, ways)).astype(np.int32, copy=False)
    shapes = array_of(arrays, f"{start}.shapes", "i", (len(subsets), len(layout)))
    within = whole(part, "within", least=0) if "within" in part else None
    noise = array_of(arrays, f"{start}.noise", "f", (len(subsets) if within is None else None,))
    blocks = len(noise)
    if within is not None and len(subsets) == 1:  # the same for all blocks
        subsets, shapes = (np.broadcast_to(own, (blocks, own.shape[1])) for own in (subsets, shapes))
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
    if len(subsets) != blocks:
        raise FileFormatError("blocks within places are on different attributes")
    return Layer(subsets, layout, shapes, costs, noise, multiplier_of(part), shares, domain, within)


def view_of(parts: Sequence[Any], start: str, arrays: Arrays) -> View:
    """Which attributes are seen by classes of their cells, and which as one by joint classes."""
    found = []
    for number, written in enumerate(parts):
        attributes = wholes({"view": written}, "view")
        classes = _classes([f"{start}.{number}.{place}" for place in range(len(attributes))], arrays)
        joint = classes_from_array(array_of(arrays, f"{start}.{number}", "i", (None,)), f"{start}.{number}")
        found.append(JointClasses(attributes, classes, joint))
    return View(tuple(found))


def query_split_of(part: Manifest, start: str, arrays: Arrays) -> QuerySplit:
    """How queries are split between blocks that see cells and blocks that see classes of them."""
    attributes = wholes(part, "attributes")
    classes = _classes([f"{start}.kinds.{at}" for at in attributes], arrays)
    cells = math.prod(own.count for own in classes)
    rows = array_of(arrays, f"{start}.rows", "f", (None, cells))
    settled = tuple(wholes({"settled": known}, "settled") for known in listed(part, "settled"))
    if not rows.any():
        raise FileFormatError("there are no rows to split queries by")
    return QuerySplit(attributes, classes, rows, settled)


def _classes(names: Sequence[str], arrays: Arrays) -> tuple[Classes, ...]:
    found = tuple(classes_from_array(array_of(arrays, name, "i", (None,)), name) for name in names)
    if not found or (len(found) > 1 and math.prod(own.count for own in found) > CELL_CLASSES):
        raise FileFormatError("there are no classes of cells, or more than can be held")
    return found


def strategy_from_manifest(manifest: Manifest, arrays: Arrays) -> Strategy:
    """The strategy that a manifest describes; whether its parts fit is for `refuse_unfit` to say."""
    grain = grain_of(manifest)
    return Strategy(
        each_of(_domain_from_manifest, manifest, "domains", "strategy.domain", arrays),
        each_of(shape_of, manifest, "shapes", "strategy.shape", arrays, grain),
        each_of(layer_of, manifest, "layers", "strategy.layer", arrays, grain),
        noise_law(text(manifest, "law")),
        grain,
        each_of(query_split_of, manifest, "lifts", "strategy.lift", arrays),
    )


def each_of(
    read: Callable[..., T], manifest: Manifest, key: str, start: str, arrays: Arrays, *grain: int | None
) -> tuple[T, ...]:
    """What `read` makes of each of the manifests under a key, and of the arrays named after its number."""
    parts = enumerate(submanifests(manifest, key))
    return tuple(read(part, f"{start}.{number}", arrays, *grain) for number, part in parts)


def _domain_from_manifest(part: Manifest, start: str, arrays: Arrays) -> Domain:
    sizes, measures = measures_of(part, f"{start}.measure", arrays)
    return Domain(sizes, measures, view_of(listed(part, "view"), f"{start}.view", arrays))


def refuse_unfit(strategy: Strategy, sizes: Sequence[int]) -> None:
    """Nothing, or the FileFormatError for a strategy that cannot be one for attributes of these sizes."""
    domains, splits = strategy.domains, strategy.query_splits
    _refuse(not domains or not strategy.layers, "no domains or no blocks")
    if strategy.nested:
        _check_places(strategy)
    else:
        _refuse(len(domains) != (2 if splits else 1), "domains between which nothing is split")
        seen = {layer.domain for layer in strategy.layers}
        _refuse(seen != {*range(len(domains))}, "a domain without blocks")
    for domain in domains:
        for part in domain.view.parts:
            _check_classes(part.attributes, part.partitions, sizes)
            _refuse(not part.whole, "classes of cells that do not fit each other")
        used = [at for part in domain.view.parts for at in part.attributes]
        _refuse(len(set(used)) < len(used), "an attribute in two views")
        _refuse(domain.sizes != domain.view.sizes(sizes), "other sizes than the schema")
    for split in splits:
        _check_classes(split.attributes, split.classes, sizes)
        inside = all({*split.attributes} >= {*each} for each in split.settled)
        _refuse(not inside, "attributes settled elsewhere")
    used = [at for split in splits for at in split.attributes]
    _refuse(len(set(used)) < len(used), "an attribute that is split in two ways")
    for layer in strategy.layers:
        _check_layer(layer, strategy, domains[layer.domain].sizes)
    if strategy.nested:
        _check_alike(strategy)
    each = [strategy.blocks(domain) for domain in range(len(domains))]
    residuals = sum(len(layer.noise) * 2 ** layer.subsets.shape[1] for layer in strategy.layers)
    centred = residuals <= MOST_RESIDUALS or all(own.centred(layer) for own in each for layer in own.layers)
    _refuse(not centred, "more residuals than can be gone through")


def _check_places(strategy: Strategy) -> None:
    """Blocks within places are one for each place of a level, of one attribute alone."""
    _refuse(bool(strategy.query_splits), "queries split between places")
    _refuse(max(layer.domain for layer in strategy.layers) >= len(strategy.domains), "blocks of no domain")
    within = {layer.within for layer in strategy.layers if layer.within is not None}
    _refuse(len(within) > 1 or max(within) >= len(strategy.sizes), "places of several attributes, or of none")
    for layer in strategy.layers:
        places = strategy.domains[layer.domain].sizes[max(within)]
        _refuse(layer.within is not None and len(layer.noise) != places, "places that no level has")
        _refuse(bool((layer.subsets == max(within)).any()), "blocks on the places that they are within")
    levels = {int(own.max()): own for own in strategy.levels() if own is not None}
    try:
        Nest.of([levels[count] for count in sorted(levels)])
    except ValueError as error:
        raise FileFormatError("a saved strategy has places that are not nested") from error


def _check_alike(strategy: Strategy) -> None:
    """Blocks within places on the same attributes measure the same, or rows over all of the others."""
    measured: dict[tuple[int, ...], list[int]] = {}
    for layer in () if strategy.by_vectors else strategy.layers:
        subsets = layer.subsets[: None if layer.within is None else 1].tolist()
        for subset, shapes in zip(subsets, layer.shapes.tolist(), strict=False):
            known = measured.setdefault(tuple(subset), shapes)
            _refuse(known != shapes, "places of which different things are measured")


def _refuse(wrong: bool, what: str) -> None:
    if wrong:
        raise FileFormatError(f"a saved strategy has {what}")


def _check_classes(attributes: Sequence[int], classes: Sequence[Classes], sizes: Sequence[int]) -> None:
    """Classes are of the cells of attributes that are there, which ascend."""
    _refuse(list(attributes) != sorted(set(attributes)), "attributes that are out of order")
    _refuse(not all(0 <= at < len(sizes) for at in attributes), "attributes that the schema lacks")
    _refuse([own.size for own in classes] != [sizes[at] for at in attributes], "classes of other cells")


def _check_layer(layer: Layer, strategy: Strategy, sizes: Sequence[int]) -> None:
    """Blocks are on attributes that are there, with shapes of their sizes."""
    subsets, shapes = layer.subsets, layer.shapes
    if not layer.layout:
        return
    _refuse(subsets.shape[1] > TABLE_ATTRIBUTES, "blocks on too many attributes")
    _refuse(not 0 <= subsets.min() <= subsets.max() < len(sizes), "attributes that the schema lacks")
    _refuse(bool((np.diff(subsets, axis=1) <= 0).any()), "attributes that are out of order")
    _refuse(not 0 <= shapes.min() <= shapes.max() < len(strategy.shapes), "blocks of no shape")
    cells = np.array(sizes, dtype=np.int64)
    for factor, places in enumerate(layer.layout):
        for number in np.unique(shapes[:, factor]).tolist():
            own = np.array(strategy.shapes[number].sizes)
            met = cells[subsets[shapes[:, factor] == number][:, places]]  # (blocks, places)
            fits = len(own) == len(places) and bool((met == own).all())
            _refuse(not fits, "blocks of a shape that does not fit their attributes")
