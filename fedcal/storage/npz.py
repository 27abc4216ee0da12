"""Reading `.npz` from strangers: no pickles, no surprises, headers checked before allocating."""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, integer

MAX_BYTES = 2**32
"""All arrays of a file together, as float64: 4 GiB, or 500 million scores."""

MAX_MEMBERS = 64
_ANY_SIZE = 2**62
_LOCAL_HEADER = 30  # bytes before each member of a zip, the last 4 of which are lengths
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_HEADER_BYTES = 2**16  # NumPy reads a whole header before it says that it is too long
_BOMB_BYTES = 2**28  # scores that unpack to more than this ...
_BOMB_RATIO = 100  # ... and this many times their packed size are no scores
_NO_ZIP = "is not an intact .npz file (truncated, damaged or no zip)"


def room(path: Path) -> int:
    """Bytes that the numbers of a file may take in memory: what it is packed from no bomb has."""
    return min(MAX_BYTES, max(_BOMB_BYTES, _BOMB_RATIO * path.stat().st_size))


def check_room(size: int, most: int) -> None:
    """InputError if numbers of a file take more bytes in memory than they may."""
    if size > most:
        limit = f"{most >> 20:,} MiB" if most >= 1 << 20 else f"{most >> 10} KiB"
        raise InputError(f"has more than {limit} of numbers, too many to be read")


@contextmanager
def intact(problem: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn what goes wrong while a file is read into one InputError.

    Parameters
    ----------
    problem
        what errors of these `kinds` mean; an error of the system says what it is itself
    kinds
        by default any: the bytes are a stranger's, and zipfile, zlib and NumPy name no errors that
        they keep to
    """
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError("does not fit into memory") from None
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            problem = f"cannot be read: {error.strerror}"
        elif not isinstance(error, kinds or Exception):
            raise
        raise InputError(problem) from None


def read_npz(path: Path | IO[bytes], most: int = MAX_BYTES) -> dict[str, NDArray[Any]]:
    """All arrays of an `.npz` file, numbers and strings only.

    Parameters
    ----------
    path
        of the file, or the file itself
    most
        bytes that all arrays together may take as float64. What the zip directory and the headers
        declare is added up before any array is unpacked

    Raises
    ------
    InputError
        One line (it names the member, not the file) where the file cannot be opened, is no
        intact zip of `.npy` members, holds pickles, objects or records, a member twice, or more
        than `most` bytes of numbers.
    """
    arrays: dict[str, NDArray[Any]] = {}
    with intact(_NO_ZIP), warnings.catch_warnings(), zipfile.ZipFile(path) as archive:
        warnings.simplefilter("ignore")  # numpy warns of headers that Python 2 wrote
        for key, info in _checked(archive, most).items():
            with intact(_damaged(key)), archive.open(info) as member:
                arrays[key] = np.lib.format.read_array(member, allow_pickle=False)
    return arrays


def check_npz(path: Path | IO[bytes], most: int = MAX_BYTES) -> None:
    """Refuse what `read_npz` would for its zip directory or headers; no number is read."""
    with intact(_NO_ZIP), zipfile.ZipFile(path) as archive:
        _checked(archive, most)


def mapped_npz(path: Path) -> dict[str, Mapped]:
    """Arrays of an uncompressed `.npz` file of any size, left in the file.

    A file that is changed afterwards is noticed only if it is gone or shorter.

    Raises
    ------
    InputError
        As `read_npz`, but for the size; and for compressed members, or a column-major array.
    """
    found: dict[str, Mapped] = {}
    with intact(_NO_ZIP), path.open("rb") as raw, zipfile.ZipFile(raw) as archive:
        for key, info in _checked(archive, _ANY_SIZE).items():
            with archive.open(info) as member:
                shape, by_column, dtype = _HEADERS[np.lib.format.read_magic(member)](member)
                header = member.tell()
            if info.compress_type != zipfile.ZIP_STORED or (by_column and len(shape) > 1):
                raise InputError(
                    f"member {key!r} is compressed, or stored column by column: rows in blocks are "
                    "read from where they lie; save arrays in C order with numpy.savez"
                )
            raw.seek(info.header_offset)
            names = raw.read(_LOCAL_HEADER)[-4:]  # lengths of the name and of more fields
            start = info.header_offset + _LOCAL_HEADER + header
            start += int.from_bytes(names[:2], "little") + int.from_bytes(names[2:], "little")
            found[key] = Mapped(path, dtype, shape, start)
    return found


@dataclass(frozen=True)
class Mapped:
    """An array in a file, whose rows are mapped into memory where they are asked for."""

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.shape[0] if self.shape else 1

    def __call__(self, first: int, stop: int) -> NDArray[Any]:
        """Return the rows first..stop-1, read-only."""
        each = math.prod(self.shape[1:]) * self.dtype.itemsize
        shape = (stop - first, *self.shape[1:])
        if not math.prod(shape):
            return np.empty(shape, self.dtype)
        with intact(f"{self.path.name} has changed since it was opened", OSError, ValueError):
            return np.memmap(self.path, self.dtype, "r", self.start + first * each, shape)


def _checked(archive: zipfile.ZipFile, most: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members by key, after all their headers were checked."""
    infos = archive.infolist()
    integer("the number of members", len(infos), 0, MAX_MEMBERS)
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in infos:
        key = info.filename.removesuffix(".npy")
        if key == info.filename or not key.isidentifier() or key in members:
            problem = "occurs twice" if key in members else "is not an array (<key>.npy)"
            raise InputError(f"member {info.filename[:80]!r} {problem}")
        members[key] = info
        check_room(total + info.file_size - _HEADER_BYTES, most)
        total += _size(archive, info, key, most - total)
    return members


def _size(archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str, most: int) -> int:
    """Bytes that the member's numbers take as float64, at most `most`, from its header alone."""
    with intact(_damaged(key)), archive.open(info) as member:
        # version 3.0 only serves records with names beyond Latin-1
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(member)](member)
        header = member.tell()
    if dtype.kind not in "fiubUS":
        kind = "objects (pickles)" if dtype.hasobject else f"type {str(dtype)[:40]}"
        hint = f"; save {key}.astype(str), or of a type of numbers" if dtype.hasobject else ""
        raise InputError(f"member {key!r} contains {kind}; only numbers and strings are read{hint}")
    entries = math.prod(shape)
    size = entries * dtype.itemsize
    check_room(taken := int(max(entries * 8, size)), most)
    if info.file_size != header + size or min(shape, default=0) < 0:
        raise InputError(_damaged(key))
    check_room(size, max(_BOMB_BYTES, _BOMB_RATIO * info.compress_size))
    return taken


def _damaged(key: str) -> str:
    return f"member {key!r} is truncated, damaged or no .npy array"
