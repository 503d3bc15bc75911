"""The book of a ledger: its events in order, each hashed with all before it.

One rule reads and writes: `Book.add` takes the events of a file in turn, and a new one before it is written.
Amounts are exact fractions of the ledger's currency, whose sum may not exceed the total (L-001):

    definition of the budget          currency        total
    zcdp                              rho             rho
    pure_dp                           pure epsilon    epsilon
    privacy_cost, gdp, approx_dp      privacy cost    the Gaussian cost that the budget allows

Amounts add up, whatever period the data are of, unless the ledger was created for disjoint periods: then
those of each period do (L-020). A plan that is measured in instalments is paid whole, once (L-021).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from residua.errors import BudgetError, BudgetExceeded, LedgerError
from residua.ledger.periods import covered, known_step
from residua.ledger.store import Row
from residua.privacy import Budget, Privacy, Unit, budget_from_manifest
from residua.privacy.conversions import text_above
from residua.schema.dates import Step

_CURRENCIES: dict[str, Literal["rho", "pure_epsilon", "cost"]] = {
    "zcdp": "rho",
    "pure_dp": "pure_epsilon",
    "privacy_cost": "cost",
    "gdp": "cost",
    "approx_dp": "cost",
}
_WORDS = {"rho": "rho", "pure_epsilon": "epsilon", "cost": "privacy cost"}


@dataclass(frozen=True, slots=True)
class Instalment:
    """One instalment of a stream; who measures it again must know the token it was begun with (L-021)."""

    stream: str
    number: int
    token: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One debit: what a release may use, from the moment before its noise was drawn.

    `amount` is in the ledger's currency, `time` is UTC in ISO form. `hash` covers this entry and all before
    it: kept beside a release, it shows later whether the ledger still holds them. `release_hash` is None
    until the release was noted; an entry stays spent either way. `periods` are those of the data, in steps of
    the ledger; `instalment` is which one of which stream it is, and who began it; `dataset` is the ledger's.
    """

    id: int
    time: str
    plan_hash: str
    privacy: Privacy
    amount: Fraction
    note: str
    hash: str
    release_hash: str | None = None
    periods: tuple[str, ...] = ()
    instalment: "Instalment | None" = None
    dataset: str = ""

    @property
    def state(self) -> Literal["spent", "released"]:
        """Whether the release that this entry paid for was noted."""
        return "spent" if self.release_hash is None else "released"


