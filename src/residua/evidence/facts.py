"""What a release and its ledger say of themselves, in words that several statements share."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from residua._text import counted
from residua.errors import ResiduaError
from residua.ledger import Ledger
from residua.plans import Plan
from residua.release import Release
from residua.report.budgets import overall
from residua.version import __version__
from residua.workload import marginals
from residua.workload.queries import spelled

HUMAN = "HUMAN:"
"""Begins what only a human can fill in."""

_POLICIES = {
    "error": "refused: nothing was released while there were any",
    "drop": "their records were left out",
    "clip": "they were moved to the nearest value",
    "other": "they were counted in a cell of their own",
    "missing": "missing ones were counted in a cell of their own; others were refused",
}

_WITHOUT_ID = {
    "error": "refused: nothing was released while there were any",
    "drop": "they were left out",
    "own": "each was counted as one of its own",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """A release, and the ledger that paid for it where that is at hand."""

    release: Release
    ledger: Ledger | None = None

    @property
    def plan(self) -> Plan:
        return self.release.plan

    @property
    def audit(self) -> Any:
        return self.release.audit

    @property
    def date(self) -> str:
        """The day of the measurement."""
        return str(self.audit["time"])[:10]

    @property
    def dataset(self) -> str:
        """The name of the dataset in the ledger."""
        paid = self.audit["ledger"]
        return "a dataset without a ledger (simulated)" if paid is None else str(paid["dataset"])

    @property
    def size(self) -> str:
        """How much is published."""
        work = self.plan.workload
        return f"{counted(work.tables, 'table', 'tables')} with {spelled(work.count)} numbers"

    @property
    def law(self) -> str:
        """The noise."""
        return "discrete Laplace" if self.plan.strategy.law == "laplace" else "rounded Gaussian"

    @property
    def what(self) -> str:
        """What the numbers are."""
        return "counts" if self.plan.workload.counts else "counts and sums"

    def unit(self) -> str:
        """Whose privacy: records or people."""
        unit, many = self.plan.unit, self.plan.unit.max_records
        if unit.id is not None:
            kept = f"{'record' if many == 1 else 'records'} of each {'is' if many == 1 else 'are'} counted"
            return f"{unit.noun.capitalize()}-level: all records with one {unit.id!r}; at most {many} {kept}"
        return "Record-level" if many == 1 else f"Person-level, for people with at most {many} records"

    def neighbours(self) -> str:
        """What neighbouring datasets are."""
        unit = self.plan.unit
        changed = "any values instead of its own" if unit.replacing else "been there or not"
        return (
            f"Two datasets are adjacent if they differ by {unit.describe()}. "
            f"A record is one row over the attributes {', '.join(self.plan.schema.names)}; it may have "
            f"{changed}.{self._protected()}"
        )

    def _protected(self) -> str:
        """How many persons there may be, where only their records are counted."""
        records, most, noun = self.records(), self.plan.unit.max_records, self.plan.unit.noun
        if records is None or most == 1:
            return ""
        few = -(-records // most)
        return f" About {records} records are counted, at most {most} of one {noun}: of some {few} or more."

    def domain(self) -> str:
        """The data that could be measured."""
        cells = ", ".join(
            f"{name} ({f'{own!r}, summed' if own.unit > 1 else counted(own.size, 'cell', 'cells')})"
            for name, own in zip(self.plan.schema.names, self.plan.schema.attributes, strict=True)
        )
        when = f" of {self.audit['period']}" if "period" in self.audit else ""
        over = f"over the public attributes {cells}, fixed before any data were read."
        return f"Any number of records{when} {over}"

    def left_out(self) -> Iterator[str]:
        """Records that are not counted on account of whose they are."""
        unit = self.plan.unit
        if unit.id is None:
            return
        caps = "".join(f", and at most {most} for each {name}" for name, most in unit.max_per.items())
        yield (
            f"of one {unit.noun} at most {counted(unit.max_records, 'record', 'records')}{caps} are counted, "
            "whatever the others have; the rest is left out of every number"
        )
        yield f"records without {unit.id!r}: {_WITHOUT_ID[unit.missing_id]}"

    def policies(self) -> Iterator[str]:
        """What became of values outside the schema, attribute by attribute."""
        for name, policy in self.audit.get("policies", {}).items():
            yield f"{name}: values outside the schema are handled by '{policy}', that is, {_POLICIES[policy]}"

    def unprotected(self) -> str:
        """What the guarantee does not cover of what is published."""
        if self.plan.unit.replacing:
            id = self.plan.unit.id
            what = "records" if id is None else f"different {id!r}"
            return f"The number of {what}, which the neighbour relation holds fixed and which is public."
        return "None: totals have noise like all other numbers."

    def noise(self) -> str:
        """The mechanism in a sentence."""
        blocks = sum(len(layer.noise) for layer in self.plan.strategy.layers)
        return (
            f"Matrix mechanism (method {self.plan.method!r}): {counted(blocks, 'block', 'blocks')} of "
            f"integer combinations of exact {self.what}, each number with independent {self.law} noise; "
            "tables are least-squares estimates from them, so that all answers agree."
        )

    def floating_point(self) -> str:
        """What was done about floating point and randomness."""
        return (
            "Noise is drawn exactly, as integers with rational parameters, from the operating system's "
            "entropy stretched by AES-256 in counter mode; no floating-point number is noise or is added "
            f"to noise. The cost of a {self.plan.unit.noun} is computed in exact fractions from the integers "
            "that are measured."
        )

    def side_channels(self) -> str:
        """What was done about the computing platform."""
        return (
            "The budget is debited durably before noise is drawn; all that can fail on account of the data "
            "fails before that; messages, files and steps do not depend on the data beyond the declared "
            "policies (a replay audit of the plan, 'residua audit', compares them). Readers cannot query the "
            "data, so there is no timing channel to them; the time a measurement takes is not hidden on "
            "the curator's own machine."
        )

    def composition(self) -> str:
        """How spending adds up, with what the ledger says."""
        whose = f"the dearest {self.plan.unit.noun}"
        parts = f"Costs of all blocks are added up exactly for {whose} (sequential composition)."
        if (stream := self.audit.get("stream")) is not None:
            parts += (
                f" The plan is measured in {stream['of']} instalments, one for each period, of which this "
                f"release has {stream['instalments']}; the cost stated is that of all of them together."
            )
        if self.ledger is None:
            paid = self.audit["ledger"]
            ledger = (
                "nothing was spent"
                if paid is None
                else f"entry {paid['entry']} of {self.dataset!r} paid for it"
            )
            return f"{parts} Releases on one dataset share a ledger: {ledger}."
        return f"{parts} {' '.join(self.ledger.describe().splitlines())}"

    def scope(self) -> str:
        """Which records of a person the guarantee does not cover."""
        unit = self.plan.unit
        if unit.id is not None:
            return f"Who is behind several values of {unit.id!r}: each is protected by itself."
        if unit.max_records == 1:
            return "A person who has several records: each record is protected by itself."
        return f"People with more than {unit.max_records} records, which is declared and not enforced."

    def releases(self) -> int:
        """Releases that the ledger has paid for; one where it is not at hand."""
        return 1 if self.ledger is None else max(1, len(self.ledger.entries()))

    def records(self) -> int | None:
        """About how many records are counted, as released with noise; None where that is not answered."""
        try:
            total = float(self.release.values(marginals(self.plan.schema, ways=0))[0])
        except ResiduaError:
            return None
        return max(0, round(total))

    def utility(self) -> str:
        """How wrong the numbers are, and how much better any could be."""
        rmse, largest = overall(self.plan)
        of = "" if self.plan.workload.counts else " of counts"
        worst = "" if largest != largest else f", the largest {largest:,.4g}"
        known = "" if rmse != rmse else f"; the root mean square{of} is {rmse:,.4g}{worst}"
        proof = self.plan.certificate.describe()
        return f"Every published number has its standard deviation beside it{known}. {proof}"

    def software(self) -> str:
        """What made it."""
        made = f"Residua {self.audit['residua']}, Python {self.audit['python']}"
        return f"{made}; this statement by Residua {__version__}"
