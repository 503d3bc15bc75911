"""The parts of counting in memory: the loop, which sets are counted, and helpers."""

import ast
import os
import signal
from collections import Counter
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import residua as rs
from residua.engines import Memory, MemoryEngine, count_marginals, counts, kernel, memory
from residua.engines.marginals import _Left, cells_of, passes, sum_down
from residua.engines.spark_columns import fields_of, unpack

SIZES = (3, 2, 4, 3)


@pytest.fixture(scope="module")
def codes():
    chance = np.random.default_rng(0)
    return np.stack([chance.integers(0, size, 200) for size in SIZES], axis=1).astype(np.int32)


def counted(codes, attributes):
    """Counts of every cell, the last attribute fastest, one record at a time."""
    tally = Counter(tuple(record[at] for at in attributes) for record in codes.tolist())
    return [tally[cell] for cell in product(*(range(SIZES[at]) for at in attributes))]


def of_sets(engine, *rows):
    return counts(engine, SIZES, np.array(rows, dtype=np.int32).reshape(len(rows), -1))


# --- memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attributes", [order for size in range(5) for order in permutations(range(4), size)])
def test_counts_are_those_of_counting_one_by_one_in_any_order_of_attributes(codes, attributes):
    found = of_sets(MemoryEngine(codes, SIZES), attributes)
    assert found.dtype == np.int64
    assert found.tolist() == [counted(codes, attributes)]


def test_marginals_of_one_shape_are_counted_together(codes):
    found = of_sets(MemoryEngine(codes, SIZES), (0, 1), (3, 1), (0, 1))
    assert found.tolist() == [counted(codes, each) for each in ((0, 1), (3, 1), (0, 1))]


def test_no_records_count_to_nothing(codes):
    engine = MemoryEngine(codes[:0], SIZES)
    assert engine.records == 0
    assert of_sets(engine, ()).tolist() == [[0]]
    assert of_sets(engine, (2, 0)).tolist() == [[0] * 12]


def test_no_marginals_are_no_counts(codes):
    assert counts(MemoryEngine(codes, SIZES), SIZES, np.empty((0, 0), dtype=np.int32)).shape == (0, 1)


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint16])
def test_the_layout_and_width_of_the_codes_do_not_matter(codes, layout, kind):
    engine = MemoryEngine(np.asarray(codes, dtype=kind, order=layout), SIZES)
    assert of_sets(engine, (2, 3)).tolist() == [counted(codes, (2, 3))]


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 5), (2, 4, 1)])
def test_codes_of_another_shape_are_refused(shape):
    with pytest.raises(rs.DataError, match="one column for each of the 4 attributes"):
        MemoryEngine(np.zeros(shape, dtype=np.int32), SIZES)


def test_blocks_shorter_than_the_data_change_nothing(codes, monkeypatch):
    expected = [each.tolist() for each in MemoryEngine(codes, SIZES).tally([(0, 1, 2), (0, 1, 3), (2,), ()])]
    for module in (kernel, rs.engines.memory):
        monkeypatch.setattr(module, "ROWS", 7)
    seen = []
    engine = MemoryEngine(codes, SIZES)
    found = engine.tally([(0, 1, 2), (0, 1, 3), (2,), ()], lambda words, part: seen.append((words, part)))
    assert [each.tolist() for each in found] == expected
    assert seen == [("counting", rows / 200) for rows in [*range(7, 200, 7), 200]]


@pytest.mark.parametrize("sizes", [(1, 256), (256, 1), (256, 256), (257, 2), (16, 16, 256), (65_536, 2)])
def test_places_at_the_edges_of_their_types_are_counted_right(sizes):
    tally = kernel.Tally(sizes, [tuple(range(len(sizes)))])
    tally.add([np.array([size - 1, 0], dtype=kernel.narrowest(size)) for size in sizes])
    assert np.flatnonzero(tally.flat).tolist() == [0, np.prod(sizes) - 1]


def test_a_table_is_coded_in_parts_as_it_is_coded_whole(codes, monkeypatch):
    schema = rs.Schema(a=rs.Integer(0, 2, outside="drop"), b=rs.Categorical("x", "y"))
    table = pa.table({"a": codes[:, 2], "b": np.array(["x", "y"])[codes[:, 1]]})
    whole = Memory().open(schema, table).tally([(0, 1)])[0].tolist()
    monkeypatch.setattr(rs.engines.memory, "ROWS", 7)
    for data in (table, pl.DataFrame(table), pa.concat_tables([table[:50], table[50:]])):
        assert Memory().open(schema, data).tally([(0, 1)])[0].tolist() == whole
    with pytest.raises(rs.DataError, match=r"column 'b': 200 values are outside .* at row 0"):
        Memory().open(rs.Schema(b=rs.Categorical("z")), table)


# --- which sets are counted --------------------------------------------------------------------------------


