"""Which engine counts which data, unless the user says."""

import os

from residua.engines.duckdb import DuckDB
from residua.engines.memory import Memory
from residua.engines.protocol import Opener
from residua.engines.spark import Spark
from residua.schema.coding import is_a


def engine_for(data: object) -> Opener:
    """DuckDB for paths and DuckDB relations, Spark for its data frames, memory for everything else.

    >>> engine_for("people.parquet"), engine_for({"age": [1, 2]})
    (DuckDB(memory_limit=None, threads=None), Memory(processes=None))
    """
    if isinstance(data, str | os.PathLike) or is_a(data, "duckdb", "DuckDBPyRelation"):
        return DuckDB()
    if is_a(data, "pyspark", "DataFrame"):
        return Spark()
    return Memory()
