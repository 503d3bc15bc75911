"""The small words of a spec: query families, how many attributes a table is on, accuracy targets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from residua.accuracy import Target, half_width, stddev, variance
from residua.errors import BudgetError, WorkloadError
from residua.schema.coding import hint, listing, short
from residua.workload import Family, families

_PLAIN = ("identity", "prefix", "ranges", "circular", "total", "predicates", "affine", "abs_diff")
PLAIN: dict[str, Family] = {word: getattr(families, word) for word in _PLAIN}
MADE = ("width", "level", "buckets")

_WAYS = re.compile(r"(\d{1,9})(?:[- ]?way)?")
_UP_TO = re.compile(r"up[ _-]to (\d{1,9})(?:[- ]?way)?")


def family_of(written: object) -> Family:
    """The query family that a spec names: `prefix`, `{width: 3}`, `{level: county}`, `{buckets: [18]}`."""
    if isinstance(written, Family):
        return written
    if isinstance(written, str):
        if written in PLAIN:
            return PLAIN[written]
        if written in MADE:
            raise WorkloadError(f"{written} needs its own word, such as {{{written}: {_EXAMPLES[written]}}}")
        raise WorkloadError(f"there is no query family {written!r}{hint(written, (*PLAIN, *MADE))}; {_KNOWN}")
    if not isinstance(written, Mapping) or len(written) != 1:
        raise WorkloadError(f"{short(written)} is not a query family; {_KNOWN}")
    [(word, value)] = written.items()
    match word:
        case "width":
            return families.width(value)
        case "level":
            return families.level(value)
        case "buckets" if isinstance(value, list):
            return families.buckets(*value)
        case "buckets":
            return families.buckets(value)
    raise WorkloadError(f"there is no query family {short(word)}{hint(word, MADE)}; {_KNOWN}")


_EXAMPLES = {"width": "3", "level": "county", "buckets": "[18, 65]"}
_KNOWN = f"there are {listing([*PLAIN])}, and {{width: 3}}, {{level: county}}, {{buckets: [18, 65]}}"


@dataclass(frozen=True, slots=True)
class Ways:
    """How many attributes tables are on: several numbers, or everything up to one number."""

    several: tuple[int, ...] = ()
    up_to: int | None = None

    def numbers(self, attributes: int) -> tuple[int, ...]:
        """The numbers of attributes, where there are so many."""
        return self.several if self.up_to is None else tuple(range(min(self.up_to, attributes) + 1))


def ways_of(written: object) -> Ways:
    """The ways that a spec asks for: `2`, `2-way`, `[1-way, 2-way]`, `up to 3`."""
    if isinstance(written, str) and (found := _UP_TO.fullmatch(written.strip())):
        return Ways(up_to=int(found[1]))
    if isinstance(written, list):
        return Ways(tuple(_number(each) for each in written))
    return Ways((_number(written),))


def _number(written: object) -> int:
    if isinstance(written, int) and not isinstance(written, bool):
        return written
    if isinstance(written, str) and (found := _WAYS.fullmatch(written.strip())):
        return int(found[1])
    raise WorkloadError(f"{short(written)} is no number of attributes; write 2, 2-way, [1, 2] or up to 3")


TARGET_WORDS = {"variance": variance, "stddev": stddev, "half_width": half_width}


def target_of(written: Any) -> Target:
    """The target that a spec writes: `25`, `{stddev: 5}`, `{half_width: 20, level: 0.9}`."""
    if not isinstance(written, dict):
        if isinstance(written, str) or written is None:
            raise BudgetError(f"{short(written)} is no target; {_TARGETS}")
        return variance(written)
    kinds = [word for word in written if word in TARGET_WORDS]
    if len(kinds) != 1 or any(word not in (*kinds, "level") for word in written):
        raise BudgetError(f"{short(written)} is no target; {_TARGETS}")
    if "level" in written:
        if kinds != ["half_width"]:
            raise BudgetError("a level goes with half_width only")
        return half_width(written["half_width"], written["level"])
    return TARGET_WORDS[kinds[0]](written[kinds[0]])


_TARGETS = "write a variance such as 25, {stddev: 5}, or {half_width: 20, level: 0.95}"


def targets_of(written: object) -> Target | dict[str, Target]:
    """One target for all tables, or one for each name."""
    words = {*TARGET_WORDS, "level"}
    if isinstance(written, dict) and written and not words.issuperset(written):
        found = {}
        for name, each in written.items():
            try:
                found[str(name)] = target_of(each)
            except BudgetError as error:
                raise BudgetError(f"target of {name!r}: {error}") from error
        return found
    return target_of(written)
