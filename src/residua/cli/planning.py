"""`residua plan` and `residua studio`: every error before any data is touched, and what other budgets buy."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from residua._text import columns, hint, listing, short
from residua.accuracy import Target
from residua.accuracy.guesses import AnyTargets, Guess, Relative
from residua.cli import options
from residua.cli.output import progress_bar, refuse_to_replace, show, show_json
from residua.errors import BudgetError
from residua.methods.effort import Account
from residua.plans import Plan
from residua.release import Release
from residua.report.budgets import DELTA, FACTORS, amount_of, at_budget, largest_of, overall
from residua.report.words import figure
from residua.spec import load_spec
from residua.spec.language import TARGET_WORDS
from residua.spec.release_spec import guess_of
from residua.strategy.words import described


def written_targets(written: Sequence[str]) -> AnyTargets:
    """The targets of the command line: one for everything, or one for each name.

    >>> written_targets(["stddev:5"]), written_targets(["T1=stddev:5", "one-way=half_width:20@0.9"])
    (stddev(5), {'T1': stddev(5), 'one-way': half_width(20, level=0.9)})
    """
    if len(written) == 1 and "=" not in written[0]:
        return _written_target(written[0])
    targets: dict[str, Target | Relative] = {}
    for text in written:
        name, sign, target = text.rpartition("=")
        if not sign:
            raise BudgetError(
                f"--target {short(text)}: of several targets each needs a name, such as T1=stddev:5"
            )
        if name in targets:
            raise BudgetError(f"--target: there are two targets for {name!r}; keep one")
        targets[name] = _written_target(target)
    return targets


def _written_target(text: str) -> Target | Relative:
    word, _, figures = text.partition(":")
    if word not in TARGET_WORDS:
        raise BudgetError(
            f"--target: {short(text)} is no target{hint(word, TARGET_WORDS)}; write variance:25, stddev:5, "
            "half_width:20, half_width:20@0.9 or relative:0.05"
        )
    amount, at, level = figures.partition("@")
    try:
        numbers = [float(amount), *([float(level)] if at else [])]
    except ValueError:
        raise BudgetError(f"--target: {short(figures)} is no number; write {word}:5") from None
    if at and word != "half_width":
        raise BudgetError(f"--target: {short(text)}: a level goes with half_width only")
    return TARGET_WORDS[word](*numbers)


GUESSED = "A public guess, the number of records or an old release, to foresee percentages and means."


def written_guess(text: str) -> Release | float | None:
    """A guess of sizes from the words of an option."""
    return guess_of(float(text) if text.isdecimal() else text, Path())


def plan(
    spec: options.SpecFile,
    output: Annotated[
        Path | None, options.output("Save the plan here (over output.plan of the spec).")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]TARGET",
            help="Accuracy instead of a budget: variance:25, stddev:5, half_width:20@0.9 or relative:0.05.",
        ),
    ] = None,
    guess: Annotated[str | None, typer.Option(metavar="SIZE", help=GUESSED)] = None,
    effort: Annotated[
        str | None, typer.Option(help="Work that planning may take: quick, normal or thorough.")
    ] = None,
    keep_best: Annotated[
        bool, typer.Option("--keep-best", help="On Ctrl-C end with the best plan so far, not without one.")
    ] = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the error of every table before any data is touched.

    \b
    Examples:
      residua plan people.yaml
      residua plan people.yaml -o people.plan
      residua plan people.yaml --target stddev:5     (the least privacy that gives it)
      residua plan people.yaml --guess 100000        (percentages, means and medians of so many)
    """
    asked = load_spec(spec)
    if effort is not None:
        Account.of(effort)
        asked = replace(asked, effort=effort)
    if guess is not None:
        asked = replace(asked, guess=written_guess(guess))
    if target:
        asked = replace(
            asked, budget=None, relax=False, targets=written_targets(target), targets_from="--target"
        )
    kept = output or asked.plan_file
    refuse_to_replace([] if kept is None else [kept], force)
    with progress_bar() as progress:
        found = asked.plan(progress, "best" if keep_best else "stop")
        others = {words: at_budget(found, factor) for words, factor in FACTORS.items()}
    if kept is not None:
        found.save(kept)
    if as_json:
        show_json(plan_document(found, asked.guess) | {"budgets": _budgets_document(others), "file": kept})
        return
    saved = [] if kept is None else ["", f"Saved the plan as {kept}"]
    show([*plan_screen(found, others, asked.guess), *_no_place(found), *saved])


