"""Pictures of a report, drawn by altair and turned into SVG without a browser or a network."""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from residua._text import visible
from residua.errors import ResiduaError
from residua.report.contents import Contents, Numbers, Picture
from residua.report.markup import attribute
from residua.report.words import level_text, share_words

WIDTH = 380
MOST_TABLES = 12  # that are drawn
LARGEST = "the largest of all (dashed)"
INK, SOFT, LINE, PAPER = "#1c2128", "#59636e", "#d1d9e0", "#ffffff"
SERIES = ("#0a5fb4", "#b4530a", "#1a7f37", "#8250df", "#59636e", "#a40e64")
VARIABLES = {
    INK: "--ink",
    SOFT: "--soft",
    LINE: "--line",
    PAPER: "--paper",
    **{colour: f"--series-{number}" for number, colour in enumerate(SERIES)},
}


class ReportExtraMissing(ResiduaError, ImportError):
    """The packages that draw the pictures of a report are not installed."""


def pictures_of(contents: Contents) -> dict[str, str]:
    """SVG text of each picture by its name: budget, shares, certificate, and some tables by number."""
    try:
        import altair  # noqa: F401  # before the charts, which need it
        import vl_convert
    except ImportError as error:
        raise ReportExtraMissing(
            f"a report needs the package {error.name!r}, which is not installed: pip install "
            "'residua[report]'"
        ) from error
    drawn = ((name, json.dumps(chart.to_dict())) for name, chart in _charts(contents))
    return {name: tidy(vl_convert.vegalite_to_svg(chart)) for name, chart in drawn}


def _charts(contents: Contents) -> Iterator[tuple[str, Any]]:
    if contents.points:
        yield "budget", _framed(budget_chart(contents))
    if len(contents.shares) > 1:
        yield "shares", _framed(shares_chart(contents))
    if contents.goal.certificate.lower_bound > 0:
        yield "certificate", _framed(certificate_chart(contents))
    drawn = 0
    for number, sheet in enumerate(contents.sheets, start=1):
        if drawn == MOST_TABLES:
            return
        if sheet.picture is not None and sheet.numbers is not None and sheet.numbers.values is not None:
            drawn += 1
            yield f"table-{number}", _framed(table_chart(sheet.numbers, sheet.picture, contents.level))


