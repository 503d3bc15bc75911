"""Statements about releases: the registry's fields, NIST's sections, a description of every column."""

import csv
import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np
import pytest
import yaml
from kinds import PLANS, released
from typer.testing import CliRunner

import residua as rs
from residua.cli import app
from residua.evidence import HUMAN, Facts, described, entry, entry_text, statement

# The fields of the registry's schema (opendp/deployments-registry-data, schemas/deployments-schema.yaml, the
# version with `basic` and `dp_variant`): tier, whether it is required, and a type or the list of choices.
FIELDS: dict[str, dict[str, tuple[int, bool, Any]]] = {
    "basic": {
        "name": (1, True, str),
        "data_curators": (1, True, list),
        "description": (1, True, str),
        "intended_use": (1, True, str),
        "data_product_type": (
            1,
            True,
            (
                "Summary statistics",
                "Machine learning model",
                "Dataset",
                "Synthetic data",
                "Interactive API",
                "SQL queries",
            ),
        ),
        "data_product_region": (1, True, str),
        "data_product_sector": (
            1,
            False,
            ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
        ),
        "publication_date": (1, True, date),
    },
    "dp_variant": {
        "variant_name": (
            2,
            False,
            ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
        ),
        "data_domain": (3, False, str),
        "unprotected_quantities": (3, False, str),
    },
    "privacy_loss": {
        "privacy_unit": (2, False, str),
        "privacy_unit_details": (3, False, str),
        "number_of_privacy_units": (3, False, int),
        "privacy_parameters": (2, False, dict),
        "privacy_parameters_details": (3, False, str),
    },
    "deployment_model": {
        "model_name": (2, False, ("Local", "Central", "Shuffle", "Federated", "Varies")),
        "model_name_details": (3, False, str),
        "trust_assumptions": (3, False, str),
        "actors": (3, False, str),
        "release_type": (2, False, ("One release", "Many releases")),
        "release_type_details": (3, False, str),
        "data_source_type": (2, False, ("Static", "Dynamic")),
        "data_source_type_details": (2, False, str),
        "access_type": (2, False, ("Interactive", "Non-interactive")),
        "access_type_details": (3, False, str),
    },
    "implementation": {
        "preprocessing_and_hyperparameter_tuning": (3, False, str),
        "mechanisms": (3, False, str),
        "composition": (3, False, str),
        "post_processing": (3, False, str),
        "justification": (3, False, str),
        "utility": (3, False, str),
        "additional_information": (1, False, str),
    },
    "administrative": {
        "evidence_sources": (1, False, dict),
        "status": (
            1,
            True,
            (
                "Converted",
                "Draft",
                "Pending",
                "Changes Required",
                "Approved",
                "Approved (Update Requested)",
                "Approved (Pending)",
            ),
        ),
        "registry_authors": (1, True, list),
        "tier": (1, True, (1, 2, 3)),
    },
}
CURATOR_TYPES = ("Government", "Industry", "Nonprofit")


def mistakes(document: dict[str, Any]) -> Iterator[str]:
    """What the registry's schema would refuse."""
    if set(document) != {"url_slug", "deployment"} or set(document["deployment"]) - set(FIELDS):
        yield "sections"
    for section, fields in FIELDS.items():
        given = document["deployment"].get(section, {})
        yield from (f"{section}: {name} is no field" for name in set(given) - set(fields))
        for name, (_, required, kind) in fields.items():
            if name not in given:
                if required:
                    yield f"{section}: {name} is missing"
            elif isinstance(kind, tuple):
                if given[name] not in kind:
                    yield f"{section}: {name} is none of the choices"
            elif kind is date:
                date.fromisoformat(given[name])
            elif not isinstance(given[name], kind):
                yield f"{section}: {name} is of another type"
    for curator in document["deployment"]["basic"]["data_curators"]:
        if set(curator) != {"data_curator_name", "data_curator_type"} or (
            curator["data_curator_type"] not in CURATOR_TYPES
        ):
            yield "curator"
    parameters = document["deployment"]["privacy_loss"]["privacy_parameters"]
    if set(parameters) - {"epsilon", "delta", "rho"} or not all(
        isinstance(v, float) for v in parameters.values()
    ):
        yield "parameters"


@pytest.mark.parametrize("name", PLANS)
def test_the_entry_is_what_the_registry_asks_for(name):
    document = yaml.safe_load(entry_text(Facts(released(name))))
    assert list(mistakes(document)) == []
    assert document == entry(Facts(released(name)))


