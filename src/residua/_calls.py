"""Arguments that have no default on purpose: who leaves one out gets an error with a remedy."""

import functools
import inspect
from collections.abc import Callable, Mapping
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
            try:
                return function(*args, **named)
            except TypeError:
                if _binds(signature, args, named) or not _binds(signature, args, {name: None, **named}):
                    raise  # another mistake than this one
            raise kind(words)

        return call

    return decorated


def _binds(signature: inspect.Signature, args: tuple[object, ...], named: Mapping[str, object]) -> bool:
    """Whether a function of this signature can be called so."""
    try:
        signature.bind(*args, **named)
    except TypeError:
        return False
    return True
