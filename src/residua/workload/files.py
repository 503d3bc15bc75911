"""Reading and writing the pieces of a saved workload, with errors that say what is wrong."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError


def stash(arrays: dict[str, NDArray[Any]], array: NDArray[Any]) -> str:
    """The new key under which `array` was put into `arrays`."""
    number = len(arrays)
    while (key := f"workload.{number}") in arrays:
        number += 1
    arrays[key] = np.ascontiguousarray(array)
    return key


def entry(record: Mapping[str, Any], key: str) -> Any:
    """What a record holds under a key."""
    if not isinstance(record, Mapping) or key not in record:
        raise FileFormatError(f"a workload record lacks {key!r}")
    return record[key]


def fetch(record: Mapping[str, Any], key: str, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The array that a record refers to under a key."""
    name = entry(record, key)
    if not isinstance(name, str) or name not in arrays:
        raise FileFormatError(f"a workload record refers to a missing array {name!r} as {key!r}")
    return arrays[name]


def whole(record: Mapping[str, Any], key: str) -> int:
    """The whole number that a record holds under a key."""
    value = entry(record, key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise FileFormatError(f"a workload record has {key!r} = {value!r}, which is not a whole number")
    return value


def listed(record: Mapping[str, Any], key: str) -> list[Any]:
    """The list that a record holds under a key."""
    value = entry(record, key)
    if not isinstance(value, list):
        raise FileFormatError(f"a workload record has {key!r} = {value!r}, which is not a list")
    return value


def text(record: Mapping[str, Any], key: str) -> str:
    """The text that a record holds under a key."""
    value = entry(record, key)
    if not isinstance(value, str):
        raise FileFormatError(f"a workload record has {key!r} = {value!r}, which is not text")
    return value
