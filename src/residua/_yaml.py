"""YAML text to plain data: text, numbers, booleans, nothing, lists and mappings.

A few hundred letters can stand for more than fits in memory (aliases of aliases), and brackets can nest
deeper than the stack of the parser below: both are found in one pass over the text and refused before
anything is built of it.
"""

from typing import Any

MOST_NESTED = 100  # lists and mappings inside each other
MOST_REPEATED = 100_000  # parts that aliases may make of a text that has fewer letters
LONGEST_NUMBER = 400  # letters of a number; beyond them floats end
SHOWN = 60  # letters of a text that an error quotes

_PLAIN = ("null", "bool", "int", "float", "str", "seq", "map")
_TAG = "tag:yaml.org,2002:"


class Unreadable(ValueError):
    """A text that is not read: the problem, and the line where there is one."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line

    def at(self, path: object) -> str:
        """The problem on one line that starts with the file's name."""
        where = path if self.line is None else f"{path}, line {self.line}"
        return " ".join(f"{where}: {self}".split())


def parse(text: str) -> tuple[Any, Any]:
    """The value of a text, and its root node, which knows the line of each part; both None if it is empty."""
    import yaml

    kind = _loader()
    try:
        _refuse_large(kind, text)
        root = yaml.compose(text, Loader=kind)
        _refuse_keys(root)
        return None if root is None else kind("").construct_document(root), root
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = None if mark is None else mark.line + 1
        raise Unreadable(f"not a YAML file: {_problem(error)}", line) from error


def flow(value: Any) -> str:
    """Plain data on one line of YAML.

    >>> flow({"columns": ["age"], "weight": 2}), flow("no")
    ('{columns: [age], weight: 2}', "'no'")
    """
    import yaml

    class OneLine(yaml.SafeDumper):
        """Text with line breaks in quotes, where they are written as signs."""

    def quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "\n" in text else None)

    OneLine.add_representer(str, quoted)
    style: dict[str, Any] = {"default_flow_style": True, "width": 1 << 30, "sort_keys": False}
    text = str(yaml.dump(value, Dumper=OneLine, allow_unicode=True, **style))
    if not text.replace("\n", "").isprintable():  # what cannot be seen is written as its number
        text = str(yaml.dump(value, Dumper=OneLine, allow_unicode=False, **style))
    return text.removesuffix("...\n").strip()


def _loader() -> Any:
    """A loader of plain data; dates stay text, for an impossible one would have no line."""
    import yaml

    # libyaml reads a national hierarchy in seconds, the pure Python loader in minutes.
    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if not tag.endswith(":timestamp")]
        for first, known in kind.yaml_implicit_resolvers.items()
    }
    makers: dict[str | None, Any] = {_TAG + name: kind.yaml_constructors[_TAG + name] for name in _PLAIN}
    for name in ("bool", "int", "float"):
        makers[_TAG + name] = _checked(name, makers[_TAG + name])
    makers[None] = kind.yaml_constructors[None]  # refuses every other tag
    return type("Loader", (kind,), {"yaml_implicit_resolvers": resolvers, "yaml_constructors": makers})


def _checked(name: str, make: Any) -> Any:
    """A maker of values that refuses texts which are none; an explicit tag may be on any text."""

    def made(loader: Any, node: Any) -> object:
        line = node.start_mark.line + 1
        if len(node.value) > LONGEST_NUMBER:
            raise Unreadable(f"a number of {len(node.value):,} characters; write fewer digits", line)
        try:
            return make(loader, node)
        except (LookupError, ValueError, TypeError, OverflowError):
            raise Unreadable(f"{node.value[:SHOWN]!r} is not a {name}; leave out its tag", line) from None

    return made


def _refuse_large(kind: Any, text: str) -> None:
    """Nothing, or the refusal of what nests too deep, or of which aliases make too much."""
    import yaml

    most = max(len(text), MOST_REPEATED)
    known: dict[str | None, int] = {}  # parts of each anchor
    opened: list[tuple[str | None, int, int]] = []  # anchor, line, and parts before it
    parts = 0
    for event in yaml.parse(text, Loader=kind):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            for anchor, its_line, _ in opened:
                if anchor == event.anchor:
                    raise Unreadable("an alias that contains itself", its_line)
            parts += known.get(event.anchor, 0)  # what is not known is refused by the parser
        elif isinstance(event, yaml.ScalarEvent):
            parts += 1
            known[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, line, parts))
            parts += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, _, before = opened.pop()
            known[anchor] = parts - before
        if len(opened) > MOST_NESTED:
            raise Unreadable(f"lists and mappings are nested more than {MOST_NESTED} deep", line)
        if parts > most:
            raise Unreadable(f"its aliases stand for more than {most:,} parts; use fewer of them", line)


def _refuse_keys(node: Any) -> None:
    """Nothing, or the refusal of a key that is no text, or there twice: YAML would keep the last."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_keys(item)
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise Unreadable("a key should be text, not a list or a mapping", line)
            if key.value in seen:
                raise Unreadable(f"the key {key.value[:SHOWN]!r} is there twice; keep one", line)
            seen.add(key.value)
            _refuse_keys(value)


def _problem(error: Exception) -> str:
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    stray = "cannot start any token" in problem
    return f"{problem} (a tab? indent with spaces, and quote odd characters)" if stray else problem
