"""Reports: every number on the page is one that the plan or the release gives itself."""

import math
import re
import sys
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pytest

import residua as rs
from residua.privacy.conversions import text_above
from residua.report import plan_contents, release_contents, write_report
from residua.report.budgets import FACTORS, scaled
from residua.report.charts import SERIES, themed, tidy
from residua.report.grid import grid_of
from residua.report.sections import page_of
from residua.report.words import SCOPES, decimals_for, headline, methods_paragraph

SCHEMA = rs.Schema(
    age=rs.Integer(0, 9),
    sex=rs.Categorical("F", "M"),
    income=rs.Binned(0, 10_000, 25_000, above=True, outside="drop"),
)
WORK = (
    rs.table(SCHEMA, name="everybody")
    + rs.table(SCHEMA, ["sex", "income"])
    + rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}, name="up to each age")
)
PEOPLE = {
    "age": [at % 10 for at in range(300)],
    "sex": ["F" if at % 3 else "M" for at in range(300)],
    "income": [at * 100 for at in range(300)],
}
FAKE = dict.fromkeys(("budget", "shares"), '<svg viewBox="0 0 1 1"><path fill="#0a5fb4"/></svg>')


@pytest.fixture(scope="module")
def plan() -> rs.Plan:
    return rs.plan(WORK, rs.zcdp("0.1"), method="querysmasher")


@pytest.fixture(scope="module")
def release(plan: rs.Plan) -> rs.Release:
    return rs.measure(plan, PEOPLE, ledger=None, noise=rs.simulated(seed=3))


