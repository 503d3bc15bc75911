"""Laws of the ledger for every sequence of debits, every text and every damage."""

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residua.errors import BudgetError, BudgetExceeded, LedgerError
from residua.ledger import Entry, Ledger, sqlite
from residua.privacy import Budget, Privacy, Unit, approx_dp, gdp, privacy_cost, pure_dp, zcdp


@dataclass(frozen=True)
class Rule:
    """A definition's composition, written a second time: the total, and what each figure is charged."""

    budget: Budget
    total: Fraction
    charge: dict[str, Callable[[Fraction], Fraction]]


COST = {"cost": lambda cost: cost}
RULES = (
    Rule(
        zcdp("3/4"),
        Fraction(3, 4),
        {"cost": lambda cost: cost / 2, "rho": lambda rho: rho, "pure_epsilon": lambda e: e * e / 2},
    ),
    Rule(pure_dp("4/3"), Fraction(4, 3), {"pure_epsilon": lambda epsilon: epsilon}),
    Rule(privacy_cost("0.7"), Fraction(7, 10), COST),
    Rule(gdp("0.9"), Fraction(81, 100), COST),
    Rule(approx_dp(4, "1e-3"), approx_dp(4, "1e-3").gaussian_cost(), COST),
)
UNITS = (Unit(), Unit(max_records=2), Unit(neighbours="replace_one"))
TEXT = st.text(st.characters(), max_size=20)
STATEMENTS = st.builds(
    Privacy,
    st.sampled_from(["cost", "cost", "cost", "rho", "pure_epsilon", "pure_epsilon"]),
    st.builds(Fraction, st.integers(0, 50), st.integers(1, 200)),
    st.sampled_from([UNITS[0]] * 9 + list(UNITS)),
)


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Nothing here is about durability, so do not wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "_SETTINGS", ("PRAGMA synchronous=OFF",))
        yield


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def sample(folder):
    """The bytes of a ledger of several pages, and its entries."""
    ledger = Ledger.create(folder / "sample.db", zcdp(10), dataset="people")
    for number in range(12):
        entry = ledger.spend(Privacy.from_rho("1/7"), plan_hash=f"{number:064}", note="x" * 90 * number)
        if number % 3 == 0:
            ledger.complete(entry, f"{number:064}")
    return ledger.path.read_bytes(), ledger.entries()


def attempt(ledger: Ledger, privacy: Privacy, note: str) -> Entry | None:
    try:
        return ledger.spend(privacy, plan_hash="plan", note=note)
    except (BudgetExceeded, BudgetError):
        return None


@given(st.sampled_from(RULES), st.lists(st.tuples(STATEMENTS, TEXT, st.booleans()), max_size=8), TEXT)
@settings(max_examples=50)
def test_spending_is_the_exact_sum_of_what_fits_and_of_nothing_else(folder, rule, attempts, dataset):
    path = folder / "sequence.db"
    path.unlink(missing_ok=True)
    ledger = Ledger.create(path, rule.budget, dataset=dataset or "people")
    spent, entries = Fraction(0), []
    for privacy, note, complete in attempts:
        charge = rule.charge.get(privacy.figure)
        fits = charge is not None and privacy.unit == Unit() and spent + charge(privacy.amount) <= rule.total
        assert ledger.can_spend(privacy) == fits
        entry = attempt(ledger, privacy, note)
        assert (entry is not None) == fits
        if entry is not None:
            assert (entry.privacy, entry.note, entry.amount) == (privacy, note, charge(privacy.amount))
            spent += entry.amount
            entries.append(ledger.complete(entry, "release") if complete else entry)
        again = Ledger.open(path)
        assert again.entries() == tuple(entries)
        assert again.spent == spent == sum((each.amount for each in entries), Fraction(0))
        assert again.spent <= again.total == rule.total
        assert again.remaining == rule.total - spent
    assert Ledger.open(path).dataset == (dataset or "people")


@given(st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=8)), min_size=1, max_size=3))
@settings(max_examples=300)
def test_changed_bytes_are_refused_or_change_nothing(folder, sample, changes):
    content, entries = sample
    damaged = bytearray(content)
    for place, piece in changes:
        start = place % len(content)
        damaged[start : start + len(piece)] = piece
    check_damaged(folder, bytes(damaged), entries)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.binary(max_size=5000))
def test_a_piece_cut_out_or_put_in_is_refused(folder, sample, place, other, piece):
    content, entries = sample
    start, stop = sorted((place % len(content), other % (len(content) + 1)))
    check_damaged(folder, content[:start] + piece + content[stop:], entries)


def check_damaged(folder, content, entries):
    """Reading and spending either refuse, or go on from the same entries."""
    for leftover in folder.glob("damaged.db*"):
        leftover.unlink()
    path = folder / "damaged.db"
    path.write_bytes(content)
    with contextlib.suppress(LedgerError):
        ledger = Ledger.open(path)
        assert ledger.entries() == entries
        entry = ledger.spend(Privacy.from_rho("1/7"), plan_hash="after", note="x" * 5000)
        assert ledger.entries() == (*entries, entry)


@given(st.data())
@settings(max_examples=60)
def test_no_row_can_be_edited_moved_or_taken_out_of_the_middle(folder, sample, data):
    path = folder / "edited.db"
    path.write_bytes(sample[0])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        [last] = connection.execute("SELECT max(number) FROM event").fetchone()
        row = data.draw(st.integers(1, last - 1))
        value = data.draw(st.one_of(st.text(st.characters(codec="utf-8")), st.integers(-9, 9), st.binary()))
        column = data.draw(st.sampled_from(["number", "text", "hash", None]))
        if column is None:
            connection.execute("DELETE FROM event WHERE number = ?", [row])
        elif column == "number":
            connection.execute("UPDATE event SET number = number + 100 WHERE number = ?", [row])
        else:
            connection.execute(f"UPDATE event SET {column} = ? WHERE number = ?", [value, row])
    with pytest.raises(LedgerError, match=r"was edited|is damaged"):
        Ledger.open(path)
