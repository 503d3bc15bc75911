"""From a plan or a release to the contents of its report: only questions that both answer themselves."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from residua.accuracy.figures import OBJECTIVE_WORDS
from residua.accuracy.guesses import Guess
from residua.accuracy.reliability import Reliability
from residua.errors import NotInSpan
from residua.privacy.budgets import interval_margin
from residua.report.budgets import budget_words, overall, points_of, shares_of
from residua.report.contents import NO_RULE, Contents, Facts, Goal, Numbers, Sheet, SourcePlan, SourceRelease
from residua.report.grid import grid_of
from residua.schema import Schema
from residua.strategy.words import described
from residua.version import __version__
from residua.workload import Factor, Table, Workload
from residua.workload.groupings import Partition
from residua.workload.tables import COUNT

_ASKED = {
    "identity": "each {0}",
    "prefix": "{0} up to each value",
    "ranges": "every range of {0}",
    "circular": "every range of {0}, going round",
    "total": "",
    "predicates": "every set of values of {0}",
}
MOST_TABLES = 2_000  # of which the report says anything one by one
MOST_NUMBERS = 60_000  # that are listed: about 7 MB of page
MOST_CURVES = 4  # tables with a curve of their own


def asked_words(group: Table, schema: Schema) -> str:
    """What a table asks for, without the names of families: `each sex; age up to each value`."""
    words = [_factor_words(factor, schema) for factor in group.factors]
    return "; ".join(filter(None, words)) or "the number of records"


def _factor_words(factor: Factor, schema: Schema) -> str:
    name = " and ".join(schema.names[at] for at in factor.attributes)
    queries = factor.queries
    if queries.title in _ASKED:
        return _ASKED[queries.title].format(name)
    if isinstance(queries, Partition):
        return f"each {queries.level} of {name}" if queries.level else f"{queries.count:,} groups of {name}"
    if queries.adds is not None:
        return " and ".join(f"sum of {own}" if own else "count" for own in dict.fromkeys(queries.adds))
    return f"{queries.count:,} {'count' if queries.count == 1 else 'counts'} by {name}"


def plan_contents(
    plan: SourcePlan, *, level: float = 0.95, title: str | None = None, guess: Guess | None = None
) -> Contents:
    """What a report says about a plan, before any data is touched."""
    found = _contents(plan, None, level, title or "Plan for a private release")
    return replace(found, foreseen=() if guess is None else tuple(plan.foreseen(guess)))


def release_contents(
    release: SourceRelease,
    *,
    level: float = 0.95,
    title: str | None = None,
    reliability: Reliability = NO_RULE,
) -> Contents:
    """What a report says about a release."""
    found = _contents(release.plan, release, level, title or "Report on a private release")
    return replace(found, reliability=reliability)


def _contents(plan: SourcePlan, release: SourceRelease | None, level: float, title: str) -> Contents:
    work = plan.workload
    groups = list(islice(work.groups(), MOST_TABLES))
    counting = (group for group in groups if [*group.statistics()] == [COUNT])
    first = [Workload(work.schema, (group,)) for group in islice(counting, MOST_CURVES)]
    margin = interval_margin(plan.strategy.law, level)
    rmse, largest = overall(plan)
    before = plan.strategy.grain is None  # releases that were combined, or some instalments
    return Contents(
        title=title,
        released=release is not None,
        simulated=release is not None and release.simulated,
        level=float(level),
        margin=margin,
        tables=work.tables,
        numbers=work.count,
        rmse=rmse,
        max_stddev=largest,
        noun="number" if work.counts else "count",
        privacy=plan.privacy,
        spent=budget_words(plan.budget),
        goal=_goal(plan),
        targets=() if plan.targets is None else plan.targets.met[:MOST_TABLES],
        sheets=tuple(_sheets(plan, release, groups, float(level))),
        # What was measured cannot be measured again at another budget.
        points=() if before else points_of(plan, first),
        shares=shares_of(plan),
        attributes=tuple(_attributes(work.schema)),
        method=plan.method,
        measured=tuple(described(plan.strategy)),
        history=() if release is None else _history(release.audit),
        hashes={"plan": plan.hash} | ({} if release is None else {"release": release.hash}),
        program=f"residua {__version__}",
    )


def _goal(plan: SourcePlan) -> Goal:
    proof = plan.certificate
    words = OBJECTIVE_WORDS.get(proof.objective, proof.objective)
    if proof.objective == "total_variance":
        return Goal(words, plan.released.total_variance, plan.ideal.total_variance, proof)
    achieved = proof.lower_bound * (1 + proof.gap) if proof.lower_bound > 0 else math.nan
    return Goal(words, achieved, math.nan, proof)


def _sheets(
    plan: SourcePlan, release: SourceRelease | None, groups: Sequence[Table], level: float
) -> Iterator[Sheet]:
    room, schema = room_for([group.count for group in groups], MOST_NUMBERS), plan.workload.schema

    @cache
    def summed(factors: tuple[Factor, ...]) -> Numbers | None:
        """Sums of a table's numbers, or None where what was measured does not give them apart."""
        group = Table("sums", factors)
        try:
            return None if release is None else _numbers(plan, release, group, group.count, level)
        except NotInSpan:
            return None

    for group in groups:
        (summary,) = plan.summary(Workload(schema, (group,)))
        lines, words = summary.lines(), asked_words(group, schema)
        numbers = _numbers(plan, release, group, room, level) if group.listable else None
        grid = grid_of(group, schema) if numbers is not None and group.count <= room else None
        sides = () if grid is None else (grid.beside, grid.below, grid.corner)
        sums = (None if own is None else summed(own.factors) for own in sides)
        units = group.units() if len(lines) > 1 else {}
        yield Sheet(group.name, words, group.count, lines, numbers, units, grid, *sums)


