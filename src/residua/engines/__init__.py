"""Exact counts of marginals, wherever the data is; nothing else is asked of the data."""

from residua.engines.memory import MemoryEngine
from residua.engines.protocol import Engine

__all__ = ["Engine", "MemoryEngine"]
