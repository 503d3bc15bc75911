"""The sections of a report: what each says, as HTML."""

import hashlib
import math
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

from residua import _files
from residua._text import counted
from residua.errors import FileFormatError
from residua.report import markup as html
from residua.report import words as say
from residua.report.budgets import DELTA
from residua.report.charts import pictures_of, themed
from residua.report.contents import Contents
from residua.report.crosstabs import tables_section
from residua.report.promises import certificate, foreseen, targets

Pictures = Mapping[str, str]
"""SVG texts by name."""


def sections_of(contents: Contents, pictures: Pictures) -> Iterator[tuple[str, str, str]]:
    """Place, heading and inside of each section: what was published first, what is said about it after."""
    done = contents.released
    tables = "tables", "The tables", tables_section(contents, _drawn(contents, pictures))
    error = "error", "How wrong a number may be", _error(contents)
    if done:
        yield tables
    yield "short", "In short", _short(contents)
    yield error
    if contents.foreseen:
        yield "foreseen", "Percentages, means and medians", foreseen(contents)
    if not done:
        yield tables
    spent = "What was spent" if done and not contents.simulated else "What would be spent"
    yield "privacy", spent, _privacy(contents)
    if contents.points:
        yield "budget", "Error against budget", _budget(contents, pictures)
    yield "shares", "Where the budget went" if done else "Where the budget goes", _shares(contents, pictures)
    if contents.targets:
        yield "targets", "What was asked for", targets(contents)
    yield "certificate", "Could it be better?", certificate(contents)
    yield "methods", "Methods paragraph", _methods(contents)
    yield "history", "How it came to be" if done else "What the plan is made of", _history(contents)
    yield "words", "Words used", _glossary()


UNFOLDED = ("tables", "short", "methods")
"""Sections that are read at once; the others are folded up under their headings."""


def _short(contents: Contents) -> str:
    privacy, level = contents.privacy, say.level_text(contents.level)
    definition, spent = say.headline(contents)
    largest, gap = "", contents.goal.certificate.gap
    if not math.isnan(contents.max_stddev):
        largest = f"; \u00b1 {say.figure(contents.margin * contents.max_stddev)} for the least certain one"
    cards = [
        (
            "Privacy spent" if contents.released and not contents.simulated else "Privacy to be spent",
            spent.replace(" and ", ", ").replace(" = ", "\u00a0=\u00a0"),
            f"{definition} (differential privacy), as the budget was given; other definitions are below",
        ),
        ("Limits the effect of", privacy.unit.describe(), "on all tables together"),
        (
            "Chance of detecting it",
            f"at most {say.percent_above(say.detection_limit(privacy, say.FALSE_ALARMS))}",
            f"by any test with {say.percent_above(say.FALSE_ALARMS)} false alarms; it is "
            f"{say.percent_above(say.FALSE_ALARMS)} without the tables",
        ),
    ]
    if not math.isnan(contents.rmse):
        cards += [
            (
                f"Typical error of a {contents.noun}",
                say.figure(contents.rmse),
                f"standard deviation, root mean square over all {contents.noun}s",
            ),
            (
                f"Interval that holds the truth with probability {level}",
                f"\u00b1 {say.figure(contents.margin * contents.rmse)}",
                f"for a typical {contents.noun}{largest}",
            ),
        ]
    if math.isfinite(gap):
        whose = f"in {contents.goal.words}; proved, see below for whom"
        cards.append(("Above the best possible", say.near_text(gap), whose))
    return html.facts(cards)


def _privacy(contents: Contents) -> str:
    unit, noise = contents.privacy.unit, say.noise_words(contents.privacy)
    tense = "was added to what was measured" if contents.released else "will be added to what is measured"
    changed = "been added or left out" if unit.neighbours == "add_remove" else "been different"
    whose = "any one record" if unit.noun == "record" else f"one {unit.noun}'s records"
    limits = "If nobody could predict it, it would limit" if contents.simulated else "It limits"
    each = " Somebody with several records is protected record by record, not as a whole."
    each = each if unit.noun == "record" else ""
    extra = (
        "The noise is Gaussian, which proves no pure epsilon (delta = 0)."
        if contents.privacy.pure_epsilon is None
        else "Pure DP holds for every delta."
    )
    words = [
        f"Random noise {tense}: {noise}. {limits} the effect of {unit.describe()}: had {whose} "
        f"{changed}, the tables would have looked almost the same.{each}",
        say.meaning(contents),
        "This is differential privacy (DP). The table states it in every definition that is proved; the "
        "figures are no separate costs but the same noise seen in different ways, and smaller is more "
        "private.",
    ]
    proved = html.table(
        "What is proved about the same noise, in each definition; figures are rounded up",
        ("definition", "figure", "note"),
        say.definitions(contents.privacy),
        left=(1, 2),
    )
    given = html.paragraphs([f"The budget was given as {contents.spent}. {extra}"])
    return f"{html.paragraphs(words)}\n{proved}\n{given}"