class TableRun(HTMLParser):
    """The rows of every table of a page, by the id of the section or fold that it is in."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: dict[str, list[list[str]]] = {}
        self.place, self._cell = "", False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag in ("section", "details"):
            self.place = named.get("id") or self.place
        if tag == "tr":
            self.rows.setdefault(self.place, []).append([])
        self._cell = tag in ("td", "th") or (self._cell and tag in ("a", "small"))
        if tag in ("td", "th"):
            self.rows[self.place][-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th", "tr", "table"):
            self._cell = False

    def handle_data(self, data):
        if self._cell:
            self.rows[self.place][-1][-1] += data.strip("\n")


def number(text: str) -> float:
    return float(text.replace(",", "").replace("\u2212", "-"))


def is_shown(text: str, true: float, digits: int = 4) -> bool:
    return abs(number(text) - true) <= 0.5000001 * 10.0 ** (math.floor(math.log10(abs(true))) + 1 - digits)


def test_contents_hold_the_releases_own_answers(release):
    contents = release_contents(release, level=0.9)
    answers = release.answers(level=0.9)
    for name, attribute in (
        ("value", "values"),
        ("stddev", "stddev"),
        ("lower", "lower"),
        ("upper", "upper"),
    ):
        held = np.concatenate([getattr(sheet.numbers, attribute) for sheet in contents.sheets])
        assert np.array_equal(held, answers[name].to_numpy())
    words = [query for sheet in contents.sheets for query in sheet.numbers.queries]
    assert words == answers["query"].to_pylist()


def test_contents_hold_the_plans_own_predictions(plan):
    contents = plan_contents(plan)
    held = np.concatenate([sheet.numbers.stddev for sheet in contents.sheets])
    assert np.array_equal(held, np.sqrt(plan.variances(plan.workload)))
    for sheet, line in zip(contents.sheets, plan.summary(), strict=True):
        assert (sheet.name, sheet.count, sheet.lines) == (line.name, line.queries, (line,))
    assert (contents.rmse, contents.max_stddev) == (plan.rmse, math.sqrt(plan.max_variance))
    assert contents.goal.achieved == plan.total_variance
    assert contents.goal.certificate == plan.certificate
    assert contents.privacy == plan.privacy
    for point, factor in zip(contents.points, FACTORS.values(), strict=True):
        other = plan.rescale(scaled(plan.budget, factor))
        assert (point.rmse, point.max_stddev) == (other.rmse, math.sqrt(other.max_variance))
        assert point.epsilon == other.privacy.epsilon("1e-6")
        assert point.tables == tuple(line.rmse for line in other.summary())


def test_every_published_number_on_the_page_is_the_releases(release):
    shown = TableRun(page_of(release_contents(release), {})).rows
    z = 1.959963984540054
    for at, group in enumerate(release.plan.workload.groups(), start=1):
        grid = grid_of(group, SCHEMA)
        heads = max(len(grid.column_names), 1)
        answers = release.answers(rs.Workload(SCHEMA, (group,))).to_pylist()
        for row, label, places in zip(
            shown[f"t-{at}"][heads:], grid.rows, grid.places.tolist(), strict=False
        ):
            width = max(len(label), 1)
            assert tuple(row[:width]) == (label or ("all records",))
            for cell, place in zip(row[width:], places, strict=False):
                value, half = cell.split("\u00b1 ")
                true = answers[place]
                assert abs(number(value) - true["value"]) <= 0.5000001 * 10.0 ** -decimals_for(true["stddev"])
                assert is_shown(half, z * true["stddev"], 3)


def test_sums_on_the_page_are_the_releases(release):
    rows = TableRun(page_of(release_contents(release), {})).rows["t-2"]
    assert rows[0] == ["income", "F", "M", "Total"]
    by_income, by_sex = release.table("income"), release.table("sex")
    for row, true, stddev in zip(rows[1:-1], by_income.values, by_income.stddev, strict=True):
        value, half = row[-1].split("\u00b1 ")
        assert number(value) == pytest.approx(true, abs=0.51)
        assert is_shown(half, 1.959963984540054 * stddev, 3)
    assert rows[-1][0] == "Total"
    for cell, true in zip(rows[-1][1:], [*by_sex.values, by_sex.values.sum()], strict=True):
        assert number(cell.split("\u00b1")[0]) == pytest.approx(true, abs=0.51)
    overlapping = TableRun(page_of(release_contents(release), {})).rows["t-3"]
    assert overlapping[0] == ["age", "F", "M", "Total"]  # both sexes are everybody, ages overlap
    assert len(overlapping) == 1 + 10


def test_places_are_maps_of_their_regions():
    tree = rs.Hierarchy(("state", "town"), [("A", "x"), ("A", "y"), ("B", "z")])
    schema = rs.Schema(place=tree, sex=rs.Categorical("F", "M"))
    plan = rs.plan(rs.table(schema, ["place", "sex"]), rs.zcdp(1))
    codes = np.array([[0, 0], [1, 1], [2, 0]] * 50)
    page = page_of(release_contents(rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))), {})
    assert re.findall(r"<caption>(A|B|All together)</caption>", page) == ["A", "B", "All together"]
    rows = TableRun(page).rows["t-1"]
    assert [row[0] for row in rows] == ["place", "x", "y", "place", "z", "place", "Total"]


def test_a_report_of_a_release_begins_with_its_tables(plan, release):
    order = re.findall(
        r'<(?:section|details class="prose") id="(.*?)"', page_of(release_contents(release), {})
    )
    assert order[0] == "tables"
    assert "methods" in order
    order = re.findall(r'<(?:section|details class="prose") id="(.*?)"', page_of(plan_contents(plan), {}))
    assert order[:2] == ["short", "error"]


def test_every_prediction_on_the_page_is_the_plans(plan):
    rows = TableRun(page_of(plan_contents(plan, level=0.99), {})).rows
    margin = 2.5758293035489004
    for row, line in zip(rows["error"][1:], plan.summary(), strict=True):
        assert row[0] == line.name
        assert number(row[2]) == line.queries
        assert is_shown(row[3], line.rmse)
        assert is_shown(row[4], line.max_stddev)
        assert is_shown(row[5], margin * line.max_stddev)
    others = [plan.rescale(scaled(plan.budget, factor)) for factor in FACTORS.values()]
    for row, other in zip(rows["budget"][1:], others, strict=True):
        assert row[1] == f"rho = {float(other.budget.rho):g}"
        assert is_shown(row[2], other.privacy.epsilon("1e-6"))
        assert is_shown(row[3], other.rmse)
        assert is_shown(row[4], math.sqrt(other.max_variance))
    proof = dict(rows["certificate"][1:])
    assert is_shown(proof["total variance as released"], plan.total_variance, 6)
    assert is_shown(proof["total variance with unrounded noise"], plan.ideal.total_variance, 6)
    assert is_shown(proof["proved lower bound"], plan.certificate.lower_bound, 6)
    assert plan.certificate.gap <= number(proof["gap"][:-1]) / 100 <= plan.certificate.gap * 2 + 1e-9
    uneven = plan.variances(WORK.select("up to each age")).reshape(10, 2)
    for row, variances in zip(rows["t-3"][1:], uneven, strict=True):
        for cell, variance in zip(row[1:], variances, strict=True):
            assert is_shown(cell.removeprefix("\u00b1 "), margin * math.sqrt(variance), 3)


def test_the_page_states_every_definition_that_is_proved_rounded_up(plan):
    rows = TableRun(page_of(plan_contents(plan), {})).rows["privacy"][1:]
    proved = plan.privacy
    assert rows[0][1] == f"rho = {text_above(proved.rho)}"
    assert rows[1][1] == f"mu = {text_above(Fraction(proved.mu))}"
    assert rows[2][1] == text_above(proved.cost)
    for name, figure, note in rows[3:]:
        assert name == "approximate DP"
        delta = note.removeprefix("at delta = ")
        assert (
            proved.epsilon(delta)
            <= number(figure.removeprefix("epsilon = "))
            <= proved.epsilon(delta) * 1.001
        )
    assert len(rows) == 7


def test_the_methods_paragraph_says_what_was_spent_and_how_wrong_it_is(release):
    said = methods_paragraph(release_contents(release))
    for words in ("3 tables with 27 counts", "rho = 0.1", release.hash, release.plan.hash, "95%", "1.96"):
        assert words in said
    assert f"{release.plan.rmse:.4g}" in said


def test_the_budget_is_said_first_as_it_was_given():
    contents = plan_contents(rs.plan(rs.table(SCHEMA, ["sex"]), rs.approx_dp(1, "1e-9")))
    assert headline(contents) == ("approximate DP", "epsilon = 1 and delta = 1e-9")
    assert "epsilon = 1 and delta = 1e-9" in methods_paragraph(contents)
    rows = TableRun(page_of(contents, {})).rows["budget"]
    assert rows[0][2] == "rho"
    assert is_shown(rows[3][2], float(contents.privacy.rho))


@pytest.mark.parametrize(
    ("budget", "figure"), [(rs.zcdp("0.1"), "rho = 0.1"), (rs.gdp("0.5"), "mu = 0.5"), (rs.pure_dp(1), None)]
)
def test_the_headline_is_in_the_definition_of_the_budget(budget, figure):
    contents = plan_contents(rs.plan(rs.table(SCHEMA, ["sex"]), budget))
    assert headline(contents)[1] == (figure or "epsilon = 1")


def test_the_methods_paragraph_claims_the_bound_only_for_whom_it_is_proved():
    work = rs.table(SCHEMA, ["sex"])
    for budget in (rs.zcdp(1), rs.pure_dp(1)):
        contents = plan_contents(rs.plan(work, budget))
        proof = contents.goal.certificate
        claimed = [whom for whom in SCOPES.values() if whom in methods_paragraph(contents)]
        assert claimed == ([SCOPES[proof.scope]] if math.isfinite(proof.gap) else [])


def test_what_must_not_be_published_is_not_offered_for_pasting(plan, release):
    for contents in (plan_contents(plan), release_contents(release)):
        assert "to be pasted as it is" not in page_of(contents, {})


def test_a_report_of_a_plan_says_that_no_data_was_touched_and_shows_no_values(plan):
    page = page_of(plan_contents(plan), {})
    assert "No data was touched" in page
    assert "published</th>" not in page
    assert "Simulated" not in page


def test_a_simulated_release_says_so_on_top(release):
    assert "It protects nobody" in page_of(release_contents(release), {}).split("<nav")[0]


def test_a_page_asks_nothing_of_any_network(release):
    page = page_of(release_contents(release), FAKE)
    assert not re.search(r"https?:|//|@import|url\(|<link|<img|<iframe|\ssrc=", page)
    assert "default-src 'none'" in page
    assert all(link.startswith('"#') for link in re.findall(r"href=(\S+?)>", page))


def test_names_from_outside_are_escaped():
    schema = rs.Schema({'a"<b>': rs.Categorical("<x>", "y&z")})
    work = rs.table(schema, ['a"<b>'], name="</title><script>alert(1)</script>")
    release = rs.measure(
        rs.plan(work, rs.zcdp(1)), {'a"<b>': ["<x>", "y&z"]}, ledger=None, noise=rs.simulated(seed=1)
    )
    contents = release_contents(release, title="<b>& more")
    page = page_of(contents, {"table-1": "<svg><path/></svg>"})
    assert page.count("<script>") == 1
    assert "<b>& more" not in page
    assert "<x>" not in page
    assert "&lt;x&gt;" in page


def test_names_from_outside_turn_no_text_around():
    schema = rs.Schema(kind=rs.Categorical("under\u202eover", "bell\x07"))
    plan = rs.plan(rs.table(schema, ["kind"], name="a\x1b[2J"), rs.zcdp(1))
    page = page_of(plan_contents(plan), FAKE)
    assert not set(page) & set("\x07\x1b\u202e")
    assert "under\\u202eover" in page


def test_long_tables_are_cut_and_say_so(monkeypatch, release):
    monkeypatch.setattr("residua.report.gather.MOST_NUMBERS", 17)
    contents = release_contents(release)
    assert sum(len(sheet.numbers.queries) for sheet in contents.sheets) <= 17
    page = page_of(contents, {})
    assert "more numbers are not listed here" in page


def test_many_tables_are_cut_and_say_so(monkeypatch, plan):
    monkeypatch.setattr("residua.report.gather.MOST_TABLES", 2)
    contents = plan_contents(plan)
    assert len(contents.sheets) == 2
    assert "There are 1 more tables than are listed here" in page_of(contents, {})


def test_a_table_too_long_to_list_is_summed_up():
    schema = rs.Schema(place=rs.Categorical(*(f"p{at}" for at in range(60))))
    plan = rs.plan(rs.table(schema, place=rs.predicates), rs.zcdp(1))
    contents = plan_contents(plan)
    assert contents.sheets[0].numbers is None
    assert "too many to list one by one" in page_of(contents, {})


@pytest.mark.filterwarnings("ignore:a release that no ledger paid for:residua.DifferentDataWarning")
def test_a_combined_release_has_a_report_without_other_budgets(plan, release):
    other = rs.measure(plan, PEOPLE, ledger=None, noise=rs.simulated(seed=4))
    contents = release_contents(rs.combine(release, other))
    assert contents.points == ()
    assert sum(share.fraction for share in contents.shares) == pytest.approx(1)
    page = page_of(contents, {})
    assert "two releases, measured" in page
    assert "No lower bound is known" in page


@pytest.mark.parametrize("several", [1, 3])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_a_report_says_whom_it_protects(several, neighbours):
    unit = rs.Unit(max_records=several, neighbours=neighbours)
    plan = rs.plan(rs.table(SCHEMA, ["sex", "age"]), rs.zcdp(1), unit=unit)
    page = page_of(plan_contents(plan), {})
    assert unit.describe() in page
    assert ("person&#x27;s" in page or "person's" in page) == (several > 1)


def test_a_level_that_is_none_is_refused(plan):
    with pytest.raises(rs.WorkloadError, match="between 0 and 1"):
        plan_contents(plan, level=95)


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_without_its_extra_a_report_names_it_and_writes_nothing(plan, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, "altair", None if package == "altair" else sys)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(rs.ResiduaError, match=r"pip install 'residua\[report\]'"):
        plan.report(tmp_path / "plan.html")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_name_for_a_report(plan, tmp_path):
    with pytest.raises(rs.FileFormatError, match="is a folder"):
        write_report(plan_contents(plan), tmp_path)


def test_pictures_are_embedded_with_a_name_and_the_pages_colours(plan):
    page = page_of(plan_contents(plan), FAKE)
    assert page.count('role="img"') == 2
    assert f'"{SERIES[0]}"' not in page
    assert "var(--series-0)" in page


def test_places_are_rounded_and_words_are_not():
    svg = '<svg aria-label="x"><path d="M1.23456,2" role="img"/><text x="1.999999">0.0125</text></svg>'
    assert tidy(svg) == '<svg><path d="M1.23,2"/><text x="1.99">0.0125</text></svg>'


def test_clips_of_two_pictures_do_not_share_a_name():
    svg = '<svg ><clipPath id="clip0"/><g clip-path="url(#clip0)"/></svg>'
    assert themed(svg, "budget", "a & b").count("budget-clip0") == 2
    assert 'aria-label="a &amp; b"' in themed(svg, "budget", "a & b")
