"""Neighbours against each other: whatever differs beyond what one person may change is an alarm."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from residua._arrays import Integers
from residua._measure import measure
from residua._text import counted
from residua.audit.neighbours import (
    Cells,
    Neighbour,
    answers,
    base_records,
    can_say,
    columns_of,
    cost,
    inside,
    neighbours_of,
    written,
)
from residua.audit.people import Visit, base_people, people, people_beside
from residua.audit.recording import NOTE, Run, run
from residua.errors import Infeasible, ResiduaError
from residua.kernel.measuring import refuse_unkept
from residua.ledger import Ledger
from residua.noise import SystemSource
from residua.plans import Plan
from residua.privacy.budgets import integer_variances
from residua.strategy.parts import parts_of
from residua.version import __version__

DOUBT = 7.0  # standard errors from which on noise has another variance than its law
PARTS = 4  # about, into which a plan by places is divided
ENOUGH = 200  # draws of one law for its variance to be looked at


@dataclass(slots=True)
class Audit:
    """What an audit tried and what alarmed it."""

    plans: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    neighbours: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)

    def __iadd__(self, other: "Audit") -> "Audit":
        self.plans += other.plans
        self.tried += other.tried
        self.neighbours += other.neighbours
        self.alarms += other.alarms
        return self

    def page(self, about: Sequence[str] = ()) -> str:
        """A page in Markdown: what was tried, how often, what was found, and a line to sign."""
        found = "No alarm." if not self.alarms else f"**{counted(len(self.alarms), 'alarm', 'alarms')}.**"
        beside = counted(sum(self.neighbours.values()), "neighbouring dataset", "neighbouring datasets")
        what = f"{counted(self.plans, 'plan', 'plans')}, {beside}, audited by Residua {__version__}"
        lines = ["# Replay audit", "", *about, ""]
        lines += [f"{found} {what} on {datetime.now(UTC).date().isoformat()}.", ""]
        lines += ["| Compared | Times |", "|---|---:|"]
        lines += [f"| {what} | {many:,} |" for what, many in self.tried.items()]
        lines += ["", "| Neighbouring data | Runs |", "|---|---:|"]
        lines += [f"| {what} | {many:,} |" for what, many in sorted(self.neighbours.items())]
        lines += ["", "## Alarms", "", *([f"- {alarm}" for alarm in self.alarms] or ["None."])]
        lines += ["", "## What was not tried", "", *(f"- {each}" for each in NOT_TRIED)]
        return "\n".join([*lines, "", "Signed: ______________________  Date: ______________", ""])


NOT_TRIED = (
    "Time, memory and power: a replay compares steps, not how long they take.",
    "The data themselves: neighbours are invented, real records are never read.",
    "The operating system's entropy, beyond its not repeating itself.",
    "What others do with releases, ledgers and data outside this program.",
)


def audit(plan: Plan, *, rounds: int = 2, seed: int = 0) -> Audit:
    """Measure invented neighbours with the same recorded noise, and compare everything (claim X-006).

    Each round has other data and other noise. Nothing of a user's data or ledger is touched.
    """
    found = Audit(plans=1)
    found.alarms = list(dict.fromkeys(alarms_of(plan, found, rounds=rounds, seed=seed)))
    return found


def alarms_of(plan: Plan, found: Audit, *, rounds: int = 2, seed: int = 0) -> Iterator[str]:
    """One alarm after the other, as they come; `found` counts what was tried."""
    if plan.unit.id is not None and not can_say(plan.schema):
        raise Infeasible(
            f"records with {plan.unit.id!r} are invented by their values, which attributes of kinds of your "
            "own do not tell; audit the same tables with unit=rs.Unit(max_records=...)"
        )
    try:
        refuse_unkept(plan)
        yield from _replays(plan, rounds, seed, found)
        yield from _entropy(plan)
    except ResiduaError as error:
        yield f"the plan cannot be measured: {error}"


def _replays(plan: Plan, rounds: int, seed: int, found: Audit) -> Iterator[str]:
    drawn: dict[Fraction, list[Integers]] = {}
    for turn in range(rounds):
        chance = np.random.default_rng([seed, turn])
        base, beside, fewer = _invented(plan, chance)
        noise = int(chance.integers(0, 2**31))
        if not turn:
            run(plan, base.data, noise)  # what is made once is made now
        whole = run(plan, base.data, noise)
        assert base.counted is not None
        yield from _alone(base.what, plan, whole, base.counted, found)
        for neighbour in beside:
            found.neighbours[neighbour.what] += 1
            yield from _compared(
                plan, whole, run(plan, neighbour.data, noise), neighbour, base.counted, found
            )
        with TemporaryDirectory() as folder:
            yield from _from_files(plan, base, fewer, noise, Path(folder), found)
        yield from _by_parts(plan, base, fewer, noise, found)
        for parameter, values in whole.draws.items():
            drawn.setdefault(parameter, []).append(values)
    yield from _laws(plan, {each: np.concatenate(values) for each, values in drawn.items()})


def _invented(plan: Plan, chance: np.random.Generator) -> tuple[Neighbour, Iterator[Neighbour], Neighbour]:
    """Base data, their neighbours, and one that is tried as a file."""
    if plan.unit.id is not None:
        visits = base_people(plan, chance)
        fewer = [each for each in visits if each.who != "a"]
        fewer += [Visit("a", visits[-1].cells)] if plan.unit.replacing else []
        what = f"one {plan.unit.noun} of many records changed in a file"
        return (
            people(plan, "base data", visits),
            people_beside(plan, visits, chance),
            people(plan, what, fewer),
        )
    base = base_records(plan.schema, chance)
    less = [*base[1:], base[-1]] if plan.unit.replacing else list(base[1:])
    last = inside(plan.schema, "a record removed from a file", less)
    return inside(plan.schema, "base data", base), neighbours_of(plan, base, chance), last


def _from_files(
    plan: Plan, base: Neighbour, fewer: Neighbour, noise: int, folder: Path, found: Audit
) -> Iterator[str]:
    """The same for CSV files, which another engine counts."""
    if not can_say(plan.schema) or base.counted is None:
        return
    both = [
        each.data if isinstance(each.data, dict) else columns_of(plan.schema, each.counted or ())
        for each in (base, fewer)
    ]
    paths = [written(columns, folder / f"{at}.csv") for at, columns in enumerate(both)]
    whole, beside = (run(plan, path, noise) for path in paths)
    found.neighbours[fewer.what] += 1
    yield from _compared(plan, whole, beside, fewer, base.counted, found)


def _by_parts(plan: Plan, base: Neighbour, fewer: Neighbour, noise: int, found: Audit) -> Iterator[str]:
    """The same for a plan by places that is measured part by part, as large ones are."""
    numbers = sum(len(batch.subsets) * batch.rows for batch in plan.batches)
    parts = parts_of(plan.strategy, most=max(1, numbers // PARTS))
    if parts is None or base.counted is None:
        return
    # The first run makes what is made once.
    _, whole, beside = (run(plan, each.data, noise, parts) for each in (base, base, fewer))
    yield from _alone("base data, measured in parts", plan, whole, base.counted, found)
    less = replace(fewer, what=f"{fewer.what.removesuffix(' from a file')}, measured in parts")
    found.neighbours[less.what] += 1
    yield from _compared(plan, whole, beside, less, base.counted, found)


def _alone(what: str, plan: Plan, own: Run, records: Sequence[Cells], found: Audit) -> Iterator[str]:
    """What one run must be by itself: paid once and first, and exact answers plus what was drawn."""
    if own.release is None:
        yield f"{what}: refused, {own.refusal}"
        return
    found.tried["debits"] += 1
    stated = [(entry.plan_hash, entry.privacy, entry.note) for entry in own.entries]
    if stated != [(plan.hash, plan.privacy, NOTE)]:
        yield f"{what}: the ledger holds other than one debit of what the plan costs"
    early = sum(count for count, paid in own.asked if not paid)
    if early > 1 or not any(paid for _, paid in own.asked):
        yield f"{what}: noise was drawn before it was paid for, or none was"
    added: dict[Fraction, list[Integers]] = {}
    for batch, values in zip(plan.batches, own.release.measurements.values, strict=True):
        exact = answers(batch, records)
        if values.shape != exact.shape or values.dtype != exact.dtype:
            yield f"{what}: measured numbers are not those that the plan has"
            return
        for at, parameter in enumerate(batch.parameters):
            mine = batch.owners == at
            added.setdefault(parameter, []).append((values - exact)[mine].reshape(-1))
    found.tried["numbers that are exact answers plus what was drawn"] += sum(
        len(each) for own_noise in added.values() for each in own_noise
    )
    if added.keys() != own.draws.keys():
        yield f"{what}: noise was drawn with other parameters than those that the plan is paid for"
    elif not all(np.array_equal(np.sort(np.concatenate(n)), own.draws[p]) for p, n in added.items()):
        yield f"{what}: measured numbers are not exact answers plus what was drawn, each once"


def _compared(
    plan: Plan, base: Run, own: Run, neighbour: Neighbour, records: Sequence[Cells], found: Audit
) -> Iterator[str]:
    """A neighbour against the base data."""
    what = neighbour.what
    if neighbour.counted is None:
        found.tried["refusals before anything was paid"] += 1
        if own.release is not None or own.entries or sum(count for count, _ in own.asked) > 1:
            yield f"{what}: not refused, or refused after it was paid for"
        return
    yield from _alone(what, plan, own, neighbour.counted, found)
    if own.release is None or base.release is None:
        return
    found.tried["costs of neighbours, exact"] += 1
    going, coming = Counter(records), Counter(neighbour.counted)
    spent = cost(plan.batches, [*(coming - going).elements()], [*(going - coming).elements()])
    allowed = plan.budget.laplace_epsilon() if plan.budget.law == "laplace" else plan.budget.gaussian_cost()
    if spent > allowed:
        yield f"{what}: costs {float(spent / allowed):.6g} times the budget"
    found.tried["steps of the program"] += len(own.steps)
    if own.steps != base.steps:
        yield f"{what}: other steps, {_parting(base, own)}"
    if own.asked != base.asked:
        yield f"{what}: other requests for noise"
    found.tried["messages"] += len(own.said)
    if own.said != base.said:
        yield f"{what}: other messages, warnings or progress"
    found.tried["files"] += 1
    yield from (f"{what}: {alarm}" for alarm in _stored(base, own))


def _parting(base: Run, own: Run) -> str:
    """Where two runs part."""
    at = next((n for n, (a, b) in enumerate(zip(base.steps, own.steps, strict=False)) if a != b), -1)
    return f"from {base.steps[at][0]} line {base.steps[at][1]} on"


def _stored(base: Run, own: Run) -> Iterator[str]:
    """What files and audit records tell besides measured numbers."""
    if base.stored is None or own.stored is None:
        yield "no file"
        return
    if own.size != base.size:
        yield "a file of another size"
    if _timeless(own.stored.manifest) != _timeless(base.stored.manifest):
        yield "another manifest"
    if own.stored.arrays.keys() != base.stored.arrays.keys():
        yield "other arrays in the file"
        return
    for name, array in own.stored.arrays.items():
        measured = name.startswith("measurements.")
        before = base.stored.arrays[name]
        if array.shape != before.shape or array.dtype != before.dtype:
            yield f"the array {name} is of another form"
        elif not measured and not np.array_equal(array, before):
            yield f"the array {name} differs"


def _timeless(manifest: Any) -> Any:
    """A manifest without the moment and the random digits of the debit."""
    audit = dict(manifest["audit"])
    ledger = {key: value for key, value in audit["ledger"].items() if key != "hash"}
    return {**manifest, "audit": {**audit, "time": "", "ledger": ledger}}


def _laws(plan: Plan, drawn: dict[Fraction, Integers]) -> Iterator[str]:
    """Whether what was drawn has the mean and the variance of its law."""
    for parameter, values in drawn.items():
        if len(values) < ENOUGH:
            continue
        variance = float(integer_variances(plan.budget.law, np.array([float(parameter)]))[0])
        kurtosis = 6.0 if plan.budget.law == "laplace" else 3.0
        doubt = DOUBT * math.sqrt((kurtosis - 1 + 0.2 / max(variance, 1e-3)) / len(values))
        mean, spread = float(np.mean(values)), float(np.mean(values.astype(np.float64) ** 2))
        if abs(spread / variance - 1) > doubt or abs(mean) > DOUBT * math.sqrt(variance / len(values)):
            yield f"noise of parameter {float(parameter):.6g} has another mean or variance than its law"


def _entropy(plan: Plan) -> Iterator[str]:
    """The system's words, and real releases through the door: they never repeat themselves."""
    words = np.concatenate([SystemSource().words(512) for _ in range(4)])
    ones = int(np.bitwise_count(words).sum())
    if len(np.unique(words)) < len(words) or abs(ones - 32 * len(words)) > DOUBT * 4 * math.sqrt(len(words)):
        yield "the system's entropy repeats itself"
    data = _invented(plan, np.random.default_rng(0))[0].data
    values = []
    for _ in range(2):
        with TemporaryDirectory() as folder:
            ledger = Ledger.create(Path(folder, "audit.db"), plan.budget, dataset="invented", unit=plan.unit)
            release = measure(plan, data, ledger=ledger)
            values.append(np.concatenate([each.reshape(-1) for each in release.measurements.values]))
            if len(ledger.entries()) != 1:
                yield "a release through the door is not paid for once"
    if len(values[0]) > 8 and np.array_equal(values[0], values[1]) and _wide(plan):
        yield "two releases have the same noise"


def _wide(plan: Plan) -> bool:
    """Whether noise is so wide that it does not repeat itself by chance."""
    return all(parameter > 1 for batch in plan.batches for parameter in batch.parameters)
