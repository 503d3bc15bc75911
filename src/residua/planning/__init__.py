"""From work to plan, and plans side by side."""

from residua.planning.clipping import choose_bounds
from residua.planning.comparison import Comparison, compare, compare_max_records, same_queries
from residua.planning.request import plan

__all__ = ["Comparison", "choose_bounds", "compare", "compare_max_records", "plan", "same_queries"]
