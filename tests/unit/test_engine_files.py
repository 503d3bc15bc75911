"""Files and relations: which bytes mean which cells, what is refused, and how much memory that takes."""

import os
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import residua as rs
from residua import engines
from residua.engines import DuckDB, Memory
from residua.engines.sources import bytes_of
from residua.privacy.unit import Person

TEXT = rs.Schema(
    a=rs.Categorical(
        "1", "01", " 1", "1.0", "", "x,y", 'say "hi"', "two\nlines", "NA", "true", "#1", outside="other"
    )
)
NUMBER = rs.Schema(a=rs.Integer(0, 3, outside="other"))
BINNED = rs.Schema(a=rs.Binned(0, 1.5, 3, outside="other"))
FLAG = rs.Schema(a=rs.Categorical(False, True, outside="other"))
NASTY = {
    "plain": "1\n2\n3\n",
    "quoted": '"1"\n"2"\n1\n',
    "leading zeros": "01\n001\n1\n",
    "spaces": " 1\n1 \n 1 \n",
    "empty and quoted empty": 'b,a\nx,1\nx,\nx,""\n',
    "words for missing": "NA\nNULL\nnull\nnan\nN/A\n#N/A\nNone\n",
    "floats": "1.0\n1.\n1.5\n1e0\n.5\n",
    "signs": "+1\n-0\n-1\n--1\n",
    "thousands and other locales": '"1,0"\n1_0\n1\u00a00\n\u0661\n',
    "booleans": "true\nTrue\nTRUE\nT\nyes\n1\n0\nfalse\n",
    "dates": "2020-01-01\n2020-01-01 00:00:00\n1/2/2020\n",
    "commas and quotes inside": '"x,y"\n"say ""hi"""\n1\n',
    "lines inside": '"two\nlines"\n1\n',
    "windows newlines": "a\r\n1\r\n2\r\n01\r\n",
    "no last newline": "1\n2\n01",
    "blank lines": "1\n\n2\n\n\n",
    "signs of comments": "#1\n1\n",
    "backslashes": "\\N\n1\n",
    "infinities": "inf\n-inf\nInfinity\n1e999\n",
    "many digits": "1.0000000000000000001\n0.99999999999999999999\n9223372036854775808\n",
    "byte order mark": "\ufeffa\n1\n2\n",
    "more columns": "b,a,c\n1,2,3\n4,01,6\n",
    "only a header": "",
}


