"""Publications that continue: a plan measured in instalments, and a release of all so far at any time."""

from residua.stream.stream import Stream

__all__ = ["Stream"]