class Book:
    """The events of one ledger so far; grows by `add`, which refuses whatever may not follow."""

    def __init__(self, name: str, text: str) -> None:
        match json.loads(text):
            case {
                "kind": "created",
                "time": str(),
                "dataset": str(dataset),
                "budget": dict(budget),
                "unit": dict(unit),
            }:
                self.name = name
                self.dataset = dataset
                self.budget = budget_from_manifest(budget)
                self.unit = Unit.from_manifest(unit)
            case _:
                raise LedgerError(f"the ledger {name} does not begin as a ledger does")
        match json.loads(text):
            case {"periods": {"step": str(step), "disjoint": bool(disjoint)}}:
                self.step: Step | None = known_step(step)
                self.disjoint = disjoint
            case {"periods": _}:
                raise LedgerError(f"the ledger {name} does not begin as a ledger does")
            case _:
                self.step, self.disjoint = None, False
        if self.disjoint:
            refuse_returning(self.unit)
        self.total = _total(self.budget)
        self.by_period: dict[str, Fraction] = {}
        self._sum = Fraction(0)
        self.entries: dict[int, Entry] = {}
        self._instalments: dict[tuple[str, int], Entry] = {}
        self.length = 1
        self.hash = chained("", text)

    def copy(self) -> "Book":
        """Another book of the same events."""
        found = copy(self)
        found.by_period, found.entries = dict(self.by_period), dict(self.entries)
        found._instalments = dict(self._instalments)
        return found

    @property
    def spent(self) -> Fraction:
        """What has been spent: in all, or of disjoint periods in the dearest one."""
        return max(self.by_period.values(), default=Fraction(0)) if self.disjoint else self._sum

    @property
    def left(self) -> Fraction:
        """What may still be spent, in the ledger's currency; of disjoint periods, in every one."""
        return self.total - self.spent

    def left_in(self, periods: Iterable[str]) -> Fraction:
        """What may still be spent on the data of some periods."""
        if not self.disjoint:
            return self.left
        return self.total - max(self.by_period.get(each, Fraction(0)) for each in periods)

    def steps(self, period: str | None) -> tuple[str, ...]:
        """The ledger's periods that a stated one touches; LedgerError where one has to be stated."""
        if self.step is None:
            return () if period is None else (period,)
        if period is None:
            raise LedgerError(
                f"the ledger {self.name} is kept by {self.step}; say of which period the data are, as in "
                "period='2026-01'"
            )
        return covered(self.step, period)

    @property
    def currency(self) -> str:
        """What the ledger counts, in words."""
        return _WORDS[_CURRENCIES[self.budget.definition]]

    def charge(self, privacy: Privacy, periods: tuple[str, ...] = ()) -> Fraction:
        """What a release would cost in the ledger's currency, if it may be spent (L-005, L-006, L-020).

        A BudgetError where no such cost is proved, BudgetExceeded where it is more than is left.
        """
        if privacy.unit.whom != self.unit.whom:
            raise BudgetError(
                f"the release protects against {privacy.unit.describe()}, but the ledger {self.name} counts "
                f"{self.unit.describe()}; plan with unit={self.unit!r}, or keep a ledger for the other unit"
            )
        amount: Fraction | None = getattr(privacy, _CURRENCIES[self.budget.definition])
        if amount is None:
            raise BudgetError(
                f"the ledger {self.name} keeps {self.budget!r} and counts {self.currency}, which {privacy!r} "
                "does not prove; use other noise, or keep a ledger of zcdp(rho), which counts any"
            )
        left = self.left_in(periods)
        if amount > left:
            where = f" for {periods[0]}" if self.disjoint else ""
            raise BudgetExceeded(
                f"the release asks for {self.currency} {text_above(amount)}, but the ledger {self.name} has "
                f"only {text_below(left)} left{where}; plan for that much, or do not release"
            )
        return amount

    def stated(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """An event as it is written: the period of a debit is told in steps of the ledger."""
        if event["kind"] != "spent":
            return event
        periods = self.steps(event["period"])
        rest = {key: value for key, value in event.items() if key != "period"}
        return rest | {"periods": list(periods)} if periods else rest

    def begun(self, event: Mapping[str, Any]) -> Entry | None:
        """The entry of the instalment that an event is of, if it was begun before, by the same (L-021)."""
        match event:
            case {"instalment": {"stream": stream, "number": number, "token": token}, "plan_hash": plan}:
                known = self._instalments.get((stream, number))
                if known is None:
                    return None
                if known.instalment != Instalment(stream, number, token) or known.plan_hash != plan:
                    raise LedgerError(
                        f"the ledger {self.name} has instalment {number + 1} of this stream already, which "
                        "another copy of the stream measured; go on with that copy"
                    )
                return known
        return None

    def _due(
        self, privacy: Privacy, plan: str, periods: tuple[str, ...], instalment: Instalment | None
    ) -> tuple[Fraction, tuple[str, ...]]:
        """What a debit costs and the periods that it is for; a stream pays once, or once for each period."""
        known = self._instalments.items()
        own = [each for (stream, _), each in known if instalment and stream == instalment.stream]
        if any((each.plan_hash, each.privacy) != (plan, privacy) for each in own):
            raise LedgerError(f"the ledger {self.name} has another plan for this stream")
        paid = {period for each in own for period in each.periods}
        due = tuple(period for period in periods if period not in paid)
        if own and not (self.disjoint and due):
            return Fraction(0), ()
        return self.charge(privacy, due), due

    def _read_periods(self, listed: object) -> tuple[str, ...]:
        """The periods of an event, as `steps` gives them."""
        found = tuple(listed) if isinstance(listed, list) else ()
        if listed and not (found and all(isinstance(each, str) for each in found)):
            raise LedgerError(f"the ledger {self.name} has an event of {listed!r}, which are no periods")
        if self.step is not None and (not found or any(covered(self.step, own) != (own,) for own in found)):
            raise LedgerError(f"the ledger {self.name} has an event of other periods than a {self.step}")
        return found

    def add(self, text: str) -> Entry:
        """The entry that an event makes or changes; an event that may not follow is refused.

        The refusal is a BudgetError or BudgetExceeded (see `charge`), a LedgerError, or a ValueError where
        the event is not even well-formed; it leaves the book as it was.
        """
        number, hash, spent = self.length + 1, chained(self.hash, text), self._sum
        due: tuple[str, ...] = ()
        match json.loads(text):
            case {
                "kind": "spent",
                "time": str(time),
                "plan_hash": str(plan_hash),
                "privacy": dict(record),
                "note": str(note),
            } as event:
                privacy, begun = Privacy.from_manifest(record), _instalment(event.get("instalment"))
                if self.begun(event) is not None:
                    raise LedgerError(f"the ledger {self.name} has this instalment already")
                periods = self._read_periods(event.get("periods", []))
                amount, due = self._due(privacy, plan_hash, periods, begun)
                entry = Entry(
                    number, time, plan_hash, privacy, amount, note, hash, None, periods, begun, self.dataset
                )
                spent += amount
            case {
                "kind": "released",
                "entry": int(id),
                "entry_hash": str(paid),
                "release_hash": str(release),
            }:
                known = self.entries.get(id)
                if known is None or known.hash != paid or known.release_hash is not None:
                    raise LedgerError(
                        f"the ledger {self.name} has no entry {id} of this hash that waits for its release"
                    )
                entry = replace(known, release_hash=release)
            case _:
                raise LedgerError(f"the ledger {self.name} cannot hold the event {text}")
        self.entries[entry.id] = entry
        for period in due if self.disjoint else ():
            self.by_period[period] = self.by_period.get(period, Fraction(0)) + entry.amount
        if entry.instalment is not None:
            self._instalments[entry.instalment.stream, entry.instalment.number] = entry
        self._sum, self.length, self.hash = spent, number, hash
        return entry


def read_book(name: str, rows: Iterable[Row]) -> Book:
    """The book that rows of (number, text, hash) tell, checked against the chain and the rules (L-013).

    A hash tells all events up to its own, so those that this process has read before are hashed again, but
    not worked through again.
    """
    texts, hashes = [], [""]
    for place, (number, text, hash) in enumerate(rows, start=1):
        hashes.append(chained(hashes[-1], text))
        if (number, hash) != (place, hashes[-1]):
            raise LedgerError(f"the ledger {name} was edited: its event {place} does not match its hash")
        texts.append(text)
    if not texts:
        raise LedgerError(f"the ledger {name} was edited: it has lost all its events")
    known = _known(name)
    book = known[0].copy() if known and known[0].hash in hashes else None
    for place in range(book.length if book else 0, len(texts)):
        try:
            if book is None:
                book = Book(name, texts[place])
            else:
                book.add(texts[place])
        except (ValueError, RecursionError, BudgetExceeded) as error:  # BudgetError is a ValueError
            raise LedgerError(
                f"the ledger {name} was edited: its event {place + 1} cannot be ({error})"
            ) from error
    assert book is not None
    known[:] = [book.copy()]
    return book


@lru_cache(maxsize=8)
def _known(name: str) -> list[Book]:
    """The book of a ledger as this process read it last, if it did."""
    return []


def chained(previous: str, text: str) -> str:
    """The hash of an event and, through the hash before it, of all earlier events."""
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def text_below(number: Fraction) -> str:
    """A decimal of six significant digits, rounded down: what is left is never overstated."""
    return text_above(-number).removeprefix("-")


def _total(budget: Budget) -> Fraction:
    """The most that may be spent under a budget, in its currency; exact, or rounded down (P-040)."""
    currency = _CURRENCIES[budget.definition]
    if currency == "pure_epsilon":
        return budget.laplace_epsilon()
    return budget.gaussian_cost() / (2 if currency == "rho" else 1)


def refuse_returning(unit: Unit) -> None:
    """BudgetError for a unit that may have records in two periods: they would not be disjoint (L-020)."""
    if unit.id is not None or unit.max_records > 1 or unit.replacing:
        raise BudgetError(
            f"what is protected, {unit.describe()}, may have records in two periods, so that what is spent "
            "on each adds up; create the ledger without disjoint periods, or protect single records that "
            "come or go (max_records=1, neighbours='add_remove', no id)"
        )


def _instalment(record: object) -> Instalment | None:
    """The instalment that an event is of, as it was written."""
    match record:
        case None:
            return None
        case {"stream": str(stream), "number": int(number), "token": str(token)}:
            return Instalment(stream, number, token)
    raise ValueError("an instalment has a stream, a number and a token")
