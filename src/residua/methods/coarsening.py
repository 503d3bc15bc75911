"""Plans for workloads with conditions joined across attributes, whatever the number of their joint cells.

Two ways. All tables over the classes of cells that the workload tells apart: cells that all queries treat
alike are one cell for the best mechanism too (claim H-010). Or the conditions by classes, and beside them,
with the rest of the privacy, the tables that tell all cells apart (claim H-041). The better one is taken.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Subset
from residua._limits import CELL_CLASSES, JOINT_CLASSES
from residua.answering.coarsened import QuerySplit, query_split_of, split_by
from residua.answering.independent.parts import tied as tied_together
from residua.bounds import quick_bound
from residua.errors import Infeasible
from residua.linalg.classes import Classes, JointClasses, common_refinement
from residua.methods.draft import Draft, best_of
from residua.methods.hdmm.demand import scope_of
from residua.privacy import NoiseLaw
from residua.strategy.build import Spans, seen_by
from residua.strategy.strategy import Strategy
from residua.workload import Table, TableRun, Workload
from residua.workload.views import View, cells_of_classes, classes_of, combined_factors, joint_classes

Parts = Sequence[Table | TableRun]

PROVED = 1e-3  # a gap below which no other way is looked for


@dataclass(frozen=True, slots=True, eq=False)
class Coarse:
    """A workload over classes of cells: as the view of its schema shows it."""

    work: Workload
    view: View

    def strategy(self, found: Strategy) -> Strategy:
        """The strategy for cells that one planned for the coarse workload is."""
        return seen_by([(found, self.view, {})])[0] if self.view.parts else found


def tied(parts: Parts) -> Subset:
    """Attributes that some joined condition looks at, ascending."""
    return tuple(sorted({at for _, factor in combined_factors(parts) for at in factor.attributes}))


def coarse_workload(work: Workload) -> Coarse:
    """The workload over the classes of cells that it tells apart; Infeasible if a condition has too many.

    A workload without joined conditions stays as it is.
    """
    attributes = tied(work.parts)
    if not attributes:
        return Coarse(work, View())
    classes = _classes_asked(work.parts, attributes)
    for group, factor in combined_factors(work.parts):
        cells = cells_of_classes([classes[at] for at in factor.attributes])
        if cells > CELL_CLASSES:
            names = " x ".join(work.schema.names[at] for at in factor.attributes)
            raise Infeasible(
                f"table {group.name!r} ties {names} together, and with all that other tables tell apart "
                f"these have {cells:,} classes of cells, more than the {CELL_CLASSES:,} planned as one; "
                "plan the condition in a release of its own, or take coarser groups"
            )
    runs = {at for part in work.parts if isinstance(part, TableRun) for at in part.attributes}
    parts: list[JointClasses] = []
    for ties in _tied_together([part for part in work.parts if isinstance(part, Table)], attributes):
        alone = runs.isdisjoint(ties.classes)
        own = replace(ties, classes={at: classes[at] for at in ties.classes})
        parts += _viewed(own) if alone else _each_by_classes(own)
    view = View(tuple(parts))
    return Coarse(_seen(work, view), view)


def _seen(work: Workload, view: View) -> Workload:
    """The workload as a view of its schema shows it."""
    found = [view.group(part)[0] if isinstance(part, Table) else view.tables(part) for part in work.parts]
    return Workload(view.schema(work.schema), tuple(part for part in found if part is not None))


def _viewed(ties: "Ties") -> list[JointClasses]:
    """Tied attributes as one, by joint classes, where those are few; or each by its classes."""
    if len(ties.classes) > 1 and ties.cells <= CELL_CLASSES:
        found = joint_classes(tuple(ties.classes), list(ties.classes.values()), ties.groups)
        if found.size <= min(JOINT_CLASSES, ties.cells - 1):
            return [found]
    return _each_by_classes(ties)


def _each_by_classes(ties: "Ties") -> list[JointClasses]:
    return [JointClasses.of_one(at, own) for at, own in ties.classes.items() if not own.trivial]


Drafting = Callable[[Workload], Draft]
"""A method with all that it needs but a workload."""


def coarsened_draft(drafting: Drafting, work: Workload, law: NoiseLaw) -> Draft:
    """The best draft for a workload with conditions joined across attributes.

    Over classes of cells; or beside the other tables, which are then measured cell by cell. Where neither
    fits, attributes that conditions are grouped by are measured beside the cells as well, or all is planned
    as it is, which is possible where other tables tell apart all that conditions look at.
    """
    reach = {at for group, _ in combined_factors(work.parts) for at in group.attributes}
    return best_of(
        work,
        (lambda: _by_classes(drafting, work), lambda: _side_by_side(drafting, work, law, tied(work.parts))),
        (lambda: _side_by_side(drafting, work, law, tuple(sorted(reach))), lambda: drafting(work)),
        PROVED,
    )


def _by_classes(drafting: Drafting, work: Workload) -> Draft:
    """The draft for the workload over the classes of cells that all its tables tell apart."""
    coarse = coarse_workload(work)
    draft = drafting(coarse.work)
    if not coarse.view.parts:
        return draft
    found, spans = seen_by([(draft.strategy, coarse.view, draft.spans)])
    return replace(draft, strategy=found, spans=spans)


def _side_by_side(drafting: Drafting, work: Workload, law: NoiseLaw, attributes: Subset) -> Draft | None:
    """Drafts for the conditions and for the other tables, side by side; None if there is one side only."""
    conditions, rest = _divided(work, attributes)
    split = [(each, ties) for ties in conditions for each in _query_splits(ties, rest)] if rest else []
    if not split:
        return None
    query_splits = [each for each, _ in split]
    view = View(tuple(part for _, ties in split for part in _viewed(ties)))
    splits = [split_by(query_splits, group) for ties in conditions for group in ties.groups]
    fine = [*rest, *(split.fine for split in splits if split.fine is not None)]
    coarse = [split.coarse for split in splits if split.coarse is not None]
    works = [Workload(work.schema, tuple(fine)), _seen(Workload(work.schema, tuple(coarse)), view)]
    drafts = [drafting(each) for each in works]
    found, spans = _shared_out(drafts, works, view, query_splits)
    bound = quick_bound(Workload(work.schema, tuple(rest)))  # more queries never make it easier
    if bound > 0 or law == "laplace":
        return Draft(found, bound, scope_of(law), spans=spans)
    # No two mechanisms for the two parts do better, however they share the privacy (claim M-001).
    apart = math.fsum(math.sqrt(draft.lower_bound) for draft in drafts) ** 2
    return Draft(found, apart, "this block structure", spans=spans)


@dataclass(frozen=True, slots=True, eq=False)
class Ties:
    """Tables that are tied together by the attributes they share, and the classes of cells of those."""

    groups: tuple[Table, ...]
    classes: Mapping[int, Classes]

    @property
    def cells(self) -> int:
        """Number of combinations of classes."""
        return cells_of_classes(list(self.classes.values()))


def _divided(work: Workload, attributes: Subset) -> tuple[list[Ties], list[Table | TableRun]]:
    """Tables to be measured by classes of cells of these attributes, those that share some together; others.

    Beside the conditions these are tables on several of their attributes that tell few cells apart: cell by
    cell they would take all joint cells of those attributes.
    """
    joined = {id(group) for group, _ in combined_factors(work.parts)}
    chosen: list[Table] = []
    rest: list[Table | TableRun] = []
    for part in work.parts:
        mine = tuple(at for at in attributes if at in part.attributes)
        if isinstance(part, Table) and (id(part) in joined or (len(mine) > 1 and _few(part, mine))):
            chosen.append(part)
        else:
            rest.append(part)
    return _tied_together(chosen, attributes), rest


def _tied_together(groups: Sequence[Table], attributes: Subset) -> list[Ties]:
    """The tables that have some of these attributes, those that share one of them together."""
    reach = [[at for at in attributes if at in group.attributes] for group in groups]
    found = []
    for numbers in tied_together(reach):
        if own := sorted({at for number in numbers for at in reach[number]}):
            several = tuple(groups[at] for at in numbers)
            found.append(Ties(several, _classes_asked(several, own)))
    return found


def _few(group: Table, attributes: Subset) -> bool:
    """Whether a table tells apart fewer than all cells of some of these attributes, and few enough in all."""
    classes = list(_classes_asked([group], attributes).values())
    return any(not own.trivial for own in classes) and cells_of_classes(classes) <= CELL_CLASSES


def _query_splits(ties: Ties, rest: Parts) -> Iterator[QuerySplit]:
    """What is to be measured by classes of cells, if that is anything and those are not too many."""
    attributes = tuple(ties.classes)
    if ties.cells <= CELL_CLASSES:
        own = list(ties.classes.values())
        found = query_split_of(attributes, own, _settled(rest, attributes), ties.groups)
        if len(found.rows):
            yield found


def _shared_out(
    drafts: Sequence[Draft], works: Sequence[Workload], view: View, query_splits: Sequence[QuerySplit]
) -> tuple[Strategy, Spans]:
    """Both parts with the best shares of the privacy (claim H-032), and the spans of their shapes."""
    totals = [draft.total(own) for draft, own in zip(drafts, works, strict=True)]
    shares = np.array(totals) ** (1 / 3 if drafts[0].strategy.law == "laplace" else 1 / 2)
    shares = shares / shares.sum()
    parts = [
        (draft.strategy.scaled(float(share)), own, draft.spans)
        for draft, share, own in zip(drafts, shares, (View(), view), strict=True)
    ]
    return seen_by(parts, query_splits)


def _classes_asked(parts: Parts, attributes: Sequence[int]) -> dict[int, Classes]:
    """Classes of the cells of these attributes that the tables tell apart."""
    found: dict[int, dict[Classes, None]] = {at: {} for at in attributes}
    for part in parts:
        if isinstance(part, TableRun) and part.joint is None:
            for at in set(part.attributes) & set(attributes):
                found[at][classes_of(part.queries_of(at), 0)] = None
            continue
        for group in part:
            for factor in group.factors:
                for place, at in enumerate(factor.attributes):
                    if at in found:
                        found[at][classes_of(factor.queries, place)] = None
    return {at: common_refinement(list(several)) for at, several in found.items()}


def _settled(parts: Parts, attributes: Subset) -> list[Subset]:
    """The largest sets of these attributes that one of the tables has."""
    known: set[Subset] = set()
    for part in parts:
        if isinstance(part, Table):
            known.add(tuple(at for at in attributes if at in part.attributes))
        else:
            ours = np.isin(part.subsets, attributes)
            rows = np.unique(np.sort(np.where(ours, part.subsets, -1), axis=1), axis=0)
            known |= {tuple(at for at in row if at >= 0) for row in rows.tolist()}
    return sorted(each for each in known if not any(set(each) < set(other) for other in known))
