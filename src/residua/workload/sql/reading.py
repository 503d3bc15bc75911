"""SQL text to syntax trees, and errors that say where in the text they are."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from residua.errors import WorkloadError

DIALECT = "duckdb"

STATEMENTS = "SELECT columns, COUNT(*) FROM t WHERE .. GROUP BY .. is supported"


@dataclass(frozen=True, slots=True)
class Source:
    """The text of some statements, which knows the place of each part."""

    text: str

    def statements(self) -> list[exp.Expression]:
        """The statements in the text, at least one."""
        try:
            trees = sqlglot.parse(self.text, read=DIALECT)
        except ParseError as error:
            raise self._unreadable(error) from None
        except SqlglotError as error:
            raise self._unfinished(error) from None
        found = [
            tree for tree in trees if isinstance(tree, exp.Expression) and not isinstance(tree, exp.Semicolon)
        ]
        if not found:
            raise self.refusal_at(0, f"there is no statement; {STATEMENTS}")
        return found

    def refusal(self, node: exp.Expression, what: str) -> WorkloadError:
        """The error that names the place of a part of a statement."""
        return self.refusal_at(_offset(node), what)

    def refusal_at(self, offset: int, what: str) -> WorkloadError:
        """The error that names the place of a character, counted from 0."""
        before = self.text[:offset]
        line = before.count("\n") + 1
        column = offset - (before.rfind("\n") + 1) + 1
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

    def _unreadable(self, error: ParseError) -> WorkloadError:
        first = error.errors[0] if error.errors else {}
        line, last = int(first.get("line") or 1), int(first.get("col") or 1)
        column = max(1, last - len(str(first.get("highlight") or " ")) + 1)
        said = str(first.get("description") or "")
        what = said if said.startswith("Expecting") else "this does not fit here, or something is missing"
        return WorkloadError(f"SQL, line {line}, column {column}: {one_line(what)}; {STATEMENTS}")

    def _unfinished(self, error: SqlglotError) -> WorkloadError:
        found = re.search(r"Missing (\S+) from \d+:(\d+)", f"{error} {error.__cause__}")
        if found is None:
            return self.refusal_at(len(self.text), "the text ends within a comment, a quote or a word")
        return self.refusal_at(int(found[2]), f"what starts here never ends; {found[1]} is missing")


def shown(node: exp.Expression) -> str:
    """The part of a statement as one line of SQL, without comments."""
    return one_line(node.sql(dialect=DIALECT, comments=False))


def one_line(text: str) -> str:
    """The text with every run of white space as one blank."""
    return " ".join(text.split())


def bare(node: exp.Expression) -> exp.Expression:
    """The expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


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
