"""Invented records of persons of whom some have very many, for the benchmarks that keep to few of each."""

from pathlib import Path

import residua as rs

SIZES = (2, 3, 5, 8, 10, 12, 16, 20, 50, 85)
SCHEMA = rs.Schema({f"a{at}": rs.Integer(0, size - 1) for at, size in enumerate(SIZES)})


def write(path: Path, records: int, kind: str) -> None:
    """A Parquet file of invented records and ids, made without holding them."""
    import duckdb

    columns = ", ".join(
        f"(hash(range * {len(SIZES)} + {at}) % {size})::UTINYINT AS a{at}" for at, size in enumerate(SIZES)
    )
    person = f"floor({records} / 4 * power((hash(-range) % 1000000007) / 1000000007.0, 3))::BIGINT"
    connection = duckdb.connect(config={"memory_limit": "1GB", "preserve_insertion_order": False})
    connection.execute(
        f"COPY (SELECT {columns}, (hash({person}) // 2)::{kind} AS who FROM range({records})) TO '{path}' "
        "(FORMAT parquet)"
    )
