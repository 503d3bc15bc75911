"""How many records each person has: as records themselves, one a person, to be measured like any others."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from residua._arrays import Integers
from residua.engines.memory import MemoryEngine
from residua.engines.persons import ids_of, numbered, plain_ids, refused
from residua.privacy.unit import Person
from residua.schema import Categorical, Schema
from residua.schema.columns import is_a

BATCH = 122_880  # records that are read at a time


@dataclass(frozen=True, slots=True)
class RecordsPerPerson:
    """Counting persons by how many records they have, under a schema of one attribute: how many."""

    def open(self, schema: Schema, data: object) -> MemoryEngine:
        """Without ids there are no persons: only `open_kept` is of use."""
        raise NotImplementedError

    def open_kept(self, schema: Schema, data: object, person: Person) -> MemoryEngine:
        """An engine over one record for each person."""
        counts = _counts(data, person)
        return MemoryEngine(schema.encode({schema.names[0]: counts}), schema.sizes)


def _counts(data: object, person: Person) -> Integers:
    """How many records each person has, (persons,)."""
    import pyarrow as pa

    parts = list(_ids(data, str(person.unit.id)))
    ids = pa.chunked_array([own for own, _ in parts]).combine_chunks()
    counts = np.concatenate([own for _, own in parts])
    known = ids.is_valid().to_numpy(zero_copy_only=False)
    if not known.all() and person.unit.missing_id == "error":
        raise refused(person)
    _, whose = np.unique(numbered(ids.filter(known)), return_inverse=True)
    found = np.bincount(whose, weights=counts[known]).astype(np.int64)
    free = int(counts[~known].sum()) if person.unit.missing_id == "own" else 0
    return np.concatenate([found, np.ones(free, dtype=np.int64)])


def _ids(data: object, name: str) -> Iterator[tuple[Any, Integers]]:
    """Ids, and how often each is there; the same id may come again."""
    if isinstance(data, str | os.PathLike) or is_a(data, "duckdb", "DuckDBPyRelation"):
        from residua.engines.duckdb import DuckDB
        from residua.engines.texts import is_utf8

        column = Schema({name: Categorical("", outside="drop")})  # only its name matters
        for given in DuckDB().open(column, data).sources:
            source = given if given.instead is None or is_utf8(given.name) else given.instead
            asked = source.query(f"{source.columns[0]} AS who")
            if hasattr(asked, "aggregate"):
                asked = asked.aggregate("who, count(*) AS records")
            with asked.to_arrow_reader(BATCH) as reader:
                for batch in reader:
                    ones = np.ones(len(batch), dtype=np.int64)
                    many = batch.column(1).to_numpy() if batch.num_columns > 1 else ones
                    yield plain_ids(batch.column(0), name), many
    elif is_a(data, "pyspark", "DataFrame"):
        frame: Any = data
        table = frame.groupBy(frame[name]).count().toArrow()
        yield plain_ids(table.column(0), name), table.column(1).to_numpy()
    else:
        ids = ids_of(data, name)
        yield ids, np.ones(len(ids), dtype=np.int64)
