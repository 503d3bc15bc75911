"""Mechanisms from saved files."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from residua.errors import FileFormatError
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.mechanism import Mechanism
from residua.strategy.nested import NestedStrategy
from residua.strategy.overlap import OverlapStrategy
from residua.strategy.product import ProductStrategy
from residua.strategy.union import UnionStrategy


def mechanism_from_record(record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Mechanism:
    """The mechanism that a record describes; an unknown kind is refused."""
    known = (ProductStrategy, BlockStrategy, OverlapStrategy, NestedStrategy, UnionStrategy)
    kinds: dict[str, Any] = {kind.kind: kind for kind in known}
    if record.get("kind") not in kinds:
        raise FileFormatError(f"this version knows no strategy of kind {record.get('kind')!r}")
    found: Mechanism = kinds[record["kind"]].from_record(record, arrays)
    return found