def _numbers(
    plan: SourcePlan, release: SourceRelease | None, group: Table, room: int, level: float
) -> Numbers:
    work = Workload(plan.workload.schema, (group,))
    if release is None:
        stddev = np.sqrt(plan.variances(work)[:room])
        return Numbers(tuple(islice(group.descriptions(plan.workload.schema), room)), stddev)
    rows = release.answers(work, level=level).slice(0, room)
    value, stddev, lower, upper = (
        rows[name].to_numpy().astype(np.float64) for name in ("value", "stddev", "lower", "upper")
    )
    return Numbers(tuple(rows["query"].to_pylist()), stddev, value, lower, upper)


def room_for(counts: Sequence[int], most: int) -> int:
    """The most numbers that every table may list, such that all of them together list at most `most`.

    >>> room_for([1, 5, 100], 26), room_for([3, 3], 100)
    (20, 3)
    """
    left, waiting = most, sorted(counts)
    for place, count in enumerate(waiting):
        each = left // (len(waiting) - place)
        if count > each:
            return max(each, 1)
        left -= count
    return max(waiting, default=1)


def _attributes(schema: Schema) -> Iterator[tuple[str, str, int, str]]:
    policies = {
        "error": "the release is refused",
        "drop": "the record is left out",
        "clip": "the nearest value is taken",
        "other": "counted in a cell of their own",
        "missing": "missing ones are counted in a cell of their own; others: the release is refused",
    }
    for name in schema.names:
        attribute = schema[name]
        labels = attribute.labels()
        shown = ", ".join(labels) if len(labels) <= 6 else f"{', '.join(labels[:3])}, ..., {labels[-1]}"
        yield name, shown, attribute.size, policies[str(attribute.outside)]


def _history(audit: Mapping[str, Any]) -> Facts:
    """How a release came to be, in words."""
    facts = [("measured", _spoken(str(audit["time"])))]
    if "period" in audit:
        facts.append(("period of the data", str(audit["period"])))
    if isinstance(stream := audit.get("stream"), Mapping):
        words = f"{stream.get('instalments')} of {stream.get('of')}; {stream.get('late')}"
        facts.append(("instalments of one plan", words))
    if audit["ledger"] is not None:
        entry = audit["ledger"]
        facts.append(("paid by", f"entry {entry['entry']} of the ledger of dataset {entry['dataset']!r}"))
    else:
        facts.append(("paid by", "no ledger: the noise was simulated"))
    if audit.get("note"):
        facts.append(("note", str(audit["note"])))
    facts.append(("noise", str(audit["noise"])))
    if "combined" in audit:
        times = " and ".join(_spoken(str(part["time"])) for part in audit["combined"])
        facts.append(("combined from", f"two releases, measured {times}"))
    software = f"residua {audit['residua']}, numpy {audit['numpy']}, Python {audit['python']}"
    facts.append(("software", software))
    return tuple(facts)


def _spoken(time: str) -> str:
    """`16 November 2026, 01:53 UTC` from the text of a time."""
    moment = datetime.fromisoformat(time)
    return f"{moment.day} {moment:%B %Y, %H:%M} {moment.tzname() or ''}".strip()