def cover(wanted, sizes, records, cells_at_once=10**9):
    return [each for group in passes(wanted, sizes, records, cells_at_once) for each in group]


def test_every_wanted_set_adds_up_from_exactly_one_counted_set_that_has_it():
    chance = np.random.default_rng(3)
    sizes = tuple(chance.integers(1, 9, 12).tolist())
    for records in (0, 10, 5000, 10**8):
        for _ in range(20):
            drawn = [chance.choice(12, chance.integers(0, 6), replace=False) for _ in range(30)]
            wanted = list({tuple(sorted(each.tolist())) for each in drawn})
            found = cover(wanted, sizes, records)
            assert sorted(each for one in found for each in one.wanted) == sorted(wanted)
            for one in found:
                assert one.attributes == tuple(sorted(set(one.attributes)))
                assert all(set(each) <= set(one.attributes) for each in one.wanted)


@pytest.mark.parametrize("seed", range(40))
def test_the_attribute_that_joins_a_union_is_the_best_of_all_tried_one_by_one(seed):
    chance = np.random.default_rng(seed)
    sizes, most = chance.integers(1, 6, 9).tolist(), int(chance.integers(2, 400))
    drawn = [
        tuple(sorted(chance.choice(9, chance.integers(0, 5), replace=False).tolist())) for _ in range(50)
    ]
    left = _Left({tuple(sorted(each)) for each in drawn}, sizes, most)
    while left.sets:
        union = next(iter(left.sets))
        left.take(union)
        found, best = left.best_addition(union), None
        for at, size in enumerate(sizes):
            more = [each for each in left.sets if at in each and {*each} <= {*union, at}]
            if at not in union and more and cells_of(union, sizes) * size <= most:
                best = max(best or (0, 0, []), (len(more), -at, more), key=lambda each: each[:2])
        assert (found is None) == (best is None)
        if found is not None:
            assert found[0] == tuple(sorted((*union, -best[1])))
            assert sorted(found[1]) == sorted(best[2])


def test_only_the_largest_sets_are_counted():
    wanted = [each for size in range(4) for each in combinations(range(6), size)]
    found = cover(wanted, (2,) * 6, 100)
    assert sorted(one.attributes for one in found) == list(combinations(range(6), 3))


def test_overlapping_sets_are_counted_as_one_where_there_are_many_records():
    wanted = list(combinations(range(20), 3))
    few, many = (cover(wanted, (10,) * 20, records) for records in (10**4, 10**6))
    assert len(few) == 1140
    assert len(many) < 360  # 285 is the least that sets of four can do
    assert all(len(one.attributes) == 4 for one in many)


def test_small_tables_do_not_add_up_from_one_that_has_more_cells_than_records():
    found = cover([(0,), (0, 1, 2)], (100, 100, 100), 1000)
    assert [one.attributes for one in found] == [(0,), (0, 1, 2)]
    assert len(cover([(0,), (0, 1, 2)], (100, 100, 100), 10**6)) == 1


def test_a_pass_holds_no_more_cells_than_allowed_but_for_a_single_set():
    wanted = [(0,), (1,), (2,), (0, 1), (3,)]
    groups = list(passes(wanted, (10, 10, 10, 500), 0, 120))
    assert [[one.attributes for one in group] for group in groups] == [[(0, 1), (2,)], [(3,)]]


def test_adding_up_is_summing_over_axes():
    table = np.arange(24).reshape(2, 3, 4)
    for order in [order for size in range(4) for order in permutations((1, 4, 6), size)]:
        rest = tuple(axis for axis, at in enumerate((1, 4, 6)) if at not in order)
        left = [at for at in (1, 4, 6) if at in order]
        expected = table.sum(axis=rest).transpose([left.index(at) for at in order]).reshape(-1)
        sizes = (0, 2, 0, 0, 3, 0, 4)
        assert sum_down(table.reshape(-1), (1, 4, 6), sizes, order).tolist() == expected.tolist()


class Moving(MemoryEngine):
    """Somebody adds a record after the first pass."""

    def tally(self, sets, progress=None):
        found = super().tally(sets, progress)
        self._columns = [np.append(column, column[:1]) for column in self._columns]
        self.records += 1
        return found


def test_data_that_change_between_two_passes_are_refused(codes):
    engine = Moving(codes[:20], SIZES)
    engine.cells_at_once = 3
    with pytest.raises(rs.DataError, match=r"^the data changed while being counted; count a copy"):
        list(count_marginals(engine, SIZES, [np.array([[0], [3]], dtype=np.int32)]))


