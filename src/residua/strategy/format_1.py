"""Strategies in files of format 1, which had a form of its own for each of six kinds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Layer, Placed, Shape
from residua.answering.coarsened.lifting import Lift
from residua.errors import FileFormatError
from residua.linalg.centring import Measure
from residua.linalg.kinds import JointKinds, Kinds
from residua.privacy import NoiseLaw
from residua.privacy.laws import noise_law
from residua.strategy.build import Spans, of_blocks, seen_by
from residua.strategy.strategy import Domain, Strategy
from residua.workload.views import View

Record = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]


def strategy_of_format_1(record: Record, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    """The strategy that a record describes, for a schema with these numbers of cells."""
    kind = record.get("kind")
    if kind in ("blocks", "overlap"):
        return _blocks(record, arrays)
    if kind == "product":
        return _product(record, arrays, sizes)
    if kind == "nested":
        return _nested(record, arrays)
    if kind == "union":
        return _union(record, arrays, sizes)
    if kind == "sides":
        return _sides(record, arrays, sizes)
    raise FileFormatError(f"this version knows no strategy of kind {kind!r}")


def _blocks(record: Record, arrays: Arrays) -> Strategy:
    sizes = tuple(record["sizes"])
    measures = [Measure(size) for size in sizes]
    for at in record["measures"]:
        weights = arrays[f"blocks.measure.{at}"]
        exact = np.issubdtype(weights.dtype, np.integer)
        measures[at] = Measure.whole(weights.tolist()) if exact else Measure.of(weights)
    shapes = tuple(
        Shape(tuple(part["sizes"]), arrays[f"blocks.shape.{number}"].astype(np.float64), part["rank"])
        for number, part in enumerate(record["shapes"])
    )
    layers = tuple(
        Layer(
            arrays[f"blocks.layer.{number}.subsets"],
            tuple(tuple(places) for places in part["layout"]),
            arrays[f"blocks.layer.{number}.shapes"],
            arrays[f"blocks.layer.{number}.costs"],
            arrays[f"blocks.layer.{number}.noise"],
            part["multiplier"],
            arrays.get(f"blocks.layer.{number}.shares"),
        )
        for number, part in enumerate(record["layers"])
    )
    return Strategy((Domain(sizes, tuple(measures)),), shapes, layers, "gaussian", record["grain"])


def _product(record: Record, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    factors = [
        Placed(tuple(part["attributes"]), Shape.of(part["sizes"], _real(arrays[part["matrix"]])))
        for part in record["factors"]
    ]
    factors = [factor for factor in factors if factor.attributes]  # a bare multiple of the number of records
    multiples = [_real(arrays[part["matrix"]]) for part in record["factors"] if not part["attributes"]]
    multiplier = int(np.prod([each[0, 0] for each in multiples], dtype=np.int64)) if multiples else 1
    law = noise_law(record.get("law", "gaussian"))
    terms = [(factors, float(record["noise_variance"]) / multiplier**2, record["share"])]
    return _of_terms(sizes, terms, law, multiplier, record["grain"])


def _nested(record: Record, arrays: Arrays) -> Strategy:
    shapes = []
    for number in range(record["matrices"]):
        matrix = _real(arrays[f"nested.matrix.{number}"])
        shapes.append(Shape.of((matrix.shape[1],), matrix))
    chosen, multiplier = record["chosen"], record["multiplier"]
    terms = [
        (
            [Placed((at,), shapes[chosen[at]]) for at in part["attributes"]],
            float(part["noise_variance"]) / multiplier**2,
            part["share"],
        )
        for part in record["terms"]
    ]
    return _of_terms(record["sizes"], terms, noise_law(record["law"]), multiplier, record["grain"])


def _union(record: Record, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    multiplier = record["multiplier"]
    terms = []
    for part in record["terms"]:
        factors = [
            Placed(tuple(axis["attributes"]), Shape.of(axis["sizes"], _real(arrays[key])))
            for axis, key in zip(record["axes"], part["matrices"], strict=True)
            if key is not None
        ]
        terms.append((factors, float(part["noise_variance"]) / multiplier**2, part["share"]))
    return _of_terms(sizes, terms, noise_law(record["law"]), multiplier, record["grain"])


def _of_terms(
    sizes: Sequence[int],
    terms: Sequence[tuple[list[Placed], float, str | None]],
    law: NoiseLaw,
    multiplier: int,
    grain: int | None,
) -> Strategy:
    """The strategy of blocks, each with its noise and, where it can be measured, its share in grains."""
    strategy = of_blocks(sizes, [(factors, noise) for factors, noise, _ in terms], law)
    if grain is None:
        return strategy
    runs: dict[object, list[int]] = {}  # of the same matrices, as `of_blocks` has them
    for factors, _, share in terms:
        runs.setdefault(_layout(factors), []).append(int(share or 0))
    shares = [_shares(own) for own in runs.values()]
    layers = tuple(
        replace(layer, shares=own, costs=np.asarray(own * 2.0**-grain), multiplier=multiplier)
        for layer, own in zip(strategy.layers, shares, strict=True)
    )
    return replace(strategy, layers=layers, grain=grain)


def _layout(factors: Sequence[Placed]) -> object:
    """What blocks of one run have in common."""
    subset = sorted(at for factor in factors for at in factor.attributes)
    return tuple((tuple(map(subset.index, factor.attributes)), id(factor.shape)) for factor in factors)


def _sides(record: Record, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    parts: list[tuple[Strategy, View, Spans]] = []
    for number, part in enumerate(record["sides"]):
        start = f"side.{number}."
        own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
        view = View(
            tuple(
                JointKinds(
                    tuple(attributes),
                    tuple(Kinds(own[f"view.{at}.{place}"]) for place in range(len(attributes))),
                    Kinds(own[f"view.{at}"]),
                )
                for at, attributes in enumerate(part["view"])
            )
        )
        parts.append((strategy_of_format_1(part["mechanism"], own, view.sizes(sizes)), view, {}))
    grain = max(strategy.grain or 0 for strategy, _, _ in parts)
    parts = [(_in_grains(strategy, grain), view, spans) for strategy, view, spans in parts]
    lifts = []
    for number, part in enumerate(record["lifts"]):
        attributes = tuple(part["attributes"])
        kinds = tuple(Kinds(arrays[f"lift.{number}.kinds.{at}"]) for at in attributes)
        settled = tuple(tuple(known) for known in part["settled"])
        lifts.append(Lift(attributes, kinds, arrays[f"lift.{number}.rows"], settled))
    return seen_by(parts, lifts)[0]


def _in_grains(strategy: Strategy, grain: int) -> Strategy:
    """The same strategy with its shares in smaller grains; each side of a file has grains of its own."""
    if strategy.grain is None:
        return strategy
    times = grain - strategy.grain
    layers = (
        replace(
            layer, shares=None if layer.shares is None else _shares(s << times for s in layer.shares.tolist())
        )
        for layer in strategy.layers
    )
    return replace(strategy, layers=tuple(layers), grain=grain)


def _shares(shares: Iterable[int]) -> NDArray[Any]:
    """Whole numbers of grains, of any size."""
    found = list(shares)
    fits = all(abs(share) < 2**63 for share in found)
    return np.array(found, dtype=np.int64 if fits else np.object_)


def _real(matrix: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(matrix, dtype=np.float64)
