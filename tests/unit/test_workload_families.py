"""Families bound to attributes: equality by numbers, limits, words and refusals."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from residua.errors import FileFormatError, WorkloadError
from residua.schema import Attribute, Binned, Categorical, Hierarchy, Integer
from residua.workload import (
    Affine,
    Circular,
    Family,
    Partition,
    Predicates,
    Prefix,
    Queries,
    Ranges,
    Sets,
    Width,
    abs_diff,
    affine,
    buckets,
    circular,
    identity,
    level,
    predicates,
    prefix,
    queries_from_manifest,
    ranges,
    total,
    width,
)

AGE = Integer(0, 99)
INCOME = Binned(0, 10_000, 25_000, 50_000, above=True)
SEX = Categorical("F", "M", "X")
PLACE = Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")])


def words(queries: Queries, name: str, attribute: Attribute) -> list[str]:
    return [queries.describe(index, [name], [attribute]) for index in range(queries.count)]


def test_attributes_of_one_size_give_equal_queries() -> None:
    for family in (identity, total, prefix, ranges, circular, predicates, width(2)):
        one, two = family.bind(Integer(5, 7)), family.bind(SEX)
        assert one == two
        assert hash(one) == hash(two)
        assert one != family.bind(Integer(0, 3))


def test_levels_and_named_buckets_are_equal_when_their_cells_are() -> None:
    coarse = level("state").bind(PLACE)
    assert coarse == buckets({"n": ["Kings", "Bronx"], "j": ["Essex"]}).bind(PLACE)
    assert hash(coarse) == hash(Partition(np.array([0, 0, 1])))
    assert Sets(np.array([[True, False]]), ("a",)) == Sets(np.array([[True, False]]))


def test_families_show_as_they_are_written() -> None:
    families: list[Family] = [
        prefix,
        width(32),
        level("county"),
        buckets(18, 65),
        buckets(("F",), ("M", "X")),
        abs_diff,
    ]
    shown = [
        "prefix",
        "width(32)",
        "level('county')",
        "buckets(18, 65)",
        "buckets(('F',), ('M', 'X'))",
        "abs_diff",
    ]
    assert list(map(repr, families)) == shown
    assert repr(buckets({"a": {"X", "F"}})) == "buckets({'a': ('F', 'X')})"
    assert [family.arity for family in families] == [1, 1, 1, 1, 1, 2]
    assert width(3) == width(3)
    assert len({prefix, prefix, ranges}) == 2


def test_queries_show_family_and_size() -> None:
    assert repr(width(32).bind(AGE)) == "width(32) on 100 cells"
    assert repr(affine.bind(AGE, SEX)) == "affine on 100 x 3 cells"
    assert repr(level("state").bind(PLACE)) == "level('state') on 3 cells"


@pytest.mark.parametrize(
    ("family", "name", "attribute", "index", "text"),
    [
        (prefix, "age", AGE, 17, "age <= 17"),
        (prefix, "income", INCOME, 1, "income < 25000"),
        (prefix, "income", INCOME, 3, "income >= 0"),
        (prefix, "sex", SEX, 1, "sex up to M"),
        (prefix, "age", Integer(0, 3, outside="other"), 4, "age up to (other)"),
        (identity, "sex", SEX, 0, "sex = F"),
        (identity, "income", INCOME, 3, "income = 50000 and above"),
        (ranges, "age", AGE, 0, "age = 0"),
        (ranges, "age", AGE, 106, "age in 1..7"),
        (ranges, "income", INCOME, 5, "income >= 10000 and < 50000"),
        (ranges, "income", INCOME, 3, "income >= 0"),
        (ranges, "age", Integer(0, 3, outside="other"), 4, "age in 0..3 or (other)"),
        (ranges, "age", Integer(0, 3, outside="other"), 13, "age = 3 or (other)"),
        (width(5), "age", AGE, 3, "age in 3..7"),
        (circular, "month", Integer(1, 12), 10 * 12 + 3, "month in 11..2, going round"),
        (circular, "month", Integer(1, 12), 14, "month in 2..4"),
        (predicates, "sex", SEX, 5, "sex in {F, X}"),
        (predicates, "sex", SEX, 0, "sex in {}"),
        (total, "sex", SEX, 0, ""),
        (buckets(18, 65), "age", AGE, 0, "age in 0..17"),
        (buckets(18, 65), "age", AGE, 2, "age in 65..99"),
        (buckets(25_000), "income", INCOME, 1, "income >= 25000"),
        (buckets(("F", "X"), ("M",)), "sex", SEX, 0, "sex in {F, X}"),
        (buckets(("F", "X"), ("X",)), "sex", SEX, 0, "sex in {F, X}"),
        (buckets({"some": ("F", "X"), "rest": ("X",)}), "sex", SEX, 0, "sex in some"),
        (buckets({"some": ("F", "X"), "rest": ("M",)}), "sex", SEX, 1, "sex in rest"),
        (level("state"), "place", PLACE, 1, "place.state = NJ"),
        (level("county"), "place", PLACE, 1, "place.county = NY/Bronx"),
    ],
)
def test_queries_are_worded_for_people(
    family: Family, name: str, attribute: Attribute, index: int, text: str
) -> None:
    assert family.bind(attribute).describe(index, [name], [attribute]) == text


@pytest.mark.parametrize(
    ("family", "first", "second", "text"),
    [
        (affine, Integer(0, 4), Integer(0, 4), "x + y <= 3"),
        (affine, Integer(1, 4), Integer(10, 14), "x + y <= 14"),
        (affine, Integer(0, 4), SEX, "cell(x) + cell(y) <= 3"),
        (affine, Integer(0, 4), Integer(0, 4, outside="other"), "cell(x) + cell(y) <= 3"),
        (abs_diff, Integer(3, 8), Integer(3, 8), "|x - y| <= 3"),
        (abs_diff, Integer(0, 8), Integer(3, 8), "|cell(x) - cell(y)| <= 3"),
    ],
)
def test_families_on_two_attributes_speak_of_values_where_they_can(
    family: Family, first: Attribute, second: Attribute, text: str
) -> None:
    assert family.bind(first, second).describe(3, ["x", "y"], [first, second]) == text


def test_predicates_overflow_only_where_they_must() -> None:
    largest = predicates.bind(Integer(0, 1023))
    assert np.isfinite(largest.gram()).all()
    np.testing.assert_allclose(largest.root()[0] @ largest.root()[1], 2.0**1022, rtol=1e-12)
    many = predicates.bind(Integer(0, 1999))
    assert many.count == 2**2000
    np.testing.assert_array_equal(many.mean_gram()[:2, :2], [[0.5, 0.25], [0.25, 0.5]])
    for attempt in (many.gram, many.root, lambda: many.trace(np.eye(2000))):
        with pytest.raises(
            WorkloadError, match=r"predicates on 2000 cells: .* about 1e602 queries overflows"
        ):
            attempt()


def test_predicates_are_listed_up_to_twenty_cells() -> None:
    listed, not_listed = predicates.bind(Integer(0, 19)), predicates.bind(Integer(0, 20))
    assert listed.answers(np.ones(20))[-1] == 20
    assert listed.quadratic(np.eye(20))[-1] == 20
    for attempt in (lambda: not_listed.answers(np.ones(21)), lambda: not_listed.quadratic(np.eye(21))):
        with pytest.raises(WorkloadError, match="2,097,152 queries cannot be listed"):
            attempt()


def test_rows_of_predicates_reach_beyond_machine_integers() -> None:
    queries = Predicates(100)
    index = (1 << 99) + 5
    row = queries.rows(index, index + 1)[0]
    assert np.flatnonzero(row).tolist() == [0, 2, 99]
    np.testing.assert_array_equal(queries.rows(5, 6)[0], np.isin(np.arange(100), [0, 2]))
    with pytest.raises(IndexError):
        queries.rows(0, 2**100 + 1)


def test_matrix_is_refused_where_it_would_not_fit() -> None:
    with pytest.raises(WorkloadError, match=r"ranges on 2000 cells: 2,001,000 queries"):
        Ranges(2000).matrix()


def test_ranges_of_two_thousand_cells_are_never_listed() -> None:
    queries = Ranges(2000)
    x = np.arange(2000.0)
    assert queries.answers(x)[-1] == 1999
    assert queries.answers(x)[1999] == x.sum()
    assert queries.quadratic(np.diag(x))[1999] == x.sum()
    root = queries.root()
    np.testing.assert_allclose(root.T @ root, queries.gram(), rtol=1e-12)


def test_inverse_of_the_range_gram_is_tridiagonal() -> None:
    second_difference = 2 * np.eye(50) - np.eye(50, k=1) - np.eye(50, k=-1)
    np.testing.assert_allclose(Ranges(50).gram() @ second_difference, 51 * np.eye(50), atol=1e-9)


def test_circular_eigenvalues_are_those_of_the_gram() -> None:
    for n in (1, 2, 5, 12):
        queries = Circular(n)
        np.testing.assert_allclose(np.fft.fft(queries.gram()[0]).real, queries.eigenvalues(), rtol=1e-12)


@pytest.mark.parametrize(
    ("family", "attribute", "message"),
    [
        (width(4), SEX, "attribute 'x': width(4) is wider than its 3 cells"),
        (level("county"), SEX, "attribute 'x': level('county') needs a Hierarchy or a Date, not Categorical"),
        (level("County"), PLACE, "attribute 'x': there is no level 'County' (did you mean 'county'?)"),
        (
            buckets(18),
            SEX,
            "attribute 'x': buckets(18) needs numbers; group labels like buckets(('F',), ('M',))",
        ),
        (buckets(0, 18), AGE, "attribute 'x': cut 0 of buckets(0, 18) leaves one side empty"),
        (buckets(18, 100), AGE, "attribute 'x': cut 100 of buckets(18, 100) leaves one side empty"),
        (buckets(17.5), AGE, "attribute 'x': cut 17.5 of buckets(17.5) falls between whole numbers; use 18"),
        (buckets(-0.5), Integer(-3, 3), "cut -0.5 of buckets(-0.5) falls between whole numbers; use 0"),
        (buckets(12_000), INCOME, "attribute 'x': cut 12000 of buckets(12000) is not an edge of its bins"),
        (buckets(0), INCOME, "attribute 'x': cut 0 of buckets(0) leaves one side empty"),
        (buckets(20), Binned(0, 10, 20), "attribute 'x': cut 20 of buckets(20) leaves one side empty"),
        (buckets(("F", "f")), SEX, "attribute 'x': 'f' has no cell in"),
    ],
)
def test_families_that_do_not_fit_are_refused_by_name(
    family: Family, attribute: Attribute, message: str
) -> None:
    with pytest.raises(WorkloadError, match=re.escape(message)):
        family.bind(attribute, names=["x"])


def test_binding_the_wrong_number_of_attributes_is_refused() -> None:
    with pytest.raises(WorkloadError, match="affine looks at 2"):
        affine.bind(AGE)
    with pytest.raises(WorkloadError, match="prefix looks at 1"):
        prefix.bind(AGE, SEX)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "3"])
def test_widths_are_whole_numbers_of_cells(wrong: object) -> None:
    with pytest.raises(WorkloadError, match="a width is a whole number"):
        width(wrong)


def test_a_level_is_text() -> None:
    with pytest.raises(WorkloadError, match="a level is named by its text"):
        level(3)


@pytest.mark.parametrize("wrong", [(65, 18), (18, 18), (float("nan"),), (float("inf"),)])
def test_cuts_rise_and_are_finite(wrong: tuple[float, ...]) -> None:
    with pytest.raises(WorkloadError, match="cuts are finite and rise"):
        buckets(*wrong)


@pytest.mark.parametrize("wrong", [(), ("F", "M"), ((),), ({},), (18, ("F",)), (True,)])
def test_buckets_are_groups_of_labels(wrong: tuple[object, ...]) -> None:
    with pytest.raises(WorkloadError, match="buckets"):
        buckets(*wrong)


def test_numbers_of_a_categorical_can_be_grouped_like_labels() -> None:
    grades = Categorical(1, 2, 3)
    np.testing.assert_array_equal(buckets((1, 3), (2,)).bind(grades).matrix(), [[1, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: Prefix(0),
        lambda: Width(3, 4),
        lambda: Width(3, 0),
        lambda: Partition(np.array([0, 2])),
        lambda: Partition(np.array([-1, -1])),
        lambda: Partition(np.array([[0]])),
        lambda: Partition(np.array([0, 1]), None, ("a",)),
        lambda: Sets(np.array([[True, False], [False, False]])),
        lambda: Sets(np.array([[True]]), ("a", "b")),
        lambda: Affine(0, 2),
    ],
)
def test_impossible_queries_are_refused(attempt: Callable[[], Queries]) -> None:
    with pytest.raises(WorkloadError):
        attempt()


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "psychic", "size": 3},
        {"size": 3},
        {"kind": "prefix"},
        {"kind": "prefix", "size": "3"},
        {"kind": "prefix", "size": True},
        {"kind": "prefix", "size": 0},
        {"kind": "width", "size": 3, "width": 9},
        {"kind": "affine", "sizes": [3]},
        {"kind": "affine", "sizes": 3},
        {"kind": "partition", "classes": "nowhere", "level": None, "labels": None},
        {"kind": "partition", "classes": "there", "level": 3, "labels": None},
        {"kind": "partition", "classes": "there", "level": None, "labels": 3},
        {"kind": "sets", "members": 7, "labels": None},
        {"kind": "linear", "sizes": [0], "matrix": "there", "weights": None},
        {"kind": "linear", "sizes": [3], "matrix": "there", "weights": None},
        {"kind": ["prefix"], "size": 3},
    ],
)
def test_damaged_records_are_refused(record: dict[str, object]) -> None:
    with pytest.raises(FileFormatError):
        queries_from_manifest(record, {"there": np.array([0, 0])})


def test_words_of_levels_and_buckets_survive_saving() -> None:
    arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    for family, attribute in [
        (level("state"), PLACE),
        (buckets({"a": ["F"], "b": ["M"]}), SEX),
        (buckets({"a": ["F"], "b": ["F", "M"]}), SEX),
    ]:
        queries = family.bind(attribute)
        back = queries_from_manifest(queries.to_manifest(arrays), arrays)
        assert words(back, "x", attribute) == words(queries, "x", attribute)
        assert back.title == queries.title


@pytest.mark.parametrize(
    ("listed", "spelt", "attribute"),
    [
        (buckets([18, 65]), buckets(18, 65), AGE),
        (buckets([["F"], ["M", "X"]]), buckets(("F",), ("M", "X")), SEX),
        (buckets([(0, 1), (2, 3)]), buckets((0, 1), (2, 3)), AGE),
    ],
)
def test_one_list_of_cuts_or_groups_means_what_they_mean_one_by_one(listed, spelt, attribute) -> None:
    assert listed.bind(attribute) == spelt.bind(attribute)


def test_one_group_of_labels_stays_one_group() -> None:
    assert buckets(["F", "X"]).bind(SEX).count == 1
    assert buckets((18, 65)).bind(AGE).count == 1
    with pytest.raises(WorkloadError, match="cut values, or groups"):
        buckets([])


@pytest.mark.parametrize("far", [2, 2**31, 2**53 + 1, 2**63 - 1])
def test_a_class_beyond_the_number_of_cells_is_refused_before_classes_are_counted(far: int) -> None:
    with pytest.raises(WorkloadError, match="no empty ones"):
        Partition(np.array([0, far]))
