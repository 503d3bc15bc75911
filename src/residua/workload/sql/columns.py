"""Columns of a statement to attributes of the schema."""

from dataclasses import dataclass

from sqlglot import exp

from residua.schema import Schema
from residua.schema.coding import hint, listing, short
from residua.workload.sql.reading import Source, bare, quoted


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that one statement can name: those of the schema, of the one table in FROM."""

    schema: Schema
    source: Source
    tables: tuple[str, ...]  # what the table is called: its name, or its alias

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of each attribute."""
        return self.schema.sizes

    def position(self, node: exp.Expression, supported: str) -> int:
        """The position in the schema of the attribute that a column names."""
        column = bare(node)
        if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier):
            raise self.source.refusal(node, f"{quoted(node)} is not a column of the table; {supported}")
        self.source.allow_only(column, ("this", "table"), "in the name of a column")
        table = column.table
        if table and table.casefold() not in [name.casefold() for name in self.tables]:
            raise self.source.refusal(
                column,
                f"there is no table {table!r} in FROM{hint(table, self.tables)}; it has {self.tables[0]!r}",
            )
        found = self.find(column.name)
        if len(found) == 1:
            return found[0]
        names = self.schema.names
        if found:
            which = listing([names[at] for at in found])
            raise self.source.refusal(
                column, f"column {short(column.name)} may be any of {which}; write it so"
            )
        raise self.source.refusal(
            column,
            f"column {short(column.name)} is not in the schema{hint(column.name, names)}; "
            f"it has {listing(names)}",
        )

    def find(self, name: str) -> list[int]:
        """The attributes of this name, or else those that differ from it by case only."""
        names = self.schema.names
        if name in self.schema:
            return [names.index(name)]
        return [at for at, each in enumerate(names) if each.casefold() == name.casefold()]
