"""The door of saved files: every field of a manifest, and every array, is looked up here.

Whoever reads a manifest gets numbers, texts, lists and arrays of the type that it asked for, or a
FileFormatError that names the field. So a file that somebody else wrote, or changed, is refused where it is
read, and nothing behind the door has to doubt the types that it works with. Whether parts fit each other is
checked where they are put together: `workload.manifests`, `strategy.manifest`.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from residua._arrays import AnyArray, Arrays, Manifest
from residua.errors import FileFormatError

Read = TypeVar("Read")

LEAST, LARGEST = -(2**63), 2**63 - 1  # of whole numbers that are not written as text
MOST_DIGITS = 400  # of whole numbers that are
BOUND = 1e200  # of variances, and one over them: what is made of them stays finite
FLOATS = sys.float_info.max
SHOWN = 40  # letters of a value that an error quotes


def entry(manifest: object, key: str) -> Any:
    """What a manifest holds under a key."""
    if not isinstance(manifest, Mapping) or key not in manifest:
        raise FileFormatError(f"a saved manifest lacks {key!r}")
    return manifest[key]


def text(manifest: object, key: str) -> str:
    """The text that a manifest holds under a key."""
    return str(_typed(key, entry(manifest, key), str, "text"))


def flag(manifest: object, key: str) -> bool:
    """True or False, as a manifest holds it under a key."""
    return bool(_typed(key, entry(manifest, key), bool, "true or false"))


def whole(manifest: object, key: str, *, least: int = LEAST, most: int = LARGEST) -> int:
    """The whole number that a manifest holds under a key."""
    value = entry(manifest, key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _not(key, value, "a whole number")
    if not least <= value <= most:
        raise _not(key, value, "in range")
    return value


def wholes(manifest: object, key: str, *, least: int = LEAST, most: int = LARGEST) -> tuple[int, ...]:
    """The whole numbers that a manifest lists under a key."""
    return tuple(whole({key: value}, key, least=least, most=most) for value in listed(manifest, key))


def digits(manifest: object, key: str) -> int:
    """The positive whole number of any length that a manifest holds under a key, as decimal text."""
    value = text(manifest, key)
    if not value.isdecimal() or not value.isascii() or len(value) > MOST_DIGITS or not int(value):
        raise _not(key, value, "a positive whole number in digits")
    return int(value)


def number(manifest: object, key: str) -> float:
    """The finite number that a manifest holds under a key."""
    value = entry(manifest, key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= FLOATS:
        raise _not(key, value, "a finite number")
    return float(value)


def numbers(manifest: object, key: str) -> tuple[float, ...]:
    """The finite numbers that a manifest lists under a key."""
    return tuple(number({key: value}, key) for value in listed(manifest, key))


def positive(manifest: object, key: str) -> float:
    """The number above zero that a manifest holds under a key, neither huge nor tiny."""
    value = number(manifest, key)
    if not 1 / BOUND <= value <= BOUND:
        raise _not(key, value, "a number above zero of a usual size")
    return value


def listed(manifest: object, key: str) -> list[Any]:
    """The list that a manifest holds under a key."""
    return list(_typed(key, entry(manifest, key), list, "a list"))


def texts(manifest: object, key: str) -> tuple[str, ...]:
    """The texts that a manifest lists under a key."""
    return tuple(_typed(key, value, str, "text") for value in listed(manifest, key))


def submanifest(manifest: object, key: str) -> Manifest:
    """The manifest inside a manifest."""
    return dict(_typed(key, entry(manifest, key), Mapping, "a manifest"))


def submanifests(manifest: object, key: str) -> list[Manifest]:
    """The manifests that a manifest lists under a key."""
    return [_typed(key, value, Mapping, "a manifest") for value in listed(manifest, key)]


def fetch(manifest: object, key: str, arrays: Arrays) -> AnyArray:
    """The array whose name a manifest holds under a key."""
    name = entry(manifest, key)
    if not isinstance(name, str) or name not in arrays:
        raise FileFormatError(f"a saved manifest refers to a missing array {_shown(name)} as {key!r}")
    return arrays[name]


def array_of(arrays: Arrays, name: str, kinds: str, shape: Sequence[int | None]) -> AnyArray:
    """The array of this name, with this shape (None is any length), of one of these kinds of numbers."""
    if name not in arrays:
        raise FileFormatError(f"the array {name!r} is missing")
    return checked_array(arrays[name], repr(name), kinds, shape)


def checked_array(found: AnyArray, what: str, kinds: str, shape: Sequence[int | None]) -> AnyArray:
    """The array, if it has this shape and one of these kinds of numbers; b, i, u or f, as numpy says."""
    lengths = zip(shape, found.shape, strict=True)
    fits = len(shape) == found.ndim and all(asked in (None, length) for asked, length in lengths)
    if not fits or found.dtype.kind not in kinds:
        raise FileFormatError(f"the array {what} of {found.dtype} {found.shape} is not what it should be")
    return found


def optional(read: Callable[[object, str], Read], manifest: object, key: str) -> Read | None:
    """What `read` finds in a manifest under a key, or None where that is what it holds."""
    return None if entry(manifest, key) is None else read(manifest, key)


def storable(value: Any, arrays: dict[str, AnyArray]) -> Any:
    """A value as a manifest holds it: an array by the new key under which it was put into `arrays`."""
    if isinstance(value, np.ndarray):
        return stash(arrays, value)
    return list(value) if isinstance(value, tuple) else value


def stash(arrays: dict[str, AnyArray], array: AnyArray) -> str:
    """The new key under which `array` was put into `arrays`."""
    place = len(arrays)
    while (key := f"workload.{place}") in arrays:
        place += 1
    arrays[key] = np.ascontiguousarray(array)
    return key


def _typed(key: str, value: object, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise _not(key, value, what)
    return value


def _not(key: str, value: object, what: str) -> FileFormatError:
    return FileFormatError(f"a saved manifest has {key!r} = {_shown(value)}, which is not {what}")


def _shown(value: object) -> str:
    """A value for an error; a number may be too long to be written."""
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        return "a number of about 1e" + str(round(math.log10(abs(value))))
    shown = repr(value)
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."
