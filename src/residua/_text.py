"""Text for people: columns that line up, long values cut short, nothing that a terminal would obey."""

import difflib
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeVar

Row = Sequence[str]
Label = TypeVar("Label", str, tuple[str, ...])

_LONGEST = 60  # characters of a value in a message
_FEW = 12  # things that a message lists
_MANY = 2000  # names that one is looked for among

# Controls, separators of lines and paragraphs, halves of letters, and marks that turn the direction of text.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def visible(text: str) -> str:
    """The text with all that a terminal would obey written out; labels and names come from anybody."""
    return _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)


def columns(
    head: Row, rows: Iterable[Row], *, left: Sequence[int] = (0,), indent: str = "  ", gap: str = "  "
) -> list[str]:
    """Aligned lines, `head` first; columns in `left` start at the left, the others end at the right."""
    lines = [[visible(cell) for cell in line] for line in (head, *rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    pads = [str.ljust if at in left else str.rjust for at in range(len(head))]
    padded = ([pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)] for row in lines)
    return [(indent + gap.join(cells)).rstrip() for cells in padded]


def runs(labels: Iterable[Label]) -> list[tuple[Label, int]]:
    """Equal neighbours among the headings of columns, or of rows, with how many there are."""
    return [(label, len(list(same))) for label, same in groupby(labels)]


def listed_names(names: str | Sequence[str]) -> list[str]:
    """The names, of which one may stand alone."""
    return [names] if isinstance(names, str) else list(names)


def counted(number: int, one: str, many: str) -> str:
    """A number of things with the right noun."""
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def short(value: object) -> str:
    """The value as Python writes it, cut in the middle when it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no numbers of thousands of digits
        return f"a number of very many digits, of type {type(value).__name__}"
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2 - 2
    return f"{text[:half]}...{text[-half:]}"


def kind_of(value: object) -> str:
    """What was given instead, for a message: words and numbers as they are, of anything else its type alone.

    It may be the data.
    """
    plain = value is None or isinstance(value, str | int | float)
    return short(value) if plain else f"an object of type {type(value).__name__}"


def one_line(text: str) -> str:
    """The text with every run of white space as one blank."""
    return " ".join(text.split())


def hint(wrong: object, right: Iterable[str]) -> str:
    """A suffix ` (did you mean 'Age'?)`, or nothing when no candidate is near.

    >>> hint("age", ["Age", "sex"]), hint("weight", ["Age", "sex"])
    (" (did you mean 'Age'?)", '')
    """
    folded: dict[str, str] = {}
    for candidate in right:
        folded.setdefault(candidate.casefold(), candidate)
    asked = str(wrong).casefold()
    near = [asked] if asked in folded else []
    # difflib compares with every candidate: seconds, not milliseconds, for a national hierarchy.
    if not near and len(folded) <= _MANY:
        near = difflib.get_close_matches(asked, folded, n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


def listing(items: Sequence[object]) -> str:
    """The items when they are few, otherwise the first ones and how many there are.

    >>> listing(["F", "M"]), listing(range(100))
    ("'F', 'M'", '0, 1, 2, ... (100 in all)')
    """
    if len(items) <= _FEW:
        return ", ".join(short(item) for item in items)
    return ", ".join(short(item) for item in items[:3]) + f", ... ({len(items)} in all)"
