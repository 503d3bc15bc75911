"""One file format for plans and releases: a zip of `manifest.json` and `arrays.safetensors`, with a hash.

The hash covers the manifest and the arrays; the same content gives the same bytes. Nothing in such a
file is ever executed, and a file that was truncated, edited or made by something else is refused.

Large content comes in parts, further members of arrays. The manifest, which is written last, has a hash of
each; a part is read, and checked, when it is needed (decision 0015).
"""

import errno
import hashlib
import io
import json
import os
import secrets
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Never

import numpy as np

from residua._arrays import Arrays, Manifest
from residua.errors import FileFormatError

if TYPE_CHECKING:
    from typing_extensions import Buffer

Target = str | os.PathLike[str] | IO[bytes]
"""Where something is written: the path of a file, or a binary file that is open."""

NEWEST = 2
VERSIONS = (1, 2)
MANIFEST = "manifest.json"
ARRAYS = "arrays.safetensors"
PART = "parts/{:06}.safetensors"
MOST_AXES = 60  # arrays of numpy have at most 64
EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that equal content gives equal bytes

_NAMED = 40  # characters of a name that its scratch file shows
_BLOCK = 2**20

_TYPES = {"BOOL": np.bool_, "U8": np.uint8, "I32": np.int32, "I64": np.int64, "F64": np.float64}
"""The types of arrays that any version has written, by the words of safetensors."""


