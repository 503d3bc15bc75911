"""SQL text to syntax trees, columns to attributes, and errors that say where in the text they are."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from residua._limits import SQL_CELLS, SQL_WORDS
from residua._text import hint, listing, one_line, short
from residua.errors import WorkloadError
from residua.schema import Schema

DIALECT = "duckdb"

# Words that change nothing where they are supported, and spellings of one sign.
_OPTIONAL = {"AS", "ALL", "ASC", ",", ";"}
SPELT_OTHERWISE = {
    "DATE_PART", "DATEPART", "DATETRUNC", "CEILING", "SUBSTR", "STDDEV_SAMP", "VAR_SAMP", "VARIANCE", "MEAN",
    "PERCENTILE_CONT", "PERCENTILE_DISC", "COUNTIF", "IF", "IFNULL", "NVL", "STRING_AGG", "LISTAGG", "LOG10",
    "WITHIN", "GROUP",
}  # fmt: skip
_SPELLINGS = {"!=": "<>", "==": "="}


KEYWORDS = ("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "BETWEEN", "UNION", "WITH")

_WORD = re.compile(r"'[^']*'|\w+|[^\w\s]")

STATEMENTS = "SELECT columns, COUNT(*) FROM t WHERE .. GROUP BY .. is supported"


@dataclass(frozen=True, slots=True)
class Source:
    """The text of some statements, which knows the place of each part; the first `given` letters are ours.

    `looked_at` counts the cells that conditions have looked at so far.
    """

    text: str
    given: int = 0
    looked_at: list[int] = field(default_factory=lambda: [0])

    def look_at(self, node: exp.Expression, cells: int) -> None:
        """Nothing, or the refusal of a text whose conditions look at too many cells in all."""
        self.looked_at[0] += cells
        many = f"up to here conditions look at {self.looked_at[0]:,} cells, more than {SQL_CELLS:,}"
        remedy = "use coarser attributes, fewer conditions, or several calls"
        self.require(self.looked_at[0] <= SQL_CELLS, node, f"{many}; {remedy}")

    def statements(self, names: Sequence[str] = ()) -> list[exp.Expression]:
        """The statements in the text, at least one; `names` are those of columns, for hints."""
        words = sum(1 for _ in _WORD.finditer(self.text))
        if words > SQL_WORDS:
            raise self.refusal_at(
                0,
                f"{words:,} words and signs are more than the {SQL_WORDS:,} that are read at once; use "
                "several calls, BETWEEN for neighbours, or rs.buckets and rs.linear for long lists",
            )
        try:
            # With all the text as context, an error tells where it is more surely than by line and column.
            trees = sqlglot.parse(self.text, read=DIALECT, error_message_context=len(self.text))
        except ParseError as error:
            raise self._unreadable(error, names) from None
        except SqlglotError as error:
            raise self._unfinished(error) from None
        found = [
            tree for tree in trees if isinstance(tree, exp.Expression) and not isinstance(tree, exp.Semicolon)
        ]
        if not found:
            raise self.refusal_at(0, f"there is no statement; {STATEMENTS}")
        return found

    def check_read(self, trees: Sequence[exp.Expression], *, exactly: bool = True) -> None:
        """Nothing, or the refusal of a word that the parser passed over or supplied: it forgives much.

        Functions have several spellings, so of statements with many only names and constants are checked.
        """
        again = " ; ".join(shown(tree.transform(_day_as_written)) for tree in trees)
        both = (sqlglot.tokenize(text, read=DIALECT) for text in (self.text, again))
        written, read = ([token for token in each if _key(token) not in _OPTIONAL] for each in both)
        words = [*map(_key, read)]
        if not exactly:
            names = (TokenType.VAR, TokenType.IDENTIFIER)
            known = {word.strip("'").upper() for word in words} | SPELT_OTHERWISE
            written = [own for own in written if own.token_type in names and own.text.upper() not in known]
        lost = Counter(map(_key, written)) - Counter(words)
        if lost:
            # One of several equal words may be any of them, so a word that is gone altogether says more.
            gone = [token for token in written if _key(token) not in words]
            token = gone[0] if gone else next(each for each in reversed(written) if _key(each) in lost)
            raise self.refusal_at(token.start, f"{token.text!r} has no meaning here; {STATEMENTS}")
        # A frame is spelt out in full, which its author need not do.
        framed = any(tree.find(exp.WindowSpec) for tree in trees)
        added = Counter(words) - Counter(map(_key, written))
        if exactly and added and not framed:
            pairs = zip(written, words, strict=False)
            place = next((token.start for token, word in pairs if _key(token) != word), len(self.text))
            raise self.refusal_at(place, f"{next(iter(added))} is missing here or further on; {STATEMENTS}")

    def refusal(self, node: exp.Expression, what: str) -> WorkloadError:
        """The error that names the place of a part of a statement."""
        return self.refusal_at(_offset(node), what)

    @contextmanager
    def placing(self, node: exp.Expression, *kinds: type[Exception]) -> Iterator[None]:
        """Errors within of these kinds, which know no place, become refusals of a part of a statement."""
        try:
            yield
        except kinds as error:
            raise self.refusal(node, str(error)) from error

    def require(self, good: bool, node: exp.Expression, what: str) -> None:
        """Nothing if all is good, otherwise the refusal of a part of a statement."""
        if not good:
            raise self.refusal(node, what)

    def refusal_at(self, offset: int, what: str) -> WorkloadError:
        """The error that names the place of a character, counted from 0."""
        before = self.text[self.given : max(offset, self.given)]
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        return WorkloadError(f"SQL, line {line}, column {column}: {one_line(what)}")

    def allow_only(self, node: exp.Expression, parts: Iterable[str], what: str) -> None:
        """Nothing, or the refusal of a part of the node that is not among these."""
        known = set(parts)
        for key, value in node.args.items():
            # A keyword that Python has too carries an underscore in some versions of sqlglot.
            word = key.rstrip("_")
            if value and word not in known:
                first = value[0] if isinstance(value, list) else value
                place = first if isinstance(first, exp.Expression) and _starts(first) else node
                raise self.refusal(place, f"{word.replace('_', ' ').upper()} is not supported {what}")

    def _unreadable(self, error: ParseError, names: Sequence[str]) -> WorkloadError:
        for name in names:  # a name of several words has to be quoted
            place = self.text.casefold().find(name.casefold())
            if not name.isidentifier() and place >= 0 and self.text[place - 1 : place] not in {'"', "'"}:
                return self.refusal_at(place, f'a name that is no single word is quoted: "{name}"')
        for token in sqlglot.tokenize(self.text, read=DIALECT):
            near = hint(token.text, KEYWORDS) if token.token_type == TokenType.VAR else ""
            if near and token.text not in names and token.text.upper() not in KEYWORDS:
                return self.refusal_at(token.start, f"{token.text!r} has no meaning here{near}; {STATEMENTS}")
        first = error.errors[0] if error.errors else {}
        said = str(first.get("description") or "")
        what = said if said.startswith("Expecting") else "this does not fit here, or something is missing"
        return self.refusal_at(len(first.get("start_context") or ""), f"{what}; {STATEMENTS}")

    def _unfinished(self, error: SqlglotError) -> WorkloadError:
        found = re.search(r"Missing (\S+) from \d+:(\d+)", f"{error} {error.__cause__}")
        if found is None:
            return self.refusal_at(len(self.text), "the text ends within a comment, a quote or a word")
        return self.refusal_at(int(found[2]), f"what starts here never ends; {found[1]} is missing")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that one statement can name: those of the schema, of the one table in FROM."""

    schema: Schema
    source: Source
    tables: tuple[str, ...]  # what the table is called: its name, or its alias

    def named(self, node: exp.Expression, supported: str) -> str:
        """The name that a column has in the schema: that of an attribute, or of a level: 'place.county'."""
        column = bare(node)
        if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier):
            raise self.refusal(node, f"{quoted(node)} is not a column of the table; {supported}")
        self.source.allow_only(column, ("this", "table", "db"), "in the name of a column")
        words = [part.name for part in column.parts]
        owned = len(words) > 1 and words[0].casefold() in [name.casefold() for name in self.tables]
        for text in dict.fromkeys((".".join(words[owned:]), ".".join(words))):
            found = self.find(text)
            if len(found) > 1:
                raise self.refusal(
                    column, f"column {short(text)} may be any of {listing(found)}; write it so"
                )
            if found:
                return found[0]
        raise self.refusal(column, self._unknown(words[owned:]))

    def _unknown(self, words: Sequence[str]) -> str:
        """Why words that follow the name of the table are no column."""
        names, first = self.schema.names, words[0]
        if len(words) == 1:
            return f"column {short(first)} is not in the schema{hint(first, names)}; it has {listing(names)}"
        if len(found := self.find(first)) == 1 and (levels := self.schema[found[0]].levels):
            level = ".".join(words[1:])
            return f"{found[0]!r} has no level {short(level)}{hint(level, levels)}; it has {listing(levels)}"
        return f"there is no table {first!r} in FROM{hint(first, self.tables)}; it has {self.tables[0]!r}"

    def refusal(self, node: exp.Expression, what: str) -> WorkloadError:
        return self.source.refusal(node, what)

    def find(self, name: str) -> list[str]:
        """Attributes of this name, or levels, or else those that differ from it by case only."""
        levels = [f"{each}.{level}" for each in self.schema for level in self.schema[each].levels]
        for known in (self.schema.names, levels):
            if name in known:
                return [name]
            if near := [each for each in known if each.casefold() == name.casefold()]:
                return near
        return []


