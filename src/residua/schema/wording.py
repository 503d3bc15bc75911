"""Words for error messages: near misses, short lists, short values."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from residua._text import short

__all__ = ["hint", "is_unicode", "listing", "shape_of", "short"]

_FEW = 12
_MANY = 2000


def hint(wrong: object, right: Iterable[str]) -> str:
    """A suffix ` (did you mean 'Age'?)`, or nothing when no candidate is near.

    >>> hint("age", ["Age", "sex"])
    " (did you mean 'Age'?)"
    >>> hint("weight", ["Age", "sex"])
    ''
    """
    folded: dict[str, str] = {}
    for candidate in right:
        folded.setdefault(candidate.casefold(), candidate)
    asked = str(wrong).casefold()
    if asked in folded:
        return f" (did you mean {folded[asked]!r}?)"
    # difflib compares with every candidate: seconds, not milliseconds, for a national hierarchy.
    if len(folded) > _MANY:
        return ""
    near = difflib.get_close_matches(asked, folded, n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


def listing(items: Sequence[object]) -> str:
    """The items when they are few, otherwise the first ones and how many there are.

    >>> listing(["F", "M"])
    "'F', 'M'"
    >>> listing(range(100))
    '0, 1, 2, ... (100 in all)'
    """
    if len(items) <= _FEW:
        return ", ".join(short(item) for item in items)
    return ", ".join(short(item) for item in items[:3]) + f", ... ({len(items)} in all)"


def shape_of(array: Any) -> str:
    """How many columns an array has, without how many records.

    >>> import numpy as np
    >>> shape_of(np.zeros((5000, 3))), shape_of(np.zeros(5000))
    ('an array with 3 columns', 'an array of 1 dimension')
    """
    if array.ndim != 2:
        return f"an array of {array.ndim} dimension{'' if array.ndim == 1 else 's'}"
    return f"an array with {array.shape[1]} column{'' if array.shape[1] == 1 else 's'}"


def is_unicode(text: str) -> bool:
    """Whether the text can be written to a file: Python also has text with lone surrogates.

    >>> is_unicode("Åland"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
