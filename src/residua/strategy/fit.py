"""Whether a strategy from a file fits the schema, and its parts each other: nothing behind it has to ask."""

from collections.abc import Sequence

import numpy as np

from residua.answering.blocks import Layer
from residua.answering.coarsened.query_split import QuerySplit
from residua.errors import FileFormatError
from residua.linalg.classes import Classes
from residua.strategy.strategy import Domain, Strategy
from residua.workload.groups import MOST_ATTRIBUTES

MOST_RESIDUALS = 5_000_000  # of all blocks that are not centred; planning more of them takes hours


def refuse_unfit(strategy: Strategy, sizes: Sequence[int]) -> None:
    """Nothing, or the FileFormatError for a strategy that cannot be one for attributes of these sizes."""
    _refuse(not strategy.domains or not strategy.layers, "no domains or no blocks")
    _refuse(
        len(strategy.domains) != (2 if strategy.query_splits else 1), "domains between which nothing is split"
    )
    for number, domain in enumerate(strategy.domains):
        _check_domain(domain, sizes)
        _refuse(not any(layer.domain == number for layer in strategy.layers), "a domain without blocks")
    for lift in strategy.query_splits:
        _check_lift(lift, sizes)
    split = [at for lift in strategy.query_splits for at in lift.attributes]
    _refuse(len(set(split)) < len(split), "an attribute that is split in two ways")
    for layer in strategy.layers:
        _refuse(layer.domain >= len(strategy.domains), "blocks of no domain")
        _check_layer(layer, strategy, strategy.domains[layer.domain].sizes)
    residuals = sum(len(layer.noise) * 2 ** layer.subsets.shape[1] for layer in strategy.layers)
    _refuse(residuals > MOST_RESIDUALS and not _centred(strategy), "more residuals than can be gone through")


def _refuse(wrong: bool, what: str) -> None:
    if wrong:
        raise FileFormatError(f"a saved strategy has {what}")


def _check_domain(domain: Domain, sizes: Sequence[int]) -> None:
    for part in domain.view.parts:
        _check_kinds(part.attributes, part.kinds, sizes)
        _refuse(not part.whole, "kinds of cells that do not fit each other")
    used = [at for part in domain.view.parts for at in part.attributes]
    _refuse(len(set(used)) < len(used), "an attribute in two views")
    _refuse(domain.sizes != domain.view.sizes(sizes), "other sizes than the schema")


def _check_kinds(attributes: Sequence[int], kinds: Sequence[Classes], sizes: Sequence[int]) -> None:
    """Kinds are of the cells of attributes that are there, which ascend."""
    _refuse(list(attributes) != sorted(set(attributes)), "attributes that are out of order")
    _refuse(not all(0 <= at < len(sizes) for at in attributes), "attributes that the schema lacks")
    _refuse([own.size for own in kinds] != [sizes[at] for at in attributes], "kinds of other cells")


def _check_lift(lift: QuerySplit, sizes: Sequence[int]) -> None:
    _check_kinds(lift.attributes, lift.kinds, sizes)
    known = {*lift.attributes}
    _refuse(not all(known.issuperset(settled) for settled in lift.settled), "attributes settled elsewhere")


def _check_layer(layer: Layer, strategy: Strategy, sizes: Sequence[int]) -> None:
    """Blocks are on attributes that are there, with shapes of their sizes."""
    subsets, shapes = layer.subsets, layer.shapes
    if not layer.layout:
        return
    _refuse(subsets.shape[1] > MOST_ATTRIBUTES, "blocks on too many attributes")
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


def _centred(strategy: Strategy) -> bool:
    """Whether every block touches one residual alone."""
    for layer in strategy.layers:
        measures = strategy.domains[layer.domain].measures
        for factor, places in enumerate(layer.layout):
            for row in np.unique(layer.shapes[:, factor], return_index=True)[1].tolist():
                own = [measures[at] for at in layer.subsets[row][list(places)].tolist()]
                shape = strategy.shapes[int(layer.shapes[row, factor])]
                if not shape.is_centred(own, whole=strategy.grain is not None):
                    return False
    return True
