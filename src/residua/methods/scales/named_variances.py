"""One variance per name of tables, as a loss of one's own gets them: a cvxpy vector that also knows names."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.errors import WorkloadError
from residua.schema.wording import hint


def named_variances(names: Sequence[str], scale: NDArray[np.float64], values: Any) -> Any:
    """`scale * values`, (names,), as a cvxpy expression in the order of the names: `v[0]`, `v["T1"]`.

    `v.keys()`, `v.values()` and `v.items()` are those of a mapping. A name that no table has is an error that
    says so.
    """
    cp = import_module("cvxpy")
    places = {name: place for place, name in enumerate(names)}

    class Variances(cp.multiply):  # type: ignore[misc,name-defined]  # cvxpy is an extra without types
        """Variances by place and by name."""

        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, str):
                if key not in places:
                    near = hint(key, places)
                    raise WorkloadError(
                        f"the loss asks for table {key!r}, which the workload does not have{near}"
                    )
                key = places[key]
            return super().__getitem__(key)

        def __iter__(self) -> Iterator[Any]:
            return (self[place] for place in range(len(places)))

        def keys(self) -> tuple[str, ...]:
            return tuple(places)

        def values(self) -> tuple[Any, ...]:
            return tuple(self)

        def items(self) -> tuple[tuple[str, Any], ...]:
            return tuple(zip(places, self, strict=True))

    return Variances(scale, values)
