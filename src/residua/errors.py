"""The exceptions Residua raises, so that callers can catch what they can mend.

ResiduaError
├── SchemaError        a schema that cannot be, or a name it does not have
├── WorkloadError      a workload that cannot be planned or described
├── NotInSpan          a query that a plan's measurements cannot answer
├── Infeasible         a request that no mechanism, or none of this size, can meet
├── NotConverged       a solver that stopped before its gap; carries the bracket it reached
├── BudgetError        a privacy budget or unit that makes no sense
├── BudgetExceeded     a release that would spend more than its ledger holds
├── LedgerError        a ledger that is missing, foreign, damaged or locked
├── DataError          data that does not fit the schema; shown to the curator only
├── FileFormatError    a saved file that is truncated, edited, foreign or too new
└── ExtraMissing       a package that one of the extras brings is not installed
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar


class ResiduaError(Exception):
    """Base of every exception that Residua raises on purpose."""


class SchemaError(ResiduaError, ValueError):
    """A schema that cannot be, or a name that the schema does not have."""


class WorkloadError(ResiduaError, ValueError):
    """A workload that cannot be planned or described as asked."""


class NotInSpan(ResiduaError, ValueError):
    """A query that the measurements of a plan cannot answer without bias.

    `attributes` are positions in the schema of those that it would take (more) measurements of; none where
    that is not known.
    """

    def __init__(self, message: str, attributes: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.attributes = tuple(attributes)

    def naming(self, names: Sequence[str]) -> "NotInSpan":
        """The same error with the attributes named, for those who know the schema's names."""
        if not self.attributes:
            return self
        several = "attributes" if len(self.attributes) > 1 else "attribute"
        listed = ", ".join(repr(names[at]) for at in self.attributes)
        return NotInSpan(f"{self} ({several} {listed})", self.attributes)


class Infeasible(ResiduaError, ValueError):
    """A request that no mechanism, or none of an affordable size, can meet."""


class NotConverged(ResiduaError, ArithmeticError):
    """A solver that stopped before its gap.

    `lower` and `upper` are the certified bracket it reached; both are true bounds on the optimum.
    """

    def __init__(self, message: str, *, lower: float, upper: float) -> None:
        super().__init__(message)
        self.lower = lower
        self.upper = upper


class BudgetError(ResiduaError, ValueError):
    """A privacy budget, a unit of privacy or a target that makes no sense."""


class BudgetExceeded(ResiduaError):
    """A release that would spend more privacy than is left."""


class LedgerError(ResiduaError):
    """A ledger that is missing, foreign, damaged or locked."""


class DataError(ResiduaError, ValueError):
    """Data that does not fit the schema; its text may quote data and is for the curator only."""


class FileFormatError(ResiduaError, ValueError):
    """A saved file that is truncated, edited, foreign or written by a later version."""


class ExtraMissing(ResiduaError, ImportError):
    """A package that one of the extras brings is not installed."""


@contextlib.contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Within it, a package that is not there is told of by the extra that brings it."""
    try:
        yield
    except ImportError as error:
        raise ExtraMissing(
            f"{what} needs the package {error.name!r}, which is not installed: pip install 'residua[{extra}]'"
        ) from error


@contextlib.contextmanager
def retold(
    caught: type[Exception] | tuple[type[Exception], ...], raised: type[ResiduaError], before: str = ""
) -> Iterator[None]:
    """Within it, an error of one class becomes one of another, with words before its own."""
    try:
        yield
    except caught as error:
        raise raised(f"{before}{error}") from error


P = ParamSpec("P")
R = TypeVar("R")


def asks_for(name: str, kind: type[ResiduaError], words: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function: without that argument, a call ends in this error instead of a TypeError.

    >>> @asks_for("delta", ResiduaError, "say how large delta is")
    ... def epsilon(delta): ...
    >>> epsilon()
    Traceback (most recent call last):
    residua.errors.ResiduaError: say how large delta is
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            with contextlib.suppress(TypeError):  # another mistake than this one: the call below tells it
                signature.bind(*args, **named, **{name: None})
                raise kind(words)
            return function(*args, **named)

        return call

    return decorated
