"""Hierarchies: levels, leaves, files."""

from pathlib import Path
from typing import Any

import pytest

from residua.errors import DataError, FileFormatError, SchemaError
from residua.schema import Hierarchy, attribute_from_manifest

LEVELS = ("state", "county", "tract")
PATHS = [("NY", "Kings", "0101"), ("NY", "Kings", "0102"), ("NJ", "Essex", "0201"), ("NY", "Bronx", "0301")]


def write(folder: Path, text: str) -> Path:
    path = folder / "places.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_each_leaf_is_a_cell_named_by_its_path() -> None:
    place = Hierarchy(LEVELS, PATHS)
    assert place.size == 4
    assert place.levels == LEVELS
    assert place.label(0) == "NY/Kings/0101"
    assert place.level_labels("tract") == place.labels()


def test_levels_map_leaves_to_nodes_in_order_of_appearance() -> None:
    place = Hierarchy(LEVELS, PATHS)
    assert place.level_sizes == (2, 3, 4)
    assert place.level_of("state").tolist() == [0, 0, 1, 0]
    assert place.level_of("county").tolist() == [0, 0, 1, 2]
    assert place.level_of("tract").tolist() == [0, 1, 2, 3]
    assert place.level_labels("county") == ("NY/Kings", "NJ/Essex", "NY/Bronx")


def test_the_other_cell_is_a_node_of_every_level() -> None:
    place = Hierarchy(LEVELS, PATHS, outside="other")
    assert place.size == 5
    assert place.level_sizes == (3, 4, 5)
    assert place.level_of("state").tolist() == [0, 0, 1, 0, 2]
    assert place.level_labels("state") == ("NY", "NJ", "(other)")


def test_what_a_caller_does_to_a_level_stays_with_the_caller() -> None:
    place = Hierarchy(LEVELS, PATHS)
    place.level_of("state")[:] = 9
    assert place.level_of("state").tolist() == [0, 0, 1, 0]


def test_data_give_leaf_names_or_paths() -> None:
    place = Hierarchy(LEVELS, PATHS)
    assert place.encode(["0301", "NY/Kings/0102"]).tolist() == [3, 1]
    with pytest.raises(DataError, match="'Kings' at row 0"):
        place.encode(["Kings"])


def test_leaf_codes_without_leading_zeros_match_whole_numbers() -> None:
    place = Hierarchy(("state", "county"), [("36", "36047"), ("34", "34013")])
    assert place.encode([34013, 36047]).tolist() == [1, 0]
    assert place.encode([34013.0]).tolist() == [1]


def test_names_may_be_given_as_whole_numbers() -> None:
    assert Hierarchy(("state", "county"), [(36, 36047)]) == Hierarchy(("state", "county"), [("36", "36047")])


def test_a_child_with_two_parents_is_refused_by_name() -> None:
    with pytest.raises(SchemaError) as caught:
        Hierarchy(("state", "county"), [("NY", "Kings"), ("CA", "Kings")])
    assert "county 'Kings' has two parents, state 'NY' and 'CA'" in str(caught.value)
    assert "FIPS" in str(caught.value)


def test_a_middle_node_with_two_parents_is_refused_too() -> None:
    with pytest.raises(SchemaError, match="county 'Kings' has two parents"):
        Hierarchy(LEVELS, [("NY", "Kings", "1"), ("CA", "Kings", "2")])


def test_the_same_name_may_stand_at_different_levels() -> None:
    assert Hierarchy(("state", "county"), [("New York", "New York"), ("New York", "Kings")]).size == 2


@pytest.mark.parametrize(
    ("levels", "paths", "message"),
    [
        ((), [], "should be names, coarsest first"),
        ("state", [("NY",)], "should be names, coarsest first"),
        (("state", ""), [("NY", "a")], "should be names"),
        (("state", "state"), [("NY", "a")], "names a level twice"),
        (("state",), [], "no leaves"),
        (("state",), [("NY", "a")], "should have 1 names"),
        (("state",), ["N"], "the path 'N' should have 1 names"),
        (("state", "county"), [("NY", "")], "has no name at level 'county'"),
        (("state",), [(None,)], "is not a name"),
        (("state",), [("NY",), ("NJ",), ("NY",)], "the leaf 'NY' is there twice"),
        (("a", "b", "c"), [("x", "y/z", "w"), ("x/y", "z", "v")], "the label 'x/y/z' is there twice"),
        (("a", "b"), [("x", "y"), ("z", "x/y")], "is the path of one leaf and the name of another"),
    ],
)
def test_impossible_trees_are_refused(
    levels: tuple[str, ...], paths: list[tuple[str, ...]], message: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        Hierarchy(levels, paths)
    assert message in str(caught.value)


def test_no_leaf_may_take_the_name_of_other() -> None:
    with pytest.raises(SchemaError, match="takes the name"):
        Hierarchy(("a", "b"), [("x", "(other)")], outside="other")


def test_an_unknown_level_gets_the_nearest_name() -> None:
    place = Hierarchy(LEVELS, PATHS)
    with pytest.raises(SchemaError, match=r"no level 'County'.*did you mean 'county'"):
        place.level_of("County")
    with pytest.raises(SchemaError, match="no level 'block'"):
        place.level_labels("block")


def test_a_file_gives_the_distinct_paths_of_the_named_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path, "\ufefftract,people,state,county\n0101,5,NY,Kings\n0101,7,NY,Kings\n\n0102,5,NY,Kings\n"
    )
    place = Hierarchy.load(path, levels=LEVELS, outside="drop")
    assert place == Hierarchy(LEVELS, PATHS[:2], outside="drop")


def test_a_file_without_a_level_is_refused_with_the_nearest_column(tmp_path: Path) -> None:
    path = write(tmp_path, "State,county\nNY,Kings\n")
    with pytest.raises(SchemaError, match=r"places\.csv.*no column 'state' \(did you mean 'State'"):
        Hierarchy.load(path, levels=("state", "county"))


def test_a_file_with_a_level_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "state,state\nNY,NY\n")
    with pytest.raises(SchemaError, match="two columns 'state'"):
        Hierarchy.load(path, levels=("state",))


def test_a_short_row_is_refused_by_line(tmp_path: Path) -> None:
    path = write(tmp_path, "state,county\nNY,Kings\nNJ\n")
    with pytest.raises(SchemaError, match="line 3: the row ends"):
        Hierarchy.load(path, levels=("state", "county"))


def test_a_contradiction_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "state,county\nNY,Kings\nCA,Kings\n")
    with pytest.raises(SchemaError, match=r"places\.csv.*county 'Kings' has two parents"):
        Hierarchy.load(path, levels=("state", "county"))


def test_many_places_are_arrays_in_manifests_and_come_back() -> None:
    paths = [(f"s{at % 7}", f"s{at % 7}/c{at % 140}", f"é{at}") for at in range(12_000)]
    place = Hierarchy(LEVELS, paths, outside="other")
    arrays: dict[str, Any] = {}
    manifest = place.to_manifest(arrays)
    assert "paths" not in manifest
    assert attribute_from_manifest(manifest, arrays) == place
    assert place.at("county").size == 141
    name = manifest["nodes"][1][2]
    with pytest.raises(FileFormatError, match="names of places are not whole"):
        attribute_from_manifest(manifest, arrays | {name: arrays[name][::-1]})
