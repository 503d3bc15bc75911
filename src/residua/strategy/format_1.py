"""Strategies in files of format 1, which had a form of its own for each of six kinds."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from residua._arrays import AnyArray, Arrays, Manifest
from residua._manifests import (
    array_of,
    fetch,
    listed,
    positive,
    submanifest,
    submanifests,
    text,
    whole,
    wholes,
)
from residua.answering.blocks import Placed
from residua.errors import FileFormatError
from residua.privacy import NoiseLaw
from residua.privacy.budgets import noise_law
from residua.strategy.build import Spans, of_blocks, runs_of, seen_by
from residua.strategy.manifest import (
    each_of,
    grain_of,
    layer_of,
    measures_of,
    multiplier_of,
    query_split_of,
    ranked_shape,
    shape_of,
    share_of,
    view_of,
)
from residua.strategy.strategy import Domain, Strategy
from residua.workload.views import View

FINEST = 200  # bits by which the grains of two sides may differ


def strategy_of_format_1(manifest: Manifest, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    """The strategy that a manifest describes, for a schema with these numbers of cells."""
    forms = {
        "blocks": _blocks,
        "overlap": _blocks,
        "product": _product,
        "nested": _nested,
        "union": _union,
        "sides": _sides,
    }
    kind = text(manifest, "kind")
    if kind not in forms:
        raise FileFormatError(f"this version knows no strategy of kind {kind!r}")
    return forms[kind](manifest, arrays, sizes)


def _blocks(manifest: Manifest, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    grain = grain_of(manifest)
    domain = Domain(*measures_of(manifest, "blocks.measure", arrays))
    shapes = each_of(shape_of, manifest, "shapes", "blocks.shape", arrays, grain)
    layers = each_of(layer_of, manifest, "layers", "blocks.layer", arrays, grain)
    return Strategy((domain,), shapes, layers, "gaussian", grain)


def _product(manifest: Manifest, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    grain, multiplier, factors = grain_of(manifest), 1, []
    for part in submanifests(manifest, "factors"):
        attributes, own = wholes(part, "attributes"), wholes(part, "sizes", least=1)
        shape = ranked_shape(own, fetch(part, "matrix", arrays), grain)
        if attributes:
            factors.append(Placed(attributes, shape))
        else:  # a bare multiple of the number of manifest
            multiplier *= whole({"multiple": round(shape.matrix[0, 0])}, "multiple", least=1)
    law = noise_law(manifest.get("law", "gaussian"))
    return _of_terms(sizes, [(factors, manifest)], law, multiplier, grain)


def _nested(manifest: Manifest, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    grain, multiplier, sizes = grain_of(manifest), multiplier_of(manifest), wholes(manifest, "sizes", least=1)
    shapes = []
    for number in range(whole(manifest, "matrices", least=0, most=len(arrays))):
        matrix = array_of(arrays, f"nested.matrix.{number}", "if", (None, None))
        shapes.append(ranked_shape((matrix.shape[1],), matrix, grain))
    chosen, terms = wholes(manifest, "chosen", least=-1, most=len(shapes) - 1), []
    for part in submanifests(manifest, "terms"):
        attributes = wholes(part, "attributes", least=0, most=len(chosen) - 1)
        if any(chosen[at] < 0 for at in attributes):
            raise FileFormatError("a term is on an attribute without a matrix")
        terms.append(([Placed((at,), shapes[chosen[at]]) for at in attributes], part))
    return _of_terms(sizes, terms, noise_law(text(manifest, "law")), multiplier, grain)


def _union(manifest: Manifest, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    grain, multiplier = grain_of(manifest), multiplier_of(manifest)
    axes = [
        (wholes(axis, "attributes"), wholes(axis, "sizes", least=1))
        for axis in submanifests(manifest, "axes")
    ]
    terms = []
    for part in submanifests(manifest, "terms"):
        names = listed(part, "matrices")
        if len(names) != len(axes):
            raise FileFormatError("a product of a union has a matrix, or none, for each axis")
        factors = [
            Placed(attributes, ranked_shape(own, fetch({"matrix": name}, "matrix", arrays), grain))
            for (attributes, own), name in zip(axes, names, strict=True)
            if name is not None
        ]
        terms.append((factors, part))
    return _of_terms(sizes, terms, noise_law(text(manifest, "law")), multiplier, grain)


def _of_terms(
    sizes: Sequence[int],
    terms: Sequence[tuple[list[Placed], Manifest]],
    law: NoiseLaw,
    multiplier: int,
    grain: int | None,
) -> Strategy:
    """The strategy of blocks, each with what tells its noise and, where it can be measured, its share."""
    noise = [positive(part, "noise_variance") / multiplier**2 for _, part in terms]
    shares = [share_of(part, grain) or 0 for _, part in terms]
    blocks = [factors for factors, _ in terms]
    for factors in blocks:
        attributes = [at for factor in factors for at in factor.attributes]
        if len(set(attributes)) < len(attributes) or not set(attributes) <= set(range(len(sizes))):
            raise FileFormatError("a product has an attribute twice, or one that the schema lacks")
    strategy = of_blocks(sizes, list(zip(blocks, noise, strict=True)), law)
    if grain is None:
        return strategy
    runs = (_shares(shares[at] for at in run) for run in runs_of(blocks).values())
    layers = tuple(
        replace(layer, shares=own, costs=np.asarray(own * 2.0**-grain), multiplier=multiplier)
        for layer, own in zip(strategy.layers, runs, strict=True)
    )
    return replace(strategy, layers=layers, grain=grain)


def _sides(manifest: Manifest, arrays: Arrays, sizes: Sequence[int]) -> Strategy:
    parts: list[tuple[Strategy, View, Spans]] = []
    for number, part in enumerate(submanifests(manifest, "sides")):
        start = f"side.{number}."
        own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
        view, inner = view_of(listed(part, "view"), "view", own), submanifest(part, "mechanism")
        if text(inner, "kind") == "sides":
            raise FileFormatError("sides within sides")
        parts.append((strategy_of_format_1(inner, own, view.sizes(sizes)), view, {}))
    grains = [strategy.grain for strategy, _, _ in parts if strategy.grain is not None]
    if len({strategy.law for strategy, _, _ in parts}) != 1 or len(grains) < len(parts):
        raise FileFormatError("there are no sides, or they do not go together")
    if max(grains) - min(grains) > FINEST:
        raise FileFormatError("the costs of two sides are too different to be added up")
    parts = [(_in_grains(strategy, max(grains)), view, spans) for strategy, view, spans in parts]
    return seen_by(parts, each_of(query_split_of, manifest, "lifts", "lift", arrays))[0]


def _in_grains(strategy: Strategy, grain: int) -> Strategy:
    """The same strategy with its shares in smaller grains; each side of a file has grains of its own."""
    if strategy.grain is None:
        return strategy
    times = grain - strategy.grain
    shares = [[] if layer.shares is None else layer.shares.tolist() for layer in strategy.layers]
    pairs = zip(strategy.layers, shares, strict=True)
    layers = tuple(replace(layer, shares=_shares(each << times for each in own)) for layer, own in pairs)
    return replace(strategy, layers=layers, grain=grain)


def _shares(shares: Iterable[int]) -> AnyArray:
    """Whole numbers of grains, of any size."""
    found = list(shares)
    fits = all(abs(share) < 2**63 for share in found)
    return np.array(found, dtype=np.int64 if fits else np.object_)
