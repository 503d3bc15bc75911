"""Strategies in files of format 2: one form for all of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._manifests import Arrays, Manifest, array_of, listed, submanifests, text
from residua.answering.coarsened.query_split import QuerySplit
from residua.privacy.laws import noise_law
from residua.strategy.fields import grain_of, layer_of, measures_of, query_split_of, shape_of, view_of
from residua.strategy.strategy import Domain, Strategy


def strategy_to_manifest(strategy: Strategy, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """JSON-able description; arrays go into `arrays` under names that start with `strategy`."""
    whole = strategy.grain is not None
    for number, shape in enumerate(strategy.shapes):
        arrays[f"strategy.shape.{number}"] = shape.matrix.astype(np.int64) if whole else shape.matrix
    for number, layer in enumerate(strategy.layers):
        start = f"strategy.layer.{number}"
        arrays[f"{start}.subsets"], arrays[f"{start}.shapes"] = layer.subsets, layer.shapes
        arrays[f"{start}.noise"] = layer.noise
        arrays[f"{start}.shares" if layer.shares is not None else f"{start}.costs"] = (
            layer.costs if layer.shares is None else layer.shares
        )
    return {
        "law": strategy.law,
        "grain": strategy.grain,
        "domains": [
            _domain_to_manifest(domain, f"strategy.domain.{number}", arrays)
            for number, domain in enumerate(strategy.domains)
        ],
        "shapes": [{"sizes": list(shape.sizes), "rank": shape.rank} for shape in strategy.shapes],
        "layers": [
            {
                "layout": [list(places) for places in layer.layout],
                "multiplier": layer.multiplier,
                "domain": layer.domain,
            }
            for layer in strategy.layers
        ],
        "lifts": [
            _lift_to_manifest(lift, f"strategy.lift.{number}", arrays)
            for number, lift in enumerate(strategy.query_splits)
        ],
    }


def strategy_from_manifest(manifest: Manifest, arrays: Arrays) -> Strategy:
    """The strategy that a manifest describes; whether its parts fit is for `fit.refuse_unfit` to say."""
    grain = grain_of(manifest)
    shapes = tuple(
        shape_of(part, array_of(arrays, f"strategy.shape.{number}", "if", (None, None)), grain)
        for number, part in enumerate(submanifests(manifest, "shapes"))
    )
    domains = tuple(
        _domain_from_manifest(part, f"strategy.domain.{number}", arrays)
        for number, part in enumerate(submanifests(manifest, "domains"))
    )
    query_splits = tuple(
        query_split_of(part, f"strategy.lift.{number}", arrays)
        for number, part in enumerate(submanifests(manifest, "lifts"))
    )
    layers = tuple(
        layer_of(part, f"strategy.layer.{number}", arrays, grain)
        for number, part in enumerate(submanifests(manifest, "layers"))
    )
    return Strategy(domains, shapes, layers, noise_law(text(manifest, "law")), grain, query_splits)


def _domain_to_manifest(domain: Domain, start: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    tilted = {at: measure for at, measure in enumerate(domain.measures) if measure.weights is not None}
    for at, measure in tilted.items():
        exact = measure.numerators
        arrays[f"{start}.measure.{at}"] = measure.vector() if exact is None else np.array(exact)
    for number, part in enumerate(domain.view.parts):
        arrays[f"{start}.view.{number}"] = part.joint.classes
        for place, kinds in enumerate(part.kinds):
            arrays[f"{start}.view.{number}.{place}"] = kinds.classes
    view = [list(part.attributes) for part in domain.view.parts]
    return {"sizes": list(domain.sizes), "measures": sorted(tilted), "view": view}


def _domain_from_manifest(part: Manifest, start: str, arrays: Arrays) -> Domain:
    sizes, measures = measures_of(part, f"{start}.measure", arrays)
    return Domain(sizes, measures, view_of(listed(part, "view"), f"{start}.view", arrays))


def _lift_to_manifest(lift: QuerySplit, start: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    arrays[f"{start}.rows"] = lift.rows
    for at, kinds in lift.by_attribute.items():
        arrays[f"{start}.kinds.{at}"] = kinds.classes
    return {"attributes": list(lift.attributes), "settled": [list(known) for known in lift.settled]}
