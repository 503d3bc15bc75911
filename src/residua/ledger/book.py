"""The book of a ledger: its events in order, each hashed with all before it.

One rule reads and writes: `Book.add` takes the events of a file in turn, and a new one before it is written.
Amounts are exact fractions of the ledger's currency, whose sum may not exceed the total (L-001):

    definition of the budget          currency        total
    zcdp                              rho             rho
    pure_dp                           pure epsilon    epsilon
    privacy_cost, gdp, approx_dp      privacy cost    the Gaussian cost that the budget allows

A store keeps the events: one table, in which nothing is ever changed (`sqlite`, `postgres`). Every question
opens it anew: nothing is stale or crosses a fork.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Literal, Protocol

from residua.errors import BudgetError, BudgetExceeded, LedgerError
from residua.privacy import Budget, Privacy, Unit, budget_from_manifest
from residua.privacy.conversions import text_above

_CURRENCIES: dict[str, Literal["rho", "pure_epsilon", "cost"]] = {
    "zcdp": "rho",
    "pure_dp": "pure_epsilon",
    "privacy_cost": "cost",
    "gdp": "cost",
    "approx_dp": "cost",
}
_WORDS = {"rho": "rho", "pure_epsilon": "epsilon", "cost": "privacy cost"}
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One debit: what a release may use, from the moment before its noise was drawn.

    `amount` is in the ledger's currency, `time` is UTC in ISO form. `hash` covers this entry and all before
    it: kept beside a release, it shows later whether the ledger still holds them. `release_hash` is None
    until the release was noted; an entry stays spent either way.
    """

    id: int
    time: str
    plan_hash: str
    privacy: Privacy
    amount: Fraction
    note: str
    hash: str
    release_hash: str | None = None

    @property
    def state(self) -> Literal["spent", "released"]:
        """Whether the release that this entry paid for was noted."""
        return "spent" if self.release_hash is None else "released"


Row = tuple[Any, Any, Any]
"""An event as it is stored: its number, its text, and its hash."""


class Rows(Protocol):
    """The table of events inside a transaction."""

    def every(self) -> Iterable[Row]:
        """All events in order; LedgerError where they are not those of a ledger."""

    def add(self, row: Row) -> None:
        """Add one event at the end."""


class Store(Protocol):
    """Where a ledger is kept: durable when a transaction ends, and one writer at a time (L-010, L-011)."""

    @property
    def name(self) -> str:
        """How errors call it."""

    def create(self, row: Row) -> None:
        """Make the store with its first event: whole, or not there, and never in place of another (L-014)."""

    def transaction(self, *, write: bool) -> AbstractContextManager[Rows]:
        """A transaction that is committed at the end of the block; an error inside it undoes it."""


class Book:
    """The events of one ledger so far; grows by `add`, which refuses whatever may not follow."""

    def __init__(self, name: str, text: str) -> None:
        match json.loads(text):
            case {
                "kind": "created",
                "time": str(created),
                "dataset": str(dataset),
                "budget": dict(budget),
                "unit": dict(unit),
            }:
                self.name = name
                self.created = created
                self.dataset = dataset
                self.budget = budget_from_manifest(budget)
                self.unit = Unit.from_manifest(unit)
            case _:
                raise LedgerError(f"the ledger {name} does not begin as a ledger does")
        self.total = _total(self.budget)
        self.spent = Fraction(0)
        self.entries: dict[int, Entry] = {}
        self.length = 1
        self.hash = chained("", text)

    @property
    def left(self) -> Fraction:
        """What may still be spent, in the ledger's currency."""
        return self.total - self.spent

    @property
    def currency(self) -> str:
        """What the ledger counts, in words."""
        return _WORDS[_CURRENCIES[self.budget.definition]]

    def charge(self, privacy: Privacy) -> Fraction:
        """What a release would cost in the ledger's currency, if it may be spent (L-005, L-006).

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
        if amount > self.left:
            raise BudgetExceeded(
                f"the release asks for {self.currency} {text_above(amount)}, but the ledger {self.name} has "
                f"only {text_below(self.left)} left; plan for that much, or do not release"
            )
        return amount

    def add(self, text: str) -> Entry:
        """The entry that an event makes or changes; an event that may not follow is refused.

        The refusal is a BudgetError or BudgetExceeded (see `charge`), a LedgerError, or a ValueError where
        the event is not even well-formed; it leaves the book as it was.
        """
        number, hash, spent = self.length + 1, chained(self.hash, text), self.spent
        match json.loads(text):
            case {
                "kind": "spent",
                "time": str(time),
                "plan_hash": str(plan_hash),
                "privacy": dict(record),
                "note": str(note),
            }:
                privacy = Privacy.from_manifest(record)
                entry = Entry(number, time, plan_hash, privacy, self.charge(privacy), note, hash)
                spent += entry.amount
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
        self.spent, self.length, self.hash = spent, number, hash
        return entry


def read_book(name: str, rows: Iterable[tuple[Any, Any, Any]]) -> Book:
    """The book that rows of (number, text, hash) tell, checked against the chain and the rules (L-013)."""
    book: Book | None = None
    for place, (number, text, hash) in enumerate(rows, start=1):
        expected = chained(book.hash if book else "", text)
        if (number, hash) != (place, expected):
            raise LedgerError(f"the ledger {name} was edited: its event {place} does not match its hash")
        try:
            if book is None:
                book = Book(name, text)
            else:
                book.add(text)
        except (ValueError, RecursionError, BudgetExceeded) as error:  # BudgetError is a ValueError
            raise LedgerError(
                f"the ledger {name} was edited: its event {place} cannot be ({error})"
            ) from error
    if book is None:
        raise LedgerError(f"the ledger {name} was edited: it has lost all its events")
    return book


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


def create(store: Store, event: Mapping[str, object]) -> None:
    """Make a new ledger with its first event."""
    text = _text(event)
    store.create((1, text, Book(store.name, text).hash))


def read(store: Store) -> Book:
    """The book of a ledger as it is now, every event checked."""
    with store.transaction(write=False) as rows:
        return read_book(store.name, rows.every())


def append(store: Store, event: Mapping[str, object]) -> Entry:
    """The entry that one more event makes or changes; it is durable when this returns (L-010, L-011)."""
    with store.transaction(write=True) as rows:
        book = read_book(store.name, rows.every())
        text = _text(event)
        entry = book.add(text)
        rows.add((book.length, text, book.hash))
    return entry


def _text(event: Mapping[str, object]) -> str:
    """An event as it is stored and hashed, with the time and random digits: no two are the same."""
    return json.dumps({**event, "time": _now(), "nonce": secrets.token_hex(8)}, allow_nan=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
