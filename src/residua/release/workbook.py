"""Tables as a workbook: a sheet for each, numbers beside their errors, and a sheet of notes."""

import io
from collections.abc import Sequence
from typing import Any

from residua._text import runs, visible
from residua.errors import needing
from residua.release.printing import SUPPRESSED, TOTAL, Printed, shown_labels

FIRST = 2  # the row of the first heading, below the title and a blank
PLAIN: dict[str, Any] = {"font_size": 10}
NUMBER = {"num_format": "#,##0"}
ERROR = {"num_format": "#,##0.0", "font_color": "#59636e"}
UNBIASED = "Numbers are unbiased and may be below zero; margins are the sums of what they stand beside."
GREY: dict[str, Any] = {"font_color": "#8c959f", "italic": True}
MARKED: dict[str, Any] = {"num_format": '#,##0"*"'}


def workbook_bytes(tables: Sequence[Printed]) -> bytes:
    """The file of a workbook with these tables."""
    with needing("excel", "a workbook"):
        import xlsxwriter
    stream = io.BytesIO()
    # Labels come from anybody: none of them is a formula, a link or a number.
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(stream, options) as book:
        for number, table in enumerate(tables, 1):
            _Sheet(book, f"Table {number}", table).write(f"Table {number}. {table.title}")
        _write_notes(book, tables)
    return stream.getvalue()


class _Sheet:
    """One table on a sheet of its own."""

    def __init__(self, book: Any, name: str, table: Printed) -> None:
        self.book, self.table = book, table
        self.sheet = book.add_worksheet(name)
        self.side, self.depth = len(table.row_names), max(len(table.column_names), 1)
        self.formats: dict[tuple[tuple[str, Any], ...], Any] = {}

    def format(self, *parts: dict[str, Any]) -> Any:
        """The format with all of these parts, made once."""
        whole = {key: value for part in (PLAIN, *parts) for key, value in part.items()}
        return self.formats.setdefault(tuple(sorted(whole.items())), self.book.add_format(whole))

    def write(self, title: str) -> None:
        """Title, headings, numbers and notes."""
        sheet, table = self.sheet, self.table
        sheet.write_string(0, 0, visible(title), self.format({"bold": True, "font_size": 12}))
        self._headings()
        for at in range(len(table.rows)):
            self._row(at)
        below = FIRST + self.depth + 2 + len(table.rows)
        for line, note in enumerate(table.notes()):
            sheet.write_string(below + line, 0, visible(note), self.format({"font_color": "#59636e"}))
        widths = [max(len(label[at]) for label in (*table.rows, table.row_names)) for at in range(self.side)]
        for at, width in enumerate(widths):
            sheet.set_column(at, at, min(max(width + 2, 8), 40))
        sheet.set_column(self.side, self.side + 2 * len(table.columns) - 1, 10)
        sheet.freeze_panes(FIRST + self.depth + 1, self.side)
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        sheet.hide_gridlines(2)

    def _headings(self) -> None:
        table, last = self.table, FIRST + self.depth
        head = self.format({"bold": True, "top": 1, "bottom": 1, "align": "center", "valign": "vcenter"})
        for at, name in enumerate(table.row_names):
            own = self.format({"bold": True, "top": 1, "bottom": 1, "align": "left", "valign": "bottom"})
            self.sheet.merge_range(FIRST, at, last, at, visible(name), own)
        for level in range(self.depth):
            place = self.side
            for label, width in runs(each[: level + 1] or ("count",) for each in table.columns):
                word = "" if level and label[0] == TOTAL else label[-1]
                place += 2 * width
                line, first = FIRST + level, place - 2 * width
                self.sheet.merge_range(line, first, line, place - 1, visible(word), head)
        for column in range(len(table.columns)):
            self.sheet.write_string(last, self.side + 2 * column, "number", head)
            self.sheet.write_string(last, self.side + 2 * column + 1, "±", head)

    def _row(self, at: int) -> None:
        table, row = self.table, FIRST + self.depth + 1 + at
        line: dict[str, Any] = {"bottom": 1} if at == len(table.rows) - 1 else {}
        if table.rows[at][0] == TOTAL:
            line = {**line, "top": 1, "bold": True}
        for place, word in enumerate(shown_labels(table.rows, at)):
            self.sheet.write_string(row, place, visible(word), self.format(line, {"align": "left"}))
        for column, of in enumerate(table.columns):
            parts = [line, *([{"bold": True}] if TOTAL in of else [])]
            self._cell(row, self.side + 2 * column, at, column, parts)

    def _cell(self, row: int, place: int, at: int, column: int, parts: list[dict[str, Any]]) -> None:
        """A number and, beside it, half the width of its interval."""
        table = self.table
        if table.left_out[at, column]:
            for to in (place, place + 1):
                self.sheet.write_string(row, to, SUPPRESSED, self.format(*parts, GREY, {"align": "right"}))
            return
        unsure = bool(table.unsure[at, column])
        look = {"grey": GREY, "mark": MARKED}.get(table.reliability.unreliable, {}) if unsure else {}
        half = float(table.upper[at, column] - table.lower[at, column]) / 2
        self.sheet.write_number(
            row, place, float(table.values[at, column]), self.format(*parts, NUMBER, look)
        )
        self.sheet.write_number(row, place + 1, half, self.format(*parts, ERROR, {"bold": False}))


def _write_notes(book: Any, tables: Sequence[Printed]) -> None:
    """A sheet that says what the tables are, how exact, and what protects people."""
    sheet = book.add_worksheet("Notes")
    bold, wrapped = (
        book.add_format({**PLAIN, **more, "valign": "top"}) for more in ({"bold": True}, {"text_wrap": True})
    )
    lines = [(f"Table {number}", table.title) for number, table in enumerate(tables, 1)]
    facts = dict.fromkeys(fact for table in tables for fact in table.about)
    reading = dict.fromkeys(note for table in tables for note in table.notes())
    said = {words for _, words in facts}
    lines += [("", ""), *(("Reading", note) for note in (*reading, UNBIASED) if note not in said)]
    lines += [("", ""), *facts]
    sheet.write_string(0, 0, "Notes", book.add_format({**PLAIN, "bold": True, "font_size": 12}))
    for row, (name, words) in enumerate(lines, 2):
        sheet.write_string(row, 0, visible(name), bold)
        sheet.write_string(row, 1, visible(words), wrapped)
    sheet.set_column(0, 0, 18)
    sheet.set_column(1, 1, 100)
    sheet.hide_gridlines(2)
