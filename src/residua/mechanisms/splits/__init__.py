"""Optimised splits of queries into pieces on blocks (claims K-001 to K-008)."""

from residua.mechanisms.splits.draft import split

__all__ = ["split"]
