"""Exact counts of marginals, wherever the data is; nothing else is asked of the data.

`Memory`, `DuckDB` and `Spark` are ways of counting with their settings; `engine_for` chooses one by the data.
Those that the data at hand do not need are not loaded.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

from residua.engines.derived import engine_with
from residua.engines.marginals import count_marginals, counts
from residua.engines.memory import Memory, MemoryEngine
from residua.engines.persons import Keeps
from residua.engines.protocol import Derived, Engine, Opener, Progress
from residua.schema.columns import is_a

if TYPE_CHECKING:
    from residua.engines.duckdb import DuckDB
    from residua.engines.sources import find_files
    from residua.engines.spark import Spark
    from residua.engines.texts import Reading

__all__ = [
    "Derived",
    "DuckDB",
    "Engine",
    "Keeps",
    "Memory",
    "MemoryEngine",
    "Opener",
    "Progress",
    "Reading",
    "Spark",
    "count_marginals",
    "counts",
    "engine_for",
    "engine_with",
    "find_files",
]


def engine_for(data: object) -> Opener:
    """DuckDB for paths and DuckDB relations, Spark for its data frames, memory for everything else.

    >>> engine_for("people.parquet"), engine_for({"age": [1, 2]})
    (DuckDB(memory_limit=None, threads=None), Memory(processes=None))
    """
    kinds = (("duckdb", "DuckDBPyRelation"), ("_duckdb", "DuckDBPyConnection"))
    if isinstance(data, str | os.PathLike) or any(is_a(data, *kind) for kind in kinds):
        from residua.engines.duckdb import DuckDB

        return DuckDB()
    if is_a(data, "pyspark", "DataFrame"):
        from residua.engines.spark import Spark

        return Spark()
    return Memory()


if not TYPE_CHECKING:  # for a type checker every name is imported above, and no other exists

    def __getattr__(name: str) -> object:
        rooms = {"DuckDB": "duckdb", "Spark": "spark", "Reading": "texts", "find_files": "sources"}
        if name not in rooms:
            raise AttributeError(f"module 'residua.engines' has no attribute {name!r}")
        return getattr(import_module(f"residua.engines.{rooms[name]}"), name)