@pytest.mark.parametrize("name", PLANS)
def test_four_fifths_of_tiers_2_and_3_need_no_human(name):
    deployment = entry(Facts(released(name)))["deployment"]
    asked = [(s, n) for s, fields in FIELDS.items() for n, (tier, *_) in fields.items() if tier > 1]
    filled = [HUMAN not in str(deployment[s].get(n, HUMAN)) for s, n in asked]
    assert sum(filled) >= 0.8 * len(filled)


@pytest.mark.parametrize(
    ("name", "variant", "parameters"),
    [
        ("marginals", "Approximate DP", {"epsilon", "delta"}),
        ("laplace", "Pure DP", {"epsilon"}),
        ("targets", "Zero-concentrated DP", {"rho"}),
    ],
)
def test_the_variant_has_its_own_parameters(name, variant, parameters):
    deployment = entry(Facts(released(name)))["deployment"]
    assert deployment["dp_variant"]["variant_name"] == variant
    assert set(deployment["privacy_loss"]["privacy_parameters"]) == parameters


def test_the_statement_has_every_section_and_marks_what_is_simulated():
    text = statement(Facts(released("persons")))
    for words in (
        "Guarantee",
        "Unit",
        "Composition",
        "Algorithms",
        "Utility",
        "Bias",
        "Trust",
        "side channels",
    ):
        assert words in text
    assert "at most 3 records" in text
    assert "SIMULATED" in text
    assert HUMAN in text


def test_of_persons_it_says_what_is_left_out_and_does_not_guess_how_many_there_are():
    unit = rs.Unit(3, id="person", max_per={"home": 1}, missing_id="drop")
    schema = rs.Schema(home=rs.Categorical("a", "b"), age=rs.Integer(0, 3))
    plan = rs.plan(rs.marginals(schema, ways=1), rs.zcdp(1), unit=unit)
    data = {"home": ["a", "b"] * 50, "age": [0] * 100, "person": [at // 2 for at in range(100)]}
    facts = Facts(rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1)))
    text = statement(facts)
    assert "at most 3 records, and at most 1 for each home are counted" in text
    assert "records without 'person': they were left out" in text
    assert "Who is behind several values of 'person'" in text
    loss = entry(facts)["deployment"]["privacy_loss"]
    assert "number_of_privacy_units" not in loss
    assert "records are counted, at most 3 of one person: of some 3" in loss["privacy_unit_details"]
    assert "people with more than 3 records" in statement(Facts(released("persons"))).lower()
    assert "number_of_privacy_units" in entry(Facts(released("blocks")))["deployment"]["privacy_loss"]


def test_sums_are_called_so():
    facts = Facts(released("numbers"))
    assert "combinations of exact counts and sums" in facts.noise()
    assert "income (Number(0, 200, step=50), summed)" in facts.domain()
    assert described(facts, "a.csv", 0.95)["dc:description"].startswith("Counts and sums with rounded")


def test_the_ledger_tells_how_many_releases_there_are(tmp_path):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(3), dataset="people")
    plan = rs.plan(rs.marginals(rs.Schema.of_sizes([3, 2]), ways=1), rs.zcdp(1))
    releases = [rs.measure(plan, np.array([[0, 1], [2, 0]]), ledger=ledger) for _ in range(2)]
    facts = Facts(releases[0], ledger)
    assert entry(facts)["deployment"]["deployment_model"]["release_type"] == "Many releases"
    assert "by 2 releases" in facts.composition()
    assert "entry 2" in Facts(releases[0]).composition()


def test_every_column_of_the_answers_is_described(tmp_path):
    released("blocks").save(tmp_path / "a.release")
    folder = tmp_path / "evidence"
    run = CliRunner().invoke(app, ["evidence", str(tmp_path / "a.release"), "-o", str(folder)])
    assert run.exit_code == 0, run.output
    described_columns = json.loads((folder / "answers.csv-metadata.json").read_text())["tableSchema"][
        "columns"
    ]
    with open(folder / "answers.csv", newline="") as stream:
        head = next(csv.reader(stream))
    assert [column["titles"] for column in described_columns] == head
    assert {"value", "stddev", "lower", "upper"} <= set(head)
    assert "marked HUMAN" in run.output
    again = CliRunner().invoke(app, ["evidence", str(tmp_path / "a.release"), "-o", str(folder)])
    assert again.exit_code == 1
    assert described(Facts(released("blocks")), "a.csv", 0.9)["url"] == "a.csv"
