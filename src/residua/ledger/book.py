"""What a ledger says: its events in order, each hashed with all before it, and how spending adds up.

One rule reads and writes: `Book.add` takes the events of a file in turn, and a new one before it is written.
Amounts are exact fractions of the ledger's currency, whose sum may not exceed the total (L-001):

    definition of the budget          currency        total
    zcdp                              rho             rho
    pure_dp                           pure epsilon    epsilon
    privacy_cost, gdp, approx_dp      privacy cost    the Gaussian cost that the budget allows
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

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


class Book:
    """The events of one ledger so far; grows by `add`, which refuses whatever may not follow."""

    def __init__(self, path: Path, text: str) -> None:
        match json.loads(text):
            case {
                "kind": "created",
                "time": str(created),
                "dataset": str(dataset),
                "budget": dict(budget),
                "unit": dict(unit),
            }:
                self.path = path
                self.created = created
                self.dataset = dataset
                self.budget = budget_from_manifest(budget)
                self.unit = Unit.from_manifest(unit)
            case _:
                raise LedgerError(f"the ledger {path} does not begin as a ledger does")
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
        if privacy.unit != self.unit:
            raise BudgetError(
                f"the release protects against {privacy.unit.describe()}, but the ledger {self.path} counts "
                f"{self.unit.describe()}; plan with unit={self.unit!r}, or keep a ledger for the other unit"
            )
        amount: Fraction | None = getattr(privacy, _CURRENCIES[self.budget.definition])
        if amount is None:
            raise BudgetError(
                f"the ledger {self.path} keeps {self.budget!r} and counts {self.currency}, which {privacy!r} "
                "does not prove; use other noise, or keep a ledger of zcdp(rho), which counts any"
            )
        if amount > self.left:
            raise BudgetExceeded(
                f"the release asks for {self.currency} {text_above(amount)}, but the ledger {self.path} has "
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
                        f"the ledger {self.path} has no entry {id} of this hash that waits for its release"
                    )
                entry = replace(known, release_hash=release)
            case _:
                raise LedgerError(f"the ledger {self.path} cannot hold the event {text}")
        self.entries[entry.id] = entry
        self.spent, self.length, self.hash = spent, number, hash
        return entry


def read_book(path: Path, rows: Iterable[tuple[Any, Any, Any]]) -> Book:
    """The book that rows of (number, text, hash) tell, checked against the chain and the rules (L-013)."""
    book: Book | None = None
    for place, (number, text, hash) in enumerate(rows, start=1):
        expected = chained(book.hash if book else "", text)
        if (number, hash) != (place, expected):
            raise LedgerError(f"the ledger {path} was edited: its event {place} does not match its hash")
        try:
            if book is None:
                book = Book(path, text)
            else:
                book.add(text)
        except (ValueError, RecursionError, BudgetExceeded) as error:  # BudgetError is a ValueError
            raise LedgerError(
                f"the ledger {path} was edited: its event {place} cannot be ({error})"
            ) from error
    if book is None:
        raise LedgerError(f"the ledger {path} was edited: it has lost all its events")
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
