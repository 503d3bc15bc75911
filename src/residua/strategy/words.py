"""What a strategy measures, in words: its blocks, their shares of the privacy, and what a release takes."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from residua._limits import PART_NUMBERS
from residua.answering.blocks import Layer
from residua.strategy.strategy import Strategy

MEASURED = ("combined", "instalments")  # methods of plans that describe what was measured before
NUMBER_BYTES = 9  # of a file, for each measured number: itself, and its part of what the plan says
NUMBERS_PER_SECOND = 3e6  # that are counted and get their noise, on one core


def described(strategy: Strategy) -> Iterator[str]:
    """Lines for people: what is measured, its share of the privacy, and what a release takes."""
    whole = strategy.cost()
    if strategy.nested:
        yield from _places(strategy, whole)
        yield _release_size(strategy)
        return
    for number, domain in enumerate(strategy.domains):
        mine = [layer for layer in strategy.layers if layer.domain == number]
        lines = list(_blocks(strategy, mine, whole))
        if not strategy.coarsened:
            yield from lines
            continue
        share = math.fsum(float(layer.costs.sum()) for layer in mine) / whole
        what = "classes of cells" if domain.view.parts else "cells"
        yield f"by {what}{f', {share:.1%} of the privacy cost' if len(strategy.domains) > 1 else ''}:"
        yield from (f"  {line}" for line in lines)
    yield from strategy.answerer.notes()


def _places(strategy: Strategy, whole: float) -> Iterator[str]:
    """For each level what its places have in the mean, and how many numbers are measured there."""
    found: dict[int, list[Layer]] = {}
    for layer in strategy.layers:
        found.setdefault(len(layer.noise) if layer.within is not None else 1, []).append(layer)
    for places, own in sorted(found.items()):
        share = math.fsum(float(layer.costs.sum()) / places for layer in own) / whole
        what = f"each of {places:,} places" if places > 1 else "all places together"
        numbers = sum(_numbers(strategy, layer) for layer in own) // places
        yield f"{what}: {numbers:,} number{'s' * (numbers > 1)}, {share:.1%} of the privacy cost"


def _numbers(strategy: Strategy, layer: Layer) -> int:
    """How many numbers the blocks of a layer measure."""
    rows = np.array([len(shape.matrix) for shape in strategy.shapes], dtype=np.int64)
    return int(rows[layer.shapes].prod(axis=1).sum())


def _release_size(strategy: Strategy) -> str:
    """What a release takes, for people: numbers, bytes of its file, and minutes."""
    numbers = sum(_numbers(strategy, layer) for layer in strategy.layers)
    size = max(1, round(numbers * NUMBER_BYTES / 2**20))
    seconds = math.ceil(numbers / NUMBERS_PER_SECOND)
    taken = (
        f"{seconds} CPU second{'s' * (seconds > 1)}" if seconds < 60 else f"{seconds / 60:.1f} CPU minutes"
    )
    parts = (
        "; measured into its file, rs.measure(..., into=path), it takes memory for one part at a time"
        if numbers > PART_NUMBERS and not strategy.by_vectors
        else ""
    )
    return (
        f"{numbers:,} numbers in all: a release is a file of about {size:,} MB, and takes about {taken} "
        f"besides reading the data{parts}"
    )


def _blocks(strategy: Strategy, layers: Sequence[Layer], whole: float) -> Iterator[str]:
    """How many blocks of which size, and their share of the privacy; of one block, its matrices."""
    if sum(len(layer.noise) for layer in layers) == 1 and layers[0].layout:
        for number in layers[0].shapes[0].tolist():
            (rows, cells), width = strategy.shapes[number].matrix.shape, len(strategy.shapes[number].sizes)
            yield f"{rows:,} queries on {cells:,} cells of {width} attribute{'s' * (width > 1)}"
        return
    for size in sorted({layer.subsets.shape[1] for layer in layers}):
        chosen = [layer for layer in layers if layer.subsets.shape[1] == size]
        blocks = sum(len(layer.noise) for layer in chosen)
        share = math.fsum(float(layer.costs.sum()) for layer in chosen) / whole
        what = f"{blocks:,} block{'s' * (blocks > 1)} on {size} attribute{'s' * (size > 1)}"
        what = "the number of records" if size == 0 else what
        yield f"{what}: {share:.1%} of the privacy cost"
