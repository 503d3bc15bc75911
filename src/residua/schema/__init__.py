"""What the data look like: attribute kinds, their cells, and the coding of values into cells."""

from residua.schema.attribute import OTHER, Attribute, Policy
from residua.schema.attributes import Binned, Categorical, Integer
from residua.schema.dates import Date
from residua.schema.hierarchy import Hierarchy
from residua.schema.numbers import Number
from residua.schema.schema import Schema, attribute_from_manifest

__all__ = [
    "OTHER",
    "Attribute",
    "Binned",
    "Categorical",
    "Date",
    "Hierarchy",
    "Integer",
    "Number",
    "Policy",
    "Schema",
    "attribute_from_manifest",
]
