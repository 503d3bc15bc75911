"""The columns of a data set, whatever library holds it, without importing that library."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from residua.errors import DataError
from residua.schema.wording import hint, listing, shape_of

_ACCEPTED = (
    "a pandas or polars DataFrame, an Arrow table, a mapping of names to arrays, a numpy structured array, "
    "or an integer array of codes (records x attributes)"
)


def columns_of(data: object, names: Sequence[str]) -> list[object]:
    """The named columns of the data, in the order of the names; other columns are passed over."""
    held, pick = _open(data)
    places_of(held, names)
    return [pick(name) for name in names]


def places_of(held: Sequence[object], names: Sequence[str]) -> list[int]:
    """Where each of the names stands among those that the data hold; each must be there once.

    >>> places_of(["sex", "height", "age"], ["age", "sex"])
    [2, 0]
    """
    places = []
    for name in names:
        times = held.count(name)
        if times == 0:
            known = [column for column in held if isinstance(column, str)]
            raise DataError(f"the data have no column {name!r}{hint(name, known)}; they have {listing(held)}")
        if times > 1:
            raise DataError(
                f"the data have {times} columns called {name!r}; keep one of them or rename the others"
            )
        places.append(held.index(name))
    return places


def _open(data: object) -> tuple[list[object], Callable[[str], object]]:
    """The names of the columns that the data hold, and a function that takes one out."""
    if isinstance(data, Mapping):
        return list(data), data.__getitem__
    if isinstance(data, np.ndarray):
        if data.dtype.names is None or data.ndim != 1:
            raise DataError(f"{shape_of(data)}, of type {data.dtype}, is no table; give {_ACCEPTED}")
        return list(data.dtype.names), data.__getitem__
    frame: Any = data
    if is_a(data, "pandas", "DataFrame"):
        return list(frame.columns), frame.__getitem__
    if is_a(data, "polars", "DataFrame"):
        return list(frame.columns), frame.get_column
    if is_a(data, "polars", "LazyFrame"):
        raise DataError("a polars LazyFrame holds no data yet; call .collect() first")
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        table = _arrow_table(data)
        return list(table.column_names), table.column
    raise DataError(
        f"cannot read data of type {type(data).__module__}.{type(data).__qualname__}; give {_ACCEPTED}"
    )


def is_a(data: object, package: str, name: str) -> bool:
    """Whether the data's class, or one it inherits from, is that class of that package."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(data).__mro__
    )


def _arrow_table(data: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as problem:
        kind = f"{type(data).__module__}.{type(data).__qualname__}"
        raise DataError(
            f"Arrow data of type {kind} are not a table ({problem}); give {_ACCEPTED}"
        ) from problem
