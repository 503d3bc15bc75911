"""Bounded numbers: coding to steps, families of sums and moments, and what the best plans for them reach."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shares import shares

import residua as rs
from residua.spec import load_spec

INCOME = rs.Number(0, 200_000, step=100)


def test_values_go_to_the_nearest_step_and_halves_to_the_even_one():
    assert INCOME.encode([0, 49, 50, 51, 150, 250, 199_999, 200_000]).tolist() == [
        0,
        0,
        0,
        1,
        2,
        2,
        2000,
        2000,
    ]


@pytest.mark.parametrize(
    "spell",
    [
        lambda values: np.array([float(value) for value in values]),
        lambda values: [Decimal(value) for value in values],
        lambda values: values,
        lambda values: pa.array([Decimal(value) for value in values]),
        lambda values: [float(value) for value in values],
    ],
    ids=["floats", "decimals", "text", "arrow decimals", "list"],
)
def test_a_number_has_the_same_step_however_it_is_written(spell):
    """0.35 is half way between two steps of 0.1 as text, and just below that as a float."""
    values = ["0.35", "0.25", "0.45", "0.05", "0.3", "0.1", "1"]
    assert rs.Number(0, 1, step=0.1).encode(spell(values)).tolist() == [4, 2, 4, 0, 3, 1, 10]


def test_digits_beyond_those_of_floats_decide():
    number = rs.Number(0, 1, step=0.1)
    texts = ["0.3499999999999999999999999", "0.35000000000000000000000000001", "0.2500000000000000000001"]
    assert number.encode(texts).tolist() == [3, 4, 3]
    assert rs.Number(-0.5, 0.5, step=1).encode(["1e-999999999", "-1e-999999999", "0"]).tolist() == [1, 0, 0]
    big = rs.Number(10**15, 10**15 + 1000, step=2)
    assert big.encode(np.array([10**15 + 1, 10**15 + 3, 10**15 + 5])).tolist() == [0, 2, 2]
    wide = rs.Number(2**60, 2**60 + 2**20, step=2)
    assert wide.encode(np.array([2**60 + 1, 2**60 + 2, 2**60 + 3])).tolist() == [0, 1, 2]


@given(
    st.integers(-(10**6), 10**6),
    st.integers(1, 10**4),
    st.integers(1, 500),
    st.sampled_from([1, 10, 1000]),
    st.lists(st.decimals(-2000, 2000, places=4), min_size=1, max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_codes_are_those_of_exact_arithmetic(low, step, steps, over, offsets):
    low, step = Fraction(low, over), Fraction(step, over)
    high = low + steps * step
    number = rs.Number(_decimal(low), _decimal(high), step=_decimal(step))
    values = [_decimal(low) + each for each in offsets]
    wanted = [round((min(max(Fraction(each), low), high) - low) / step) for each in values]
    assert number.encode(list(map(str, values))).tolist() == wanted
    assert number.encode(values).tolist() == wanted
    again = [Decimal(repr(float(each))) for each in values]
    wanted = [round((min(max(Fraction(each), low), high) - low) / step) for each in again]
    assert number.encode(np.array([float(each) for each in values])).tolist() == wanted


def _decimal(value):
    return Decimal(value.numerator) / Decimal(value.denominator)


ODD = [None, math.nan, math.inf, -math.inf, 1e308, -1e308, "", "n/a", "1e999999999", "12,5", " 7 "]


def test_nothing_is_lost_whatever_values_there_are():
    kept = rs.Number(0, 10, step=1, missing=True)
    assert kept.encode(ODD).tolist() == [11, 11, 10, 0, 10, 0, 11, 11, 10, 11, 7]
    dropped = rs.Number(0, 10, step=1, outside="drop")
    assert dropped.encode(ODD).tolist() == [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 7]
    with pytest.raises(rs.DataError, match=r"5 values are .* cannot be clipped.* declare missing=True"):
        rs.Number(0, 10, step=1).encode(ODD)
    with pytest.raises(rs.DataError, match=r"declare outside='clip' or 'drop'"):
        rs.Number(0, 10, step=1, outside="error").encode([11])
    assert kept.encode_codes(np.array([0, 11, 12])).tolist() == [0, 11, 10]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: rs.Number(0, 100), "give the step .* such as step=0.1"),
        (lambda: rs.Number(0, 100, step=7), "does not divide the range; use another, or high=105"),
        (lambda: rs.Number(5, 5, step=1), "not below the upper bound"),
        (lambda: rs.Number(0, 1, step=-1), "not above zero"),
        (lambda: rs.Number(0, 1, step=1e-12), "too many to count; use a coarser one, such as 0.000001"),
        (lambda: rs.Number(0, math.inf, step=1), "not a number that can be added up"),
        (lambda: rs.Number(0, "9", step=1), "the bound '9' is not a number"),
        (lambda: rs.Number(0, 9, step=1, bins=[9]), "at least one of them"),
        (lambda: rs.Number(0, 9, step=1, bins=[12]), "edges between the bounds"),
        (lambda: rs.Number(0, 9, step=1, bins=[5, 3]), "edges must increase"),
        (lambda: rs.Number(0, 9, step=1, bins=[2.5]), "between two steps of 1"),
        (lambda: rs.Number(0, 9, step=1, degree=0), "no power from 1 to 8"),
        (lambda: rs.Number(0, 9, step=1, outside="other"), "use 'clip', 'drop' or missing=True"),
        (lambda: rs.Binned(0, 1, 2, values=[1]), "1 values for 2 bins"),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_the_remedy(wrong, words):
    with pytest.raises(rs.SchemaError, match=words):
        wrong()


NUMBERS = [
    rs.Number(0, 10, step=1),
    rs.Number(-3, 12, step=0.5, missing=True),
    rs.Number(-10, 50, step=5, bins=[0, 20], degree=2),
    rs.Number(0, 6, step=1, bins=[2, 3], missing=True, degree=3),
    rs.Number(-1, 2, step=0.25, degree=4),
]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_moments_are_exact_at_every_step(number):
    """Shares times what cells count as are the powers of the value, whatever the step (claim U-002)."""
    for code in range(number.codes):
        part = shares(number, code)
        value = None if code > number.steps[-1] else number.low + code * number.step
        for power in range(number.degree + 1):
            found = float(np.dot([float(each) for each in part], number.moment(power)))
            assert found == pytest.approx(0.0 if value is None else float(value**power), abs=1e-9)
    with pytest.raises(rs.WorkloadError, match=f"needs degree={number.degree + 1}"):
        rs.table(rs.Schema(x=number), x=rs.moment(number.degree + 1))


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_number_comes_back_from_its_manifest_and_reads_as_it_is_written(number):
    schema = rs.Schema(x=number)
    assert rs.Schema.from_manifest(schema.to_manifest()) == schema
    assert eval(repr(number), {"Number": rs.Number}) == number
    assert len(set(number.labels())) == number.size


@pytest.mark.parametrize("edges", [[], ["1"], ["low", "high"]])
def test_a_forged_manifest_of_a_number_without_bounds_is_refused_as_a_file(edges):
    manifest = rs.Schema(x=rs.Number(0, 10, step=1)).to_manifest()
    manifest["attributes"][0]["edges"] = edges
    with pytest.raises(rs.FileFormatError, match="the record of a number"):
        rs.Schema.from_manifest(manifest)


SCHEMA = rs.Schema(
    sex=rs.Categorical("F", "M"),
    age=rs.Integer(10, 14),
    income=INCOME,
    pay=rs.Number(0, 100, step=5, bins=[20, 50], missing=True),
    band=rs.Binned(0, 10, 20, above=True, values=[5, 15, 40], outside="other"),
)


def test_sums_add_up_what_values_are():
    assert rs.sum.bind(SCHEMA["age"]).matrix().tolist() == [[10, 11, 12, 13, 14]]
    assert rs.moment(2).bind(SCHEMA["band"]).matrix().tolist() == [[25, 225, 1600, 0]]
    assert rs.moment(0).bind(SCHEMA["pay"]).matrix().tolist() == [[1, 1, 1, 1, 1, 1, 0]]
    with pytest.raises(rs.WorkloadError, match="attribute 'sex': sum adds up numbers"):
        rs.table(SCHEMA, sex=rs.sum)
    with pytest.raises(rs.WorkloadError, match="needs the value of each bin"):
        rs.table(rs.Schema(x=rs.Binned(0, 1, 2)), x=rs.sum)
    with pytest.raises(rs.WorkloadError, match="always zero"):
        rs.table(rs.Schema(x=rs.Integer(0, 0)), x=rs.sum)
    with pytest.raises(rs.WorkloadError, match="from 0 on"):
        rs.moment(-1)


def test_a_sum_is_as_important_as_a_count_unless_told():
    work = rs.table(SCHEMA, age=[rs.total, rs.sum, rs.moment(2)])
    (group,) = work.groups()
    assert group.factors[0].queries.weights == pytest.approx([1, 14**-2, 14**-4])
    assert group.title == "[total, sum, moment(2)]"
    assert list(group.descriptions(SCHEMA)) == ["all", "sum of age", "sum of age^2"]
    with pytest.raises(rs.WorkloadError, match="asked nothing"):
        rs.table(SCHEMA, age=[])


def test_counts_go_by_bins_and_numbers_without_bins_are_left_out():
    work = rs.marginals(SCHEMA, ways=1)
    assert [group.name for group in work.groups()] == ["sex", "age", "pay", "band"]
    (group,) = rs.table(SCHEMA, ["pay"]).groups()
    assert list(group.descriptions(SCHEMA)) == [
        "pay in [0, 20)",
        "pay in [20, 50)",
        "pay in 50 and above",
        "pay in (missing)",
    ]
    (group,) = rs.table(SCHEMA, pay=rs.prefix).groups()
    assert group.factors[0].queries.matrix()[1].tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert next(group.descriptions(SCHEMA)) == "pay < 20"
    for wrong in (rs.prefix, rs.identity, rs.buckets(100)):
        with pytest.raises(rs.WorkloadError, match=r"give it bins=\[...\], or ask for rs.total, rs.sum"):
            rs.table(SCHEMA, income=wrong)
    with pytest.raises(rs.WorkloadError, match=r"give it bins"):
        rs.table(SCHEMA, ["sex"], where="income > 5")


def test_count_and_sum_reach_the_golden_ratio():
    """(3 + sqrt 5) / 2 at cost 1, and twice that in two groups; equal shares would give 4 (claim U-002)."""
    golden = (3 + math.sqrt(5)) / 2
    one = rs.plan(rs.table(SCHEMA, income=[rs.total, rs.sum]), rs.privacy_cost(1))
    two = rs.plan(rs.table(SCHEMA, sex=rs.identity, income=[rs.total, rs.sum]), rs.privacy_cost(1))
    assert one.total_variance == pytest.approx(golden, rel=1e-4)
    assert two.total_variance == pytest.approx(2 * golden, rel=1e-4)
    assert one.certificate.scope == "all mechanisms"


@pytest.mark.parametrize(("degree", "most"), [(2, 1.028), (4, 1.01)])
def test_squares_are_near_the_optimum_on_the_curve(degree, most):
    """Count, sum and squares of 201 values between 0 and 1, each of which a record may have."""
    schema = rs.Schema(x=rs.Number(0, 1, step=0.01, degree=degree))
    plan = rs.plan(rs.table(schema, x=[rs.total, rs.sum, rs.moment(2)]), rs.privacy_cost(1))
    t = np.linspace(0, 1, 201)
    curve = rs.Schema(x=rs.Integer(0, 200))
    rows = np.array([t**0, t, t**2])
    best = rs.bounds.dual(rs.linear(curve, "x", rows))
    assert 1 - 1e-4 <= math.sqrt(plan.total_variance / best) <= most


def test_targets_are_in_the_unit_of_the_sum():
    work = rs.table(SCHEMA, sex=rs.identity, income=rs.sum, name="income")
    plan = rs.plan(work, targets={"income": rs.stddev(1_000_000)})
    assert np.sqrt(plan.variances(work)) == pytest.approx([1_000_000] * 2, rel=1e-3)


def test_the_record_limit_is_stated_and_too_small_a_one_refused_with_the_remedy():
    plan = rs.plan(rs.table(SCHEMA, income=[rs.total, rs.sum]), rs.zcdp(1))
    assert 10**8 < plan.most_records < 2**53
    schema = rs.Schema(x=rs.Number(0, 1_000_000, step=1, degree=2))
    with pytest.raises(rs.Infeasible, match="use a coarser step"):
        rs.plan(rs.table(schema, x=[rs.total, rs.sum, rs.moment(2)]), rs.zcdp(1))


def test_a_plan_of_numbers_comes_back_from_its_file(tmp_path):
    work = rs.table(SCHEMA, sex=rs.identity, income=[rs.total, rs.sum]) + rs.table(SCHEMA, ["pay"])
    plan = rs.plan(work, rs.zcdp(1))
    plan.save(tmp_path / "p.plan")
    again = rs.Plan.load(tmp_path / "p.plan")
    assert again.hash == plan.hash
    assert [group.title for group in again.workload.groups()] == ["identity x [total, sum]", "buckets"]


def test_sql_sums_averages_and_spreads():
    """Planned by `rs.sql` and answered on the release, near the truth at a large budget."""
    schema = rs.Schema(
        sex=rs.Categorical("F", "M"),
        pay=rs.Number(0, 100, step=1, degree=2, missing=True, bins=[40]),
        hours=rs.Number(0, 60, step=1, degree=2),
    )
    chance = np.random.default_rng(1)
    sex, hours = chance.choice(["F", "M"], 4000), chance.integers(10, 60, 4000)
    pay = np.where(
        chance.random(4000) < 0.1, np.nan, np.clip(np.rint(hours + chance.normal(0, 9, 4000)), 0, 100)
    )
    text = (
        "SELECT sex, COUNT(*) AS n, COUNT(pay) AS k, SUM(pay) AS s, AVG(pay) AS a, VAR_POP(pay) AS v, "
        "STDDEV_POP(pay) AS d, SUM(pay * hours) AS p, CORR(pay, hours) AS r, COVAR_POP(pay, hours) AS c, "
        "SUM(pay) FILTER (WHERE pay >= 40) AS h FROM t GROUP BY sex"
    )
    plan = rs.plan(rs.sql(schema, text), rs.zcdp(10**6))
    release = rs.measure(
        plan, {"sex": sex, "pay": pay, "hours": hours}, ledger=None, noise=rs.simulated(seed=1)
    )
    found = release.sql(text).to_pylist()
    for row in found:
        mine = sex == row["sex"]
        x, y = pay[mine], hours[mine]
        x, y = x[~np.isnan(x)], y[~np.isnan(x)]
        wanted = {
            "n": mine.sum(),
            "k": len(x),
            "s": x.sum(),
            "a": x.mean(),
            "v": x.var(),
            "d": x.std(),
            "p": (x * y).sum(),
            "r": np.corrcoef(x, y)[0, 1],
            "c": np.cov(x, y, bias=True)[0, 1],
            "h": x[x >= 40].sum(),
        }
        for name, value in wanted.items():
            assert row[name] == pytest.approx(value, rel=1e-3)
            assert row[f"{name}_stddev"] > 0
    (group, *_) = [each for each in plan.workload.groups() if each.name == "sex x pay x hours"]
    assert next(group.descriptions(schema)) == "sex = F and sum of pay and sum of hours"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT SUM(sex) FROM t", "column 8: 'sex': its cells are no numbers"),
        ("SELECT COUNT(*) FROM t WHERE income > 5", r"column 30: attribute 'income' .* give it bins"),
        ("SELECT income, COUNT(*) FROM t GROUP BY income", r"column \d+: .* give it bins"),
        ("SELECT MEDIAN(income) FROM t", r"are where its bins end; give it bins"),
        ("SELECT VAR_POP(income) FROM t", "needs degree=2 at least"),
        ("SELECT COUNT(*) FROM t WHERE pay > 21", "21 falls within a bin"),
        ("SELECT SUM(pay + income) FROM t", "a product of columns"),
    ],
)
def test_sql_that_numbers_cannot_answer_is_refused_with_its_place_and_the_remedy(text, words):
    with pytest.raises(rs.WorkloadError, match=f"SQL, line 1, .*{words}"):
        rs.sql(SCHEMA, text)


FIELDS = """
fields:
- name: sex
  type: string
  constraints: {enum: [F, M]}