def _no_place(found: Plan) -> Iterator[str]:
    """A warning where missing values would stop the release."""
    schema = found.schema
    strict = [name for name in schema.names if schema[name].outside in ("error", "clip")]
    lost = [name for name in strict if not getattr(schema[name], "missing", False)]
    if lost:
        yield ""
        yield f"No place for missing values in {listing(lost)}: one of them stops the release."
        yield "  residua: {outside: missing} gives them a cell of their own, {outside: drop} leaves them out"


def plan_screen(found: Plan, others: dict[str, Plan], guess: Guess | None = None) -> Iterator[str]:
    """The plan in words, and the same tables at other budgets."""
    yield from found.explain(guess=guess).splitlines()
    yield ""
    noun = "number" if found.workload.counts else "count"
    yield f"What other budgets would buy (standard deviation of each {noun})"
    head = ("budget", "", f"epsilon at delta {DELTA}", "typical", "largest")
    rows = [
        (words, amount_of(each.budget), f"{each.privacy.epsilon(DELTA):.4g}", *map(figure, overall(each)))
        for words, each in others.items()
    ]
    yield from columns(head, rows, left=(0, 1))


def plan_document(found: Plan, guess: Guess | None = None) -> dict[str, Any]:
    """The plan as a JSON document, with what is foreseen at guessed sizes."""
    proof = found.certificate
    tables = [
        {
            "name": row.name,
            "queries": row.families or "total",
            "numbers": row.queries,
            "rmse": row.rmse,
            "max_stddev": row.max_stddev,
            "statistic": row.statistic,
        }
        for own in found.summary()
        for row in own.lines()
    ]
    return {
        "hash": found.hash,
        "method": found.method,
        "budget": found.budget.to_manifest(),
        "privacy": found.privacy.to_manifest() | {f"epsilon at delta {DELTA}": found.privacy.epsilon(DELTA)},
        "table_count": found.workload.tables,
        "numbers": found.workload.count,
        "rmse": found.rmse,
        "max_stddev": largest_of(found),
        "total_variance": found.total_variance,
        "tables": tables,
        "certificate": {"lower_bound": proof.lower_bound, "gap": proof.gap, "scope": proof.scope}
        | ({} if proof.everywhere is None else {"everywhere": proof.everywhere}),
        "undone": list(found.undone),
        "objective": found.objective,
        "targets": _targets_document(found),
        "measured": list(described(found.strategy)),
        "foreseen": None if guess is None else [asdict(each) for each in found.foreseen(guess)],
    }


def _targets_document(found: Plan) -> dict[str, Any] | None:
    """How targets are met, or None where there are none."""
    if found.targets is None:
        return None
    met = [
        {
            "name": line.name,
            "asked": line.target.describe(),
            "numbers": line.queries,
            "largest_ratio": line.ratio,
            "share_of_price": line.share,
            "binds": line.binds,
        }
        for line in found.targets.met
    ]
    fitness = found.targets
    return {"factor": fitness.factor, "needed_cost": fitness.needed, "least_cost": fitness.least, "met": met}


def _budgets_document(others: dict[str, Plan]) -> list[dict[str, Any]]:
    return [
        {
            "budget": each.budget.to_manifest(),
            "epsilon": each.privacy.epsilon(DELTA),
            "delta": DELTA,
            "rmse": each.rmse,
            "max_stddev": largest_of(each),
        }
        for each in others.values()
    ]


def studio(
    spec: Annotated[
        Path | None, typer.Argument(help="The release spec; written there if there is none yet.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; any free one by default.")
    ] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the address.")] = False,
) -> None:
    """Plan in the browser: tables, budget and errors on one page, written to one spec file.

    The page is served to this machine alone and needs no data. Without a spec it starts from a file of the
    folder: the header of a CSV or Parquet file, or a Table Schema. Releasing stays a command.

    \b
    Examples:
      residua studio people.yaml
      residua studio
    """
    from residua.studio.server import serve  # seldom needed, and not quick to load

    def say(address: str) -> None:
        typer.echo(f"The studio is at {address}")
        typer.echo("Whoever has this address can change the spec. Ctrl-C ends it.")

    serve(spec, port=port, opened=not no_open, say=say)
