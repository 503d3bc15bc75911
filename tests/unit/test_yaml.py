"""YAML files, whoever wrote them: plain data comes back, and what would never end is refused at once."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import residua as rs
from residua._yaml import Unreadable, parse
from residua.spec import SpecError, load_spec

TAIL = "\ntables: [{marginals: 1}]\nprivacy: {definition: gdp, mu: 1}\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 9)}]}}\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "aliases"),
        (MERGED, "aliases"),
        ("x: " + "[" * 100_000, "nested"),
        ("x:\n" + "- " * 100_000, "nested"),
        ("x:\n " + "? " * 100_000, "nested"),
        ("x: " + "{a: " * 100_000, "nested"),
        ("x: " + "1:" * 500_000 + "1", "a number of 1,000,001 characters"),
        ("x: 0x" + "f" * 100_000, "a number of 100,002 characters"),
        ("x: " + "9" * 5_000, "a number of 5,000 characters"),
        ("x: &a [*a]", "an alias that contains itself"),
        ("x: *a", "alias"),
        ("x: !!timestamp x", "timestamp"),
        ("x: !!timestamp 2020-01-01", "timestamp"),
        ("x: !!bool x", "'x' is not a"),
        ("x: !!int x", "'x' is not a"),
        ("x: !!int ''", "'' is not a"),
        ("x: !!float x", "'x' is not a"),
        ("x: !!binary x", "binary"),
        ("x: !!set {a, b}", "set"),
        ("x: !!python/object:os.system x", "python"),
        ("x: [1", "did not find"),
        ("x: 1\nx: 2", "the key 'x' is there twice"),
        ("[a]: 1", "a key should be text"),
        ("x: \x00", "control characters"),
    ],
    ids=lambda value: value[:20].replace("\n", " "),
)
def test_what_is_not_plain_data_is_refused_at_once_in_specs_and_schemas(
    tmp_path: Path, within: Callable[[float], AbstractContextManager[None]], text: str, words: str
):
    (tmp_path / "x.yaml").write_text(text)
    with within(5):
        for load, refusal in ((load_spec, SpecError), (rs.Schema.load, rs.SchemaError)):
            with pytest.raises(refusal) as caught:
                load(tmp_path / "x.yaml")
            assert words in str(caught.value)
            assert str(caught.value).startswith(str(tmp_path / "x.yaml"))
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 1_000


def test_an_alias_may_save_writing(tmp_path: Path):
    text = "schema: {fields: [{name: a, type: boolean}, {name: b, type: boolean}]}\ntables:\n"
    text += "- columns: &both [a, b]\n- columns: *both\n- &one {columns: [a], weight: 2}\n"
    text += "- {<<: *one, weight: 3}\nprivacy: {definition: gdp, mu: 1}\n"
    (tmp_path / "x.yaml").write_text(text)
    groups = list(load_spec(tmp_path / "x.yaml").workload.groups())
    assert [group.name for group in groups] == ["a x b", "a x b", "a", "a"]
    assert [group.weight for group in groups] == [1.0, 1.0, 2.0, 3.0]


def test_long_lists_without_aliases_are_read():
    value, _ = parse("x:\n" + "- [a, b]\n" * 100_000)
    assert isinstance(value, dict)
    assert len(value["x"]) == 100_000


def test_dates_stay_the_text_that_they_are():
    assert parse("[2020-01-01, 2020-13-45, yes, 1, 1.5, null, 'no']")[0] == [
        "2020-01-01",
        "2020-13-45",
        True,
        1,
        1.5,
        None,
        "no",
    ]


def test_a_refusal_knows_its_line():
    with pytest.raises(Unreadable) as caught:
        parse("a: 1\nb: !!int x\n")
    assert caught.value.line == 2
