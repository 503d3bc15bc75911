"""A YAML file that knows the line of each of its parts, so that every refusal can name the place."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """A place in words.

    >>> words_of(("tables", 1, "families", "age"))
    'tables entry 2, families.age'
    """
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f" entry {step + 1}, "
        else:
            text += step if not text or text.endswith(", ") else f".{step}"
    return text.removesuffix(", ")


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def read_document(path: Path) -> Document:
    """The document in a YAML file; a SpecError where there is none, naming the line."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(one_line(f"{path} cannot be read: {_reason(error)}")) from error
    try:
        loader = _loader(text)
        try:
            root = loader.get_single_node()
            lines = dict(_lines(root, (), path, ()))
            value = None if root is None else loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise SpecError(one_line(f"{path}{_line_of(error)}: not YAML: {_problem(error)}")) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(one_line(f"{path}: not YAML that can be read: {error}")) from error
    return Document(path, value, lines)


def _loader(text: str) -> Any:
    """A loader that leaves dates as the text they are; a spec has none, and an impossible one has no line."""
    import yaml

    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if not tag.endswith(":timestamp")]
        for first, known in kind.yaml_implicit_resolvers.items()
    }
    return type("Loader", (kind,), {"yaml_implicit_resolvers": resolvers})(text)


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _line_of(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return "" if mark is None else f", line {mark.line + 1}"


def _problem(error: Exception) -> str:
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    stray = "cannot start any token" in problem
    return f"{problem} (a tab? indent with spaces, and quote odd characters)" if stray else problem


def _lines(node: Any, place: Place, path: Path, around: Sequence[int]) -> Iterator[tuple[Place, int]]:
    """The line of each part below a node; a repeated key, of which YAML would keep the last, is refused."""
    import yaml

    if id(node) in around:
        raise SpecError(f"{path}, line {node.start_mark.line + 1}: an alias that contains itself")
    around = (*around, id(node))
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield (*place, number), item.start_mark.line + 1
            yield from _lines(item, (*place, number), path, around)
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise SpecError(f"{path}, line {line}: a key should be text, not a list or a mapping")
            if key.value in seen:
                raise SpecError(f"{path}, line {line}: the key {key.value!r} is there twice; keep one")
            seen.add(key.value)
            yield (*place, key.value), line
            yield from _lines(value, (*place, key.value), path, around)
