"""Pictures, drawn by altair: of a report, as SVG without a browser or a network, and for notebooks."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from residua._arrays import Flags
from residua._text import visible
from residua.errors import needing
from residua.report.contents import Contents, Numbers
from residua.report.grid import Grid
from residua.report.markup import attribute
from residua.report.words import level_text, share_words
from residua.workload.tables import COUNT

WIDTH = 380
MOST_TABLES = 12  # that are drawn
MOST_LINES = 40  # of one picture
APART = 0.2  # in logarithms: lines that are nearer to each other cannot be told apart
DASHES = [[1, 0], [6, 4], [2, 3], [10, 4, 2, 4], [12, 3], [4, 2, 1, 2]]
INK, SOFT, LINE, PAPER = "#1c2128", "#59636e", "#d1d9e0", "#ffffff"
SQUARES = {"symbolType": "square", "symbolOpacity": 1}
SERIES = ("#0a5fb4", "#b4530a", "#1a7f37", "#8250df", "#59636e", "#a40e64")
VARIABLES = {
    INK: "--ink",
    SOFT: "--soft",
    LINE: "--line",
    PAPER: "--paper",
    **{colour: f"--series-{number}" for number, colour in enumerate(SERIES)},
}


def pictures_of(contents: Contents) -> dict[str, str]:
    """SVG text of each picture by its name: budget, shares, certificate, and some tables by number."""
    with needing("report", "a report"):
        import altair  # noqa: F401  # before the charts, which need it
        import vl_convert
    drawn = ((name, json.dumps(chart.to_dict())) for name, chart in _charts(contents))
    return {name: tidy(vl_convert.vegalite_to_svg(chart)) for name, chart in drawn}


def _charts(contents: Contents) -> Iterator[tuple[str, Any]]:
    if contents.points and not math.isnan(contents.rmse):
        yield "budget", framed(budget_chart(contents))
    if len(contents.shares) > 1:
        yield "shares", framed(shares_chart(contents))
    drawn = 0
    for number, sheet in enumerate(contents.sheets, start=1):
        if drawn == MOST_TABLES:
            return
        numbers, grid = sheet.numbers, sheet.grid
        if numbers is not None and numbers.values is not None and grid is not None and is_readable(grid):
            drawn += 1
            yield f"table-{number}", framed(table_chart(numbers, grid, contents.level, sheet.units))


def is_readable(grid: Grid) -> bool:
    """Whether a picture of a table in this layout can be read, and says more than one number does."""
    return grid.places.size > 1 and len(grid.rows) <= MOST_LINES and len(grid.columns) <= len(SERIES)


def budget_chart(contents: Contents) -> Any:
    """Errors against the budget, one line for each that the others leave room for, named at its end."""
    alt = _altair()
    points, middle = contents.points, contents.points[len(contents.points) // 2]
    curves = {f"all {contents.noun}s": [point.rmse for point in points]}
    if not math.isnan(middle.max_stddev):
        curves[f"least certain {contents.noun}"] = [point.max_stddev for point in points]
    sheets = (sheet for sheet in contents.sheets if [line.statistic for line in sheet.lines] == [COUNT])
    for number, sheet in zip(range(len(middle.tables)), sheets, strict=False):
        curves[short_label(sheet.name, 22)] = [point.tables[number] for point in points]
    kept: dict[str, list[float]] = {}
    for name, errors in curves.items():
        at = errors[len(points) // 2]
        if all(abs(math.log(at / other[len(points) // 2])) > APART for other in kept.values()):
            kept[name] = errors
    names, costs = list(kept), [point.cost for point in points]
    rows = [
        {"budget": cost, "error": error, "of": name}
        for name, errors in kept.items()
        for cost, error in zip(costs, errors, strict=True)
    ]
    spent = "rho" if contents.privacy.pure_epsilon is None else "epsilon"
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X(
            "budget:Q",
            title=f"privacy spent, as {spent} (more privacy to the left)",
            scale=alt.Scale(type="log", domain=[costs[0], costs[-1]], nice=False),
            axis=alt.Axis(values=costs, format=".3~g", labelFlush=False),
        ),
        y=alt.Y(
            "error:Q",
            title="standard deviation",
            scale=alt.Scale(type="log", nice=False, padding=12),
            axis=alt.Axis(tickCount=6, format=",.3~g"),
        ),
        color=alt.Color("of:N", scale=alt.Scale(domain=names, range=list(SERIES)), legend=None),
    )
    now = alt.Chart(alt.Data(values=[{"budget": middle.cost}]))
    ends = base.transform_filter(f"datum.budget == {costs[-1]!r}")
    dashes = alt.StrokeDash("of:N", scale=alt.Scale(domain=names, range=DASHES), legend=None)
    return alt.layer(
        now.mark_rule(color=SOFT, strokeDash=[4, 3]).encode(x="budget:Q"),
        base.mark_line(strokeWidth=2.5).encode(strokeDash=dashes),
        base.mark_point(filled=True, size=30, opacity=1),
        ends.mark_text(align="left", dx=8, fontSize=12).encode(text="of:N"),
    ).properties(width=WIDTH - 60, height=260)


def shares_chart(contents: Contents) -> Any:
    """The share of the privacy that each set of attributes took."""
    alt = _altair()
    rows = [{"of": short_label(share_words(share)), "share": share.fraction} for share in contents.shares]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("of:N", sort=None, title=None, axis=alt.Axis(labelLimit=190)),
        x=alt.X("share:Q", title="share of the privacy cost", axis=alt.Axis(format="%", tickCount=4)),
    )
    return alt.layer(
        base.mark_bar(color=SERIES[0], height={"band": 0.7}),
        base.mark_text(align="left", dx=4, color=INK).encode(text=alt.Text("share:Q", format=".1%")),
    ).properties(width=WIDTH - 130, height={"step": 22})


def table_chart(numbers: Numbers, grid: Grid, level: float, units: Mapping[str, Flags] | None = None) -> Any:
    """The numbers of one table with their intervals, on one axis for each unit."""
    alt = _altair()
    if not units or len(units) == 1:
        return _bars(numbers, grid, level, range(len(grid.columns)), "published number")
    parts = [
        _bars(numbers, grid, level, np.flatnonzero(own[grid.places].all(axis=0)).tolist(), name)
        for name, own in units.items()
    ]
    return alt.vconcat(*parts)


def _bars(numbers: Numbers, grid: Grid, level: float, columns: Sequence[int], title: str) -> Any:
    alt = _altair()
    values, lower, upper = numbers.values, numbers.lower, numbers.upper
    if values is None or lower is None or upper is None:
        raise ValueError("only published numbers are drawn")
    series = [short_label(", ".join(grid.columns[at])) for at in columns]
    labels = [", ".join(label) for label in grid.rows for _ in series]
    places = grid.places[:, columns].reshape(-1)
    figures = [own[places].tolist() for own in (values, lower, upper)]
    rows = _rows(labels, series * len(grid.rows), figures)
    several = len(series) > 1
    encoding: dict[str, Any] = {"y": alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=170))}
    colour: Any = alt.value(SERIES[0])
    if several:
        encoding["yOffset"] = alt.YOffset("series:N", sort=series, scale=alt.Scale(domain=series))
        legend = alt.Legend(title=None, orient="top", columns=2, columnPadding=24, labelLimit=180, **SQUARES)
        colour = alt.Color("series:N", scale=alt.Scale(domain=series, range=list(SERIES)), legend=legend)
    base = alt.Chart(alt.Data(values=rows)).encode(**encoding, color=colour)
    words = f"{title}, with {level_text(level)} interval"
    axis = alt.Axis(tickCount=3 if max(map(abs, values.tolist())) >= 1e6 else 5)
    span = alt.X("low:Q", title=words, scale=alt.Scale(zero=True), axis=axis)
    return alt.layer(
        base.mark_bar(opacity=0.45, height={"band": 0.85}).encode(x=alt.X("value:Q", axis=axis)),
        base.mark_rule(strokeWidth=2, color=INK).encode(x=span, x2="high:Q", color=alt.value(INK)),
    ).properties(
        width=WIDTH - 110, height={"step": 12 if several else 18, "for": "offset" if several else "position"}
    )


def _rows(
    labels: Sequence[str], series: Sequence[str], figures: Sequence[Sequence[float]]
) -> list[dict[str, Any]]:
    """What is drawn: values with both ends of their intervals, by label and series."""
    return [
        {"label": short_label(label), "series": short_label(own), "value": value, "low": low, "high": high}
        for label, own, value, low, high in zip(labels, series, *figures, strict=True)
    ]


def framed(chart: Any) -> Any:
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
        padding={"left": 22, "right": 28, "top": 4, "bottom": 4},
        legend={"labelColor": INK, "labelFontSize": 12}, view={"stroke": None}, text={"fontSize": 12},
    )  # fmt: skip


def short_label(text: str, most: int = 34) -> str:
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


MOST_BARS = 60


def interval_plot(
    labels: Sequence[str], series: Sequence[str], figures: Sequence[Sequence[float]], title: str
) -> Any:
    """A bar for each value with the interval around it; `figures` are values, lower and upper ends."""
    alt = _altair()
    first = slice(MOST_BARS)
    rows = _rows(labels[first], series[first], [own[first] for own in figures])
    several = len({*series}) > 1
    own: dict[str, Any] = {"y": alt.Y("label:N", sort=None, title=None)}
    if several:
        own["yOffset"] = alt.YOffset("series:N", sort=None)
        own["color"] = alt.Color("series:N", sort=None, title=None, scale=alt.Scale(range=list(SERIES)))
    base = alt.Chart(alt.Data(values=rows), title=title).encode(**own)
    bars = base.mark_bar(opacity=0.5, **({} if several else {"color": SERIES[0]})).encode(
        x=alt.X("value:Q", title=None)
    )
    rules = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", color=alt.value(INK))
    return framed(alt.layer(bars, rules).properties(width=WIDTH))


def bar_plot(names: Sequence[str], values: Sequence[float], axis: str, title: str) -> Any:
    """A bar for each name."""
    alt = _altair()
    pairs = list(zip(names, values, strict=True))[:MOST_BARS]
    rows = [{"name": short_label(name), "value": value} for name, value in pairs]
    chart = alt.Chart(alt.Data(values=rows), title=title).mark_bar(color=SERIES[0])
    own = {"y": alt.Y("name:N", sort=None, title=None), "x": alt.X("value:Q", title=axis)}
    return framed(chart.encode(**own).properties(width=WIDTH))


def _altair() -> Any:
    with needing("report", "a plot"):
        import altair
    return altair
