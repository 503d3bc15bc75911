"""The Adult extract beside the checkout, for scripts that need real data."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import residua as rs

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"


def folder_given(arguments: list[str]) -> Path | None:
    """The folder with adult.csv and adult-domain.json: the first argument, or the one beside the checkout."""
    folder = Path(arguments[0]) if arguments else FOLDER
    if (folder / "adult.csv").exists():
        return folder
    print(f"there is no adult.csv in {folder}: left out (the folder that has it can be given as an argument)")
    return None


def adult(folder: Path) -> tuple[rs.Schema, NDArray[np.int64]]:
    """Schema and records, as codes (records, attributes)."""
    sizes: dict[str, int] = json.loads((folder / "adult-domain.json").read_text())
    schema = rs.Schema({name: rs.Integer(0, size - 1) for name, size in sizes.items()})
    return schema, np.loadtxt(folder / "adult.csv", delimiter=",", skiprows=1, dtype=np.int64)


def true_counts(records: NDArray[np.int64], work: rs.Workload) -> list[NDArray[np.float64]]:
    """Exact counts of each marginal of a workload, flattened."""
    found = []
    for group in work.groups():
        sizes = [work.schema.sizes[at] for at in group.attributes]
        flat = np.ravel_multi_index(tuple(records[:, list(group.attributes)].T), sizes)
        found.append(np.bincount(flat, minlength=group.count).astype(np.float64))
    return found