- name: earnings
  type: number
  constraints: {minimum: -0.05, maximum: 200000.05}
  residua: {step: 0.1, missing: true, degree: 2, outside: drop}
- name: hours
  type: integer
  constraints: {minimum: 0, maximum: 80}
  residua: {step: 1, bins: [20, 40]}
- name: band
  type: number
  residua: {bins: [0, 10, 20], values: [4, 16]}
"""


def test_numbers_come_back_from_schema_files(tmp_path):
    (tmp_path / "people.yaml").write_text(FIELDS)
    schema = rs.Schema.load(tmp_path / "people.yaml")
    assert schema["earnings"] == rs.Number(
        Decimal("-0.05"), Decimal("200000.05"), step=0.1, missing=True, degree=2, outside="drop"
    )
    assert schema["hours"] == rs.Number(0, 80, step=1, bins=[20, 40])
    assert schema["band"].values == (4, 16)
    schema.save(tmp_path / "again.yaml")
    assert rs.Schema.load(tmp_path / "again.yaml") == schema
    fine = Decimal("0.1234567890123456789012")
    exact = rs.Schema(x=rs.Number(0, fine, step=fine))
    exact.save(tmp_path / "exact.yaml")
    assert rs.Schema.load(tmp_path / "exact.yaml") == exact


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("{type: number, residua: {step: 1}}", "needs its range; add constraints.minimum"),
        ("{type: string, residua: {step: 1}}", "a step needs type: number"),
        ("{type: number, residua: {degree: 2, bins: [0, 1]}}", "residua.degree needs residua.step"),
        ("{type: number, residua: {values: [1]}}", "residua.values needs residua.bins"),
        (
            "{type: number, constraints: {minimum: 0, maximum: 9}, residua: {step: 1, above: true}}",
            "residua.above needs residua.bins",
        ),
        (
            "{type: number, constraints: {minimum: 0, maximum: nine}, residua: {step: 1}}",
            "'nine' is not a number",
        ),
    ],
)
def test_a_mistake_in_the_file_of_a_number_is_named(tmp_path, field, words):
    (tmp_path / "x.yaml").write_text(f"fields: [{{name: x, {field[1:]}]")
    with pytest.raises(rs.SchemaError, match=words):
        rs.Schema.load(tmp_path / "x.yaml")


def test_a_spec_asks_for_sums(tmp_path):
    spec = f"""\