def refuse_joins(source: Source, tree: exp.Expression) -> None:
    """Nothing, or the refusal of a statement about several tables."""
    for join in tree.args.get("joins") or []:
        raise source.refusal(
            join, "JOINS are not supported: FROM needs one table, with all columns in its schema"
        )


def clause_of(tree: exp.Expression, word: str) -> exp.Expression | None:
    """A clause of a statement; a word that Python has too carries an underscore in some versions."""
    found: exp.Expression | None = tree.args.get(f"{word}_") or tree.args.get(word)
    return found


def from_of(source: Source, tree: exp.Expression) -> exp.Expression:
    """The clause FROM, which has to be there."""
    clause = clause_of(tree, "from")
    if clause is None:
        raise source.refusal(tree, f"FROM is missing; {STATEMENTS}")
    return clause


def items_of(tree: exp.Expression) -> tuple[exp.Expression, ...]:
    """What SELECT lists, without the names that it gives."""
    return tuple(item.this if isinstance(item, exp.Alias) else item for item in tree.expressions)


def aliases_of(tree: exp.Expression) -> dict[str, exp.Expression]:
    """What SELECT gives names to, by name, case-folded."""
    return {each.alias.casefold(): each.this for each in tree.expressions if isinstance(each, exp.Alias)}


def table_in(source: Source, tree: exp.Expression) -> tuple[str, ...]:
    """What the one table in FROM is called."""
    clause = from_of(source, tree)
    table, one = clause.this, "in FROM; it needs the name of one table"
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise source.refusal(clause, f"FROM needs the name of one table; {STATEMENTS}")
    source.allow_only(table, ("this", "db", "catalog", "alias"), one)
    if table.args.get("alias") is not None:
        source.allow_only(table.args["alias"], ("this",), one)
    return (table.alias_or_name,)


