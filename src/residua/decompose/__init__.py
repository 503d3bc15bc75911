"""One decomposition: what tables ask of every subset of their attributes.

`terms` lists it with the weights that centre attributes still open; `blocks` works it out for given weights.
"""

from residua.decompose.blocks import (
    Block,
    Decomposition,
    Piece,
    SimpleBlocks,
    Term,
    decompose,
    signature,
    uniform,
)
from residua.decompose.terms import Asked, Attributes, Placed, Source, gather

__all__ = [
    "Asked",
    "Attributes",
    "Block",
    "Decomposition",
    "Piece",
    "Placed",
    "SimpleBlocks",
    "Source",
    "Term",
    "decompose",
    "gather",
    "signature",
    "uniform",
]
