"""Mutants of saved files: fields of the manifest, values, types and shapes of arrays, bytes of the zip.

Most are signed again, so that the hash does not give them away: what is left is the door that a file from
somebody else has to pass.
"""

import copy
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from residua import _files

Place = tuple[str | int, ...]

NUMBERS = [
    0,
    1,
    2,
    3,
    -1,
    7,
    64,
    2**31,
    2**53,
    2**63,
    -(2**63),
    10**30,
    10**400,
    0.0,
    0.5,
    -0.5,
    1e-300,
    1e300,
]
TEXTS = ["", "x", "0", "-1", "1/3", "1/0", "1e999", "9" * 400, "nan", "\u0000", "ø" * 50, "age", "identity"]
OTHERS = [None, True, False, [], {}, [[]], [0], [0, 0], {"kind": "total"}, [None], "[" * 50]
INTEGERS = [0, 1, -1, 2, 5, 100, 2**31 - 1, 2**53, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, 5e-324, np.nan, np.inf, -np.inf, 2.0**53, 1e17]
TYPES = ["int64", "int32", "int16", "int8", "uint8", "uint64", "float64", "float32", "float16", "bool"]
FOREIGN = ["BF16", "F8_E4M3", "F8_E5M2", "U16", "X", ""]


def mutant(base: bytes, chance: Random) -> bytes:
    """A file that was changed in one place or a few."""
    kind = chance.random()
    if kind < 0.06:
        return _torn(base, chance)
    head, arrays = _opened(base)
    gentle = chance.random() < 0.5
    for _ in range(chance.choice([1, 1, 1, 2, 2, 3, 5])):
        if arrays and chance.random() < 0.4:
            _change_arrays(arrays, chance, gentle=gentle)
        else:
            change_document(head, chance, gentle=gentle)
    blob = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    if kind < 0.12:
        blob = _torn_arrays(blob, chance)
    return _signed(head, blob)


def _opened(base: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    with zipfile.ZipFile(io.BytesIO(base)) as archive:
        arrays = load(archive.read(_files.ARRAYS))
        return json.loads(archive.read(_files.MANIFEST)), {name: arrays[name] for name in sorted(arrays)}


def _signed(head: Any, blob: bytes) -> bytes:
    """The file with a hash that fits it."""
    if isinstance(head, dict):
        head.pop("hash", None)
        text = json.dumps(head, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        head = head | {"hash": _files._digest(text, blob)}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_files.MANIFEST), json.dumps(head, ensure_ascii=False))
        archive.writestr(zipfile.ZipInfo(_files.ARRAYS), blob)
    return stream.getvalue()


