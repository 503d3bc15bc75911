"""Random schemas: they survive records and files, and their labels name cells one to one."""

import json
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from residua.schema import Attribute, Binned, Categorical, Hierarchy, Integer, Schema

text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
names = text.filter(bool)
int64 = st.integers(-(2**63), 2**63 - 1)
numeric_policy = st.sampled_from(["error", "drop", "clip", "other", "missing"])
label_policy = st.sampled_from(["error", "drop", "other", "missing"])


@st.composite
def integers(draw: st.DrawFn) -> Integer:
    low = draw(int64)
    return Integer(low, min(low + draw(st.integers(0, 50)), 2**63 - 1), outside=draw(numeric_policy))


@st.composite
def categoricals(draw: st.DrawFn) -> Categorical:
    labels = draw(
        st.one_of(
            st.lists(text.filter(lambda label: label != "(other)"), min_size=1, max_size=6, unique=True),
            st.lists(int64, min_size=1, max_size=6, unique=True),
            st.lists(st.booleans(), min_size=1, max_size=2, unique=True),
        )
    )
    return Categorical(*labels, outside=draw(label_policy))


@st.composite
def bins(draw: st.DrawFn) -> Binned:
    finite = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
    edges = sorted({float(edge) for edge in draw(st.lists(finite, min_size=1, max_size=6))})
    above = len(edges) == 1 or draw(st.booleans())
    return Binned(*edges, above=above, outside=draw(numeric_policy))


@st.composite
def hierarchies(draw: st.DrawFn) -> Hierarchy:
    levels = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    leaves = draw(st.integers(1, 6))
    groups = draw(st.lists(st.integers(0, 2), min_size=leaves, max_size=leaves))
    # A name holds its ancestors' names, so that no node has two parents.
    paths = [
        [f"{group}{'.' * depth}" for depth in range(len(levels) - 1)] + [f"{group} {leaf}"]
        for leaf, group in enumerate(groups)
    ]
    return Hierarchy(levels, paths, outside=draw(label_policy))


attributes = st.one_of(integers(), categoricals(), bins(), hierarchies())
schemas = st.dictionaries(names, attributes, min_size=1, max_size=4).map(Schema)


@given(schemas)
@example(Schema(lowest=Integer(-(2**63), -(2**63))))
def test_a_schema_survives_its_record_as_json(schema: Schema) -> None:
    twin = Schema.from_manifest(json.loads(json.dumps(schema.to_manifest())))
    assert twin == schema
    assert hash(twin) == hash(schema)
    assert repr(twin) == repr(schema)


@given(schemas)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_schema_survives_its_file(tmp_path: Path, schema: Schema) -> None:
    schema.save(tmp_path / "schema.yaml")
    assert Schema.load(tmp_path / "schema.yaml") == schema
    assert Schema.from_fields(json.loads(json.dumps(schema.fields()))) == schema


@given(attributes)
def test_labels_are_one_for_each_cell_and_all_different(attribute: Attribute) -> None:
    labels = attribute.labels()
    assert len(labels) == attribute.size
    assert len(set(labels)) == attribute.size
    assert labels == tuple(attribute.label(cell) for cell in range(attribute.size))


@given(st.one_of(integers(), categoricals(), hierarchies()))
def test_the_text_of_a_label_is_coded_as_its_cell(attribute: Attribute) -> None:
    labels = attribute.labels()
    inner = range(attribute.inner_size)
    assert attribute.encode(labels[: attribute.inner_size]).tolist() == list(inner)
    assert [attribute.cell(label) for label in labels] == list(range(attribute.size))
    if attribute.other is not None:
        assert attribute.encode(labels).tolist() == list(range(attribute.size))


@given(st.one_of(integers(), bins()))
def test_edges_and_bounds_lie_in_the_cells_they_open(attribute: Integer | Binned) -> None:
    if isinstance(attribute, Integer):
        assert attribute.cell(attribute.low) == 0
        assert attribute.cell(attribute.high) == attribute.inner_size - 1
    else:
        opening = attribute.edges[: attribute.inner_size]
        assert attribute.encode(opening).tolist() == list(range(attribute.inner_size))


@given(hierarchies())
def test_levels_are_partitions_each_finer_than_the_one_above(place: Hierarchy) -> None:
    for level, size in zip(place.levels, place.level_sizes, strict=True):
        assert set(place.level_of(level).tolist()) == set(range(size))
        assert len(place.level_labels(level)) == size
    for upper, lower in zip(place.levels, place.levels[1:], strict=False):
        pairs = set(zip(place.level_of(lower).tolist(), place.level_of(upper).tolist(), strict=True))
        assert len(pairs) == place.level_sizes[place.levels.index(lower)]
    assert place.level_of(place.levels[-1]).tolist() == list(range(place.size))
