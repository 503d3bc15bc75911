"""A YAML file that knows the line of each of its parts, so that every refusal can name the place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from residua._text import one_line
from residua._yaml import Unreadable, parse
from residua.errors import ResiduaError

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
