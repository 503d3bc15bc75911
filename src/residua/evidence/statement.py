"""A statement along NIST SP 800-226: every level of its pyramid, from the parameters down to the data."""

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote

from residua._text import counted
from residua.evidence.facts import HUMAN, Facts
from residua.workload import Workload

MOST_TABLES = 200  # that are listed with their errors


def statement(facts: Facts) -> str:
    """The statement in Markdown."""
    lines = [f"# Statement on differential privacy: {facts.dataset}", ""]
    lines += [
        f"Release {facts.release.hash}, measured {facts.audit['time']}, {facts.size}. Written from the "
        f"release file{' and its ledger' if facts.ledger is not None else ''} by {facts.software()}, along "
        "NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees, 2025). What only a "
        f"human knows is marked {HUMAN.rstrip(':')}.",
    ]
    if facts.release.simulated:
        lines += ["", "**SIMULATED: the noise is predictable, nobody is protected. Not for publication.**"]
    for title, paragraphs in _sections(facts):
        lines += ["", f"## {title}", "", *paragraphs]
    return "\n".join([*lines, ""])


def _sections(facts: Facts) -> Iterator[tuple[str, list[str]]]:
    plan = facts.plan
    yield "1. Guarantee and parameters", [f"- {line}" for line in plan.privacy.describe().splitlines()]
    yield "2. Unit of privacy", [facts.neighbours(), "", f"Unprotected quantities: {facts.unprotected()}"]
    yield "3. Composition", [facts.composition()]
    yield (
        "4. Algorithms",
        [facts.noise(), "", "Tables, budget and noise were planned without reading the data."],
    )
    yield "5. Utility", [facts.utility(), "", *_errors(facts)]
    yield "6. Bias", list(_bias(facts))
    yield (
        "7. Trust model",
        [
            "Central: one curator holds the records and is trusted with them, with the machine and with the "
            "ledger. Readers are not trusted.",
            "",
            f"{HUMAN} who the curator is, and who else may see the records",
        ],
    )
    yield "8. Implementation and side channels", [facts.floating_point(), "", facts.side_channels()]
    yield (
        "9. Data collection, security and access control",
        [
            f"{HUMAN} how the records were collected, where they are kept, and who may read them",
        ],
    )
    yield (
        "10. Out of scope",
        [
            "- What people tell about themselves or others, and what any statistics tell about groups.",
            f"- {facts.scope()}",
            "- Releases on the same people that other ledgers, or none, account for.",
            "- Who reads the records without this program, and errors in the records themselves.",
        ],
    )
    yield (
        "How to check",
        [
            "`residua verify` recomputes cost, spans, errors and certificate from the release file; `residua "
            "audit` replays the plan on invented neighbours; `residua budget check` compares releases with "
            "the ledger.",
        ],
    )


def _errors(facts: Facts) -> Iterator[str]:
    yield "| Table | Numbers | Typical standard deviation | Largest |"
    yield "|---|---:|---:|---:|"
    work = facts.plan.workload
    for group in islice(work.groups(), MOST_TABLES):
        [table] = facts.plan.summary(Workload(work.schema, (group,)))
        for line in table.lines():
            typical, largest = line.figures()
            yield f"| {line.name.replace('|', '/')} | {line.queries:,} | {typical} | {largest} |"
    if work.tables > MOST_TABLES:
        yield f"| ... and {counted(work.tables - MOST_TABLES, 'more table', 'more tables')} | | | |"


def _bias(facts: Facts) -> Iterator[str]:
    yield "- Statistical: noise has mean zero, so the numbers are unbiased; small counts have large relative"
    yield "  errors, and may be negative. Tables that are cut off at zero or rounded are biased and say so."
    for line in (*facts.left_out(), *facts.policies()):
        yield f"- {line}."
    yield f"- Systemic and human: {HUMAN} who is missing from the records, and whom large errors harm"


_FIGURES = {
    "value": "Unbiased estimate of the number that the query asks for; it may be negative.",
    "stddev": "Standard deviation of the value: its noise, which was known before any data were read.",
    "lower": "Lower end of the confidence interval.",
    "upper": "Upper end of the confidence interval.",
}


def described(facts: Facts, file: str, level: float) -> dict[str, Any]:
    """The metadata of the answers in a CSV file: titles, types and meaning of every column."""
    names = facts.plan.schema.names
    columns = [_column("table", "string", "The table that the number belongs to.", required=True)]
    columns += [
        _column(n, "string", f"{n} of those who are counted; empty where it is not one value.") for n in names
    ]
    columns += [_column("query", "string", "What the number counts, in words; empty: everybody.")]
    columns += [_column(name, "number", words, required=True) for name, words in _FIGURES.items()]
    if facts.release.simulated:
        columns += [_column("simulated", "boolean", "True: the noise is predictable and protects nobody.")]
    return {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "url": file,
        "dc:title": f"{facts.dataset}: {facts.size}",
        "dc:date": {"@value": facts.date, "@type": "xsd:date"},
        "dc:description": (
            f"{facts.what.capitalize()} with {facts.law} noise. {facts.plan.privacy.describe()} Intervals at "
            f"{100 * level:.4g}%. Release {facts.release.hash}."
        ).replace("\n", " "),
        "dc:source": {"@value": facts.release.hash},
        "tableSchema": {"columns": columns, "aboutUrl": "#row-{_row}"},
    }


def _column(name: str, datatype: str, words: str, *, required: bool = False) -> dict[str, Any]:
    column = {"name": quote(name, safe=""), "titles": name, "datatype": datatype, "dc:description": words}
    return {**column, "required": True} if required else column
