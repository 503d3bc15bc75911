"""Release specs: from one YAML file to the schema, the tables and the budget that it writes down."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residua._text import listing, one_line
from residua.accuracy.guesses import AnyTargets, resolved
from residua.errors import BudgetError, Infeasible, ResiduaError, SchemaError, WorkloadError
from residua.methods.draft import Progress
from residua.planning import plan, same_queries
from residua.plans import Plan
from residua.privacy import Budget, Unit
from residua.release import Release
from residua.schema import Schema
from residua.schema.files import attributes_from_fields, beside
from residua.spec.language import Document, Place, SpecError, read_document
from residua.workload import Family, Workload, all_tables, identity, levels, marginals, table
from residua.workload.sql import sql

if TYPE_CHECKING:
    from residua.spec.models import TableEntry

AS_NEEDED = 1e-3  # a plan without a budget of its own meets its targets by no more than this
AS_WRITTEN = ("targets", "relax", "method", "objective", "effort", "over", "renew")  # to `plan` as they are

TO_CONFIRM = "CONFIRM"
"""What a drafted spec has in place of facts that a person must supply."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A release spec, read and checked; paths are relative to where the spec's own path is.

    `data` and `ledger` are None where the spec does not name them, `plan_file` where the plan is not kept,
    `budget` where targets say how much privacy it takes. `targets_from` says where targets are from that do
    not stand in the file, such as '--target'; `guess` is what relative ones are of, a release or a number.
    `reading` says how data are written. `over` is the attribute of periods of a publication that continues,
    and `renew` after how many of them its plan starts anew; `stream_file` is where it is kept.
    """

    document: Document
    schema: Schema
    workload: Workload
    budget: Budget | None
    targets: AnyTargets | None
    relax: bool
    unit: Unit
    method: str
    objective: str
    answers_file: Path
    release_file: Path
    plan_file: Path | None
    level: float
    ledger: str | None
    data: Path | None
    guess: Release | float | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    targets_from: str | None = None
    effort: str = "normal"
    over: str | None = None
    renew: int | str | None = None
    stream_file: Path = Path()

    @property
    def path(self) -> Path:
        """The file that the spec was read from."""
        return self.document.path

    def asks_what(self, work: Workload) -> bool:
        """Whether a workload has the same tables in the same order."""
        return same_queries(self.workload, work)

    def asks_targets(self, found: Plan) -> bool:
        """Whether a plan was made for the same targets."""
        if self.targets is None or found.targets is None:
            return self.targets is None and found.targets is None
        exact = self.budget is not None or 1 - AS_NEEDED <= found.targets.factor <= 1
        return exact and found.targets.answers(resolved(self.workload, self.targets, self.guess))

    def plan(self, progress: Progress | None = None, interrupt: str = "stop") -> Plan:
        """The plan for these tables at this privacy; Ctrl-C stops it, or ends it with the best so far."""
        own: dict[str, Any] = {name: getattr(self, name) for name in ("guess", "unit", *AS_WRITTEN)}
        try:
            return plan(self.workload, self.budget, progress=progress, interrupt=interrupt, **own)
        except (BudgetError, SchemaError, WorkloadError, Infeasible) as error:
            place, words = self._place_of(error), str(error)
            if place == ("targets",):
                words = words.removeprefix("targets: ")
                if self.targets_from is not None:
                    raise type(error)(f"{self.targets_from}: {words}") from error
            raise self.document.refusal(place, words) from error

    def _place_of(self, error: ResiduaError) -> Place:
        """Where the mistake that planning found stands in the spec."""
        if f"objective {self.objective!r}" in str(error) or f"objective={self.objective!r}" in str(error):
            return ("objective",)
        if self.over is not None and (isinstance(error, SchemaError) or "instalments" in str(error)):
            return ("over",)
        if self.targets is not None and any(word in str(error) for word in ("target", "guess")):
            return ("targets",)
        return ("privacy",) if isinstance(error, BudgetError) else ("tables",)


def guess_of(written: str | float | None, folder: Path) -> Release | float | None:
    """A public guess of sizes: the number of records, or an earlier release."""
    return Release.load(folder / written) if isinstance(written, str) else written


def load_spec(path: str | os.PathLike[str]) -> Spec:
    """The spec in a YAML file; a SpecError is one line that names the file, the line and the field."""
    from pydantic import ValidationError

    from residua.spec.models import SpecFile, problem_of  # loads pydantic

    document = read_document(Path(path))
    if not isinstance(document.value, dict):
        raise document.refusal((), "a spec is a mapping with the keys schema, tables and privacy")
    for place in unconfirmed(document.value):
        raise document.refusal(place, f"replace {TO_CONFIRM} by a value that is public knowledge")
    try:
        written = SpecFile.model_validate(document.value)
    except ValidationError as error:
        raise document.refusal(*problem_of(error)) from None
    schema = _schema(document, written.schema_)
    folder, stem, ledger = document.path.parent, document.path.stem, written.ledger
    if ledger is not None and "://" not in ledger:  # an address stays as it is
        ledger = str(folder / ledger)
    return Spec(
        document=document,
        schema=schema,
        workload=_workload(document, written.tables, schema),
        budget=written.privacy.budget(),
        guess=guess_of(written.guess, folder),
        unit=written.privacy.unit.unit(),
        answers_file=folder / (written.output.answers or f"{stem}-answers.csv"),
        release_file=folder / (written.output.release or f"{stem}.release"),
        plan_file=None if written.output.plan is None else folder / written.output.plan,
        level=written.output.level,
        ledger=ledger,
        data=None if written.data is None else folder / written.data,
        reading=written.reading.model_dump(),
        stream_file=folder / (written.output.stream or f"{stem}.stream"),
        **{name: getattr(written, name) for name in AS_WRITTEN},
    )


def unconfirmed(value: object, place: Place = ()) -> Iterator[Place]:
    """The places of a drafted spec, or of a part of one, that still lack a fact."""
    if value == TO_CONFIRM:
        yield place
    named = ((str(key), inner) for key, inner in value.items()) if isinstance(value, dict) else ()
    for step, inner in enumerate(value) if isinstance(value, list) else named:
        yield from unconfirmed(inner, (*place, step))


def _schema(document: Document, written: object) -> Schema:
    """The schema that stands in the spec, or in the file that it names."""
    place: Place = ("schema",)
    try:
        if isinstance(written, str):
            return Schema.load(beside(document.path.parent, written))
        fields = written.get("fields") if isinstance(written, dict) else None
        if not isinstance(written, dict) or not isinstance(fields, list):
            raise SchemaError(
                "should be the name of a schema file, or have 'fields:' with a '- name: ...' each"
            )
        lines = [document.line((*place, "fields", number)) for number in range(len(fields))]
        where = f"{document.path}, schema"
        return Schema(attributes_from_fields(written, folder=document.path.parent, where=where, lines=lines))
    except (SchemaError, OSError) as error:
        if str(error).startswith(f"{document.path}, schema, line"):
            raise SpecError(one_line(str(error).replace(", schema, line", ", line", 1))) from error
        raise document.refusal(place, error) from error


def _workload(document: Document, entries: list["TableEntry"], schema: Schema) -> Workload:
    """The union of all entries, in order."""
    parts = []
    for number, entry in enumerate(entries):
        try:
            part = _unweighted(entry, schema)
            parts.append(part if entry.weight == 1 else entry.weight * part)
        except ResiduaError as error:
            raise document.refusal(("tables", number, entry.kind), error) from error
    return sum(parts[1:], parts[0])


def _unweighted(entry: "TableEntry", schema: Schema) -> Workload:
    chosen = schema.names if entry.attributes is None else entry.attributes
    if entry.families is not None or entry.columns is not None:
        asked = entry.families or _families_of(entry, entry.columns or [], schema)
        if entry.levels is not None:
            return levels(schema, entry.levels, asked, name=entry.name)
        return table(schema, asked, name=entry.name)
    if entry.all is not None:
        ways = entry.all.numbers(len(chosen))
        kinds = {"numeric": entry.numeric, "categorical": entry.categorical}
        return all_tables(schema, ways, entry.family, attributes=chosen, name=entry.name, **kinds)
    if entry.marginals is not None:
        return marginals(schema, entry.marginals.numbers(len(chosen)), attributes=chosen, name=entry.name)
    return sql(schema, entry.sql or "", name=entry.name)


def _families_of(
    entry: "TableEntry", columns: list[str], schema: Schema
) -> dict[str, Family] | dict[tuple[str, str], Family]:
    """The family on each column, or the one on a pair of columns."""
    if entry.family is not None and entry.family.arity == 2:
        if len(columns) != 2 or entry.numeric or entry.categorical:
            raise WorkloadError(f"{entry.family!r} is on two columns, not on {listing(columns)}")
        return {(columns[0], columns[1]): entry.family}
    plain = entry.family or identity
    if len({*columns}) < len(columns):
        raise WorkloadError(f"a column is there twice in {listing(columns)}")
    return {name: (entry.numeric if schema[name].numeric else entry.categorical) or plain for name in columns}