def _error(contents: Contents) -> str:
    level = say.level_text(contents.level)
    rows = [
        (line.name, sheet.asked, f"{line.queries:,}", *map(say.figure, errors))
        for sheet in contents.sheets
        for line in sheet.lines
        for errors in [(line.rmse, line.max_stddev, contents.margin * line.max_stddev)]
    ]
    places = [at for at, sheet in enumerate(contents.sheets, 1) for _ in sheet.lines]
    listed = html.table(
        "Standard deviation of the numbers of each table: typical and largest; and the half-width of the "
        f"{level} interval of the least certain number",
        ("table", "asks for", "numbers", "typical", "largest", f"\u00b1 at {level}"),
        rows,
        left=(1,),
        tall=len(rows) > 15,
        links=[f"#t-{place}" for place in places],
    )
    said, more = say.example(contents), contents.tables - len(contents.sheets)
    aloud = f'<p class="example">{html.text(said)}</p>' if said else ""
    rest = html.paragraphs([f"There are {more:,} more tables than are listed here."] if more else [])
    return "\n".join([html.paragraphs(say.reading(contents)), aloud, listed, rest])


def _budget(contents: Contents, pictures: Pictures) -> str:
    given = say.headline(contents)[0] == say.APPROXIMATE  # then the amount says epsilon, and the picture rho
    other = "rho" if given else f"epsilon at delta {DELTA}"
    rows = [
        (point.words, point.amount, *map(say.figure, (spent, point.rmse, point.max_stddev)))
        for point in contents.points
        for spent in [point.cost if given else point.epsilon]
    ]
    caption = (
        "The vertical dashed line is this plan. Of all numbers, of the least certain one, and of the first "
        "tables where their lines would not lie on these."
    )
    seen = _picture(pictures, "budget", "Standard deviation against the privacy spent", caption)
    table = html.table(
        "The same tables at other budgets, as the plan predicts them",
        ("budget", "amount", other, "typical error", "largest error"),
        rows,
        left=(1,),
    )
    return f'{html.paragraphs([say.other_budgets(contents)])}\n<div class="side">{seen}{table}</div>'


def _shares(contents: Contents, pictures: Pictures) -> str:
    rows = [(say.share_words(share), say.percent(share.fraction)) for share in contents.shares]
    words = [
        "The plan measures sets of attributes; a table is put together from what was measured of its own "
        "attributes and of every smaller set of them. What many tables need, or what sums of many cells "
        "need, gets more of the budget. The shares are of the privacy cost, which adds up."
    ]
    if "shares" not in pictures:
        return html.paragraphs(words) + html.table("Share of the privacy cost", ("measured", "share"), rows)
    label = "Shares of the privacy cost: " + ", ".join(f"{name} {share}" for name, share in rows)
    seen = _picture(pictures, "shares", label, "Shares of the privacy cost; they add up to 100%.")
    return f"{html.paragraphs(words)}\n{seen}"


def _picture(pictures: Pictures, name: str, label: str, caption: str) -> str:
    if name not in pictures:
        return ""
    svg = themed(pictures[name], name, label)
    return f"<figure>{svg}<figcaption>{html.text(caption)}</figcaption></figure>"


def _drawn(contents: Contents, pictures: Pictures) -> dict[int, str]:
    """Figures of tables by their number."""
    found = {}
    interval = f"{say.level_text(contents.level)} interval"
    for number, sheet in enumerate(contents.sheets, start=1):
        if sheet.grid is not None:
            label = f"Numbers of table {sheet.name} with their intervals"
            caption = f"By {', '.join(sheet.grid.row_names)}. The line at the end of a bar is the {interval}."
            found[number] = _picture(pictures, f"table-{number}", label, caption)
    return found