def shown(node: exp.Expression) -> str:
    """The part of a statement as one line of SQL, without comments."""
    return one_line(node.sql(dialect=DIALECT, comments=False))


def quoted(node: exp.Expression) -> str:
    """The same in quotes, shortened, for an error."""
    return short(shown(node))


def bare(node: exp.Expression) -> exp.Expression:
    """The expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _key(token: Token) -> str:
    """What a token says, whatever its case and spelling."""
    if token.token_type == TokenType.STRING:
        return repr(token.text)
    return _SPELLINGS.get(token.text, token.text.upper())


def _starts(node: exp.Expression) -> list[int]:
    return [part.meta["start"] for part in node.walk() if "start" in part.meta]


def _offset(node: exp.Expression) -> int:
    """Where the node starts in the text; where the nearest part around it does if it has no place."""
    around: exp.Expression | None = node
    while around is not None:
        if places := _starts(around):
            return min(places)
        above = around.parent
        around = above if isinstance(above, exp.Expression) else None
    return 0


def day_in(node: exp.Expression) -> str | None:
    """The text of a day that is written as DATE '2024-02-29', or None."""
    literal = node.this if isinstance(node, exp.Cast) and node.is_type("date") else None
    return str(literal.this) if isinstance(literal, exp.Literal) and literal.is_string else None


def _day_as_written(node: exp.Expression) -> exp.Expression:
    """The parser takes DATE '2024-02-29' for a cast, and would write it as one."""
    return node if day_in(node) is None else exp.Introducer(this="DATE", expression=node.this)
