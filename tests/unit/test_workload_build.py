"""Builders: which tables they make, in which order, under which names; and what they refuse."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse

from residua.errors import SchemaError, WorkloadError
from residua.schema import Categorical, Integer, Schema
from residua.workload import (
    Affine,
    Identity,
    Prefix,
    Table,
    TableRun,
    Workload,
    abs_diff,
    affine,
    all_tables,
    circular,
    identity,
    linear,
    marginals,
    predicates,
    prefix,
    table,
    total,
    width,
)

PEOPLE = Schema(age=Integer(0, 9), sex=Categorical("F", "M"), grade=Integer(0, 3), colour=Categorical(*"rgb"))
TEN = Schema.of_sizes([10] * 40)
MIXED = Schema.of_sizes([100, 50, 7, 4, 2])


def only(work: Workload) -> Table:
    (group,) = work.groups()
    return group


@pytest.mark.parametrize(
    ("schema", "work", "count"),
    [
        (TEN, lambda s: all_tables(s, (1, 2), circular), 7_804_000),
        (TEN, lambda s: all_tables(s, 1, prefix) + all_tables(s, 2, affine), 15_220),
        (TEN, lambda s: all_tables(s, 1, prefix) + all_tables(s, 2, abs_diff), 8_200),
        (MIXED, lambda s: all_tables(s, 2, affine) + all_tables(s, 1, prefix), 805),
        (MIXED, lambda s: all_tables(s, 2, abs_diff) + all_tables(s, 1, prefix), 731),
    ],
)
def test_published_workloads_have_their_published_sizes(
    schema: Schema, work: Callable[[Schema], Workload], count: int
) -> None:
    built = work(schema)
    assert built.count == len(built) == count
    assert sum(group.count for group in built.groups()) == count


def test_table_takes_a_mapping_keywords_or_names() -> None:
    for work in (
        table(PEOPLE, {"age": prefix, "sex": identity}),
        table(PEOPLE, age=prefix, sex=identity),
        table(PEOPLE, {"age": prefix}, sex=identity),
    ):
        group = only(work)
        assert group.name == "age x sex"
        assert group.attributes == (0, 1)
        assert [factor.queries for factor in group.factors] == [Prefix(10), Identity(2)]
        assert group.count == 20
    assert only(table(PEOPLE, ["sex", "age"])).factors[1].queries == Identity(10)
    assert only(table(PEOPLE, "sex")).attributes == (1,)
    assert only(table(PEOPLE, {"sex": identity, "age": prefix})).attributes == (1, 0)


def test_a_table_of_nothing_is_the_total() -> None:
    group = only(table(PEOPLE))
    assert (group.name, group.count, group.attributes) == ("total", 1, ())
    assert group.describe(0, PEOPLE) == "all"
    assert repr(table(PEOPLE)) == "Workload of 1 table, 1 query: total"


def test_a_pair_of_attributes_takes_a_family_on_two() -> None:
    group = only(table(PEOPLE, {"sex": identity, ("grade", "age"): affine}, name="T"))
    assert group.name == "T"
    assert group.attributes == (1, 2, 0)
    assert group.factors[1].queries == Affine(4, 10)
    assert group.count == 2 * 13
    assert group.describe(14, PEOPLE) == "sex = M and grade + age <= 1"


def test_queries_run_row_major_with_the_last_factor_fastest() -> None:
    group = only(table(PEOPLE, age=prefix, sex=identity, grade=total))
    words = list(group.descriptions(PEOPLE))
    assert words[:3] == ["age <= 0 and sex = F", "age <= 0 and sex = M", "age <= 1 and sex = F"]
    assert words == [group.describe(index, PEOPLE) for index in range(group.count)]
    assert len(set(words)) == group.count
    with pytest.raises(IndexError, match="table 'age x sex x grade' has no query 20"):
        group.describe(20, PEOPLE)


def test_tables_come_by_ways_and_then_lexicographically() -> None:
    work = all_tables(PEOPLE, ways=(2, 1), family=identity, attributes=["colour", "age", "sex"])
    assert [group.attributes for group in work.groups()] == [(3, 0), (3, 1), (0, 1), (3,), (0,), (1,)]
    assert work.names == ("colour x age", "colour x sex", "age x sex", "colour", "age", "sex")
    assert work.attributes == (0, 1, 3)


def test_hybrid_tables_take_a_family_by_kind() -> None:
    work = all_tables(PEOPLE, ways=(1, 2, 3), numeric=prefix, categorical=identity)
    counts = [10, 2, 4, 3]
    expected = sum(math.prod(c) for ways in (1, 2, 3) for c in itertools.combinations(counts, ways))
    assert work.count == expected
    assert work.tables == 4 + 6 + 4
    for group in work.groups():
        for factor in group.factors:
            numeric = PEOPLE.attributes[factor.attributes[0]].numeric
            assert isinstance(factor.queries, Prefix if numeric else Identity)
    override = all_tables(PEOPLE, 1, identity, numeric=prefix)
    assert [group.title for group in override.groups()] == ["prefix", "identity", "prefix", "identity"]


def test_an_attribute_without_a_family_is_refused_by_name() -> None:
    with pytest.raises(WorkloadError, match="attribute 'sex' has no family; give family= or categorical="):
        all_tables(PEOPLE, 2, numeric=prefix)
    with pytest.raises(WorkloadError, match="attribute 'age' has no family; give family= or numeric="):
        all_tables(PEOPLE, 2)
    assert all_tables(PEOPLE, 0).count == 1
    assert all_tables(PEOPLE, 1, numeric=prefix, attributes=["age"]).count == 10


def test_marginals_up_to_include_the_total() -> None:
    work = marginals(PEOPLE, up_to=2)
    assert work.names[0] == "total"
    assert work.tables == 1 + 4 + 6
    assert marginals(PEOPLE, up_to=9).tables == 16
    assert marginals(PEOPLE, ways=2).tables == 6
    assert marginals(PEOPLE, 1, attributes=["sex"], name="s").names == ("s",)
    for wrong in ({}, {"ways": 1, "up_to": 1}):
        with pytest.raises(WorkloadError, match="either ways= or up_to="):
            marginals(PEOPLE, **wrong)


def test_one_object_is_bound_per_attribute() -> None:
    (part,) = all_tables(PEOPLE, 3, identity).parts
    assert isinstance(part, TableRun)
    assert part[0].factors[0] is part[1].factors[0]
    assert part.queries_of(0) is part[0].factors[0].queries
    (pairs,) = all_tables(TEN, 2, affine).parts
    assert isinstance(pairs, TableRun)
    assert pairs.joint is not None
    assert len({id(queries) for queries in pairs.joint}) == 1
    with pytest.raises(WorkloadError, match="attribute 'a0' has no queries of its own"):
        pairs.queries_of(0)


def test_many_tables_are_held_as_one_array() -> None:
    work = marginals(Schema.of_sizes([10] * 200), up_to=3)
    assert work.tables == 1_333_501
    assert work.count == sum(math.comb(200, k) * 10**k for k in range(4))
    assert [part.subsets.shape for part in work.parts if isinstance(part, TableRun)] == [
        (math.comb(200, k), k) for k in range(4)
    ]
    assert work.select("a3 x a17 x a199").tables == 1
    assert repr(work).startswith("Workload of 1,333,501 tables, 1,315,392,001 queries: total, a0 (identity),")


def test_tables_are_a_sequence_of_groups() -> None:
    (part,) = all_tables(PEOPLE, 2, identity).parts
    assert isinstance(part, TableRun)
    assert [group.name for group in part[1:4:2]] == ["age x grade", "sex x grade"]
    assert part[-1] == list(part)[-1]
    assert part[-1].name == "grade x colour"
    (joint,) = all_tables(PEOPLE, 2, affine).parts
    assert isinstance(joint, TableRun)
    assert joint[2:4][0] == joint[2]
    with pytest.raises(IndexError):
        part[6]
    with pytest.raises(WorkloadError, match="6 tables have 2 families"):
        TableRun(PEOPLE, joint.subsets, joint=joint.joint[:2] if joint.joint else ())
    with pytest.raises(WorkloadError, match="attribute 'age' has no queries of its own"):
        TableRun(PEOPLE, part.subsets, (None,) * 4)
    with pytest.raises(ValueError, match="read-only"):
        part.subsets[0] = 3


def test_counts_beyond_machine_integers_are_exact() -> None:
    schema = Schema.of_sizes([100, 90, 80])
    work = all_tables(schema, (1, 2), predicates)
    assert work.count == 2**100 + 2**90 + 2**80 + 2**190 + 2**180 + 2**170
    with pytest.raises(OverflowError):
        len(work)
    assert work
    assert "about 1e57 queries" in repr(work)


def test_weights_multiply_and_unions_keep_duplicates() -> None:
    work = 2.0 * (table(PEOPLE, age=prefix, weight=3.0) + marginals(PEOPLE, 1)) * Fraction(1, 4)
    assert [group.weight for group in work.groups()] == [1.5, 0.5, 0.5, 0.5, 0.5]
    twice = work + work
    assert (twice.tables, twice.count) == (2 * work.tables, 2 * work.count)


@pytest.mark.parametrize("wrong", [0, 0.0, -1, float("nan"), float("inf"), True, np.True_, "2", None, 1j])
def test_weights_that_are_not_positive_numbers_are_refused_by_name(wrong: object) -> None:
    work = marginals(PEOPLE, 1)
    with pytest.raises(
        WorkloadError, match=r"workload 'age', 'sex', 'grade', \.\.\.: a weight is a positive"
    ):
        wrong * work
    with pytest.raises(WorkloadError, match="table 'age': a weight is a positive"):
        table(PEOPLE, ["age"], weight=wrong)


@pytest.mark.parametrize(
    "wrong",
    [10**400, 10**5000, Fraction(10**400), Fraction(1, 10**400)],
    ids=["int", "long int", "fraction", "small fraction"],
)
def test_weights_beyond_all_floats_are_refused_by_name(wrong: object) -> None:
    with pytest.raises(WorkloadError, match=r"'age': a weight is a positive finite number, not .{,70}$"):
        wrong * table(PEOPLE, ["age"])
    with pytest.raises(WorkloadError, match="table 'age': a weight is a positive finite number"):
        table(PEOPLE, ["age"], weight=wrong)


def test_weights_that_overflow_or_vanish_are_refused() -> None:
    work = table(PEOPLE, ["age"], weight=1e200)
    for factor in (1e200, 1e-323):
        with pytest.raises(WorkloadError, match="workload 'age'"):
            (1e-200 * (1e-200 * work) if factor < 1 else work) * factor


def test_workloads_of_different_schemas_do_not_add() -> None:
    with pytest.raises(WorkloadError, match="different schemas"):
        marginals(PEOPLE, 1) + marginals(MIXED, 1)
    assert (marginals(MIXED, 1) + marginals(Schema.of_sizes([100, 50, 7, 4, 2]), 1)).tables == 10
    with pytest.raises(TypeError):
        marginals(PEOPLE, 1) + 3
    with pytest.raises(TypeError):
        marginals(PEOPLE, 1) * marginals(PEOPLE, 1)


def test_an_empty_workload_is_refused() -> None:
    with pytest.raises(WorkloadError, match="at least one table"):
        Workload(PEOPLE, ())


def test_select_gives_the_tables_of_a_name() -> None:
    work = table(PEOPLE, age=prefix, name="T") + marginals(PEOPLE, (0, 1, 2)) + marginals(PEOPLE, 2, name="T")
    assert work.select("T").tables == 7
    assert work.select("total").tables == 1
    assert [group.attributes for group in work.select("age x grade").groups()] == [(0, 2)]
    with pytest.raises(WorkloadError, match=r"no table named 'Age x sex' \(did you mean 'age x sex'\?\)"):
        work.select("Age x sex")
    joint = all_tables(PEOPLE, 2, affine).select("sex x colour")
    assert only(joint).factors[0].queries == Affine(2, 3)


def test_select_reads_names_that_contain_the_separator() -> None:
    schema = Schema({"a": Integer(0, 1), "b x c": Integer(0, 1), "a x b": Integer(0, 1), "c": Integer(0, 1)})
    found = [group.attributes for group in marginals(schema, (1, 2)).select("a x b x c").groups()]
    assert found == [(0, 1), (2, 3)]


def test_repr_names_the_first_tables() -> None:
    work = table(PEOPLE, age=prefix, sex=width(1)) + marginals(PEOPLE, 0) + marginals(PEOPLE, 1)
    assert repr(work) == (
        "Workload of 6 tables, 40 queries: age x sex (prefix x width(1)), total, age (identity), ..."
    )


def test_linear_takes_dense_sparse_and_boolean_matrices() -> None:
    A = np.array([[1, 0, 0, 0, 0, 0], [0, 1, 0, -1, 0, 0]])
    for matrix in (
        A,
        A.tolist(),
        A.astype(np.float32),
        scipy.sparse.csr_array(A),
        scipy.sparse.coo_matrix(A),
    ):
        group = only(linear(PEOPLE, ("colour", "sex"), matrix))
        assert group.attributes == (3, 1)
        assert group.factors[0].queries.sizes == (3, 2)
        np.testing.assert_array_equal(group.factors[0].queries.matrix(), A)
        assert group.name == "colour x sex"
        assert group.describe(1, PEOPLE) == "query 1"
    assert only(linear(PEOPLE, "sex", [[True, False]], name="f")).name == "f"
    weighted = only(linear(PEOPLE, ["sex"], np.eye(2), weights=[1, 3])).factors[0].queries
    np.testing.assert_array_equal(weighted.gram(), np.diag([1.0, 3.0]))


@pytest.mark.parametrize(
    ("matrix", "weights", "message"),
    [
        ([[1, 2, 3]], None, r"the matrix must have shape \(queries, 2\).*not \(1, 3\)"),
        ([1, 2], None, r"shape \(queries, 2\).*not \(2,\)"),
        (np.ones((0, 2)), None, r"shape \(queries, 2\).*not \(0, 2\)"),
        ([[1, 2], [np.nan, 1]], None, "query 1 has a coefficient that is not a finite number"),
        ([[1, 2], [1, -np.inf]], None, "query 1 has a coefficient that is not a finite number"),
        ([[0, 0], [0, 0]], None, "every coefficient of the matrix is zero"),
        ([["a", "b"]], None, "must be real numbers"),
        ([[1j, 2]], None, "must be real numbers"),
        ([[1, 2], [3]], None, "must be numbers of shape"),
        ([[1, 2]], [1, 2], r"weights must have shape \(1,\)"),
        ([[1, 2]], [[1]], r"weights must have shape \(1,\)"),
        ([[1, 2]], [0.0], r"query 0 has weight 0.0"),
        ([[1, 2], [1, 1]], [1, -2], r"query 1 has weight -2.0"),
        ([[1, 2]], [np.inf], r"query 0 has weight inf"),
        ([[1, 2]], [np.nan], r"query 0 has weight nan"),
        ([[1, 2]], "x", "the weights must be real numbers"),
        (scipy.sparse.csr_array((30_000_000, 2)), None, "more than 50,000,000 entries"),
    ],
)
def test_linear_refuses_by_name(matrix: object, weights: object, message: str) -> None:
    with pytest.raises(WorkloadError, match=f"linear queries 'sex'.*{message}"):
        linear(PEOPLE, ["sex"], matrix, weights)


def test_a_zero_query_beside_others_is_legal() -> None:
    assert linear(PEOPLE, ["sex"], [[0, 0], [1, 0]]).count == 2


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: table(PEOPLE, ["age", "age"]), "table 'age x age': attribute 'age' is there twice"),
        (lambda: table(PEOPLE, {"age": prefix}, age=identity), "attribute 'age' is there twice"),
        (
            lambda: table(PEOPLE, {"age": "prefix"}),
            "table 'age', attribute 'age': 'prefix' is not a query family",
        ),
        (lambda: table(PEOPLE, {"age": affine}), "table 'age': affine takes a pair of attributes"),
        (lambda: table(PEOPLE, {("age", "sex"): prefix}), "table 'age x sex': prefix takes one attribute"),
        (lambda: table(PEOPLE, {("age", "age"): affine}), "attribute 'age' is there twice"),
        (lambda: table(PEOPLE, sex=width(3)), r"attribute 'sex': width\(3\) is wider than its 2 cells"),
        (lambda: all_tables(PEOPLE, 1, "prefix"), "all_tables: 'prefix' is not a query family"),
        (lambda: all_tables(PEOPLE, 1, affine), "affine is on pairs of attributes, so ways must be 2"),
        (lambda: all_tables(PEOPLE, 2, affine, numeric=prefix), "it leaves none for prefix"),
        (lambda: all_tables(PEOPLE, 2, prefix, numeric=affine), "affine takes a pair of attributes"),
        (lambda: all_tables(PEOPLE, 5, prefix), "no 5-way tables on 4 attributes"),
        (lambda: all_tables(PEOPLE, (), prefix), "ways is empty"),
        (lambda: all_tables(PEOPLE, -1, prefix), "from 0 on, not -1"),
        (lambda: all_tables(PEOPLE, True, prefix), "not True"),
        (lambda: all_tables(PEOPLE, 1.5, prefix), "not 1.5"),
        (lambda: all_tables(PEOPLE, (1, "2"), prefix), "not '2'"),
        (lambda: all_tables(PEOPLE, 1, prefix, attributes=["age", "age"]), "attribute 'age' is there twice"),
        (lambda: all_tables(PEOPLE, 2, width(3)), r"attribute 'sex': width\(3\) is wider"),
        (
            lambda: marginals(Schema.of_sizes([2] * 100), 50),
            "all 50-way tables on 100 attributes are about 1e29",
        ),
        (lambda: marginals(PEOPLE, up_to=-1), "up_to is a whole number of attributes from 0 on"),
        (lambda: linear(PEOPLE, ["sex", "sex"], np.ones((1, 4))), "attribute 'sex' is there twice"),
        (lambda: linear(PEOPLE, [], np.ones((1, 1))), "need at least one attribute"),
    ],
)
def test_builders_refuse_by_name(attempt: Callable[[], Workload], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        attempt()


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: table(PEOPLE, ["Age"]),
        lambda: table(PEOPLE, Age=prefix),
        lambda: all_tables(PEOPLE, 1, prefix, attributes=["Age"]),
        lambda: linear(PEOPLE, ["Age"], np.ones((1, 10))),
    ],
)
def test_unknown_attributes_are_refused_with_a_near_one(attempt: Callable[[], Workload]) -> None:
    with pytest.raises(SchemaError, match=r"attribute 'Age' is not in the schema \(did you mean 'age'\?\)"):
        attempt()


def test_the_sum_of_workloads_is_their_union() -> None:
    schema = Schema.of_sizes([2, 3])
    parts = [table(schema, ["a0"]), table(schema, ["a1"])]
    assert sum(parts).count == (parts[0] + parts[1]).count == 5
    with pytest.raises(TypeError):
        1 + parts[0]  # type: ignore[operator]  # only nothing can be added to


@pytest.mark.parametrize(
    "build",
    [
        lambda schema: table(schema, ["a0"]),
        lambda schema: marginals(schema, ways=1),
        lambda schema: all_tables(schema, 1, prefix),
        lambda schema: linear(schema, ["a0"], [[1, 0]]),
    ],
    ids=["table", "marginals", "all_tables", "linear"],
)
@pytest.mark.parametrize("given", [{"a0": 2}, 3])
def test_what_is_no_schema_is_refused_as_such(build, given) -> None:
    with pytest.raises(SchemaError, match="described on a schema"):
        build(given)


def test_a_list_within_the_list_of_names_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match=r"attribute \['age', 'sex'\] is not in the schema; it has 'age'"):
        table(PEOPLE, [["age", "sex"]])  # type: ignore[list-item]  # the mistake that is refused
