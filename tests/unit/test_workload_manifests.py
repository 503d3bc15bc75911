"""Workloads as records: nothing is lost, shared queries are kept once, damage is refused."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from residua.errors import FileFormatError
from residua.schema import Categorical, Hierarchy, Integer, Schema
from residua.workload import (
    Workload,
    affine,
    all_tables,
    buckets,
    identity,
    level,
    linear,
    marginals,
    prefix,
    table,
)

PLACE = Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")])
SCHEMA = Schema(age=Integer(0, 9), sex=Categorical("F", "M", "X"), grade=Integer(0, 3), place=PLACE)

WORK = (
    table(
        SCHEMA,
        {"age": prefix, "sex": buckets({"a": ["F"], "b": ["M", "X"]}), "place": level("state")},
        name="T",
    )
    + 0.1 * marginals(SCHEMA, up_to=2)
    + all_tables(SCHEMA, 2, affine, name="pairs")
    + linear(SCHEMA, ("sex", "age"), np.random.default_rng(0).normal(size=(4, 30)), [1.0, 2.0, 3.0, 4.0])
    + all_tables(SCHEMA, (1, 3), numeric=prefix, categorical=identity, attributes=["sex", "age", "grade"])
    + table(SCHEMA)
)


def saved(work: Workload) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    arrays: dict[str, NDArray[Any]] = {}
    return json.loads(json.dumps(work.to_manifest(arrays))), arrays


def test_a_record_brings_back_every_table() -> None:
    record, arrays = saved(WORK)
    back = Workload.from_manifest(record, arrays, SCHEMA)
    assert repr(back) == repr(WORK)
    assert list(back.groups()) == list(WORK.groups())
    for old, new in zip(WORK.groups(), back.groups(), strict=True):
        assert list(old.descriptions(SCHEMA)) == list(new.descriptions(SCHEMA))


def test_equal_workloads_have_equal_records() -> None:
    record, arrays = saved(WORK)
    again, others = saved(Workload.from_manifest(record, arrays, SCHEMA))
    assert again == record
    assert list(others) == list(arrays)
    for key in arrays:
        np.testing.assert_array_equal(others[key], arrays[key])


def test_shared_queries_are_recorded_once() -> None:
    schema = Schema.of_sizes([10] * 30)
    record, arrays = saved(marginals(schema, up_to=2) + all_tables(schema, 2, affine))
    assert len(record["queries"]) == 2
    assert len(arrays) == 2 * 3 + 2  # subsets, and the number of each attribute's or table's queries


def test_queries_that_differ_in_words_only_stay_apart() -> None:
    schema = Schema(one=PLACE, two=Categorical("a", "b", "c"))
    work = table(schema, one=level("state")) + table(schema, two=buckets({"x": ["a", "b"], "y": ["c"]}))
    record, arrays = saved(work)
    back = list(Workload.from_manifest(record, arrays, schema).groups())
    assert back[0].describe(0, schema) == "one.state = NY"
    assert back[1].describe(0, schema) == "two in x"


def damage(record: dict[str, Any], arrays: dict[str, NDArray[Any]], how: str) -> None:
    tables = next(part for part in record["parts"] if "by_attribute" in part)
    joint = next(part for part in record["parts"] if "joint" in part)
    group = record["parts"][0]
    key = record["parts"][3]["subsets"]  # two-way marginals
    match how:
        case "no parts":
            record["parts"] = []
        case "parts are text":
            record["parts"] = "all"
        case "unknown part":
            group["kind"] = "scroll"
        case "unknown queries":
            record["queries"][0]["kind"] = "psychic"
        case "queries out of range":
            group["factors"][0]["queries"] = 99
        case "negative queries":
            group["factors"][0]["queries"] = -1
        case "attribute out of range":
            group["factors"][0]["attributes"] = [9]
        case "attribute is text":
            group["factors"][0]["attributes"] = ["age"]
        case "attribute of another size":
            group["factors"][0]["attributes"] = [2]
        case "attribute twice":
            group["factors"][1]["attributes"] = [0]
            group["factors"][1]["queries"] = group["factors"][0]["queries"]
        case "too many attributes":
            group["factors"][0]["attributes"] = [0, 1]
        case "no name":
            del group["name"]
        case "name is a number":
            group["name"] = 3
        case "weight is zero":
            group["weight"] = 0
        case "weight is text":
            tables["weight"] = "1"
        case "missing array":
            del arrays[tables["subsets"]]
        case "subsets out of range":
            arrays[key] = arrays[key] + 3
        case "subsets repeat":
            arrays[key] = np.zeros_like(arrays[key])
        case "subsets are real":
            arrays[key] = arrays[key] * 1.0
        case "subsets are empty":
            arrays[key] = arrays[key][:0]
        case "subsets are flat":
            arrays[key] = arrays[key].ravel()
        case "by_attribute is short":
            arrays[tables["by_attribute"]] = arrays[tables["by_attribute"]][:-1]
        case "joint is short":
            arrays[joint["joint"]] = arrays[joint["joint"]][:-1]
        case "joint is foreign":
            arrays[joint["joint"]] = arrays[joint["joint"]][::-1]


@pytest.mark.parametrize(
    "how",
    [
        "no parts",
        "parts are text",
        "unknown part",
        "unknown queries",
        "queries out of range",
        "negative queries",
        "attribute out of range",
        "attribute is text",
        "attribute of another size",
        "attribute twice",
        "too many attributes",
        "no name",
        "name is a number",
        "weight is zero",
        "weight is text",
        "missing array",
        "subsets out of range",
        "subsets repeat",
        "subsets are real",
        "subsets are empty",
        "subsets are flat",
        "by_attribute is short",
        "joint is short",
        "joint is foreign",
    ],
)
def test_a_damaged_record_is_refused(how: str) -> None:
    record, arrays = saved(WORK)
    damage(record, arrays, how)
    with pytest.raises(FileFormatError):
        Workload.from_manifest(record, arrays, SCHEMA)


def test_a_record_on_another_schema_is_refused() -> None:
    record, arrays = saved(marginals(Schema.of_sizes([2, 3]), 1))
    with pytest.raises(FileFormatError, match="identity on 2 cells where the schema has"):
        Workload.from_manifest(record, arrays, Schema.of_sizes([4, 3]))
