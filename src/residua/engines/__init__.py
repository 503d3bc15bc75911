"""Exact counts of marginals, wherever the data is; nothing else is asked of the data.

`Memory`, `DuckDB` and `Spark` are ways of counting with their settings; `engine_for` chooses one by the data.
"""

from residua.engines.choice import engine_for
from residua.engines.derived import Derived, engine_with
from residua.engines.duckdb import DuckDB
from residua.engines.marginals import count_marginals, counts
from residua.engines.memory import Memory, MemoryEngine
from residua.engines.protocol import Engine, Opener, Progress
from residua.engines.sources import find_files
from residua.engines.spark import Spark

__all__ = [
    "Derived",
    "DuckDB",
    "Engine",
    "Memory",
    "MemoryEngine",
    "Opener",
    "Progress",
    "Spark",
    "count_marginals",
    "counts",
    "engine_for",
    "engine_with",
    "find_files",
]
