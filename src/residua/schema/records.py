"""Attributes from the dicts that their `record()` writes."""

from collections.abc import Mapping
from typing import Any

from residua.errors import SchemaError
from residua.schema.attribute import Attribute
from residua.schema.attributes import Binned, Categorical, Integer
from residua.schema.hierarchy import Hierarchy

KINDS = (Integer, Categorical, Binned, Hierarchy)


def attribute_from_record(record: Mapping[str, Any]) -> Attribute:
    """The attribute that a record describes.

    >>> attribute_from_record({"kind": "integer", "low": 0, "high": 9, "outside": "error"})
    Integer(0, 9)
    """
    try:
        return _build(record)
    except KeyError as missing:
        raise SchemaError(f"the record of an attribute has no {missing}") from missing


def _build(record: Mapping[str, Any]) -> Attribute:
    outside = record["outside"]
    match record["kind"]:
        case "integer":
            return Integer(record["low"], record["high"], outside=outside)
        case "categorical":
            return Categorical(*record["labels"], outside=outside)
        case "binned":
            return Binned(*record["edges"], above=record["above"], outside=outside)
        case "hierarchy":
            return Hierarchy(record["levels"], record["paths"], outside=outside)
    raise SchemaError(f"there is no attribute kind {record['kind']!r}; the file may be of a later version")
