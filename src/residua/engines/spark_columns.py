"""Columns as Spark sends them: codes of several attributes packed into few longs, others as they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress, count
from typing import TYPE_CHECKING, Any

import numpy as np

from residua._arrays import AnyArray
from residua.engines.kernel import narrowest
from residua.engines.persons import Packing
from residua.errors import DataError
from residua.schema import Attribute, Categorical, Integer, Schema

if TYPE_CHECKING:
    import pyarrow as pa

BITS = 62  # of a long integer, so that no sign is in the way
INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
SPELT_OUT = 64  # labels that Spark compares one by one


@dataclass(frozen=True, slots=True)
class Field:
    """Where an attribute is: its codes in a column of longs, from bit `shift`, or its values (None)."""

    column: int
    shift: int | None


def fields_of(schema: Schema, types: Sequence[str]) -> list[Field]:
    """The place of each attribute, packed columns first; `types` are Spark's names of the columns' types.

    >>> from residua.schema import Binned, Integer
    >>> fields_of(Schema(a=Integer(0, 9), b=Binned(0, 1), c=Integer(0, 1)), ["int", "double", "bigint"])
    [Field(column=0, shift=0), Field(column=1, shift=None), Field(column=0, shift=4)]
    """
    packed = [_packs(attribute, kind) for attribute, kind in zip(schema.attributes, types, strict=True)]
    # One more code than cells: the mark of a value without one.
    packing = Packing.of([size + 1 for size in compress(schema.sizes, packed)], BITS)
    places, after = iter(packing.fields), count(packing.words)
    return [Field(*next(places)[:2]) if packs else Field(next(after), None) for packs in packed]


def packed_columns(schema: Schema, fields: Sequence[Field], columns: Sequence[Any]) -> list[Any]:
    """The Spark columns to send, from those of the data in the order of the schema."""
    from pyspark.sql import functions

    sent: dict[int, Any] = {}
    for attribute, field, column in zip(schema.attributes, fields, columns, strict=True):
        if field.shift is None:
            sent[field.column] = column
            continue
        code = functions.shiftleft(_code(attribute, column).cast("long"), field.shift)
        sent[field.column] = code if field.shift == 0 else sent[field.column] + code
    return [sent[at].alias(f"p{at}") for at in range(len(sent))]


def unpack(schema: Schema, fields: Sequence[Field], table: "pa.Table") -> list[AnyArray]:
    """The codes of each attribute; -1 marks a record to drop. A DataError where a value is refused."""
    longs = cache(lambda column: table.column(column).to_numpy())
    codes: list[AnyArray] = []
    for name, attribute, field in zip(schema.names, schema.attributes, fields, strict=True):
        if field.shift is None:
            codes.append(attribute.encode(table.column(field.column), column=name))
            continue
        kind = narrowest(attribute.size + 1)
        code = (longs(field.column) >> field.shift).astype(kind) & kind(2 ** attribute.size.bit_length() - 1)
        missed = code == kind(attribute.size)
        if missed.any():
            if attribute.outside != "drop":
                raise DataError(f"column {name!r}: a value is outside {attribute!r}")
            code = np.where(missed, np.int64(-1), code.astype(np.int64))
        codes.append(code)
    return codes


def _packs(attribute: Attribute, kind: str) -> bool:
    if attribute.outside == "missing":
        return False  # what is missing is known by more than its code
    if isinstance(attribute, Integer):
        return kind in INTEGERS
    if isinstance(attribute, Categorical):
        return kind == "string" and attribute.type == "text" and attribute.inner_size <= SPELT_OUT
    return False


def _code(attribute: Attribute, column: Any) -> Any:
    """The cell of a value as a Spark column, or the attribute's size where it has none."""
    from pyspark.sql import functions

    lit = functions.lit
    if isinstance(attribute, Integer):
        value = column.cast("long")
        code = functions.when(
            value.between(lit(attribute.low), lit(attribute.high)), value - lit(attribute.low)
        )
        if attribute.outside == "clip":
            code = code.when(value < lit(attribute.low), lit(0))
            code = code.when(value > lit(attribute.high), lit(attribute.size - 1))
    else:
        assert isinstance(attribute, Categorical)
        code = functions.when(column == lit(attribute.values[0]), lit(0))
        for cell, label in enumerate(attribute.values[1:], start=1):
            code = code.when(column == lit(label), lit(cell))
    return code.otherwise(lit(attribute.size if attribute.other is None else attribute.other))
