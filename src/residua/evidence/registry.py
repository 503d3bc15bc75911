"""An entry for the registry of differential privacy deployments: its fields, filled from the release."""

import re
from fractions import Fraction
from typing import Any

import yaml

from residua.evidence.facts import HUMAN, Facts
from residua.privacy.conversions import float_above

_VARIANTS = {"zcdp": "Zero-concentrated DP", "pure_dp": "Pure DP", "approx_dp": "Approximate DP"}
CURATOR_TYPE = "Government"  # of the three that the registry has, to be confirmed


def entry(facts: Facts) -> dict[str, Any]:
    """The entry as the registry's schema has it, tiers 1 to 3; what only a human knows starts with HUMAN."""
    named = f"{facts.dataset} {facts.date} {facts.release.hash[:8]}"
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", named.lower()).strip("-"),
        "deployment": {
            "basic": {
                "name": f"{facts.dataset}: {facts.size}",
                "data_curators": [
                    {"data_curator_name": f"{HUMAN} who publishes this", "data_curator_type": CURATOR_TYPE}
                ],
                "description": f"{facts.size}, each number with its standard deviation. {facts.noise()}",
                "intended_use": f"{HUMAN} what the tables are for",
                "data_product_type": "Summary statistics",
                "data_product_region": f"{HUMAN} which region the data describe",
                "publication_date": facts.date,
            },
            "dp_variant": {
                "variant_name": _VARIANTS.get(facts.plan.budget.definition, "Zero-concentrated DP"),
                "data_domain": facts.domain(),
                "unprotected_quantities": facts.unprotected(),
            },
            "privacy_loss": _privacy_loss(facts),
            "deployment_model": _model(facts),
            "implementation": _implementation(facts),
            "administrative": {
                "status": "Draft",
                "registry_authors": [f"{HUMAN} who fills in this entry"],
                "tier": 3,
            },
        },
    }


def _privacy_loss(facts: Facts) -> dict[str, Any]:
    number = facts.records() if facts.plan.unit.max_records == 1 else None  # else it is not released
    counted = {} if number is None else {"number_of_privacy_units": number}
    return {
        "privacy_unit": facts.unit(),
        "privacy_unit_details": facts.neighbours(),
        **counted,
        "privacy_parameters": _parameters(facts),
        "privacy_parameters_details": facts.plan.privacy.describe().replace("\n", " "),
    }


def _parameters(facts: Facts) -> dict[str, float]:
    budget, privacy = facts.plan.budget.to_manifest(), facts.plan.privacy
    if budget["definition"] == "approx_dp":
        return {name: float_above(Fraction(budget[name])) for name in ("epsilon", "delta")}
    if privacy.pure_epsilon is not None:
        return {"epsilon": float_above(privacy.pure_epsilon)}
    return {"rho": float_above(privacy.rho)}


def _model(facts: Facts) -> dict[str, Any]:
    many = facts.releases() > 1
    stream = facts.audit.get("stream")
    source = ("Static", f"The records as they were on {facts.date}, measured once.")
    if stream is not None:
        source = ("Dynamic", f"Records of {stream['of']} periods, each measured once, when it was over.")
    return {
        "model_name": "Central",
        "model_name_details": "One curator holds the records, measures them and publishes that.",
        "trust_assumptions": (
            "The curator is trusted with the records, the machine, its entropy and the ledger. Readers of "
            "the tables are not trusted and may know anything else, everybody else's records included."
        ),
        "actors": f"{HUMAN} who may see the records, who the tables, and why they are trusted with them",
        "release_type": "Many releases" if many else "One release",
        "release_type_details": facts.composition(),
        "data_source_type": source[0],
        "data_source_type_details": source[1],
        "access_type": "Non-interactive",
        "access_type_details": "Readers have the published tables and no access to the records.",
    }


def _implementation(facts: Facts) -> dict[str, Any]:
    outside = "; ".join([*facts.left_out(), *facts.policies()])
    return {
        "preprocessing_and_hyperparameter_tuning": (
            f"Tables, budget and noise were planned without reading the data. {outside}. "
            f"{HUMAN} what was done to the records before, and whether any look at them chose the budget"
        ),
        "mechanisms": " ".join(
            (facts.noise(), facts.floating_point(), facts.side_channels(), f"Software: {facts.software()}.")
        ),
        "composition": facts.composition(),
        "post_processing": (
            "Least-squares estimation from the measured numbers, which is unbiased. Tables that were made "
            "non-negative or rounded afterwards are marked as biased and are not part of this release."
        ),
        "justification": (
            f"Planned for the least {facts.plan.objective.replace('_', ' ')} at the given budget. "
            f"{facts.plan.certificate.describe()}"
        ),
        "utility": facts.utility(),
        "additional_information": (
            f"Release {facts.release.hash}, plan {facts.plan.hash}. 'residua verify' recomputes cost, "
            "errors and certificate from the release file alone."
        ),
    }


def entry_text(facts: Facts) -> str:
    """The entry in YAML, with a note beside the one choice from a list that a human must confirm."""
    text = yaml.safe_dump(entry(facts), sort_keys=False, allow_unicode=True, width=1_000_000)
    line = f"data_curator_type: {CURATOR_TYPE}"
    return text.replace(line, f"{line}  # {HUMAN} Government, Industry or Nonprofit")