def _nasty_file(folder, name):
    content = NASTY[name]
    has_header = content.split("\n")[0].strip("\ufeff\r") in ("a", "b,a", "b,a,c")
    path = folder / "nasty.csv"
    path.write_text(content if has_header else "a\n" + content, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("schema", [TEXT, NUMBER, BINNED, FLAG], ids=["text", "number", "binned", "flag"])
@pytest.mark.parametrize("name", NASTY)
def test_a_csv_file_means_what_its_text_means_to_the_schema(name, schema, tmp_path):
    """Claim E-003: as Arrow reads it with every column as text, and nothing else."""
    path = _nasty_file(tmp_path, name)
    options = pa.csv.ConvertOptions(include_columns=["a"], column_types={"a": pa.string()})
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    table = pa.csv.read_csv(path, convert_options=options, parse_options=parse)
    expected = Memory().open(schema, table).tally([(0,)])[0].tolist()
    assert DuckDB().open(schema, path).tally([(0,)])[0].tolist() == expected


@pytest.mark.parametrize(
    "content",
    ["a,b\n1,2\n1\n", "a,b\n1,2\n1,2,3\n", 'a,b\n1,"2\n1,2\n', 'a,b\n1,"2"3\n', "a,b\n1,2\r\n1,2\n3,4\n"],
    ids=["a short row", "a long row", "an open quote", "text after a quote", "two kinds of newline"],
)
def test_a_csv_file_that_can_be_read_in_two_ways_is_refused(content, tmp_path):
    (tmp_path / "odd.csv").write_text(content, newline="")
    with pytest.raises(rs.DataError, match=r"odd\.csv cannot be read as CSV"):
        DuckDB().open(rs.Schema(a=rs.Integer(0, 9)), tmp_path / "odd.csv").tally([(0,)])


# --- bytes that are not UTF-8 ------------------------------------------------------------------------------


TOWNS = ("Bonn", "München", "x\ny", 'a"b')
LATIN = b'note,a\n\xe4,Bonn\n1,M\xfcnchen\n2,M\xc3\xbcnchen\n"\xdf","x\ny"\n\n3,"a""b"\n'


@pytest.mark.parametrize(
    ("policy", "expected"), [("drop", [1, 1, 1, 1]), ("other", [1, 1, 1, 1, 1])], ids=["drop", "other"]
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_bytes_that_are_no_text_are_outside_the_schema(policy, expected, newline, tmp_path):
    """In a column of the schema its policy decides; in another they are passed over."""
    (tmp_path / "latin.csv").write_bytes(LATIN.replace(b"\n", newline))
    towns = (name.replace("\n", newline.decode()) for name in TOWNS)
    engine = DuckDB().open(rs.Schema(a=rs.Categorical(*towns, outside=policy)), tmp_path / "latin.csv")
    assert engine.tally([(0,)])[0].tolist() == expected
    assert engine.tally([(), (0,)])[1].tolist() == expected
    assert engine.records == sum(expected)


def test_bytes_that_are_no_text_are_quoted_where_the_policy_is_error(tmp_path):
    (tmp_path / "latin.csv").write_bytes(LATIN)
    words = r"latin\.csv: column 'a': 1 value is outside .*: b'M\\xfcnchen', which is not UTF-8, at row 1"
    with pytest.raises(rs.DataError, match=words):
        DuckDB().open(rs.Schema(a=rs.Categorical(*TOWNS)), tmp_path / "latin.csv").tally([(0,)])


@pytest.mark.parametrize("place", [0, 1, 2, 5_000])
def test_one_odd_byte_changes_nothing_for_the_other_records(place, tmp_path, monkeypatch):
    """Claim E-005, wherever the byte is, and among several files."""
    monkeypatch.setattr(engines.duckdb, "BATCH", engines.duckdb.SHORTEST)
    values = [b" 1", b"2", b'"3"', b"07", b"", b'"1\r\n"', b"1.0", b"x"] * 800
    schema = rs.Schema(a=rs.Integer(0, 9, outside="other"))
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(b"a,b\n" + b"\n".join(value + b",1" for value in values))
    expected = DuckDB().open(schema, tmp_path / "?.csv").tally([(0,)])[0]
    values[place:place] = [b"\xff"]
    (tmp_path / "b.csv").write_bytes(b"a,b\n" + b"\n".join(value + b",1" for value in values))
    found = DuckDB().open(schema, tmp_path / "?.csv").tally([(0,)])[0]
    assert (found - expected).tolist() == [0] * 10 + [1]


FIELDS = st.lists(st.sampled_from(["a", "1", ",", '"', '""', " ", "\t", "\n", "é", "x,y", "\1"]), max_size=9)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@given(st.lists(FIELDS, max_size=3), st.integers(1, 3))
def test_python_reads_a_text_file_as_duckdb_does_or_refuses_it(newline, lines, width):
    """Claim E-005: which of the two reads must not matter to any record."""
    text = ",".join("abc"[:width]) + "\n" + "\n".join("".join(line) for line in lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "some.csv")
        path.write_bytes(text.replace("\n", newline).encode())
        source = engines.sources.file_source(
            BASE, path, rs.Schema({name: rs.Categorical("x") for name in "abc"[:width]})
        )
        fast = outcome(source)
        slow = outcome(source.instead)
    assert slow is None or slow == fast


BASE = duckdb.connect(config={"threads": 1})


def outcome(source):
    """The records of a source, as bytes; None where it cannot be read."""
    listed = ", ".join(source.columns)
    try:
        table = source.query(listed).to_arrow_reader(100).read_all()
    except (duckdb.Error, rs.DataError):
        return None
    return [column.cast(pa.binary()).to_pylist() for column in table.columns]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n\xff,1\n1\n", "line 3: 1 fields, where the header has 2"),
        (b'a,b\n\xff,1\n1,"2\n', "unexpected end of data"),
        (b'a,b\n\xff,1\n1,"2"3\n', "expected after"),
        (b'a,b\n\xff,1\n1, "2"\n', "a quote after spaces"),
    ],
)
def test_a_file_that_can_be_read_in_two_ways_is_refused_with_odd_bytes_too(content, words, tmp_path):
    (tmp_path / "odd.csv").write_bytes(content)
    with pytest.raises(rs.DataError, match=rf"odd\.csv cannot be read as CSV \(.*{words}"):
        DuckDB().open(rs.Schema(a=rs.Integer(0, 9)), tmp_path / "odd.csv").tally([(0,)])


