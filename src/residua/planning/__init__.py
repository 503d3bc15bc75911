"""From work to plan, and plans side by side."""

from residua.planning.clipping import choose_bounds
from residua.planning.comparison import Comparison, compare, same_queries
from residua.planning.request import plan

__all__ = ["Comparison", "choose_bounds", "compare", "plan", "same_queries"]
