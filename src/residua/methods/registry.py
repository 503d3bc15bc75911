"""Every planning method by name, and how to add one."""

from collections.abc import Mapping
from typing import Protocol

from residua.errors import WorkloadError
from residua.methods.choice import auto
from residua.methods.dense import dense
from residua.methods.draft import Draft, Progress
from residua.methods.either_noise import hdmm_methods, laplace_auto
from residua.methods.named import fourier, querysmasher, residualplanner, residualplanner_plus
from residua.methods.smasher import smasher
from residua.privacy import NoiseLaw
from residua.workload import Workload


class Method(Protocol):
    """What a planning method is: from a workload to a draft at privacy cost 1."""

    def __call__(self, work: Workload, gap: float, progress: Progress | None, /) -> Draft:
        """The draft; `gap` is the relative distance from the optimum at which solving may stop."""


_METHODS: dict[NoiseLaw, dict[str, Method]] = {
    "gaussian": {
        "auto": auto,
        "smasher": smasher,
        "querysmasher": querysmasher,
        "residualplanner": residualplanner,
        "residualplanner+": residualplanner_plus,
        "fourier": fourier,
        "dense": dense,
        **hdmm_methods("gaussian"),
    },
    "laplace": {"auto": laplace_auto, **hdmm_methods("laplace")},
}


def methods_for(noise: NoiseLaw) -> Mapping[str, Method]:
    """The methods that plan noise of this law, by name."""
    return _METHODS[noise]


def register_method(name: str, method: Method, *, noise: NoiseLaw = "gaussian") -> None:
    """Make a method of your own known as `rs.plan(..., method=name)`.

    `method(work, gap, progress)` returns a `residua.methods.Draft` at privacy cost 1: a strategy, a lower
    bound on the total weighted variance at that cost (0 if nothing is known), and for whom the bound holds.
    What it costs, its errors and its integers are worked out as for any other method.

    >>> import numpy as np
    >>> import residua as rs
    >>> from residua.methods import Draft, strategy_of
    >>> def cells(work, gap, progress):
    ...     return Draft(strategy_of(work.schema, [({"age": np.eye(10)}, 1.0)]), 0.0, "this block structure")
    >>> rs.register_method("cells of age", cells)
    >>> schema = rs.Schema(age=rs.Integer(0, 9))
    >>> rs.plan(rs.table(schema, ["age"]), rs.privacy_cost(1), method="cells of age").rmse.__round__(3)
    1.0
    """
    if not isinstance(name, str) or not name or not callable(method):
        raise WorkloadError(f"a method is registered by a name and a function, not {name!r} and {method!r}")
    if noise not in _METHODS:
        raise WorkloadError(f"noise is one of {', '.join(_METHODS)}, not {noise!r}")
    if name in _METHODS[noise]:
        raise WorkloadError(f"there is a method {name!r} already; choose another name")
    _METHODS[noise][name] = method
