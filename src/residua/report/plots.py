"""Pictures for notebooks: a table with its intervals, the errors of a plan, several plans side by side."""

from collections.abc import Sequence
from typing import Any

from residua.report.charts import INK, SERIES, WIDTH, ReportExtraMissing, framed, short_label

MOST_BARS = 60


def interval_plot(
    labels: Sequence[str], series: Sequence[str], figures: Sequence[Sequence[float]], title: str
) -> Any:
    """A bar for each value with the interval around it; `figures` are values, lower and upper ends."""
    alt = _altair()
    rows = [
        {"label": short_label(label), "series": short_label(own), "value": value, "low": low, "high": high}
        for label, own, value, low, high in list(zip(labels, series, *figures, strict=True))[:MOST_BARS]
    ]
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
    try:
        import altair
    except ImportError as error:
        raise ReportExtraMissing(
            "a plot needs the package 'altair', which is not installed: pip install 'residua[report]'"
        ) from error
    return altair