# --- headers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("inside", ["\n", "\r\n", "\r", "\n\n"])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_header_with_a_line_break_loses_no_record(ending, inside, place, mark, tmp_path):
    """Spreadsheets write such headers; the break need not be of the kind that ends lines."""
    columns = ["a", "b"]
    columns.insert(place, f'"no{inside}te, ""x"""')
    rows = [columns, *(["1"] * place + [value] * (3 - place) for value in ("1", "2", "3"))]
    text = mark + "".join(",".join(row) + ending for row in rows)
    (tmp_path / "broken.csv").write_text(text, encoding="utf-8", newline="")
    schema = rs.Schema({"b": rs.Integer(0, 3), f'no{inside}te, "x"': rs.Integer(0, 3)})
    for names in (("b",), schema.names):
        chosen = rs.Schema({name: schema[name] for name in names})
        engine = DuckDB().open(chosen, tmp_path / "broken.csv")
        assert engine.tally([(0,), ()])[0].tolist() == [0, 1, 1, 1]
        assert engine.records == 3


def test_columns_whose_names_are_not_utf8_are_passed_over(tmp_path):
    (tmp_path / "latin.csv").write_bytes(b"gr\xf6sse,a\n1,2\n")
    assert DuckDB().open(NUMBER, tmp_path / "latin.csv").tally([(0,)])[0].tolist() == [0, 0, 1, 0, 0]
    with pytest.raises(rs.DataError, match=r"they have 'gr\\udcf6sse', 'a'"):
        DuckDB().open(rs.Schema(größe=rs.Integer(0, 9)), tmp_path / "latin.csv")


@pytest.mark.parametrize("header", ["a,b,a", '"a","a"', "a,a\r"])
def test_columns_that_are_there_twice_are_refused(header, tmp_path):
    (tmp_path / "twice.csv").write_text(header + "\n1,2,3\n")
    with pytest.raises(rs.DataError, match="2 columns called 'a'"):
        DuckDB().open(NUMBER, tmp_path / "twice.csv")
    with pytest.raises(rs.DataError, match="2 columns called 'a'"):
        DuckDB().open(NUMBER, duckdb.connect().sql("SELECT 1 AS a, 2 AS a"))


def test_an_empty_file_is_no_table(tmp_path):
    (tmp_path / "empty.csv").write_text("\n\n")
    with pytest.raises(rs.DataError, match="the first line should name the columns"):
        DuckDB().open(NUMBER, tmp_path / "empty.csv")


def test_a_pattern_names_files_in_the_order_of_their_names(tmp_path):
    for name in ("b.csv", "a.csv", "sub/c.csv", "d.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n1\n")
    (tmp_path / "x.csv").mkdir()
    found = rs.engines.find_files(tmp_path / "*.csv")
    assert [path.name for path in found] == ["a.csv", "b.csv"]
    assert len(rs.engines.find_files(str(tmp_path / "**" / "*.csv"))) == 3
    assert DuckDB().open(NUMBER, tmp_path / "?.csv").tally([(0,)])[0].tolist() == [0, 2, 0, 0, 0]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    for name, value in (("a[1].csv", 1), ("a1.csv", 2), ("a*.csv", 3)):
        (tmp_path / name).write_text(f"a\n{value}\n")
        found = DuckDB().open(NUMBER, tmp_path / name).tally([(0,)])[0]
        assert np.flatnonzero(found).tolist() == [value]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("none.csv", "there is no data file"),
        ("*.csv", "there is no data file"),
        ("", "is a folder; name its files"),
    ],
)
def test_paths_that_name_no_file_are_refused_with_a_remedy(path, words, tmp_path):
    with pytest.raises(rs.DataError, match=words):
        DuckDB().open(NUMBER, os.path.join(tmp_path, path))


