"""Releases of many places, in parts: written while they are measured, read as far as they are needed.

Held are the numbers of the levels above the parts, and what all parts say of them (claim T-020); the rest is
in the file, and one part of it is in memory at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import IO, Any

import numpy as np

from residua._arrays import AnyArray, Arrays, Manifest
from residua._files import ByteCount, Parts, Target, Writer
from residua._limits import WHOLE_NUMBERS
from residua._manifests import array_of, submanifest, whole
from residua.answering.blocks import Measured
from residua.answering.place_parts import Division, PartsEstimator, Sums
from residua.answering.places import Numbers, Places
from residua.errors import FileFormatError, Infeasible
from residua.plans import Plan
from residua.release.measurements import Measurements, run_name, stored_run
from residua.strategy.parts import StrategyParts
from residua.strategy.strategy import Strategy

OVERHEAD = 4_096  # bytes of a part, and for each of its arrays, that are no numbers: names, sizes, hashes


@dataclass(frozen=True, eq=False)
class MeasuredParts:
    """Noisy numbers of a release in parts: by run those above, and what the parts say of them."""

    strategy: StrategyParts
    above: Mapping[int, AnyArray]
    sums: Sums
    parts: Parts

    def part(self, number: int) -> dict[int, AnyArray]:
        """The numbers of a part by run, (blocks, rows), in the order of the tree, checked."""
        arrays = self.parts[number]
        if {*arrays} != {run_name(at) for at in self.strategy.divided}:
            raise FileFormatError(f"part {number} of the measurements does not fit the plan")
        shapes = {at: self.strategy.shape(at, number) for at in self.strategy.divided}
        where = f", part {number},"
        return {at: stored_run(arrays, at, shape, where=where) for at, shape in shapes.items()}

    def numbers(self, part: int) -> Numbers:
        """The numbers of a part in units of the matrices."""
        return self.strategy.in_units(self.part(part))

    @cached_property
    def values(self) -> tuple[AnyArray, ...]:
        """All numbers at once, run by run, where memory may be expected to hold them."""
        runs = range(len(self.strategy.runs))
        if sum(int(np.prod(self.strategy.shape(at, None))) for at in runs) > WHOLE_NUMBERS:
            raise Infeasible(
                "this release is in parts and has more numbers than are held at once; ask it for tables, or "
                "write_answers(folder, by=...) part by part"
            )
        found = {at: np.empty(self.strategy.shape(at, None), dtype=np.int64) for at in runs} | {**self.above}
        for number in range(len(self.parts)):
            for at, own in self.part(number).items():
                found[at][self.strategy.blocks(at, number)] = own
        return tuple(found[at] for at in runs)

    def in_units(self, strategy: Strategy) -> Measured:
        """The numbers in units of the matrices, with the blocks that measured them."""
        return Measurements(self.values).in_units(strategy)

    @cached_property
    def estimator(self) -> PartsEstimator:
        """What answers queries, from the parts that they need."""
        above = self.strategy.in_units(dict(self.above))
        return PartsEstimator(self.strategy.places, above, self.sums, self.numbers)

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """The parts' level and number of runs, with cuts, sums and what is above in `arrays`."""
        arrays |= {run_name(at): own for at, own in self.above.items()}
        arrays |= {f"measurements.sums.{number}": own for number, own in enumerate(self.sums.values())}
        arrays["measurements.cuts"] = self.strategy.division.cuts
        return {"batches": len(self.strategy.runs), "parts": {"depth": self.strategy.division.depth}}

    @classmethod
    def from_manifest(
        cls, manifest: Manifest, arrays: Arrays, strategy: Strategy, parts: Parts
    ) -> "MeasuredParts":
        """The measurements that a manifest describes, refused if they do not fit the strategy."""
        source = strategy.answerer if strategy.nested and strategy.grain is not None else None
        if not isinstance(source, Places):
            raise FileFormatError("there are parts of a plan that has none")
        tree = source.nest.tree
        depth = whole(submanifest(manifest, "parts"), "depth", least=1, most=tree.depth)
        cuts = array_of(arrays, "measurements.cuts", "i", (len(parts) + 1,)).astype(np.int64)
        if cuts[0] != 0 or cuts[-1] != tree.sizes[depth] or (np.diff(cuts) <= 0).any():
            raise FileFormatError("the parts do not have every place once")
        own = StrategyParts(strategy, source, Division(source.nest, depth, cuts))
        if whole(manifest, "batches") != len(own.runs):
            raise FileFormatError("the measurements do not belong to the plan they are stored with")
        rest = [at for at in range(len(own.runs)) if at not in own.divided]
        above = {at: stored_run(arrays, at, own.shape(at, None)) for at in rest}
        sums = {
            subset: array_of(arrays, f"measurements.sums.{number}", "f", none.shape)
            for number, (subset, none) in enumerate(own.places.none().items())
        }
        return cls(own, above, sums, parts)

    def refuse_other_sums(self) -> None:
        """FileFormatError where the parts say something else of the levels above than is stored of them."""
        found = self.strategy.places.none()
        for part in range(len(self.parts)):
            self.strategy.places.add(found, part, self.numbers(part))
        if not all(
            np.allclose(own, self.sums[subset], rtol=1e-6, atol=1e-6 * (1.0 + abs(own).max()))
            for subset, own in found.items()
        ):
            raise FileFormatError("its parts say something else of the levels above them than is stored")


class PartsWriter(Writer):
    """Writes parts to a stream as they are measured, and adds up what they say of the levels above."""

    def __init__(self, stream: IO[bytes], plan: Plan, strategy: StrategyParts) -> None:
        super().__init__(stream, "release")
        self.plan, self.strategy = plan, strategy
        self.sums = strategy.places.none()
        self.above: dict[int, AnyArray] = {}

    def write(self, part: int | None, found: Mapping[int, AnyArray]) -> None:
        """Write a part, by run its noisy numbers; what is above the parts is kept."""
        if part is None:
            self.above = dict(found)
            return
        self.add({run_name(at): own for at, own in found.items()})
        self.strategy.places.add(self.sums, part, self.strategy.in_units(dict(found)))

    def measured(self, audit: Manifest, path: Target) -> MeasuredParts:
        """Write everything else; the measurements, whose parts are read from this path."""
        measured = MeasuredParts(self.strategy, self.above, self.sums, Parts.of(path, ()))
        manifest, arrays = self.plan.content()
        content = {"plan": manifest, "measurements": measured.to_manifest(arrays), "audit": dict(audit)}
        hashes = self.finish(content, arrays, self.plan.version)
        return replace(measured, parts=Parts.of(path, hashes))


def rehearsed(plan: Plan, strategy: StrategyParts, audit: Manifest) -> int:
    """The bytes that a release may take, found by writing what is above and the largest part to nowhere."""
    sizes = [strategy.numbers(part) for part in range(len(strategy))]
    largest, stream = int(np.argmax(sizes)), ByteCount()
    writer = PartsWriter(stream, plan, strategy)
    rest = [at for at in range(len(strategy.runs)) if at not in strategy.divided]
    for part, runs in ((None, rest), (largest, strategy.divided)):
        writer.write(part, {at: np.zeros(strategy.shape(at, part), dtype=np.int64) for at in runs})
    writer.measured(audit, stream)
    return stream.size + 8 * sum(sizes) + len(sizes) * OVERHEAD * (1 + len(strategy.divided))
