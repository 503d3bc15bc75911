"""What a release's file states, one statement at a time, against what was recomputed."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from residua._text import columns, counted
from residua.accuracy.figures import Figures
from residua.errors import FileFormatError, NotInSpan, ResiduaError
from residua.kernel.cost import person_cost
from residua.kernel.measurement import Measurement, refuse_few_records
from residua.plans import Plan
from residua.privacy import Privacy
from residua.privacy.budgets import bound_divisor
from residua.privacy.conversions import text_above
from residua.privacy.unit import Person
from residua.release import Release
from residua.release.parts import MeasuredParts
from residua.verify.bound import Bracket, over_all_cells, over_blocks
from residua.verify.people import over_changes
from residua.verify.variances import Found, centred_pieces, measured_so_far, way_for, weights_of
from residua.workload import Table

Verdict = Literal["holds", "false", "unchecked"]

FLOATS = 1e-9  # relative: what floats that were computed with may be off
NEAR = 1e-6  # relative difference of two ways to compute one figure
PROVED = 1e-3  # relative: a stated bound that is no further than this above the one found again
MOST_TABLES = 20_000  # that are recomputed
EVERYWHERE = "bound for all mechanisms"
CURRENCIES = ("rho", "pure_epsilon", "cost")


@dataclass(frozen=True, slots=True)
class Check:
    """One statement of a file: what it is about, whether it holds, and why."""

    subject: str
    verdict: Verdict
    words: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of a release."""

    checks: tuple[Check, ...]

    @property
    def false(self) -> tuple[Check, ...]:
        """The statements that do not hold."""
        return tuple(check for check in self.checks if check.verdict == "false")

    @property
    def holds(self) -> bool:
        """Whether nothing that could be checked is false."""
        return not self.false

    def describe(self) -> Iterator[str]:
        """Lines for people: every check, and a verdict."""
        yield from columns(
            ("statement", "", "why"), [(c.subject, c.verdict, c.words) for c in self.checks], left=(0, 1, 2)
        )
        open_ = sum(check.verdict == "unchecked" for check in self.checks)
        told = (
            f"{counted(len(self.false), 'statement', 'statements')} false" if self.false else "Nothing false"
        )
        yield ""
        yield f"{told}; {len(self.checks) - open_ - len(self.false)} hold, {open_} could not be checked."


