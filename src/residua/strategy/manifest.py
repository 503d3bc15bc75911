"""Strategies in files of format 2: one form for all of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Layer, Shape
from residua.answering.coarsened.lifting import Lift
from residua.linalg.centring import Measure
from residua.linalg.kinds import JointKinds, Kinds
from residua.privacy.laws import noise_law
from residua.strategy.strategy import Domain, Strategy
from residua.workload.views import View

Arrays = Mapping[str, NDArray[Any]]


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
            for number, lift in enumerate(strategy.lifts)
        ],
    }


def strategy_from_manifest(manifest: Mapping[str, Any], arrays: Arrays) -> Strategy:
    """The strategy that a manifest describes."""
    shapes = tuple(
        Shape(tuple(part["sizes"]), arrays[f"strategy.shape.{number}"].astype(np.float64), part["rank"])
        for number, part in enumerate(manifest["shapes"])
    )
    domains = tuple(
        _domain_from_manifest(part, f"strategy.domain.{number}", arrays)
        for number, part in enumerate(manifest["domains"])
    )
    lifts = tuple(
        _lift_from_manifest(part, f"strategy.lift.{number}", arrays)
        for number, part in enumerate(manifest["lifts"])
    )
    layers = tuple(_layers(manifest["layers"], manifest["grain"], arrays))
    return Strategy(domains, shapes, layers, noise_law(manifest["law"]), manifest["grain"], lifts)


def _layers(parts: Sequence[Any], grain: int | None, arrays: Arrays) -> Iterator[Layer]:
    for number, part in enumerate(parts):
        start = f"strategy.layer.{number}"
        shares = arrays.get(f"{start}.shares")
        yield Layer(
            arrays[f"{start}.subsets"],
            tuple(tuple(places) for places in part["layout"]),
            arrays[f"{start}.shapes"],
            arrays[f"{start}.costs"] if shares is None or grain is None else shares * 2.0**-grain,
            arrays[f"{start}.noise"],
            part["multiplier"],
            shares,
            part["domain"],
        )


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


def _domain_from_manifest(part: Mapping[str, Any], start: str, arrays: Arrays) -> Domain:
    measures = [Measure(size) for size in part["sizes"]]
    for at in part["measures"]:
        weights = arrays[f"{start}.measure.{at}"]
        exact = np.issubdtype(weights.dtype, np.integer)
        measures[at] = Measure.whole(weights.tolist()) if exact else Measure.of(weights)
    view = View(
        tuple(
            JointKinds(
                tuple(attributes),
                tuple(Kinds(arrays[f"{start}.view.{at}.{place}"]) for place in range(len(attributes))),
                Kinds(arrays[f"{start}.view.{at}"]),
            )
            for at, attributes in enumerate(part["view"])
        )
    )
    return Domain(tuple(part["sizes"]), tuple(measures), view)


def _lift_to_manifest(lift: Lift, start: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    arrays[f"{start}.rows"] = lift.rows
    for at, kinds in lift.by_attribute.items():
        arrays[f"{start}.kinds.{at}"] = kinds.classes
    return {"attributes": list(lift.attributes), "settled": [list(known) for known in lift.settled]}


def _lift_from_manifest(part: Mapping[str, Any], start: str, arrays: Arrays) -> Lift:
    attributes = tuple(part["attributes"])
    kinds = tuple(Kinds(arrays[f"{start}.kinds.{at}"]) for at in attributes)
    settled = tuple(tuple(known) for known in part["settled"])
    return Lift(attributes, kinds, arrays[f"{start}.rows"], settled)