@pytest.mark.parametrize("cells", [3, 1000])
@pytest.mark.parametrize("fractions", [[], [0.5], [0.001, 0.999, 1.0, 7.0], [0.9, 0.1]])
def test_progress_is_a_hundred_steps_whatever_an_engine_says(codes, cells, fractions):
    class Chatty(MemoryEngine):
        def tally(self, sets, progress=None):
            for fraction in fractions:
                progress(f"{self.records} records, {len(sets)} tables", fraction)
            return super().tally(sets)

    engine = Chatty(codes[:20], SIZES)
    engine.cells_at_once = cells
    seen = []
    list(count_marginals(engine, SIZES, [np.array([[0], [3]])], lambda *told: seen.append(told)))
    assert seen == [("counting 2 tables", step / 100) for step in range(1, 101)]


# --- helpers -----------------------------------------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch):
    """Helpers start for any amount of work, and blocks are short."""
    monkeypatch.setattr(memory, "WORTHWHILE", 1e-12)
    monkeypatch.setattr(rs.engines.memory, "ROWS", 64)


def test_helpers_count_what_one_process_does(codes, eager):
    sets = [(0, 1, 2, 3), (0, 2), (3,), ()]
    many = np.tile(codes, (20, 1))
    alone = MemoryEngine(many, SIZES, processes=1).tally(sets)
    helped = MemoryEngine(many, SIZES, processes=3).tally(sets)
    assert [each.tolist() for each in helped] == [each.tolist() for each in alone]


def test_helpers_are_not_asked_where_there_is_nothing_to_count(codes, eager):
    assert [each.tolist() for each in MemoryEngine(codes, SIZES, processes=2).tally([()])] == [[200]]


def test_a_helper_that_ends_early_is_an_error_and_no_wrong_count(codes, eager):
    with memory.counting(SIZES, [(0, 1)], 10**9, 2) as tally:
        os.kill(tally._helpers[0]._process.pid, signal.SIGKILL)
        for _ in range(50):
            tally.add(list(codes.T.astype(np.uint8)))
        with pytest.raises(rs.Infeasible, match=r"ended early \(exit code -9\)"):
            tally.finish()


def test_an_interruption_ends_the_helpers(codes, eager, monkeypatch):
    started = []

    class Watched(memory.Helper):
        def __init__(self, *task):
            super().__init__(*task)
            started.append(self)

    def stop(words, part):
        raise KeyboardInterrupt

    monkeypatch.setattr(memory, "Helper", Watched)
    with pytest.raises(KeyboardInterrupt):
        MemoryEngine(codes, SIZES, processes=3).tally([(0,)], stop)
    assert len(started) == 2
    assert all(helper._process.poll() is not None and not helper._writer.is_alive() for helper in started)


def test_helpers_start_only_where_they_save_seconds():
    with memory.counting(SIZES, [(0,)], 10**6, 8) as tally:
        assert isinstance(tally, kernel.Tally)


# --- packing -----------------------------------------------------------------------------------------------


def test_codes_that_were_packed_come_out_again():
    policies = ("drop", "other", "error", "clip")
    sizes = (2, 2**20, 255, 256, 2**16, 2**20, 3, 2**31 - 1)
    schema = rs.Schema(
        {f"a{at}": rs.Integer(0, size - 1, outside=policies[at % 4]) for at, size in enumerate(sizes)}
    )
    fields = fields_of(schema, ["int", "tinyint", "bigint", "smallint", "string", "int", "int", "bigint"])
    chance = np.random.default_rng(2)
    cells = [chance.integers(0, size, 50) for size in schema.sizes]
    columns = [np.zeros(50, dtype=np.int64) for _ in range(1 + max(field.column for field in fields))]
    for field, cell in zip(fields, cells, strict=True):
        columns[field.column] += cell << (field.shift or 0)
    assert [field.shift is None for field in fields] == [False] * 4 + [True] + [False] * 3
    assert max(columns, key=np.max).max() < 2**62
    table = pa.table({str(at): column for at, column in enumerate(columns)})
    found = unpack(schema, fields, table)
    assert all((one == two).all() for one, two in zip(found, cells, strict=True))


def test_a_packed_value_without_a_cell_is_dropped_or_refused():
    kept = rs.Schema(a=rs.Integer(0, 255, outside="drop"), b=rs.Integer(0, 1))
    fields = fields_of(kept, ["int", "int"])
    packed = pa.table({"p0": np.array([255, 256, 7 + (1 << 9)])})
    assert [codes.tolist() for codes in unpack(kept, fields, packed)] == [[255, -1, 7], [0, 0, 1]]
    with pytest.raises(rs.DataError, match="column 'a'"):
        unpack(rs.Schema(a=rs.Integer(0, 255), b=rs.Integer(0, 1)), fields, packed)


def test_a_helper_that_counts_loads_nothing_else_of_the_package():
    text = Path(kernel.__file__).read_text(encoding="utf-8")
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom | ast.Import)]
    names = {getattr(node, "module", None) or node.names[0].name for node in imported}
    assert not {name for name in names if name.startswith("residua")}
