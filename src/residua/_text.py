"""Tables of text for people: columns that line up."""

from collections.abc import Iterable, Sequence

Row = Sequence[str]


def columns(
    head: Row, rows: Iterable[Row], *, left: Sequence[int] = (0,), indent: str = "  ", gap: str = "  "
) -> list[str]:
    """Aligned lines, `head` first; columns in `left` start at the left, the others end at the right.

    >>> columns(("table", "numbers"), [("ages", "100")])
    ['  table  numbers', '  ages       100']
    """
    lines = [head, *rows]
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
