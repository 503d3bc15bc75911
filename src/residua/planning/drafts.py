"""What a plan is made for, and the drafts that may become it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array
from residua._limits import WHOLE_CELLS
from residua.linalg.matrices import independent_rows
from residua.methods.blocks import Optimal
from residua.methods.coarsening import coarsened_draft
from residua.methods.draft import Draft, Progress
from residua.methods.effort import Account
from residua.methods.instalments import Renewal, instalments, triangular
from residua.methods.registry import auto, methods_for
from residua.methods.whole import demand, whole_draft
from residua.persons import Person
from residua.privacy import Budget, Unit
from residua.strategy.costs import shared_for
from residua.workload import Combined, Workload


@dataclass(frozen=True, slots=True)
class Request:
    """What a plan is made for: the tables, whose privacy, how, and how close to the optimum.

    `units` are those of the attributes, whose records may be shares of cells. `over` is the attribute whose
    cells are measured in instalments, if one is, and `renew` after how many of them the plan starts anew.
    """

    work: Workload
    person: Person
    method: str
    gap: float
    account: Account
    progress: Progress | None
    units: tuple[int, ...]
    over: int | None = None
    renew: Renewal = None

    @property
    def unit(self) -> Unit:
        """Whose privacy is protected."""
        return self.person.unit

    @property
    def tied(self) -> bool:
        """Whether there are conditions joined across attributes, which are planned by classes of cells."""
        return any(isinstance(queries, Combined) for queries in self.work.families)


def total_draft(request: Request, budget: Budget, method: str) -> Draft:
    """The draft of a method."""

    def drafting(work: Workload) -> Draft:
        if request.over is not None:
            return instalments(
                work, request.over, request.gap, request.progress, request.account, request.renew
            )
        if method == "auto" and budget.law == "gaussian":
            return auto(work, request.gap, request.progress, request.account)
        return methods_for(budget.law)[method](work, request.gap, request.progress)

    work = request.work
    return coarsened_draft(drafting, work, budget.law) if request.tied else drafting(work)


def total_drafts(request: Request, budget: Budget) -> Iterator[Draft]:
    """The draft of the method, and for persons whose records cannot all be in one cell others besides.

    With the best shares for a person, and with an attribute kept whole that records are spread over: cell by
    cell, or as is best for what is asked of it (claims K-014, M-020).
    """
    person, work = request.person, request.work
    draft = total_draft(request, budget, request.method)
    yield draft
    if not person.caps:
        return
    if not draft.strategy.nested:
        yield replace(draft, strategy=shared_for(draft.strategy, person), value=None)
    plain = replace(request, over=None)  # of the other attributes, once one is kept whole
    for cap in person.caps if request.method == "auto" and not request.tied else ():
        if request.over not in (None, cap.attribute):
            continue
        for rows in _wholes(work, cap.attribute, request.gap):
            found = whole_draft(
                work, cap.attribute, rows, lambda own: total_draft(replace(plain, work=own), budget, "auto")
            )
            if found is not None:
                found = found if request.over is None else triangular(found, request.over)
                yield replace(found, lower_bound=draft.lower_bound, scope=draft.scope)


def _wholes(work: Workload, at: int, gap: float) -> Iterator[Array]:
    """Square matrices by which an attribute may be kept whole; none where it has many cells."""
    size = work.schema.sizes[at]
    if size <= WHOLE_CELLS:
        yield np.eye(size)
        asked = independent_rows(demand(work, at))
        if len(asked) == size:
            yield Optimal().solve(asked, (size,), (0,), gap, "an attribute").strategy