def verify(path: str | os.PathLike[str]) -> Verification:
    """What the file of a release states, checked from the file alone by code that made none of it.

    A file that cannot be read, or that was changed after it was written, is one false statement.
    """
    checks: list[Check] = []
    try:
        checks.extend(_checks(Release.load(path)))
    except (ResiduaError, ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        # What an honest file holds can be computed with: this one states what cannot be.
        checks.append(Check("file", "false", str(error)))
    return Verification(tuple(checks))


def _checks(release: Release) -> Iterator[Check]:
    plan = release.plan
    yield Check("file", "holds", f"whole, unedited, format {plan.version}, hash {release.hash[:16]}")
    if isinstance(release.measurements, MeasuredParts):
        yield _parts(release.measurements)
    batches = _measured(plan)
    yield _cost(plan, batches)
    yield _noise(plan, batches)
    yield _audit(release)
    tables = _Tables(plan)
    yield from tables.checks()
    yield _targets(plan)
    yield from _certificate(plan, tables)
    yield Check("ideal", *_ideal(plan))
    yield Check("origin", "unchecked", "of which data it is, and that noise was drawn: no file can show that")


def _parts(measured: MeasuredParts) -> Check:
    """Every part against its hash, and what all of them say of the levels above against what is stored."""
    try:
        measured.refuse_other_sums()
    except FileFormatError as error:
        return Check("parts", "false", str(error))
    many = counted(len(measured.parts), "part", "parts")
    return Check("parts", "holds", f"{many}, each as its hash says, with the sums that are stored of them")


def _measured(plan: Plan) -> Sequence[Measurement] | None:
    """What was measured, as the kernel has it; None of releases that were combined."""
    if plan.strategy.grain is not None:
        return plan.batches
    return list(measured_so_far(plan.strategy)) if plan.method == "instalments" else None


def _cost(plan: Plan, batches: Sequence[Measurement] | None) -> Check:
    """The exact cost of one person, or record, against what the budget allows (claims K-005, K-010)."""
    if batches is None:
        return Check("cost", "unchecked", "it combines releases: verify each, and their ledger")
    person, exact = Person.of(plan.unit, plan.schema), plan.strategy.grain is not None
    refuse_few_records(batches)
    spent, allowed = person_cost(batches, person), person.allowance(plan.budget)
    if any(batch.law != plan.budget.law for batch in batches):
        return Check("cost", "false", f"its noise cannot keep to {plan.budget!r}")
    if spent > allowed * (1 if exact else 1 + FLOATS):
        times = f"{text_above(spent / allowed)} times what {plan.budget!r} allows"
        return Check("cost", "false", f"a {plan.unit.noun} costs {times}")
    share = f"{text_above(100 * spent / allowed)}% of what {plan.budget!r} allows"
    how = "in exact fractions" if exact else "so far, by the costs that blocks state"
    return Check("cost", "holds", f"the dearest {plan.unit.noun} costs {share}, {how}")


def _noise(plan: Plan, batches: Sequence[Measurement] | None) -> Check:
    """Errors rest on the variances that blocks state: those of the law with the exact parameter (N-021)."""
    if batches is None:
        return Check("noise", "unchecked", "it combines releases: their noise is stated, not its law")
    for (number, rows), batch in zip(plan.strategy.runs(), batches, strict=True):
        layer = plan.strategy.layers[number]
        true = np.array([law.variance for law in batch.laws()])[batch.owners] / layer.multiplier**2
        if not np.allclose(layer.noise[rows], true, rtol=FLOATS, atol=0):
            return Check("noise", "false", "blocks state another variance than that of their noise")
    blocks = sum(len(batch.owners) for batch in batches)
    many = counted(blocks, "block states", "blocks state")
    return Check("noise", "holds", f"{many} the variance of the law that has this cost")


def _audit(release: Release) -> Check:
    """The audit record says what the plan says."""
    audit, plan = release.audit, release.plan
    if "combined" in audit:
        return Check("audit record", "unchecked", "it combines releases: their own records are listed in it")
    noise = "discrete laplace" if plan.strategy.law == "laplace" else "rounded gaussian"
    stated = Privacy.from_manifest(audit["privacy"])
    wrong = [
        word
        for word, right in (
            ("plan", audit["plan_hash"] == plan.hash),
            ("privacy", stated == plan.privacy),
            ("noise", audit["noise"] == noise),
            (
                "policies",
                audit.get("policies") == {n: str(plan.schema[n].outside) for n in plan.schema.names},
            ),
            ("ledger", (audit["ledger"] is None) == release.simulated),
            ("amount", audit["ledger"] is None or _paid(audit["ledger"]["amount"], stated)),
        )
        if not right
    ]
    if wrong:
        return Check(
            "audit record", "false", f"it states another {' and another '.join(wrong)} than the plan"
        )
    said = "it says that nobody paid: simulated"
    if not release.simulated:
        said = f"it names entry {audit['ledger']['entry']} of its ledger"
    return Check("audit record", "holds", f"same plan, privacy, noise and policies; {said}")


def _paid(amount: str, privacy: Privacy) -> bool:
    """Whether an amount is that of the privacy in some currency of ledgers."""
    return amount in {str(getattr(privacy, name)) for name in CURRENCIES}


class _Tables:
    """Every table's variances, recomputed once; sums over all of them where none was left out."""

    def __init__(self, plan: Plan) -> None:
        self.plan, work = plan, plan.workload
        few = work.tables <= MOST_TABLES
        self.way = way_for(plan.strategy, plan.schema.sizes, work.attributes) if few else None
        self.weighted = self.plain = self.largest = self.dearest = 0.0
        self.left_out = work.tables
        self.outside: list[str] = []
        self.different: list[str] = []
        if self.way is not None:
            self.left_out = sum(not self._take(table, self.way.table(table)) for table in work.groups())

    def _take(self, table: Table, found: Found | None) -> bool:
        if found is None:
            return False
        if not found.in_span:
            self.outside.append(table.name)
            return True
        weights = weights_of(table)
        self.weighted += float(weights @ found.variances)
        self.plain += float(found.variances.sum())
        self.largest = max(self.largest, float(found.variances.max()))
        self.dearest = max(self.dearest, float((weights * found.variances).max()))
        if not self._answered_alike(table, found):
            self.different.append(table.name)
        return True

    def _answered_alike(self, table: Table, found: Found) -> bool:
        """Whether errors that answers carry are those found here; of split queries, none may be smaller."""
        try:
            stated = self.plan.strategy.variances(table)
        except NotInSpan:
            return False
        if self.plan.strategy.query_splits:
            return bool((stated >= found.variances * (1 - NEAR)).all())
        return np.allclose(stated, found.variances, rtol=NEAR, atol=0)

    @property
    def complete(self) -> bool:
        return not (self.left_out or self.outside or self.plan.strategy.query_splits)

    def checks(self) -> Iterator[Check]:
        tables = self.plan.workload.tables
        many = counted(tables - self.left_out, "table", "tables")
        if self.way is None:
            yield Check("spans", "unchecked", "its structure is too large to recompute from the matrices")
        elif self.outside:
            yield Check("spans", "false", f"nothing that is measured answers {', '.join(self.outside[:3])}")
        else:
            yield Check("spans", "holds", f"every query of {many} is a combination of what is measured")
        if self.way is not None:
            words = (
                f"of {many} by {self.way.words}"
                if not self.different
                else (f"those of {', '.join(self.different[:3])} are not what the measurements give")
            )
            yield Check("errors", "false" if self.different else "holds", words)
        if self.left_out:
            yield Check(
                "errors", "unchecked", f"of {counted(self.left_out, 'table', 'tables')}: too many numbers"
            )
        if not self.outside:
            yield self._figures()

    def _figures(self) -> Check:
        """The sums that the file states; by the program's own formulas where tables were left out."""
        stated = self.plan.released
        if self.complete:
            pairs = [(self.weighted, stated.total_variance), (self.plain, stated.totals[1])]
            pairs.append((self.largest, stated.max_variance))
            words = f"rmse {self.plan.rmse:.6g}, total and largest variance, recomputed"
        else:
            sums = zip(*map(self.plan.strategy.totals, self.plan.workload.parts), strict=True)
            pairs = [(math.fsum(own), told) for own, told in zip(sums, stated.totals, strict=True)]
            pairs.append(
                (Figures.of(self.plan.strategy, self.plan.workload).max_variance, stated.max_variance)
            )
            words = "rmse, total and largest variance, by the program's own formulas only"
        if not all(math.isnan(told) or math.isclose(found, told, rel_tol=NEAR) for found, told in pairs):
            return Check("figures", "false", "sums or the largest of the variances are stated otherwise")
        return Check("figures", "holds" if self.complete else "unchecked", words)


def _targets(plan: Plan) -> Check:
    """Whether targets are met as stated; their ratios by the program's own formulas."""
    if plan.targets is None:
        return Check("targets", "holds", "none stated")
    again = plan.targets.at(plan.workload, plan.strategy, float(plan.budget.gaussian_cost()))
    pairs = zip(plan.targets.met, again.met, strict=True)
    if not all(math.isclose(a.ratio, b.ratio, rel_tol=NEAR) for a, b in pairs):
        return Check("targets", "false", "variances reach other shares of the targets than stated")
    if not math.isclose(plan.targets.needed, again.needed, rel_tol=NEAR):
        return Check("targets", "false", "another privacy cost meets the targets than stated")
    return Check("targets", "holds", f"variances reach {again.factor:.4g} times what is allowed")


def _certificate(plan: Plan, tables: _Tables) -> Iterator[Check]:
    """Gap, lower bound and scope: the arithmetic, then the bound itself, found again (claim X-004)."""
    stated = plan.certificate
    value = _objective(plan, tables)
    if not math.isfinite(stated.gap):
        yield Check(
            "certificate", "holds" if stated.lower_bound <= 0 else "false", "no lower bound is stated"
        )
        return
    if value is None:
        yield Check("certificate", "unchecked", f"the objective {plan.objective!r} was not recomputed")
        return
    gap = value / stated.lower_bound - 1 if stated.lower_bound > 0 else math.inf
    if not math.isclose(1 + gap, 1 + stated.gap, rel_tol=NEAR):
        yield Check("gap", "false", f"{stated.gap:.3g} is stated, {gap:.3g} follows from the variances")
        return
    if gap < -NEAR:
        yield Check("gap", "false", "the plan is better than what is said to be possible")
        return
    yield Check("gap", "holds", f"{100 * stated.gap:.3g}% above the lower bound, from the variances")
    yield _bound(plan, "lower bound", stated.lower_bound, stated.scope)
    if stated.everywhere is not None and stated.everywhere > value * (1 + NEAR):
        yield Check(EVERYWHERE, "false", "the plan is better than what is said to be possible")
    elif stated.everywhere is not None:
        yield _bound(plan, EVERYWHERE, stated.everywhere, "all mechanisms")


def _objective(plan: Plan, tables: _Tables) -> float | None:
    """What the plan makes small, recomputed; None where that was not possible."""
    if plan.objective == "targets" and plan.targets is not None:
        return plan.targets.factor
    if not tables.complete:
        return plan.total_variance if plan.objective == "total_variance" else None
    return {"total_variance": tables.weighted, "max_variance": tables.dearest}.get(plan.objective)


def _bound(plan: Plan, subject: str, stated: float, scope: str) -> Check:
    """A stated lower bound for the mechanisms of a scope against what is found again at cost 1."""
    person = Person.of(plan.unit, plan.schema)
    # Whether what a person can change is whole records, added or removed in one cell.
    common = plan.workload.whole and person.simple
    found = None
    if plan.objective == "total_variance":
        found = _bracket(plan, scope) if common else over_changes(plan.workload, person)
    if found is None:
        words = f"too large to find again, or of another objective: {plan.objective}"
        return Check(subject, "unchecked", words)
    low, high = found
    allowed = person.most_for_one(plan.budget) if common else person.allowance(plan.budget)
    at = stated * bound_divisor(plan.budget.law, allowed)
    if at > high * (1 + NEAR):
        return Check(subject, "false", f"{at / high - 1:.2%} above what a mechanism reaches")
    if at > low * (1 + PROVED):
        return Check(subject, "unchecked", f"proved here only to {low / at:.2%} of it")
    whom = scope if common else "what one person can change"
    return Check(subject, "holds", f"for {whom}: found again from the queries alone")


def _bracket(plan: Plan, scope: str) -> Bracket | None:
    """What is impossible and what is possible in a scope, at cost 1."""
    block = scope == "this block structure"
    found = None if block else over_all_cells(plan.workload)
    if found is not None or scope != plan.certificate.scope or not (block or plan.workload.invariant):
        return found
    pieces = centred_pieces(plan.strategy)
    return None if pieces is None else over_blocks(plan.workload, pieces)


def _ideal(plan: Plan) -> tuple[Verdict, str]:
    """The real-valued optimum is of a strategy that is not in the file: only its place can be checked."""
    bound, ideal = plan.certificate.lower_bound, plan.ideal.total_variance
    if plan.objective == "total_variance" and ideal < bound * (1 - NEAR):
        return "false", "the figures of the real-valued optimum are below the lower bound"
    return "unchecked", "figures of the real-valued optimum: its strategy is not in the file"
