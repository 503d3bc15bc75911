"""Mechanisms from saved files."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from residua.errors import FileFormatError
from residua.linalg.kinds import JointKinds, Kinds
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.lifting import Lift
from residua.strategy.mechanism import Mechanism
from residua.strategy.nested import NestedStrategy
from residua.strategy.overlap import OverlapStrategy
from residua.strategy.product import ProductStrategy
from residua.strategy.sides import Side, SidesStrategy
from residua.strategy.union import UnionStrategy
from residua.workload.views import View


def mechanism_from_record(record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Mechanism:
    """The mechanism that a record describes; an unknown kind is refused."""
    known = (ProductStrategy, BlockStrategy, OverlapStrategy, NestedStrategy, UnionStrategy)
    kinds: dict[str, Any] = {kind.kind: kind for kind in known}
    if record.get("kind") == SidesStrategy.kind:
        return _sides(record, arrays)
    if record.get("kind") not in kinds:
        raise FileFormatError(f"this version knows no strategy of kind {record.get('kind')!r}")
    found: Mechanism = kinds[record["kind"]].from_record(record, arrays)
    return found


def _sides(record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> SidesStrategy:
    """The mechanism of several sides that a record describes."""
    sides = []
    for number, part in enumerate(record["sides"]):
        start = f"side.{number}."
        own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
        parts = tuple(
            JointKinds(
                tuple(attributes),
                tuple(Kinds(own[f"view.{at}.{place}"]) for place in range(len(attributes))),
                Kinds(own[f"view.{at}"]),
            )
            for at, attributes in enumerate(part["view"])
        )
        sides.append(Side(mechanism_from_record(part["mechanism"], own), View(parts)))
    lifts = []
    for number, part in enumerate(record["lifts"]):
        attributes = tuple(part["attributes"])
        own_kinds = tuple(Kinds(arrays[f"lift.{number}.kinds.{at}"]) for at in attributes)
        settled = tuple(tuple(known) for known in part["settled"])
        lifts.append(Lift(attributes, own_kinds, arrays[f"lift.{number}.rows"], settled))
    return SidesStrategy(tuple(sides), tuple(lifts))
