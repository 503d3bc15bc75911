"""What the columns of published answers mean, as CSV on the Web describes them."""

from typing import Any
from urllib.parse import quote

from residua.evidence.facts import Facts

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
