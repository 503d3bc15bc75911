"""The language of a spec: YAML that knows the line of each of its parts, and its small words."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from residua import workload
from residua._text import hint, listing, one_line, short
from residua._yaml import Unreadable, parse
from residua.accuracy import Target, half_width, relative, stddev, variance
from residua.accuracy.guesses import Relative
from residua.errors import BudgetError, ResiduaError, WorkloadError, retold
from residua.workload import Family, families, moment, sum_of

Place = tuple[str | int, ...]
"""The way from the root of a document to one of its parts: keys, and positions in lists."""


class SpecError(ResiduaError, ValueError):
    """A release spec that cannot be followed; one line that names the file, the line and the field."""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed YAML file: its value as Python objects, and the line on which each part begins."""

    path: Path
    value: object
    lines: Mapping[Place, int]

    def line(self, place: Place) -> int:
        """The line of a part, or of the nearest part around it that the file has."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def refusal(self, place: Place, problem: object) -> SpecError:
        """The error about one part of the file, on one line."""
        field = words_of(place)
        where = f"{self.path}, line {self.line(place)}" + (f", {field}" if field else "")
        return SpecError(one_line(f"{where}: {problem}"))


def words_of(place: Place) -> str:
    """A place in words: `tables entry 2, families.age`."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f" entry {step + 1}, "
        else:
            text += step if not text or text.endswith(", ") else f".{step}"
    return text.removesuffix(", ")


def read_document(path: Path) -> Document:
    """The document in a YAML file; a SpecError where there is none, naming the line."""
    try:
        value, root = parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError(one_line(f"{path} cannot be read: {reason}")) from error
    except Unreadable as error:
        raise SpecError(error.at(path)) from error
    return Document(path, value, dict(_lines(root, ())))


def _lines(node: Any, place: Place) -> Iterator[tuple[Place, int]]:
    """The line of each part below a node."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield (*place, number), item.start_mark.line + 1
            yield from _lines(item, (*place, number))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*place, key.value), key.start_mark.line + 1
            yield from _lines(value, (*place, key.value))


_PLAIN = ("identity", "prefix", "ranges", "circular", "total", "predicates", "affine", "abs_diff")
PLAIN: dict[str, Family] = {word: getattr(workload, word) for word in _PLAIN} | {"sum": sum_of}
MADE: dict[str, Callable[[Any], Family]] = {
    "width": families.width,
    "level": families.level,
    "buckets": lambda own: families.buckets(*own) if isinstance(own, list) else families.buckets(own),
    "moment": moment,
}

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
    if word not in MADE:
        raise WorkloadError(f"there is no query family {short(word)}{hint(word, MADE)}; {_KNOWN}")
    return MADE[word](value)


_EXAMPLES = {"width": "3", "level": "county", "buckets": "[18, 65]", "moment": "2"}
_MADE = ", ".join(f"{{{word}: {such}}}" for word, such in _EXAMPLES.items())
_KNOWN = f"there are {listing([*PLAIN])}, and {_MADE}"


def families_of(written: object) -> Family | list[Family]:
    """The family that a table asks of one column, or several: `[total, sum]`."""
    return [family_of(each) for each in written] if isinstance(written, list) else family_of(written)


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


TARGET_WORDS: dict[str, Callable[..., Target | Relative]] = {
    "variance": variance, "stddev": stddev, "half_width": half_width, "relative": relative,
}  # fmt: skip


def target_of(written: Any) -> Target | Relative:
    """The target that a spec writes: `25`, `{stddev: 5}`, `{half_width: 20}`, `{relative: 0.1}`."""
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


_TARGETS = "write a variance such as 25, {stddev: 5}, {half_width: 20, level: 0.95} or {relative: 0.05}"


def targets_of(written: object) -> Target | Relative | dict[str, Target | Relative]:
    """One target for all tables, or one for each name."""
    words = {*TARGET_WORDS, "level"}
    if isinstance(written, dict) and written and not words.issuperset(written):
        found = {}
        for name, each in written.items():
            with retold(BudgetError, BudgetError, f"target of {name!r}: "):
                found[str(name)] = target_of(each)
        return found
    return target_of(written)
