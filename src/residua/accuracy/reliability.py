"""Quality flags: which numbers are too uncertain to be read as they are, by a rule that is stated.

reliability=0.3   a standard error above 30% of the number    reliability="zero"   an interval that holds zero
"""

from dataclasses import dataclass

import numpy as np

from residua._arrays import Array, Flags
from residua.errors import WorkloadError

Rule = float | str | None
ZERO = "zero"
WAYS = {"mark": "followed by *", "grey": "in grey", "suppress": "left out (..)"}


@dataclass(frozen=True, slots=True)
class Reliability:
    """A rule for numbers that are not reliable, and what becomes of them in print."""

    rule: Rule = None
    unreliable: str = "mark"

    def __post_init__(self) -> None:
        if self.unreliable not in WAYS:
            raise WorkloadError(
                f"unreliable numbers are marked, greyed or suppressed, not {self.unreliable!r}; use one of "
                f"{', '.join(map(repr, WAYS))}"
            )
        number = isinstance(self.rule, int | float) and not isinstance(self.rule, bool) and self.rule > 0
        if self.rule is not None and self.rule != ZERO and not number:
            raise WorkloadError(
                "reliability is the largest standard error as a part of the number, such as 0.3, or "
                f"{ZERO!r} for intervals that hold zero, not {self.rule!r}"
            )

    def unsure(self, values: Array, stddev: Array, lower: Array) -> Flags:
        """Which numbers are not reliable."""
        if self.rule is None:
            return np.zeros(np.shape(values), dtype=np.bool_)
        if isinstance(self.rule, str):
            return np.asarray(lower <= 0)
        return np.asarray(~(stddev <= self.rule * np.maximum(values, 0.0)))

    @property
    def suppresses(self) -> bool:
        """Whether they are left out."""
        return self.rule is not None and self.unreliable == "suppress"

    def describe(self) -> str:
        """The rule in one sentence; nothing where there is none.

        >>> Reliability(0.3, "grey").describe()
        'Numbers whose standard error is above 30% of them are in grey.'
        """
        if self.rule is None:
            return ""
        which = (
            "interval holds zero"
            if isinstance(self.rule, str)
            else f"standard error is above {100 * self.rule:.4g}% of them"
        )
        return f"Numbers whose {which} are {WAYS[self.unreliable]}."
