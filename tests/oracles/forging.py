"""Releases that state what is not so: each edit is made whole again, hashes and audit record included."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua import _files
from residua.privacy import budget_from_manifest

Arrays = dict[str, NDArray[Any]]
Forgery = Callable[[dict[str, Any], Arrays, np.random.Generator], bool]
"""Edits a manifest and arrays in place; False where there is nothing to edit."""


def forged(source: Path, target: Path, forgery: Forgery, seed: int) -> bool:
    """Write a forged copy of a release, whose hashes all fit; False where the forgery does not apply."""
    kept = _files.read(source, "release")
    manifest = _copy(kept.manifest)
    arrays = {name: array.copy() for name, array in kept.arrays.items()}
    try:
        if not forgery(manifest, arrays, np.random.default_rng(seed)):
            return False
    except LookupError:  # there is no such array
        return False
    own = {name: array for name, array in arrays.items() if not name.startswith("measurements.")}
    manifest["audit"]["plan_hash"] = _files.pack("plan", manifest["plan"], own, kept.version)[2]
    _files.write(target, "release", manifest, arrays, kept.version)
    return True


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def cheaper_budget(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """The same noise, said to keep to a smaller budget, the audit record with it."""
    budget = manifest["plan"]["budget"]
    less = 1 - Fraction(int(chance.integers(1, 900)), 1000)
    name = next(key for key, value in budget.items() if key != "definition")
    budget[name] = str(Fraction(budget[name]) * less)
    stated = manifest["audit"]["privacy"]
    again = budget_from_manifest(budget)
    amount = again.laplace_epsilon() if again.law == "laplace" else again.gaussian_cost()
    stated[_figure(stated)] = str(amount)
    return True


def more_records(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """Said to protect people with more records than the noise was made for."""
    more = int(chance.integers(2, 9))
    manifest["plan"]["unit"]["max_records"] = more
    manifest["audit"]["privacy"]["unit"]["max_records"] = more
    return True


def dearer_blocks(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """Blocks with less noise, and all that says so."""
    name = _any(arrays, chance, ".shares")
    factor = int(chance.integers(2, 5))
    arrays[name] = arrays[name] * factor
    noise = name.replace(".shares", ".noise")
    arrays[noise] = arrays[noise] / factor
    return True


def larger_entries(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """A measured matrix with another entry."""
    matrix = arrays[_any(arrays, chance, "strategy.shape.")]
    place = tuple(int(chance.integers(0, size)) for size in matrix.shape)
    matrix[place] += int(np.abs(matrix).max()) * (1 if matrix[place] >= 0 else -1)
    return True


def other_totals(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """Smaller sums of variances, with a gap to match."""
    plan = manifest["plan"]
    factor = float(chance.uniform(0.5, 0.999))
    plan["released"]["totals"] = [each * factor for each in plan["released"]["totals"]]
    if plan["certificate"]["gap"] is not None:
        plan["certificate"]["gap"] = (1 + plan["certificate"]["gap"]) * factor - 1
    return True


def other_largest(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """A smaller largest variance."""
    released = manifest["plan"]["released"]
    if released["largest"] is None:
        return False
    released["largest"] *= float(chance.uniform(0.3, 0.99))
    return True


def quieter_noise(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """Blocks said to have less noise than they have: every error would be too small."""
    name = _any(arrays, chance, ".noise")
    arrays[name] = arrays[name] * float(chance.uniform(0.2, 0.99))
    return True


def fewer_rows(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """A row of a matrix replaced by another one of it: what only that row told is lost."""
    matrix = arrays[_any(arrays, chance, "strategy.shape.")]
    if len(matrix) < 2:
        return False
    one, other = chance.choice(len(matrix), 2, replace=False)
    gram = matrix.T @ matrix
    matrix[one] = matrix[other]
    return not np.array_equal(matrix.T @ matrix, gram)


def no_rows(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """A column of a matrix that nothing is measured of."""
    matrix = arrays[_any(arrays, chance, "strategy.shape.")]
    column = int(chance.integers(0, matrix.shape[1]))
    if matrix.shape[1] < 2 or not matrix[:, column].any():
        return False
    matrix[:, column] = 0
    return True


def higher_bound(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """A lower bound above what the plan itself reaches, or another gap than that."""
    proof = manifest["plan"]["certificate"]
    if proof["gap"] is None:
        return False
    value = proof["lower_bound"] * (1 + proof["gap"])
    proof["lower_bound"] = value * float(chance.uniform(1.001, 3))
    proof["gap"] = float(chance.choice([0.0, value / proof["lower_bound"] - 1]))
    return True


def smaller_gap(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """A gap that does not follow from the figures."""
    proof = manifest["plan"]["certificate"]
    if proof["gap"] is None:
        return False
    proof["gap"] = proof["gap"] + float(chance.choice([-1, 1])) * float(chance.uniform(0.001, 0.5))
    return True


def tighter_bound(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """Of a plan that is far from the best, a lower bound that makes it the best."""
    plan, proof = manifest["plan"], manifest["plan"]["certificate"]
    if proof["gap"] is None or proof["gap"] < 0.02 or plan["objective"] != "total_variance":
        return False
    value = proof["lower_bound"] * (1 + proof["gap"])
    proof["gap"] *= float(chance.uniform(0, 0.05))
    proof["lower_bound"] = value / (1 + proof["gap"])
    return True


def higher_everywhere(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """A bound for all mechanisms above what the plan itself reaches."""
    proof = manifest["plan"]["certificate"]
    if proof.get("everywhere") is None or proof["gap"] is None:
        return False
    proof["everywhere"] = proof["lower_bound"] * (1 + proof["gap"]) * float(chance.uniform(1.001, 3))
    return True


def other_privacy(manifest: dict[str, Any], arrays: Arrays, chance: np.random.Generator) -> bool:
    """An audit record that promises more than the plan."""
    stated = manifest["audit"]["privacy"]
    name = _figure(stated)
    stated[name] = str(Fraction(stated[name]) * Fraction(int(chance.integers(1, 99)), 100))
    return True


FORGERIES: dict[str, Forgery] = {
    each.__name__: each
    for each in (
        cheaper_budget,
        more_records,
        dearer_blocks,
        larger_entries,
        other_totals,
        other_largest,
        quieter_noise,
        fewer_rows,
        no_rows,
        higher_bound,
        smaller_gap,
        tighter_bound,
        higher_everywhere,
        other_privacy,
    )
}


def _figure(stated: dict[str, Any]) -> str:
    return next(name for name in stated if name != "unit")


def _any(arrays: Arrays, chance: np.random.Generator, part: str) -> str:
    names = sorted(name for name in arrays if part in name and name.startswith("strategy."))
    if not names:
        raise LookupError(part)
    return str(chance.choice(names))
