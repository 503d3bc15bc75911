"""How much work a plan may take: an account of floating-point operations, the same on every machine.

Seconds differ from run to run, and a plan must not: what is tried, and when a search ends, is decided by
estimates of the operations that it takes. One core does about 4e10 of them a second.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from residua._text import short
from residua.errors import WorkloadError

EFFORTS: Mapping[str, float] = {"quick": 3e10, "normal": 4e11, "thorough": 4e13}
"""About one second, ten seconds and a quarter of an hour on one core."""

DECOMPOSED = 12.0  # operations of one evaluation of a solver, in units of rank^2 * cells


@dataclass(slots=True)
class Account:
    """Work allowed and spent, and what was left undone for want of it."""

    allowed: float = EFFORTS["normal"]
    spent: float = 0.0
    undone: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, effort: object) -> "Account":
        """The account of an effort by its name."""
        if not isinstance(effort, str) or effort not in EFFORTS:
            raise WorkloadError(f"effort is one of {', '.join(EFFORTS)}, not {short(effort)}")
        return cls(EFFORTS[effort])

    @property
    def left(self) -> float:
        """Work that may still be done."""
        return max(self.allowed - self.spent, 0.0)

    def affords(self, work: float, what: str) -> bool:
        """Whether work fits what is left; if not, `what` is noted as undone."""
        if work <= self.left:
            return True
        if what not in self.undone:
            self.undone.append(what)
        return False
