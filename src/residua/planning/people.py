"""Certificates where what a person can change is not one whole record, added or removed (claim B-013)."""

from collections.abc import Callable
from dataclasses import replace

from residua.accuracy.figures import Certificate, certified
from residua.bounds.people import person_bound
from residua.methods.hdmm.demand import scope_of
from residua.privacy import Budget
from residua.privacy.budgets import bound_divisor
from residua.privacy.unit import Person
from residua.workload import Workload

Least = Callable[[Workload], float]
"""The least total weighted variance of any mechanism, from below."""

Floor = Callable[[Least], float]
"""A bound on what a plan makes small, by bounds on the total variances of workloads."""


def person_certificate(
    stated: Certificate,
    value: float,
    floor: Floor,
    person: Person,
    budget: Budget,
    effort: tuple[float, float],
    solved: float = 0.0,
    *,
    holds: bool,
) -> Certificate:
    """The certificate for this person.

    `stated` is the one for adding or removing one whole record; if that `holds` for what a person can change
    too, it is kept where it says more. `solved` is a bound at a person's cost of 1 that is known already.
    """
    divisor = bound_divisor(budget.law, person.allowance(budget))
    known = floor(lambda work: max(solved * person.alike**2, person_bound(work, person, *effort)) / divisor)
    if holds and stated.lower_bound > known:
        narrow = stated.scope == "this block structure" and known > 0
        return replace(stated, everywhere=known if narrow else None)
    return certified(value, known, scope_of(budget.law), stated.objective)
