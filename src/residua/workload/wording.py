"""Words for people: what a query asks of an attribute, by cell."""

from collections.abc import Sequence

from residua.schema import Attribute, Binned, Integer
from residua.schema.attributes import plain


def by_bins(attribute: Attribute, members: Sequence[int]) -> tuple[Attribute, Sequence[int]]:
    """Cells in words: those of a number are worded as the bins that they are of, if it has some."""
    seen = attribute.counted
    if seen is None or seen is attribute:
        return attribute, members
    return seen, sorted(set(attribute.counted_by[list(members)].tolist()))


def one_cell(name: str, attribute: Attribute, cell: int) -> str:
    """`sex = F`."""
    return f"{name} = {attribute.label(cell)}"


def cell_set(name: str, attribute: Attribute, members: Sequence[int]) -> str:
    """`sex in {F, M}`."""
    return f"{name} in {{{', '.join(attribute.label(cell) for cell in members)}}}"


def up_to(name: str, attribute: Attribute, cell: int) -> str:
    """`age <= 17`, `income < 25000` or, for labels, `grade up to B`."""
    inner = cell != attribute.other
    if inner and isinstance(attribute, Integer):
        return f"{name} <= {attribute.label(cell)}"
    if inner and isinstance(attribute, Binned):
        edges = attribute.edges
        below = cell + 1 < len(edges)
        return f"{name} < {plain(edges[cell + 1])}" if below else f"{name} >= {plain(edges[0])}"
    return f"{name} up to {attribute.label(cell)}"


def run(name: str, attribute: Attribute, start: int, end: int) -> str:
    """`age in 3..9`, both ends included; one cell is `age = 3`; past the last cell, runs go round."""
    if start == end:
        return one_cell(name, attribute, start)
    if end >= attribute.size:
        return f"{name} in {attribute.label(start)}..{attribute.label(end - attribute.size)}, going round"
    if end == attribute.other:
        return f"{run(name, attribute, start, end - 1)} or {attribute.label(end)}"
    if isinstance(attribute, Binned):
        edges = attribute.edges
        low = f"{name} >= {plain(edges[start])}"
        return f"{low} and < {plain(edges[end + 1])}" if end + 1 < len(edges) else low
    return f"{name} in {attribute.label(start)}..{attribute.label(end)}"


def cells(name: str, attribute: Attribute, members: Sequence[int]) -> str:
    """One cell, a run where an ordered attribute's cells are neighbours, a set otherwise."""
    attribute, members = by_bins(attribute, members)
    if len(members) == 1:
        return one_cell(name, attribute, members[0])
    if attribute.numeric and members[-1] - members[0] + 1 == len(members):
        return run(name, attribute, members[0], members[-1])
    return cell_set(name, attribute, members)


def sum_at_most(names: Sequence[str], attributes: Sequence[Attribute], position: int) -> str:
    """`a0 + a1 <= 5` where the cells are whole numbers, otherwise the same of cell positions."""
    lows = _lows(attributes)
    if lows is None:
        return f"cell({names[0]}) + cell({names[1]}) <= {position}"
    return f"{names[0]} + {names[1]} <= {position + sum(lows)}"


def difference_at_most(names: Sequence[str], attributes: Sequence[Attribute], position: int) -> str:
    """`|a0 - a1| <= 2` where the cells are whole numbers from one start, otherwise of cell positions."""
    lows = _lows(attributes)
    if lows is None or lows[0] != lows[1]:
        return f"|cell({names[0]}) - cell({names[1]})| <= {position}"
    return f"|{names[0]} - {names[1]}| <= {position}"


def _lows(attributes: Sequence[Attribute]) -> list[int] | None:
    """The lowest value of each attribute, if all their cells are whole numbers."""
    found = [own.low for own in attributes if isinstance(own, Integer) and own.other is None]
    return found if len(found) == len(attributes) else None