def budget_chart(contents: Contents) -> Any:
    """Typical and largest error against the budget, and the typical error of the first tables."""
    import altair as alt

    rows = []
    for point in contents.points:
        lines = {"all numbers, typical": point.rmse}
        if not math.isnan(point.max_stddev):
            lines[LARGEST] = point.max_stddev
        named = zip(contents.sheets, point.tables, strict=False)
        lines |= {_short(f"{sheet.name}, typical"): error for sheet, error in named}
        rows += [{"budget": point.cost, "error": error, "of": of} for of, error in lines.items()]
    names = list(dict.fromkeys(row["of"] for row in rows))
    costs = [point.cost for point in contents.points]
    spent = "rho" if contents.privacy.pure_epsilon is None else "epsilon"
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X(
            "budget:Q",
            title=f"privacy spent, as {spent} (more privacy to the left)",
            scale=alt.Scale(type="log", domain=[costs[0], costs[-1]], nice=False),
            axis=alt.Axis(values=costs, format=".3~g", labelFlush=False),
        ),
        y=alt.Y("error:Q", title="standard deviation", scale=alt.Scale(zero=True)),
        color=alt.Color(
            "of:N", sort=names, scale=alt.Scale(domain=names, range=list(SERIES)), legend=_legend()
        ),
    )
    now = alt.Chart(alt.Data(values=[{"budget": costs[len(costs) // 2]}]))
    # The largest error is often that of one table, whose line would lie under it: dashes show both.
    largest = f"datum.of == '{LARGEST}'"
    return alt.layer(
        now.mark_rule(color=SOFT, strokeDash=[4, 3]).encode(x="budget:Q"),
        base.transform_filter(f"!({largest})").mark_line(interpolate="monotone", strokeWidth=2),
        base.mark_point(filled=True, size=30, opacity=1),
        base.transform_filter(largest).mark_line(interpolate="monotone", strokeWidth=2, strokeDash=[7, 7]),
    ).properties(width=WIDTH, height=230)


def shares_chart(contents: Contents) -> Any:
    """The share of the privacy that each set of attributes took."""
    import altair as alt

    rows = [{"of": _short(share_words(share)), "share": share.fraction} for share in contents.shares]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("of:N", sort=None, title=None, axis=alt.Axis(labelLimit=190)),
        x=alt.X("share:Q", title="share of the privacy cost", axis=alt.Axis(format="%", tickCount=4)),
    )
    return alt.layer(
        base.mark_bar(color=SERIES[0], height={"band": 0.7}),
        base.mark_text(align="left", dx=4, color=INK).encode(text=alt.Text("share:Q", format=".1%")),
    ).properties(width=WIDTH - 130, height={"step": 22})


def certificate_chart(contents: Contents) -> Any:
    """What was reached, beside what no mechanism can be below."""
    import altair as alt

    goal = contents.goal
    rows = [
        {"of": "proved: nothing below", "value": goal.certificate.lower_bound, "kind": "bound"},
        {"of": "with unrounded noise", "value": goal.ideal, "kind": "plan"},
        {"of": "this plan, as released", "value": goal.achieved, "kind": "plan"},
    ]
    rows = [row for row in rows if row["value"] == row["value"]]  # nan stands for what is not known
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("of:N", sort=None, title=None, axis=alt.Axis(labelLimit=190)),
        x=alt.X("value:Q", title=goal.words, axis=alt.Axis(format=",.3~s", tickCount=4, labelSeparation=8)),
    )
    colours = alt.Scale(domain=["bound", "plan"], range=[SOFT, SERIES[0]])
    return alt.layer(
        base.mark_bar(height={"band": 0.7}).encode(color=alt.Color("kind:N", scale=colours, legend=None)),
        base.mark_text(align="left", dx=4, color=INK).encode(text=alt.Text("value:Q", format=",.5~g")),
    ).properties(width=WIDTH - 170, height={"step": 26})


def table_chart(numbers: Numbers, picture: Picture, level: float) -> Any:
    """The numbers of one table with their intervals."""
    import altair as alt

    values, lower, upper = numbers.values, numbers.lower, numbers.upper
    if values is None or lower is None or upper is None:
        raise ValueError("only published numbers are drawn")
    rows = [
        {
            "label": _short(label),
            "series": _short(series),
            "value": float(values[place]),
            "low": float(lower[place]),
            "high": float(upper[place]),
        }
        for label, line in zip(picture.labels, picture.places.tolist(), strict=True)
        for series, place in zip(picture.series, line, strict=True)
    ]
    several = len(picture.series) > 1
    encoding: dict[str, Any] = {"y": alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=170))}
    colour: Any = alt.value(SERIES[0])
    if several:
        names = [_short(name) for name in picture.series]
        encoding["yOffset"] = alt.YOffset("series:N", sort=names, scale=alt.Scale(domain=names))
        colour = alt.Color("series:N", scale=alt.Scale(domain=names, range=list(SERIES)), legend=_legend())
    base = alt.Chart(alt.Data(values=rows)).encode(**encoding, color=colour)
    span = alt.X(
        "low:Q", title=f"published number, with {level_text(level)} interval", scale=alt.Scale(zero=True)
    )
    return alt.layer(
        base.mark_bar(opacity=0.45, height={"band": 0.85}).encode(x=alt.X("value:Q")),
        base.mark_rule(strokeWidth=2, color=INK).encode(x=span, x2="high:Q", color=alt.value(INK)),
    ).properties(
        width=WIDTH - 110, height={"step": 12 if several else 18, "for": "offset" if several else "position"}
    )


def _legend() -> Any:
    import altair as alt

    return alt.Legend(
        title=None,
        orient="top",
        columns=2,
        columnPadding=24,
        labelLimit=180,
        symbolType="square",
        symbolOpacity=1,
    )


def _framed(chart: Any) -> Any:
    """The chart with the fonts and colours of all charts."""
    axis = {
        "labelColor": INK,
        "titleColor": INK,
        "titleFontWeight": "normal",
        "domainColor": SOFT,
        "tickColor": SOFT,
        "gridColor": LINE,
        "labelFontSize": 12,
        "titleFontSize": 12,
    }
    return chart.configure(
        background=PAPER, font="Arial, Helvetica, Liberation Sans, sans-serif", aria=False, axis=axis,
        padding={"left": 22, "right": 8, "top": 4, "bottom": 4},
        legend={"labelColor": INK, "labelFontSize": 12}, view={"stroke": None}, text={"fontSize": 12},
    )  # fmt: skip


def _short(text: str, most: int = 34) -> str:
    """A text for a picture, in which SVG has no place for controls; whoever draws it escapes the rest."""
    text = visible(text)
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def tidy(svg: str) -> str:
    """The picture without what only a chart that answers the mouse would need, to hundredths of a pixel."""

    def changed(tag: str) -> str:
        tag = re.sub(r' (?:aria-[a-z]+|role|pointer-events)="[^"]*"', "", tag)
        places = r' (?:d|transform|x|y|x1|x2|y1|y2)="[^"]*"'
        return re.sub(places, lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), tag)

    return _tags_changed(svg, changed)


def themed(svg: str, name: str, label: str) -> str:
    """The picture for a page: its colours follow the page's, and screen readers are told what it is."""

    def changed(tag: str) -> str:
        for colour, variable in VARIABLES.items():
            tag = tag.replace(f'"{colour}"', f'"var({variable})"')
        return re.sub(r'\b(id="|url\(#)(?=clip|gradient)', rf"\g<1>{name}-", tag)

    return _tags_changed(svg, changed).replace("<svg ", f'<svg role="img" aria-label={attribute(label)} ', 1)


def _tags_changed(svg: str, changed: Callable[[str], str]) -> str:
    """The picture with its tags changed and its words, which may look like part of one, as they are."""
    return re.sub(r"<[^<>]*>", lambda tag: changed(tag[0]), svg)
