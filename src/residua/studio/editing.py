"""Edits of a spec's text that leave the rest as a person wrote it: comments, order, spelling.

An edit says what shall stand at a place. It is made in the text, which is then read again: the file holds
what was asked for and nothing else has changed, or the edit is refused.
"""

from typing import Any

from residua._yaml import Unreadable, flow, parse
from residua.errors import FileFormatError
from residua.spec.language import Place, words_of

REMOVED: Any = object()
"""As a value: what stands at the place goes."""


def edited(text: str, place: Place, value: Any) -> str:
    """The text with a value at a place; a place just behind the end of a list is a new entry.

    >>> print(edited("tables:  # two\\n- {columns: [age]}\\n", ("tables", 1), {"columns": ["sex"]}), end="")
    tables:  # two
    - {columns: [age]}
    - {columns: [sex]}
    """
    try:
        before, root = parse(text)
        wanted = _applied(before, place, value)
        changed = _changed(text, root, place, value)
        found = parse(changed)[0]
    except (Unreadable, LookupError, TypeError) as error:
        raise FileFormatError(f"{words_of(place)} cannot be edited here ({error}); edit the file") from error
    if found != wanted:
        raise FileFormatError(f"{words_of(place)} is written in a way that is edited in the file only")
    return changed


def _applied(value: Any, place: Place, new: Any) -> Any:
    """The plain data after the edit."""
    if not place:
        return new
    step, rest = place[0], place[1:]
    if isinstance(step, int):
        items = list(value or [])
        inner = _applied(items[step] if step < len(items) else None, rest, new)
        items[step : step + 1] = [] if inner is REMOVED else [inner]
        return items
    held = dict(value or {})
    inner = _applied(held.get(step), rest, new)
    return (
        {key: each for key, each in held.items() if key != step} if inner is REMOVED else held | {step: inner}
    )


def _changed(text: str, root: Any, place: Place, value: Any) -> str:
    node, key = root, None
    for at, step in enumerate(place):
        found = _child(node, step)
        if found is None:
            return (
                text
                if value is REMOVED
                else _inserted(text, node, key, step, _nested(place[at + 1 :], value))
            )
        if value is REMOVED and at == len(place) - 1:
            return _without(text, node, key, step)
        key, node = found
    return _replaced(text, node, key, value)


def _nested(place: Place, value: Any) -> Any:
    for step in reversed(place):
        value = [value] if isinstance(step, int) else {step: value}
    return value


def _child(node: Any, step: str | int) -> tuple[Any, Any] | None:
    """The node at one step, and that of its key."""
    if node is None or isinstance(node.value, str):
        return None
    if isinstance(step, int):
        return (None, node.value[step]) if step < len(node.value) else None
    return next(((key, value) for key, value in node.value if key.value == step), None)


def _end(text: str, node: Any) -> int:
    """Where a node ends, without the comments behind it that a parser counts among it."""
    if isinstance(node.value, list) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    return start + len(text[start:end].rstrip())


def _replaced(text: str, node: Any, key: Any, value: Any) -> str:
    start, end = node.start_mark.index, _end(text, node)
    block = isinstance(node.value, list) and not node.flow_style
    if key is not None and (block or start == end):  # it stands on lines of its own, or there is nothing
        return f"{text[: key.end_mark.index]}: {flow(value)}{text[end:]}"
    return text[:start] + flow(value) + text[end:]


def _inserted(text: str, node: Any, key: Any, step: str | int, value: Any) -> str:
    line = f"- {flow(value)}" if isinstance(step, int) else f"{flow(str(step))}: {flow(value)}"
    if node is None:
        return f"{text.rstrip()}\n{line}\n".lstrip()
    if isinstance(node.value, str) or not node.value:
        return _replaced(text, node, key, _nested((step,), value))
    end = _end(text, node)
    if node.flow_style:
        return f"{text[: end - 1].rstrip()}, {line.removeprefix('- ')}{text[end - 1 :]}"
    stop = _line_end(text, end)
    return f"{text[:stop].rstrip(chr(10))}\n{' ' * node.start_mark.column}{line}\n{text[stop:]}"


def _without(text: str, node: Any, key: Any, step: str | int) -> str:
    """The text without an entry; one that shares its lines with others is written anew without it."""
    own_key, own = _child(node, step) or (None, node)
    first = (own_key or own).start_mark
    begin = text.rfind("\n", 0, first.index) + 1
    alone = text[begin : first.index].strip() in ("", "-" if isinstance(step, int) else "")
    if node.flow_style or len(node.value) == 1 or not alone:
        written = text[node.start_mark.index : _end(text, node)]
        plain = parse(" " * node.start_mark.column + written)[0]
        return _replaced(text, node, key, _applied(plain, (step,), REMOVED))
    lines = text[:begin].splitlines(keepends=True)
    while isinstance(step, int) and lines and lines[-1].startswith(" " * node.start_mark.column + "#"):
        lines.pop()  # what was said of the entry goes with it
    return "".join(lines) + text[_line_end(text, _end(text, own)) :]


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1
