"""The ledger that a user holds: a name for a store, and the questions and debits it takes.

Every question opens the store anew and hashes all of it: nothing is stale or crosses a fork.
"""

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from residua._notebook import MOST, shown
from residua.errors import BudgetError, BudgetExceeded, LedgerError, asks_for
from residua.ledger.book import Book, Entry, Instalment, read_book, text_below
from residua.ledger.checking import Audited, Finding, findings
from residua.ledger.periods import known_step
from residua.ledger.postgres import PREFIXES, Server
from residua.ledger.sqlite import File
from residua.ledger.store import Store
from residua.privacy import Budget, Privacy, Unit
from residua.privacy.conversions import text_above

_ONE_RECORD = Unit()


@dataclass(frozen=True, slots=True, repr=False)
class Ledger:
    """The spending of one dataset, under one definition of privacy and for one unit.

    `Ledger(path)` and `Ledger.open(path)` take a ledger that exists; `Ledger.create` makes one. A path is
    that of a file, or the address of a PostgreSQL database that several machines share, such as
    `postgresql://host/name` (extra `postgres`). Every question reads and checks the whole ledger, so answers
    include what others spent, and there is nothing to close. A ledger that is missing, foreign, damaged,
    edited or locked is a LedgerError.

    >>> import tempfile
    >>> from residua.privacy import zcdp
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(folder.name + "/budget.db", zcdp(1), dataset="people-2024")
    >>> entry = ledger.spend(Privacy.from_cost("0.6"), plan_hash="c0ffee", note="first tables")
    >>> entry.amount, ledger.remaining
    (Fraction(3, 10), Fraction(7, 10))
    >>> print(ledger.describe())
    Ledger of dataset 'people-2024', protecting against adding or removing one record.
    Total: zero-concentrated DP with rho = 1.
    Spent: rho 0.3 by 1 release. Left: rho 0.7.
    >>> folder.cleanup()
    """

    path: Path | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _place(self.path))
        self._book()  # refuses what is no ledger

    @property
    def _store(self) -> Store:
        return _store_of(self.path)

    @property
    def name(self) -> str:
        """What it is called in messages: its path, or its address without a password."""
        return self._store.name

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Ledger":
        """The ledger in a file, or at an address, that exists."""
        return cls(os.fspath(path))

    @classmethod
    @asks_for("dataset", LedgerError, "a ledger is that of one dataset; name it, as in dataset='people-2024'")
    def create(
        cls,
        path: str | os.PathLike[str],
        budget: Budget,
        *,
        dataset: str,
        unit: Unit = _ONE_RECORD,
        periods: str | None = None,
        disjoint: bool = False,
    ) -> "Ledger":
        """A new, empty ledger for a dataset; one that exists is never replaced.

        periods: str, optional
            "day", "month", "quarter" or "year": every release says of which of them its data are. Without,
            and by default with them, whatever is spent adds up: persons return.
        disjoint: bool
            Each period has the whole budget, since what is protected is a record of one of them (births,
            flights). Refused for a unit that may have records in two (claim L-020).
        """
        if not isinstance(budget, Budget):
            raise BudgetError(f"a ledger's total must be a budget such as zcdp(1), not {budget!r}")
        if not isinstance(dataset, str) or not dataset:
            raise LedgerError(f"a ledger names its dataset in words such as 'people-2024', not {dataset!r}")
        terms: dict[str, object] = {"dataset": dataset, "budget": budget.to_manifest()}
        terms["unit"] = unit.to_manifest()
        if periods is not None:
            terms["periods"] = {"step": known_step(periods), "disjoint": bool(disjoint)}
        elif disjoint:
            raise LedgerError("disjoint periods are days, months, quarters or years: give periods= too")
        store, text = _store_of(_place(os.fspath(path))), _text({"kind": "created", **terms})
        store.create((1, text, Book(store.name, text).hash))
        return cls.open(path)

    def _book(self) -> Book:
        """The book as it is now, every event checked."""
        store = self._store
        with store.transaction(write=False) as rows:
            return read_book(store.name, rows.every())

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self._book().dataset

    @property
    def budget(self) -> Budget:
        """The total, as it was given at creation."""
        return self._book().budget

    @property
    def unit(self) -> Unit:
        """Whose privacy is counted."""
        return self._book().unit

    @property
    def currency(self) -> str:
        """What `total`, `spent` and `remaining` count: 'rho', 'epsilon' (pure) or 'privacy cost'."""
        return self._book().currency

    @property
    def total(self) -> Fraction:
        """The most that may be spent in all, in the ledger's currency."""
        return self._book().total

    @property
    def spent(self) -> Fraction:
        """What has been spent, in the ledger's currency: the exact sum of the entries' amounts.

        Of disjoint periods, that of the dearest one.
        """
        return self._book().spent

    @property
    def remaining(self) -> Fraction:
        """What may still be spent, in the ledger's currency."""
        return self._book().left

    @property
    def periods(self) -> str | None:
        """The step of its periods; None for a ledger that knows none, in which everything adds up."""
        return self._book().step

    @property
    def disjoint(self) -> bool:
        """Whether each period has the whole budget."""
        return self._book().disjoint

    def spent_by_period(self) -> dict[str, Fraction]:
        """What was spent on each of disjoint periods, in the order of the calendar."""
        return dict(sorted(self._book().by_period.items()))

    def remaining_in(self, period: str | None) -> Fraction:
        """What may still be spent on the data of a period; where periods add up, what is left in all."""
        book = self._book()
        return book.left_in(book.steps(period))

    def dataset_in(self, period: str | None) -> str:
        """The name of the dataset, whose data of a period it can pay for; LedgerError where it cannot."""
        book = self._book()
        book.steps(period)
        return book.dataset

    def entries(self) -> tuple[Entry, ...]:
        """Every debit, in order."""
        return tuple(self._book().entries.values())

    def can_spend(self, privacy: Privacy, period: str | None = None) -> bool:
        """Whether `spend` would accept a release now; another process may still come first."""
        book = self._book()
        try:
            book.charge(privacy, book.steps(period))
        except (BudgetError, BudgetExceeded):
            return False
        return True

    def spend(
        self,
        privacy: Privacy,
        *,
        plan_hash: str,
        note: str = "",
        period: str | None = None,
        instalment: Instalment | None = None,
    ) -> Entry:
        """The entry of a debit that is on disk when this returns; draw noise only then (L-012).

        `period` is that of the data, which ledgers of periods need. An `instalment` of a stream is paid for
        once: if the same stream began it before, its entry is found again (L-021).

        BudgetExceeded says what is left; BudgetError, that the release is for another unit or proves nothing
        in this ledger's currency. Where this raises anything, do not release; there is no refund.
        """
        debit: dict[str, object] = {"kind": "spent", "plan_hash": plan_hash, "note": note}
        debit |= {"privacy": privacy.to_manifest(), "period": period}
        if instalment is not None:
            debit["instalment"] = asdict(instalment)
        return self._append(debit)

    def complete(self, entry: Entry, release_hash: str) -> Entry:
        """The entry with its release noted, once; for audits only, since no amount changes."""
        noted = {"entry": entry.id, "entry_hash": entry.hash, "release_hash": release_hash}
        return self._append({"kind": "released", **noted})

    def _append(self, event: Mapping[str, object]) -> Entry:
        """The entry that one more event makes or changes; it is durable when this returns (L-010, L-011).

        An instalment that was begun before by the same stream is not paid for again (L-021).
        """
        store = self._store
        with store.transaction(write=True) as rows:
            book = read_book(store.name, rows.every())
            begun = book.begun(event)
            if begun is not None:
                return begun
            text = _text(book.stated(event))
            entry = book.add(text)
            rows.add((book.length, text, book.hash))
        return entry

    def check(self, releases: Iterable[Audited]) -> tuple[Finding, ...]:
        """One finding for each release: whether this ledger still holds the entry that paid for it (L-015).

        Finds a ledger that was rolled back or copied, by the releases that it paid for meanwhile: give all
        that there are.
        """
        return findings(self._book(), releases)

    def describe(self) -> str:
        """The ledger in plain words; what is spent is rounded up, what is left is rounded down."""
        book = self._book()
        releases = "1 release" if len(book.entries) == 1 else f"{len(book.entries)} releases"
        head = f"Ledger of dataset {book.dataset!r}, protecting against {book.unit.describe()}.\n"
        if book.disjoint:
            return (
                f"{head}Total for each {book.step}, which are disjoint: {book.budget.describe()}.\n"
                f"Spent: {book.currency} {text_above(book.spent)} in the dearest {book.step}, by {releases} "
                f"in all. Left there: {book.currency} {text_below(book.left)}."
            )
        rule = "" if book.step is None else f" Kept by {book.step}; what is spent on each adds up."
        return (
            f"{head}Total: {book.budget.describe()}.{rule}\n"
            f"Spent: {book.currency} {text_above(book.spent)} by {releases}. "
            f"Left: {book.currency} {text_below(book.left)}."
        )

    def _repr_html_(self) -> str:
        entries, below = self.entries(), self.describe().splitlines()
        rows = ((str(each.id), each.time, text_above(each.amount), each.note) for each in reversed(entries))
        head, more = ("entry", "time", self.currency, "note"), len(entries) - MOST
        return shown(f"Ledger of {self._book().dataset}", head, rows, more=more, below=below)

    def __repr__(self) -> str:
        return f"Ledger({self.name!r})"


def _place(given: Path | str) -> Path | str:
    """The absolute path of a file, or an address as it is."""
    address = str(given)
    return address if address.startswith(PREFIXES) else Path(os.path.abspath(address))


def _store_of(place: Path | str) -> Store:
    return Server(place) if isinstance(place, str) else File(place)


def _text(event: Mapping[str, object]) -> str:
    """An event as it is stored and hashed, with the time and random digits: no two are the same."""
    return json.dumps({**event, "time": _now(), "nonce": secrets.token_hex(8)})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
