"""Workbooks, read back by another program: headings, numbers, margins, notes; no label is a formula."""

import numpy as np
import openpyxl
import pytest

import residua as rs

SCHEMA = rs.Schema(
    age=rs.Categorical("under 30", "30 to 59", "60 and over"),
    sex=rs.Categorical("Women", "Men"),
    income=rs.Categorical("=1+1", "more than 50K"),
)


@pytest.fixture(scope="module")
def release() -> rs.Release:
    draw = np.random.default_rng(1)
    codes = np.stack([draw.integers(0, size, 5000) for size in SCHEMA.sizes], 1)
    plan = rs.plan(rs.marginals(SCHEMA, up_to=3), rs.zcdp("0.1"))
    return rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))


def test_a_table_is_read_back_with_its_headings_numbers_and_margins(release, tmp_path):
    table = release.crosstab("age", ["sex", "income"], title="People")
    table.to_excel(tmp_path / "people.xlsx")
    book = openpyxl.load_workbook(tmp_path / "people.xlsx")
    assert book.sheetnames == ["Table 1", "Notes"]
    rows = [list(row) for row in book["Table 1"].iter_rows(values_only=True)]
    assert rows[0][0] == "Table 1. People"
    assert rows[2] == ["age", "Women", None, None, None, "Men", None, None, None, "Total", None]
    assert rows[3][1::2] == ["=1+1", "more than 50K", "=1+1", "more than 50K", None]
    assert rows[4] == [None, *["number", "±"] * 5]
    numbers = np.array([row[1::2] for row in rows[5:9]], dtype=float)
    np.testing.assert_allclose(numbers, table.values)
    np.testing.assert_allclose(numbers[:-1].sum(axis=0), numbers[-1])
    assert [row[0] for row in rows[5:9]] == ["under 30", "30 to 59", "60 and over", "Total"]
    assert book["Table 1"]["B4"].data_type == "s"  # text, not a formula
    assert "B3:E3" in [str(each) for each in book["Table 1"].merged_cells.ranges]
    notes = dict(book["Notes"].iter_rows(min_row=3, values_only=True))
    assert notes["Table 1"] == "People"
    assert "protects nobody" in notes["Warning"]
    assert notes["Release"] == release.hash


def test_flags_show_in_cells(release, tmp_path):
    for unreliable in ("mark", "grey", "suppress"):
        table = release.crosstab("age", "income", reliability=0.002, unreliable=unreliable)
        assert 0 < table.unsure.sum() < table.unsure.size
        table.to_excel(tmp_path / "t.xlsx")
        sheet = openpyxl.load_workbook(tmp_path / "t.xlsx")["Table 1"]
        cells = [[sheet.cell(5 + row, 2 + 2 * column) for column in range(3)] for row in range(4)]
        for row, column in np.ndindex(4, 3):
            cell, unsure = cells[row][column], bool(table.unsure[row, column])
            assert (cell.value == "..") == (unsure and unreliable == "suppress")
            assert cell.number_format.endswith('"*"') == (unsure and unreliable == "mark")
            assert cell.font.italic == (unsure and unreliable != "mark")


def test_a_workbook_has_every_published_table(release, tmp_path):
    release.to_excel(tmp_path / "all.xlsx")
    book = openpyxl.load_workbook(tmp_path / "all.xlsx")
    assert book.sheetnames == [*(f"Table {number}" for number in range(1, 8)), "Notes"]
    many = [release.crosstab("age")] * 201
    with pytest.raises(rs.WorkloadError, match="between 1 and 200 tables"):
        release.to_excel(tmp_path / "many.xlsx", many)