schema:{FIELDS.replace(chr(10), chr(10) + "  ")}
tables:
- name: earnings by sex
  families: {{sex: identity, earnings: [total, sum, {{moment: 2}}]}}
- sql: SELECT sex, AVG(hours) FROM people GROUP BY sex
privacy: {{definition: zcdp, rho: 1}}
"""
    (tmp_path / "people.yaml").write_text(spec)
    work = load_spec(tmp_path / "people.yaml").workload
    assert next(group.title for group in work.groups()) == "identity x [total, sum, moment(2)]"


def test_bounds_are_chosen_without_data_where_bias_and_noise_are_small_together():
    guess = {0: 0, 0.5: 30_000, 0.9: 80_000, 0.99: 200_000, 0.999: 400_000, 1: 1_000_000}
    found = rs.choose_bounds(guess, rs.zcdp("0.1"), records=5_000)
    highs = [each.high for each in found.tried]
    assert highs == sorted(highs)
    assert all(
        a.bias <= b.bias and a.stddev < b.stddev for a, b in zip(found.tried, found.tried[1:], strict=False)
    )
    assert found.best.rmse == min(each.rmse for each in found.tried)
    assert str(found).count("best") == 1
    fewer = rs.choose_bounds(guess, rs.zcdp("0.1"), records=200)
    assert fewer.best.high < found.best.high  # small groups call for narrow bounds
    values = np.random.default_rng(0).uniform(-10, 10, 1000)
    two = rs.choose_bounds(values, rs.zcdp(1), records=10, low=-10, highs=[5, 10])
    assert two.tried[1].bias == 0
    assert two.tried[0].clipped == pytest.approx((values > 5).mean())
    curve = rs.choose_bounds(lambda orders: 100 * orders, rs.zcdp(1), records=10)
    assert curve.tried[-1].high == 100


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: rs.choose_bounds({0.5: 1}, rs.zcdp(1), records=1),
        lambda: rs.choose_bounds([1, math.inf], rs.zcdp(1), records=1),
        lambda: rs.choose_bounds([1, 2], rs.zcdp(1), records=0),
        lambda: rs.choose_bounds([1, 2], rs.zcdp(1), records=1, highs=[-1]),
    ],
)
def test_a_guess_that_is_none_is_refused(wrong):
    with pytest.raises(rs.SchemaError):
        wrong()
