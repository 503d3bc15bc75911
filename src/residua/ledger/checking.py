"""Whether a ledger still holds the entries that releases say paid for them (claim L-015).

A release has the number and the hash of its entry, which covers all events up to it: the head of the chain at
the moment of its debit. A ledger that was rolled back lacks the entry, one that went on after that has
another event in its place.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from residua.ledger.book import Book, Entry

State = Literal["paid", "unchecked", "disputed", "rolled back", "forked"]  # the worst comes last


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


def findings(book: Book, releases: Iterable[Audited]) -> tuple[Finding, ...]:
    """One finding for each release; that of a combination is the worst one of its parts."""
    parts = [list(_parts(release.hash, release.audit)) for release in releases]
    claims: dict[str, set[str]] = {}
    for release, audit in (part for own in parts for part in own):
        if isinstance(record := audit.get("ledger"), Mapping):
            claims.setdefault(str(record.get("hash")), set()).add(release)
    found = [[_found(book, release, audit, claims) for release, audit in own] for own in parts]
    return tuple(max(own, key=lambda finding: get_args(State).index(finding.state)) for own in found)


def _parts(release: object, audit: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The hash and the audit record of a release, or of each one that it was combined from."""
    if not (isinstance(parts := audit.get("combined"), list) and parts):
        yield str(release), audit
        return
    for part in parts:
        known = part if isinstance(part, Mapping) else {}
        yield from _parts(known.get("hash"), known)


def _found(book: Book, release: str, audit: Mapping[str, Any], claims: Mapping[str, set[str]]) -> Finding:
    """What the book says of one release that was not combined."""
    match audit.get("ledger"):
        case None:
            return Finding("unchecked", "no ledger paid for it")
        case {"dataset": str(dataset), "entry": str(digits), "hash": str(head)} as record if (
            digits.isdecimal() and len(digits) < 19
        ):
            number = int(digits)
        case _:
            return Finding("unchecked", "its audit record has no head of a ledger")
    if dataset != book.dataset:
        return Finding("unchecked", f"the ledger of dataset {dataset!r} paid for it")
    if number > book.length:
        return Finding(
            "rolled back",
            f"it was paid by event {number}, and the ledger ends with event {book.length}: entries were "
            "deleted, or an old copy was restored",
        )
    entry = book.entries.get(number)
    if entry is None or entry.hash != head:
        return Finding(
            "forked",
            f"event {number} of the ledger is another one than that which paid for it: the ledger was rolled "
            "back and went on, or is another copy, or another ledger of the same name",
        )
    stream = audit.get("stream")  # whose plan is that of all its instalments, of which a release has some
    plan = (stream if isinstance(stream, Mapping) else audit).get("plan_hash")
    if (str(entry.amount), entry.plan_hash) != (record.get("amount"), plan):
        return Finding("disputed", f"entry {entry.id} is of another plan or amount than it says", entry)
    if len(claims[head]) > 1:
        return Finding("disputed", f"entry {entry.id} is that of several different releases", entry)
    if entry.release_hash not in (None, release):
        return Finding("disputed", f"the ledger has noted another release for entry {entry.id}", entry)
    return Finding("paid", f"by entry {entry.id}", entry)
