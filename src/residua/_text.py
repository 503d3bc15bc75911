"""Text for people: columns that line up, long values cut short, nothing that a terminal would obey."""

import re
from collections.abc import Iterable, Sequence

Row = Sequence[str]

_LONGEST = 60  # characters of a value in a message

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
    return [
        (
            indent
            + gap.join(
                cell.ljust(width) if at in left else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
        ).rstrip()
        for line in lines
    ]


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


def one_line(text: str) -> str:
    """The text with every run of white space as one blank."""
    return " ".join(text.split())
