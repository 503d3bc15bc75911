"""`residua budget`: create a ledger, show what was spent when, and check it against releases."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from residua._text import columns, counted
from residua.cli import options
from residua.cli.output import show, show_json, tell
from residua.errors import FileFormatError, LedgerError
from residua.ledger import Finding, Ledger
from residua.ledger.book import text_below
from residua.ledger.periods import covered, following, known_step
from residua.ledger.postgres import PREFIXES
from residua.privacy import Budget, MissingId, Neighbours, Unit, approx_dp, gdp, privacy_cost, pure_dp, zcdp
from residua.privacy.conversions import text_above
from residua.release import Release

PLACE = "The ledger's file, or its address (postgresql://host/name)"
REMEDY = "make one with 'residua budget create {path} --zcdp 1 --dataset NAME'"

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Create a privacy ledger, show what it holds, or check it against releases.

\b
Examples:
  residua budget create budget.db --zcdp 1 --dataset people-2024
  residua budget show budget.db
  residua budget check budget.db *.release""",
)


@app.command()
def create(
    path: Annotated[str, typer.Argument(help=f"{PLACE}; one that exists is never replaced.")],
    dataset: Annotated[str, typer.Option(help="The dataset whose privacy is counted, such as people-2024.")],
    rho: Annotated[str | None, typer.Option("--zcdp", metavar="RHO", help="Total under zCDP.")] = None,
    mu: Annotated[str | None, typer.Option("--gdp", metavar="MU", help="Total under Gaussian DP.")] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option("--approx-dp", metavar="EPSILON DELTA", help="Total under (epsilon, delta)-DP."),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option("--pure-dp", metavar="EPSILON", help="Total of pure DP.")
    ] = None,
    cost: Annotated[str | None, typer.Option("--privacy-cost", metavar="COST", help="Total cost.")] = None,
    max_records: Annotated[int, typer.Option(help="Most records that one person can have.")] = 1,
    neighbours: Annotated[Neighbours, typer.Option(help="How neighbouring datasets differ.")] = "add_remove",
    id_: Annotated[
        str | None, typer.Option("--id", help="Column that says whose record each is: a person, a household.")
    ] = None,
    missing_id: Annotated[MissingId, typer.Option(help="What becomes of records without an id.")] = "error",
    periods: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="Keep it by day, month, quarter or year; what is spent adds up."),
    ] = None,
    disjoint: Annotated[
        bool, typer.Option(help="Each period has the whole total: a record is of one of them.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Create the ledger of a dataset, once, with all that may ever be spent on it.

    \b
    Examples:
      residua budget create budget.db --zcdp 1 --dataset people-2024
      residua budget create budget.db --approx-dp 2 1e-9 --dataset people-2024 --max-records 3
      residua budget create budget.db --zcdp 1 --dataset visits --id patient_id
      residua budget create budget.db --zcdp 1 --dataset births --periods month --disjoint
    """
    total = _total(rho, mu, pair, epsilon, cost)
    unit = Unit(max_records, neighbours, id=id_, missing_id=missing_id)
    ledger = Ledger.create(path, total, dataset=dataset, unit=unit, periods=periods, disjoint=disjoint)
    _show(ledger, as_json)


def _total(
    rho: str | None, mu: str | None, pair: tuple[str, str] | None, epsilon: str | None, cost: str | None
) -> Budget:
    """The one budget that was given."""
    makers = ((zcdp, rho), (gdp, mu), (pure_dp, epsilon), (privacy_cost, cost))
    given = [make(amount) for make, amount in makers if amount is not None]
    given += [] if pair is None else [approx_dp(*pair)]
    if len(given) != 1:
        raise typer.BadParameter("give one of --zcdp, --gdp, --approx-dp, --pure-dp, --privacy-cost")
    return given[0]


def open_ledger(path: str) -> Ledger:
    """The ledger in a file or at an address, or the error that says how a command makes one."""
    if not path.startswith(PREFIXES) and not Path(path).exists():
        raise LedgerError(f"there is no ledger {path}; {REMEDY.format(path=path)}")
    return Ledger.open(path)


@app.command("show")
def show_ledger(
    path: Annotated[str, typer.Argument(help=f"{PLACE}.")],
    per_period: Annotated[
        int | None,
        typer.Option(min=1, max=1000, metavar="N", help="What each of the next N periods could have."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the total, what was spent by which release and when, and what is left.

    \b
    Examples:
      residua budget show budget.db
      residua budget show budget.db --per-period 12
    """
    _show(open_ledger(path), as_json, per_period)


@app.command()
def check(
    path: Annotated[str, typer.Argument(help=f"{PLACE}.")],
    releases: Annotated[list[Path], typer.Argument(help="Saved releases; give all that there are.")],
    as_json: options.AsJson = False,
) -> None:
    """Find out whether a ledger still holds what it paid for, or was rolled back or copied.

    \b
    Example:
      residua budget check budget.db *.release
    """
    ledger = open_ledger(path)
    loaded = {file: _loaded(file) for file in releases}
    readable = {file: one for file, one in loaded.items() if isinstance(one, _Loaded)}
    findings = dict(zip(readable, ledger.check(readable.values()), strict=True))
    rows = []
    for file, one in loaded.items():
        own = findings.get(file)
        rows.append((str(file), "unreadable", str(one)) if own is None else (str(file), own.state, own.words))
    listed = [{"path": file, "state": state, "why": words} for file, state, words in rows]
    document = {"path": ledger.name, "dataset": ledger.dataset, "releases": listed}
    tell(document, _checked(ledger, rows, list(findings.values())), as_json)
    bad = len(loaded) - len(readable) + sum(finding.bad for finding in findings.values())
    if bad:
        raise LedgerError(
            f"{counted(bad, 'release', 'releases')} cannot be matched with the ledger {ledger.name}; until "
            "it is known why, count what they spent as spent, and release nothing"
        )


class _Loaded(NamedTuple):
    """What is kept of a release: all of them need not fit in memory."""

    hash: str
    audit: Mapping[str, Any]


def _loaded(file: Path) -> _Loaded | FileFormatError:
    """The release in a file, or why there is none."""
    try:
        release = Release.load(file)
    except FileFormatError as error:
        return error
    return _Loaded(release.hash, release.audit)


def _checked(
    ledger: Ledger, rows: Sequence[tuple[str, str, str]], findings: Sequence[Finding]
) -> Iterator[str]:
    """Lines for people: every release, how many there are of each state, and entries that have none here."""
    yield from columns(("release", "state", "why"), rows, left=(0, 1, 2))
    states = Counter(state for _, state, _ in rows)
    told = [f"{many:,} {state}" for state, many in states.items() if state != "paid"]
    yield ""
    yield ", ".join([f"{counted(states['paid'], 'release', 'releases')} paid", *told]) + "."
    entries = ledger.entries()
    known = {finding.entry.id for finding in findings if finding.entry is not None}
    if missing := len(entries) - len(known):
        verb = "has" if missing == 1 else "have"
        yield f"{missing} of {counted(len(entries), 'entry', 'entries')} {verb} no release here."


def _show(ledger: Ledger, as_json: bool, per_period: int | None = None) -> None:
    entries = ledger.entries()
    spent = spent_when(ledger)
    coming = schedule(ledger, per_period) if per_period else []
    if as_json:
        own = ("currency", "total", "spent", "remaining", "periods", "disjoint")
        fields = ("id", "time", "state", "amount", "plan_hash", "release_hash", "note", "periods")
        document: dict[str, Any] = {"path": ledger.name, "dataset": ledger.dataset}
        document |= {"budget": ledger.budget.to_manifest(), "unit": ledger.unit.to_manifest()}
        document |= {name: getattr(ledger, name) for name in own}
        document |= {"by_period": dict(spent), "schedule": dict(coming)}
        document["entries"] = [{name: getattr(entry, name) for name in fields} for entry in entries]
        show_json(document)
        return
    show(ledger.describe().splitlines())
    if entries:
        head = ("entry", "time", ledger.currency, "state", "plan", "note", "period")
        rows = []
        for entry in entries:
            number, amount, period = str(entry.id), text_above(entry.amount), spoken(entry.periods)
            rows.append((number, entry.time, amount, entry.state, entry.plan_hash[:12], entry.note, period))
        used = len(head) if any(entry.periods for entry in entries) else len(head) - 1
        show(["", *columns(head[:used], [row[:used] for row in rows], left=(1, 3, 4, 5, 6))])
    if spent:
        show(["", *drawn(ledger, spent)])
    if coming:
        rule = "each has the whole total" if ledger.disjoint else "what is left, in equal parts"
        show(["", f"Next periods ({rule}):"])
        amounts = [(when, text_below(own)) for when, own in coming]
        show(columns(("period", ledger.currency), amounts, left=(0,)))


BAR = 30  # letters that the whole total is drawn with

Spending = list[tuple[str, Fraction]]
"""Periods in order, and amounts."""


def spoken(periods: Sequence[str]) -> str:
    """Some periods that follow each other, in few words."""
    return "/".join(dict.fromkeys((periods[0], periods[-1]))) if periods else ""


def spent_when(ledger: Ledger) -> Spending:
    """What was spent on each period; nothing for a ledger that knows none."""
    if ledger.periods is None:
        return []
    if ledger.disjoint:
        return list(ledger.spent_by_period().items())
    found: defaultdict[str, Fraction] = defaultdict(Fraction)
    for entry in ledger.entries():
        found[spoken(entry.periods)] += entry.amount
    return sorted(found.items())


def drawn(ledger: Ledger, spent: Spending) -> Iterator[str]:
    """A bar for each period: what was spent, and what is left of the total, there or in all."""
    before, rows = Fraction(0), []
    for period, amount in spent:
        left = ledger.total - before - amount
        bar = "".join(
            letter * round(BAR * part / ledger.total)
            for letter, part in (("-", before), ("#", amount), (".", left))
        )
        rows.append((period, text_above(amount), bar, text_below(left)))
        before = Fraction(0) if ledger.disjoint else before + amount
    return iter(columns(("period", ledger.currency, "of the total", "left"), rows, left=(0, 2)))


def schedule(ledger: Ledger, count: int) -> Spending:
    """What each of the next periods could have: the whole total, or equal parts of what is left."""
    share = ledger.total if ledger.disjoint else ledger.remaining / count
    if ledger.periods is None:
        return [(f"release {number + 1}", share) for number in range(count)]
    step = known_step(ledger.periods)
    known = [period for entry in ledger.entries() for period in entry.periods]
    if known:
        return [(period, share) for period in following(step, max(known), count)]
    today = covered(step, datetime.now(UTC).date().isoformat())
    return [(period, share) for period in (*today, *following(step, today[0], count - 1))]
