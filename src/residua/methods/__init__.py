"""The methods of planning, one a file: each turns a workload into a real strategy and a bound (a `Draft`)."""

from residua.methods.draft import Draft, Progress, Scope
from residua.strategy.build import strategy_of

__all__ = ["Draft", "Progress", "Scope", "strategy_of"]
