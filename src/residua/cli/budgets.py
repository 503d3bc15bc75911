"""`residua budget`: create a ledger, and show what was spent."""

from pathlib import Path
from typing import Annotated

import typer

from residua._text import columns
from residua.cli.screens import AsJson, show, show_json
from residua.ledger import Ledger
from residua.privacy import Budget, Neighbours, Unit, approx_dp, gdp, privacy_cost, pure_dp, zcdp
from residua.privacy.exact import text_above

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Create a privacy ledger, or show what it holds.

\b
Examples:
  residua budget create budget.db --zcdp 1 --dataset people-2024
  residua budget show budget.db""",
)


@app.command()
def create(
    path: Annotated[Path, typer.Argument(help="The ledger's file; one that exists is never replaced.")],
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
    as_json: AsJson = False,
) -> None:
    """Create the ledger of a dataset, once, with all that may ever be spent on it.

    \b
    Examples:
      residua budget create budget.db --zcdp 1 --dataset people-2024
      residua budget create budget.db --approx-dp 2 1e-9 --dataset people-2024 --max-records 3
    """
    total = _total(rho, mu, pair, epsilon, cost)
    ledger = Ledger.create(path, total, dataset=dataset, unit=Unit(max_records, neighbours))
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


@app.command("show")
def show_ledger(
    path: Annotated[Path, typer.Argument(help="The ledger's file.")], as_json: AsJson = False
) -> None:
    """Show the total, what was spent by which release, and what is left.

    \b
    Example:
      residua budget show budget.db
    """
    _show(Ledger.open(path), as_json)


def _show(ledger: Ledger, as_json: bool) -> None:
    entries = ledger.entries()
    if as_json:
        fields = ("id", "time", "state", "amount", "plan_hash", "release_hash", "note")
        show_json(
            {
                "path": ledger.path,
                "dataset": ledger.dataset,
                "budget": ledger.budget.record(),
                "unit": ledger.unit.record(),
                "currency": ledger.currency,
                "total": ledger.total,
                "spent": ledger.spent,
                "remaining": ledger.remaining,
                "entries": [{name: getattr(entry, name) for name in fields} for entry in entries],
            }
        )
        return
    show(ledger.describe().splitlines())
    if entries:
        head = ("entry", "time", ledger.currency, "state", "plan", "note")
        rows = [
            (
                str(entry.id),
                entry.time,
                text_above(entry.amount),
                entry.state,
                entry.plan_hash[:12],
                entry.note,
            )
            for entry in entries
        ]
        show(["", *columns(head, rows, left=(1, 3, 4, 5))])
