"""Whether a ledger still holds the entries that releases say paid for them (claim L-015).

A release has the number and the hash of its entry, which covers all events up to it: the head of the chain at
the moment of its debit. A ledger that was rolled back lacks the entry, one that went on after that has
another event in its place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from residua.ledger.book import Book, Entry

State = Literal["paid", "unchecked", "rolled back", "forked", "disputed"]
_ORDER: tuple[State, ...] = ("paid", "unchecked", "disputed", "rolled back", "forked")  # the worst comes last


class Audited(Protocol):
    """A release, as far as a ledger is concerned."""

    @property
    def hash(self) -> str:
        """The hash that identifies the release."""

    @property
    def audit(self) -> Mapping[str, Any]:
        """How the release came to be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a ledger says of one release: a state, the reason in words, and the entry that paid.

    paid: the ledger holds the entry. unchecked: no head, or another ledger's. rolled back: the ledger ends
    before the entry. forked: another event stands in its place. disputed: the entry is there, but of another
    release, plan or amount.
    """

    state: State
    words: str
    entry: Entry | None = None

    @property
    def bad(self) -> bool:
        """Whether the ledger does not hold what the release says."""
        return self.state not in ("paid", "unchecked")


@dataclass(frozen=True, slots=True)
class _Receipt:
    """What a release says of the entry that paid for it."""

    release: str
    plan: object
    dataset: str
    number: int
    amount: object
    head: str


def findings(book: Book, releases: Iterable[Audited]) -> tuple[Finding, ...]:
    """One finding for each release; that of a combination is the worst one of its parts."""
    receipts = [list(_receipts(release.hash, release.audit)) for release in releases]
    claims: dict[str, set[str]] = {}
    for receipt in (each for own in receipts for each in own):
        if isinstance(receipt, _Receipt):
            claims.setdefault(receipt.head, set()).add(receipt.release)
    return tuple(_worst([_found(book, each, claims) for each in own]) for own in receipts)


def _receipts(release: object, audit: Mapping[str, Any]) -> Iterator[_Receipt | str]:
    """What pays for a release, or for each one that it was combined from; words where nothing is known."""
    if isinstance(parts := audit.get("combined"), list) and parts:
        for part in parts:
            known = part if isinstance(part, Mapping) else {}
            yield from _receipts(known.get("hash"), known)
        return
    match audit.get("ledger"):
        case None:
            yield "no ledger paid for it"
        case {"dataset": str(dataset), "entry": str(number), "hash": str(head)} as record if (
            number.isdecimal() and len(number) < 19
        ):
            plan, amount = audit.get("plan_hash"), record.get("amount")
            yield _Receipt(str(release), plan, dataset, int(number), amount, head)
        case _:
            yield "its audit record has no head of a ledger"


def _found(book: Book, receipt: _Receipt | str, claims: Mapping[str, set[str]]) -> Finding:
    """What the book says of one receipt."""
    if isinstance(receipt, str):
        return Finding("unchecked", receipt)
    if receipt.dataset != book.dataset:
        return Finding("unchecked", f"the ledger of dataset {receipt.dataset!r} paid for it")
    if receipt.number > book.length:
        return Finding(
            "rolled back",
            f"it was paid by event {receipt.number}, and the ledger ends with event {book.length}: entries "
            "were deleted, or an old copy was restored",
        )
    entry = book.entries.get(receipt.number)
    if entry is None or entry.hash != receipt.head:
        return Finding(
            "forked",
            f"event {receipt.number} of the ledger is another one than that which paid for it: the ledger "
            "was rolled back and went on, or is another copy, or another ledger of the same name",
        )
    if (str(entry.amount), entry.plan_hash) != (receipt.amount, receipt.plan):
        return Finding("disputed", f"entry {entry.id} is of another plan or amount than it says", entry)
    if len(claims[receipt.head]) > 1:
        return Finding("disputed", f"entry {entry.id} is that of several different releases", entry)
    if entry.release_hash not in (None, receipt.release):
        return Finding("disputed", f"the ledger has noted another release for entry {entry.id}", entry)
    return Finding("paid", f"by entry {entry.id}", entry)


def _worst(found: Sequence[Finding]) -> Finding:
    return max(found, key=lambda finding: _ORDER.index(finding.state))