def test_a_refused_value_is_found_again_in_its_file_and_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(engines.duckdb, "BATCH", engines.duckdb.SHORTEST)
    ages = np.zeros(5000, dtype=np.int16)
    ages[4100] = 7
    pa.parquet.write_table(pa.table({"a": ages}), tmp_path / "ages.parquet", row_group_size=2048)
    with pytest.raises(
        rs.DataError, match=r"^from row 4,096 of .*ages\.parquet on: column 'a': .*7 at row 4100"
    ):
        DuckDB().open(rs.Schema(a=rs.Integer(0, 3)), tmp_path / "ages.parquet").tally([()])


def test_a_type_that_cannot_be_coded_is_refused_even_without_records(tmp_path):
    days = pa.table({"a": pa.array([], pa.time32("s"))})
    pa.parquet.write_table(days, tmp_path / "days.parquet")
    with pytest.raises(rs.DataError, match=r"column 'a': values of type time.* cannot be coded"):
        DuckDB().open(NUMBER, tmp_path / "days.parquet").tally([()])


def test_a_relation_can_be_used_after_a_pass_was_interrupted():
    connection = duckdb.connect()
    relation = connection.sql("SELECT range % 4 AS a FROM range(500_000)")
    engine = DuckDB().open(NUMBER, relation)

    def stop(words, part):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.tally([(0,)], stop)
    assert connection.sql("SELECT 7").fetchall() == [(7,)]
    assert engine.tally([(0,)])[0].tolist() == [125_000] * 4 + [0]
    assert engine.records == 500_000
    assert connection.sql("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchall() == [(0,)]


def test_a_relation_keeps_to_its_own_limit():
    with pytest.raises(rs.Infeasible, match="SET memory_limit = '1GB'"):
        DuckDB(memory_limit="1GB").open(NUMBER, duckdb.connect().sql("SELECT 1 AS a"))


def test_other_data_are_not_for_duckdb():
    with pytest.raises(rs.DataError, match="not dict; leave engine= out"):
        DuckDB().open(NUMBER, {"a": [1]})


# --- memory limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "count"),
    [("500MB", 5 * 10**8), ("2GiB", 2**31), ("64 kib", 2**16), (77, 77), ("10B", 10), ("0.5tb", 5 * 10**11)],
)
def test_amounts_of_memory_are_read_as_people_write_them(written, count):
    assert bytes_of(written) == count


@pytest.mark.parametrize("wrong", ["", "many", "5", "5 XB", -1, 0, True, 1.5, "1,5GB"])
def test_other_amounts_are_refused(wrong):
    with pytest.raises(rs.Infeasible, match="is no amount of memory"):
        bytes_of(wrong)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(rs.Infeasible, match="at least 200MB"):
        DuckDB(memory_limit="1MB")
    with pytest.raises(rs.Infeasible, match="at least 1"):
        DuckDB(threads=0)


def test_a_table_that_does_not_fit_the_limit_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n0,0\n")
    schema = rs.Schema(a=rs.Integer(0, 9999), b=rs.Integer(0, 9999))
    engine = DuckDB(memory_limit="200MB").open(schema, tmp_path / "a.csv")
    with pytest.raises(rs.Infeasible, match=r"100,000,000 cells cannot be counted within the memory limit"):
        engine.tally([(0, 1)])
    assert engine.tally([(0,)])[0].sum() == 1


def test_records_of_a_person_meet_though_files_are_read_in_different_ways(tmp_path, monkeypatch):
    """One file is read by DuckDB and the other, which is not UTF-8, by Python."""
    monkeypatch.setattr("residua.engines.persons.AT_ONCE", 10)
    monkeypatch.setattr("residua.engines.duckdb.AT_ONCE", 40)
    rows = "".join(f"{number % 4},p{number % 50}\n" for number in range(100))
    (tmp_path / "1.csv").write_text("a,who\n" + rows)
    (tmp_path / "2.csv").write_bytes(b"a,who\n" + rows.encode() + b"1,M\xfcller\n")
    person = Person.of(rs.Unit(id="who", max_records=1), NUMBER)
    assert DuckDB().open_kept(NUMBER, tmp_path / "*.csv", person).records == 51
