"""Attributes from the dicts that their `record()` writes."""

from collections.abc import Mapping
from typing import Any

from residua._manifests import entry, flag, listed, text, texts, whole
from residua.errors import FileFormatError, SchemaError
from residua.schema.attribute import Attribute
from residua.schema.attributes import Binned, Categorical, Integer
from residua.schema.hierarchy import Hierarchy

KINDS = (Integer, Categorical, Binned, Hierarchy)


def attribute_from_manifest(record: Mapping[str, Any]) -> Attribute:
    """The attribute that a record describes.

    >>> attribute_from_manifest({"kind": "integer", "low": 0, "high": 9, "outside": "error"})
    Integer(0, 9)
    """
    outside: Any = text(record, "outside")  # the attribute refuses what is no policy
    match text(record, "kind"):
        case "integer":
            return Integer(whole(record, "low"), whole(record, "high"), outside=outside)
        case "categorical":
            return Categorical(*listed(record, "labels"), outside=outside)
        case "binned":
            edges = listed(record, "edges")
            if not all(isinstance(edge, int | float) for edge in edges):
                raise FileFormatError("the record of an attribute has edges that are no numbers")
            return Binned(*edges, above=flag(record, "above"), outside=outside)
        case "hierarchy":
            paths = [texts({"paths": path}, "paths") for path in listed(record, "paths")]
            return Hierarchy(texts(record, "levels"), paths, outside=outside)
    kind = entry(record, "kind")
    raise SchemaError(f"there is no attribute kind {kind!r}; the file may be of a later version")
