"""A plan as post-processing sees it."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from residua.answering.protocol import TableParts
from residua.errors import WorkloadError
from residua.plans import Plan
from residua.schema import Schema
from residua.strategy.strategy import Domain, Strategy
from residua.workload import Table, Workload


@dataclass(frozen=True, eq=False)
class Basis:
    """A plan as post-processing sees it: tables of the cells, or classes of cells, that its blocks measure.

    Of a plan that measures some conditions by classes beside tables of cells, these are the tables of cells
    and all that they answer; the conditions are answered by the release only (claim P-110).
    """

    plan: Plan

    @cached_property
    def strategy(self) -> Strategy:
        """The blocks that see the first domain, as if its classes were cells."""
        own, seen = self.plan.strategy, self.plan.strategy.domains[0]
        if not own.coarsened:
            return own
        layers = tuple(layer for layer in own.layers if layer.domain == 0)
        return replace(own, domains=(Domain(seen.sizes, seen.measures),), layers=layers, query_splits=())

    @cached_property
    def schema(self) -> Schema:
        """The schema as the blocks see it."""
        return self.plan.strategy.domains[0].view.schema(self.plan.schema)

    def asked(self, group: Table) -> TableParts:
        """A table as the blocks see it; refused where they do not answer it."""
        with self.plan.naming():
            found = self.plan.strategy.answerer.asked(group)
        if any(domain for domain, _, _ in found.parts):
            raise WorkloadError(
                f"table {group.name!r} asks for what is measured by classes of cells beside the tables that "
                "are post-processed; the release itself answers it"
            )
        return found

    @cached_property
    def workload(self) -> Workload:
        """Those tables of the plan that can be answered after post-processing."""
        if len(self.plan.strategy.domains) == 1:
            return self.plan.workload
        kept = []
        for group in self.plan.workload.groups():
            with suppress(WorkloadError):
                self.asked(group)
                kept.append(group)
        return Workload(self.plan.schema, tuple(kept))

    def seen(self, work: Workload) -> Workload:
        """A workload as the blocks see it."""
        if not self.plan.strategy.coarsened:
            return work
        groups = tuple(part for group in work.groups() for _, part, _ in self.asked(group).parts)
        return Workload(self.schema, groups)