def _torn(base: bytes, chance: Random) -> bytes:
    """A zip cut short, with bits turned, or packed in another way."""
    data = bytearray(base)
    match chance.randrange(4):
        case 0:
            return bytes(data[: chance.randrange(len(data))])
        case 1:
            for _ in range(chance.randrange(1, 9)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            return bytes(data)
        case 2:
            start = chance.randrange(len(data))
            data[start : start + chance.randrange(64)] = chance.randbytes(chance.randrange(64))
            return bytes(data)
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(base)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    method = chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in entries[: chance.randrange(3)] + [("../x", b"")] * chance.randrange(2):
            archive.writestr(name, content)
    return stream.getvalue()


def _torn_arrays(blob: bytes, chance: Random) -> bytes:
    """Arrays whose header says something else, or whose bytes were changed."""
    length = int.from_bytes(blob[:8], "little")
    header, data = json.loads(blob[8 : 8 + length]), blob[8 + length :]
    match chance.randrange(4):
        case 0:
            return blob[: chance.randrange(len(blob) + 1)]
        case 1:
            turned = bytearray(blob)
            turned[chance.randrange(len(blob))] ^= 1 << chance.randrange(8)
            return bytes(turned)
    name = chance.choice(list(header))
    entry = header[name] if isinstance(header[name], dict) else {}
    match chance.randrange(4):
        case 0:
            entry["dtype"] = chance.choice(FOREIGN)
        case 1:
            entry["shape"] = chance.choice([[], [0], [1], [2**40], [-1], [2**31, 2**31], ["x"], None])
        case 2:
            entry["data_offsets"] = chance.choice([[0, 0], [0, 8], [8, 0], [0, 2**60], [-8, 8], None, []])
        case 3:
            header[chance.choice(["", "x" * 1000, "__metadata__"])] = header.pop(name)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


# The manifest


def change_document(head: Any, chance: Random, *, gentle: bool = False) -> None:
    """Change one place of a document; gently, to a value of the same type."""
    places = list(_places(head, ()))
    if not places:
        return
    place = chance.choice(places)
    around = _at(head, place[:-1])
    value = around[place[-1]]
    match 5 if gentle else chance.randrange(8):
        case 0:
            del around[place[-1]]
        case 1:
            around[place[-1]] = copy.deepcopy(_at(head, chance.choice(places)))
        case 2 if isinstance(around, list):
            around.insert(chance.randrange(len(around) + 1), copy.deepcopy(value))
        case 3 if isinstance(around, list):
            chance.shuffle(around)
        case 4 if isinstance(around, dict):
            around[chance.choice([*around, "x", "kind", ""])] = copy.deepcopy(value)
        case 5:
            around[place[-1]] = _nearby(value, chance)
        case _:
            around[place[-1]] = copy.deepcopy(chance.choice(chance.choice([NUMBERS, TEXTS, OTHERS])))


def _nearby(value: Any, chance: Random) -> Any:
    """A value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([value + 1, value - 1, -value, value * 2, value * 10**6, value + 2**62])
    if isinstance(value, float):
        return chance.choice([-value, value * 2, value / 2, value * 1e200, value * 1e-200, value + 1e-9])
    if isinstance(value, str) and value:
        at = chance.randrange(len(value))
        return value[:at] + chance.choice("0123456789/-ex\u00e9 ") + value[at + chance.randrange(2) :]
    if isinstance(value, list):
        return chance.choice([value + value, value[:-1], value[1:], value[::-1], [value], value * 50])
    return value


def _places(value: Any, place: Place) -> Iterator[Place]:
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield (*place, key)
        yield from _places(inner, (*place, key))


def _at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


# The arrays


def _change_arrays(arrays: dict[str, Any], chance: Random, *, gentle: bool) -> None:
    name = chance.choice(list(arrays))
    array = np.array(arrays[name])
    if gentle:
        arrays[name] = _with_entries(array, chance)
        return
    changes: list[Callable[[Any, Random], Any]] = [_with_entries, _with_entries, _retyped, _reshaped]
    match chance.randrange(8):
        case 0:
            del arrays[name]
        case 1:
            arrays[name] = np.array(arrays[chance.choice(list(arrays))])
        case 2:
            arrays[chance.choice([*arrays, "x", name + ".0"])] = array
        case _:
            with np.errstate(all="ignore"):
                arrays[name] = chance.choice(changes)(array, chance)


def _with_entries(array: Any, chance: Random) -> Any:
    """Other numbers in one place, in a row, or everywhere."""
    flat = array.reshape(-1)
    if not flat.size:
        return array
    at = chance.randrange(flat.size)
    where: Any = chance.choice([at, at, slice(0, at + 1), slice(None)])
    if array.dtype == bool:
        flat[where] = ~flat[where]
    elif chance.random() < 0.3:
        flat[where] = flat[where] + np.array(chance.choice([1, -1])).astype(array.dtype)
    elif chance.random() < 0.2:
        flat[where] = flat[where] * np.array(chance.choice([2, -1])).astype(array.dtype)
    elif array.dtype.kind == "f":
        flat[where] = chance.choice(FLOATS)
    else:
        ends = np.iinfo(array.dtype)
        flat[where] = min(max(chance.choice(INTEGERS), ends.min), ends.max)
    return array


def _retyped(array: Any, chance: Random) -> Any:
    return array.astype(chance.choice(TYPES))


def _reshaped(array: Any, chance: Random) -> Any:
    rows = array.reshape(len(array) or 1, -1) if array.ndim else array.reshape(1, 1)
    choices = [
        lambda: array.reshape(-1),
        lambda: array.T,
        lambda: array[None],
        lambda: array[..., None],
        lambda: rows[:-1],
        lambda: rows[:, :-1],
        lambda: rows[:0],
        lambda: rows[:, :0],
        lambda: np.concatenate([rows, rows]),
        lambda: np.concatenate([rows, rows], axis=1),
        lambda: array.reshape(-1)[:1].reshape(()) if array.size else array,
        lambda: np.zeros((1, 30_000), dtype=array.dtype),
        lambda: np.zeros((200, 200), dtype=array.dtype),
        lambda: np.ones((1,) * 20, dtype=array.dtype),
    ]
    return chance.choice(choices)()
