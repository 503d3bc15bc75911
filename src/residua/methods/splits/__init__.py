"""Optimised splits of queries into pieces on blocks (claims Q-001 to Q-008)."""

from residua.methods.splits.draft import split

__all__ = ["split"]
