"""What a release holds besides its plan: noisy numbers, and the record of how they came to be."""

import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from residua._arrays import AnyArray, Array, Arrays, Integers, Manifest
from residua._manifests import entry, flag, submanifest, submanifests, text, whole
from residua.answering.blocks import Measured
from residua.answering.protocol import Estimates
from residua.errors import FileFormatError
from residua.plans import Plan
from residua.privacy import Privacy
from residua.strategy.joining import fitted
from residua.strategy.strategy import Strategy
from residua.version import __version__

NUMBERS_AT_ONCE = 2**17  # that are put in units: a megabyte, which stays in the cache


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """For each run of blocks of a strategy its noisy numbers, shape (blocks, rows).

    They are integers, times the multiplier of the run; a combination of releases has real numbers.
    """

    values: tuple[AnyArray, ...]

    @property
    def parts(self) -> None:
        """Nothing of it is left in a file."""

    def in_units(self, strategy: Strategy) -> Measured:
        """The numbers in units of the matrices, with the blocks that measured them."""
        return [
            (layer, rows, values.astype(np.float64) / strategy.layers[layer].multiplier)
            for (layer, rows), values in zip(strategy.runs(), self.values, strict=True)
        ]

    def in_parts(self, strategy: Strategy) -> Iterator[tuple[int, Integers, Array]]:
        """The same some blocks at a time, so that the numbers are not all held twice."""
        for (layer, rows), values in zip(strategy.runs(), self.values, strict=True):
            step = max(1, NUMBERS_AT_ONCE // max(1, values.shape[1]))
            for start in range(0, len(rows), step):
                own = values[start : start + step].astype(np.float64)
                own /= strategy.layers[layer].multiplier
                yield layer, rows[start : start + step], own

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """Its number of runs, with the values in `arrays`."""
        for number, values in enumerate(self.values):
            arrays[run_name(number)] = values
        return {"batches": len(self.values)}

    @classmethod
    def from_manifest(cls, manifest: Manifest, arrays: Arrays, strategy: Strategy) -> "Measurements":
        """The measurements that a manifest describes, refused if they do not fit the strategy."""
        runs = list(strategy.runs())
        if whole(manifest, "batches") != len(runs):
            raise FileFormatError("the measurements do not belong to the plan they are stored with")
        kind = np.float64 if strategy.grain is None else np.int64
        values = []
        for number, (layer, rows) in enumerate(runs):
            shapes = (strategy.shapes[at] for at in strategy.layers[layer].shapes[rows[0]].tolist())
            wanted = (len(rows), math.prod(len(shape.matrix) for shape in shapes))
            values.append(stored_run(arrays, number, wanted, kind))
        return cls(tuple(values))


def run_name(run: int) -> str:
    """The name of the array that has the numbers of a run."""
    return f"measurements.{run}"


def stored_run(
    arrays: Arrays, run: int, shape: tuple[int, int], kind: type = np.int64, where: str = ""
) -> AnyArray:
    """The numbers of a run, refused where they are not what the plan measures."""
    found = arrays.get(run_name(run))
    if found is None or found.shape != shape or found.dtype != kind:
        raise FileFormatError(f"batch {run} of the measurements{where} does not fit the plan")
    return found


def checked_audit(audit: Manifest) -> Manifest:
    """The audit record of a file, refused where it does not say how the release came to be."""
    for key in ("residua", "numpy", "python", "time", "plan_hash", "noise", "note"):
        text(audit, key)
    flag(audit, "simulated")
    for key in ("period",) if "period" in audit else ():
        text(audit, key)
    Privacy.from_manifest(submanifest(audit, "privacy"))
    if entry(audit, "ledger") is not None:
        paid = submanifest(audit, "ledger")
        for key in {"dataset", "entry", "amount", *paid}:
            text(paid, key)
        if not paid["entry"].isdecimal():
            raise FileFormatError("its audit record names no entry of a ledger")
    if "combined" in audit:
        for part in submanifests(audit, "combined"):
            checked_audit(part)
    return audit


def audit_record(
    plan: Plan,
    time: datetime,
    entry: Mapping[str, str] | None,
    note: str,
    *,
    simulated: bool,
    period: str | None = None,
) -> dict[str, Any]:
    """How a release came to be: versions, plan, ledger entry and policies, and nothing of the data."""
    schema = plan.schema
    return ({} if period is None else {"period": period}) | {
        "residua": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "time": time.isoformat(timespec="seconds"),
        "plan_hash": plan.hash,
        "privacy": plan.privacy.to_manifest(),
        "noise": "discrete laplace" if plan.strategy.law == "laplace" else "rounded gaussian",
        "ledger": None if entry is None else dict(entry),
        "note": note,
        "policies": {name: str(schema[name].outside) for name in schema.names},
        "simulated": simulated,
    }


def fitted_measurements(strategy: Strategy, record: Manifest, arrays: Arrays) -> Measurements:
    """The numbers of a combined release of format 1, which holds estimates instead.

    What its blocks would have measured of those without noise solves the same normal equations as the
    numbers that it was made from.
    """
    estimates = Estimates.from_manifest(record, arrays, strategy.answerer.measures, strategy.sizes)
    joint = [table.tolist() for table in estimates.tables] == [[strategy.attributes()]]
    if estimates.measures is None and not joint:
        raise FileFormatError("the estimates do not belong to the plan they are stored with")
    numbers = fitted(strategy, strategy.answerer.estimator(estimates).marginals)
    return Measurements(tuple(own * strategy.layers[layer].multiplier for layer, _, own in numbers))