@dataclass(frozen=True, slots=True)
class Container:
    """What a file holds: a JSON-able manifest, arrays by name, and which format it has."""

    manifest: Manifest
    arrays: Arrays
    version: int
    parts: "Parts | None" = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a file, by their hashes: each is read, and checked, when it is asked for."""

    path: Target
    hashes: tuple[str, ...]

    @classmethod
    def of(cls, path: Target, hashes: Iterable[str]) -> "Parts":
        """The parts of the file at a path, wherever the current folder will be."""
        return cls(Path(path).absolute() if isinstance(path, str | os.PathLike) else path, tuple(hashes))

    def __len__(self) -> int:
        return len(self.hashes)

    def __iter__(self) -> Iterator[Arrays]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Arrays:
        """The arrays of a part, by name."""
        with _opened(self.path) as archive:
            try:
                blob = archive.read(PART.format(number))
            except KeyError as error:
                raise FileFormatError(
                    f"{self.path} is another file than it was: it has no such part"
                ) from error
        if hashlib.sha256(blob).hexdigest() != self.hashes[number]:
            raise FileFormatError(
                f"{self.path} was changed after it was written: part {number} does not match its hash"
            )
        return _arrays(self.path, blob)


def pack(
    kind: str, manifest: Manifest, arrays: Arrays, version: int = NEWEST, parts: Sequence[str] = ()
) -> tuple[bytes, bytes, str]:
    """The two members of a file, and their hash; `parts` are the hashes of further ones."""
    blob = _blob(arrays)
    head = {"format": f"residua {kind}", "version": version, "content": manifest}
    head |= {"parts": list(parts)} if parts else {}
    digest = _digest(_canonical(head), blob)
    signed = json.dumps({**head, "hash": digest}, sort_keys=True, indent=1, ensure_ascii=False)
    return signed.encode(), blob, digest


def _blob(arrays: Arrays) -> bytes:
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})


class Writer:
    """A file that is written part by part to a stream; it is none before it is finished."""

    def __init__(self, stream: IO[bytes], kind: str) -> None:
        self._archive = zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED)
        self._kind, self._hashes = kind, list[str]()

    def add(self, arrays: Arrays) -> None:
        """Write one more part."""
        blob = _blob(arrays)
        self._archive.writestr(zipfile.ZipInfo(PART.format(len(self._hashes)), EPOCH), blob)
        self._hashes.append(hashlib.sha256(blob).hexdigest())

    def finish(self, manifest: Manifest, arrays: Arrays, version: int = NEWEST) -> tuple[str, ...]:
        """Write everything else, and the manifest with the hashes of all parts, which are returned."""
        signed, blob, _ = pack(self._kind, manifest, arrays, version, self._hashes)
        for name, content in ((MANIFEST, signed), (ARRAYS, blob)):
            self._archive.writestr(zipfile.ZipInfo(name, EPOCH), content)
        self.close()
        return tuple(self._hashes)

    def close(self) -> None:
        """End the file; without a manifest it is one that is refused."""
        self._archive.close()


def write(
    path: Target,
    kind: str,
    manifest: Manifest,
    arrays: Arrays,
    version: int = NEWEST,
    parts: Iterable[Arrays] = (),
) -> None:
    """Write a file so that it is either whole or not there."""
    with whole_file(path) as stream, closing(Writer(stream, kind)) as writer:
        for part in parts:
            writer.add(part)
        writer.finish(manifest, arrays, version)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    with whole_file(path) as stream:
        stream.write(text.encode())


@contextmanager
def whole_file(path: Target, room: int = 0) -> Iterator[IO[bytes]]:
    """A stream whose content becomes the file when the block ends well; otherwise nothing is left of it.

    A stream that is open already is taken as it is. `room` is how many bytes it may need: they are set aside
    at once, and what was given room is never thrown away for want of a name.
    """
    if not isinstance(path, str | os.PathLike):
        yield path
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to save {target.name} in")
    with suppress(FileNotFoundError):
        # The system's error for a name that is too long: the scratch name is a short one.
        if stat.S_IFMT(os.stat(target).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise FileFormatError(f"{target} is no file that could be replaced, but a device or a pipe")
    # Not tempfile: its files are private to their owner, and what is published is for everybody.
    scratch = target.with_name(f".{target.name[:_NAMED]}.{secrets.token_hex(8)}.part")
    whole = False
    try:
        with open(scratch, "xb") as stream:
            _set_aside(stream, room, target)
            yield stream
            stream.truncate()
            stream.flush()
            os.fsync(stream.fileno())
        whole = True
        os.replace(scratch, target)
    except BaseException as error:
        if whole and room:
            raise FileFormatError(
                f"{target} cannot be written ({error}); what belongs there is in {scratch}, whole: rename it"
            ) from error
        scratch.unlink(missing_ok=True)
        raise


def _set_aside(stream: IO[bytes], room: int, target: Path) -> None:
    """Take so many bytes of the disk for a stream; where they are not there, the error names the target."""
    if not room:
        return
    try:
        try:
            os.posix_fallocate(stream.fileno(), 0, room)
        except (AttributeError, OSError) as error:  # there is no such call, or not for this disk
            if getattr(error, "errno", None) not in (None, errno.EINVAL, errno.EOPNOTSUPP):
                raise
            for start in range(0, room, _BLOCK):
                stream.write(bytes(min(_BLOCK, room - start)))
            stream.flush()
            stream.seek(0)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(target)) from error


class ByteCount(io.BytesIO):
    """A stream that keeps nothing of what is written to it but its size."""

    size = 0

    def write(self, content: "Buffer", /) -> int:
        written = memoryview(content).nbytes
        self.size += written
        return written

    def tell(self) -> int:
        return self.size

    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> Never:
        raise io.UnsupportedOperation("what was counted is gone")


def read(path: Target, kind: str) -> Container:
    """The content of a file of this kind, refused with a reason if it is not one, whole and unedited.

    Its parts are left for later.
    """
    text, blob, others = _members(path)
    head = _parsed(path, text)
    if not isinstance(head, dict) or not str(head.get("format", "")).startswith("residua "):
        raise FileFormatError(f"{path} was not written by Residua")
    found = head["format"].removeprefix("residua ")
    if found != kind:
        raise FileFormatError(f"{path} holds a {found}, not a {kind}")
    if head.get("version") not in VERSIONS:
        raise FileFormatError(
            f"{path} has format version {head.get('version')!r}; this Residua reads "
            f"versions up to {NEWEST}. Use the version that wrote it, or a later one"
        )
    if head.pop("hash", None) != _digest(_canonical(head), blob) or not isinstance(head.get("content"), dict):
        raise FileFormatError(f"{path} was changed after it was written: its hash does not match its content")
    parts = head.get("parts", [])
    if not isinstance(parts, list) or others != [PART.format(at) for at in range(len(parts))]:
        raise FileFormatError(f"{path} was not written by Residua: its parts are not those it lists")
    listed = Parts.of(path, map(str, parts)) if parts else None
    return Container(head["content"], _arrays(path, blob), head["version"], listed)


def _arrays(path: Target, blob: bytes) -> Arrays:
    """The arrays by name: of types that numpy has, and of finite numbers."""
    from safetensors import SafetensorError, deserialize

    try:
        tensors: list[tuple[str, dict[str, Any]]] = deserialize(blob)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise FileFormatError(f"{path}: its arrays are damaged ({error})") from error
    arrays = {}
    for name, tensor in tensors:
        if tensor["dtype"] not in _TYPES or len(tensor["shape"]) > MOST_AXES:
            kind = f"{tensor['dtype']} {tensor['shape']}"
            raise FileFormatError(f"{path}: its array {name!r} of {kind} is none that Residua writes")
        found = np.frombuffer(tensor["data"], dtype=_TYPES[tensor["dtype"]]).reshape(tensor["shape"])
        if not np.isfinite(found).all():
            raise FileFormatError(f"{path}: its array {name!r} has entries that are not finite numbers")
        arrays[name] = found
    return arrays


def _parsed(path: Target, text: bytes) -> Any:
    try:
        head = json.loads(text.decode())
        _canonical(head).encode()  # refuses numbers and characters that no file of ours has
        return head
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: its manifest is damaged ({error})") from error


def _members(path: Target) -> tuple[bytes, bytes, list[str]]:
    """Manifest, arrays, and the names of all other members."""
    with _opened(path) as archive:
        names = archive.namelist()
        others = sorted(name for name in names if name not in (MANIFEST, ARRAYS))
        expected = sorted({MANIFEST, ARRAYS, *others})
        if sorted(names) != expected or any(not name.startswith("parts/") for name in others):
            raise FileFormatError(f"{path} was not written by Residua: it holds {names[:9]}")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise FileFormatError(f"{path} was packed again by another program; use the file as it was saved")
        return archive.read(MANIFEST), archive.read(ARRAYS), others


@contextmanager
def _opened(path: Target) -> Iterator[zipfile.ZipFile]:
    """The zip that a file is; what it cannot be read for is a FileFormatError."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, EOFError, RuntimeError, UnicodeDecodeError, OSError) as error:
        reasons: dict[type[Exception], str] = {
            FileNotFoundError: f"there is no file {path}",
            IsADirectoryError: f"{path} is a directory",
            PermissionError: f"{path} cannot be read: permission denied",
        }
        other = f"{path} is truncated or was not written by Residua ({error})"
        raise FileFormatError(reasons.get(type(error), other)) from error


def _canonical(head: Manifest) -> str:
    return json.dumps(head, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _digest(text: str, blob: bytes) -> str:
    parts = (hashlib.sha256(part).digest() for part in (text.encode(), blob))
    return hashlib.sha256(b"".join(parts)).hexdigest()
