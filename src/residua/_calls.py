"""Arguments that have no default on purpose: who leaves one out gets an error with a remedy."""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from residua.errors import ResiduaError

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