def _methods(contents: Contents) -> str:
    words = "For a publication, to be pasted as it is:"
    if contents.simulated:
        words = "What a publication of a real release could say; this one must not be published:"
    elif not contents.released:
        words = "A draft for a publication; the report on the release will have the final one:"
    return (
        f"{html.paragraphs([words])}\n"
        f'<blockquote id="methods-text">{html.text(say.methods_paragraph(contents))}</blockquote>\n'
        '<p><button type="button" id="copy" hidden>Copy</button></p>'
    )


def _history(contents: Contents) -> str:
    method = "auto: chosen by the program" if contents.method == "auto" else contents.method
    hashes = [(f"hash of the {name}", value) for name, value in contents.hashes.items()]
    facts = [*contents.history, ("method", method), ("measures", "; ".join(contents.measured)), *hashes]
    policies = html.table(
        "The attributes, as they were declared before any data was touched",
        ("attribute", "values", "cells", "what becomes of other values"),
        [(name, shown, f"{cells:,}", policy) for name, shown, cells, policy in contents.attributes],
        left=(1, 3),
    )
    return html.table("Facts", ("what", "how"), facts, left=(1,)) + policies


def _glossary() -> str:
    words = [line.split(": ", 1) for line in _asset("glossary.txt").splitlines()]
    return html.table("What the words of this report mean", ("word", "meaning"), words, left=(1,))


Name = str | os.PathLike[str]


def page_of(contents: Contents, pictures: Pictures) -> str:
    """The whole page; `pictures` are SVG texts by name."""
    sections = list(sections_of(contents, pictures))
    links = "".join(f'<li><a href="#{place}">{html.text(heading)}</a></li>' for place, heading, _ in sections)
    open_ = UNFOLDED if contents.released else (*UNFOLDED, "error", "foreseen")
    body = "\n".join(html.section(*each) if each[0] in open_ else html.folded(*each) for each in sections)
    script = _asset("script.js")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n'
        f"<title>{html.text(contents.title)}</title>\n<style>\n{_asset('style.css')}</style>\n</head>\n<body>\n"
        f"<header><h1>{html.text(contents.title)}</h1>\n{_subtitle(contents)}</header>\n"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n<main>\n{body}\n</main>\n'
        f"<footer>{html.text(contents.program.capitalize())} wrote this page. It is "
        f"one file and loads nothing from anywhere.</footer>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return files("residua.report").joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """What the browser may do: nothing but this page's own style and script; no request can leave it."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _subtitle(contents: Contents) -> str:
    tables = counted(contents.tables, "table", "tables")
    numbers = counted(contents.numbers, "number", "numbers")
    if not contents.released:
        words = f"What {tables} with {numbers} would cost in privacy, and how wrong each number would be."
        return f'<p class="soft">{words} No data was touched.</p>\n'
    time = dict(contents.history).get("measured", "")
    _, spent = say.headline(contents)
    known = f"Privacy {'to be ' * contents.simulated}spent: {spent}."
    if not math.isnan(contents.rmse):
        within = f"within {say.figure(contents.margin * contents.rmse)} of the truth"
        level = say.level_text(contents.level)
        known += f" {contents.noun.capitalize()}s are typically {within}, with probability {level}."
    line = f'<p class="soft">{tables} with {numbers}, measured {html.text(time)}. {html.text(known)}</p>\n'
    if contents.simulated:
        line += (
            '<p class="warning">Simulated: the noise of this release is predictable. It protects nobody '
            "and must not be published.</p>\n"
        )
    return line


def write_report(contents: Contents, path: Name, plots: Name | None = None) -> None:
    """Write the page, and to the folder `plots` each of its pictures as an SVG file."""
    target = Path(path)
    if target.is_dir():
        raise FileFormatError(f"{target} is a folder; name a file for the report, such as report.html")
    pictures = pictures_of(contents)
    _files.write_text(target, page_of(contents, pictures))
    if plots is not None:
        folder = Path(plots)
        folder.mkdir(parents=True, exist_ok=True)
        for name, svg in pictures.items():
            _files.write_text(folder / f"{name}.svg", svg)
