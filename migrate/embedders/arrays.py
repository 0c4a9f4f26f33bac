"""Reading the arrays of an `.npz` file from a stranger: nothing is executed, nothing is allocated on its word alone."""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from migrate.errors import InputError, OutputError
from migrate.files import describe_os_error, is_endless

MAX_EXPANSION = 100
"""How many times larger than the file its arrays may be; vectors hardly compress at all, id lists up to some tens."""

_ALWAYS_ALLOWED = 64 << 20
_LONGEST_REASON = 200
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, KeyError, OverflowError, struct.error)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of an `.npz` file by its name, without pickles.

    Raises
    ------
    InputError
        There is no such file, it is damaged, holds Python objects, or claims more than it could contain.
    OutputError
        The operating system refused to read it.
    """
    if is_endless(path):
        raise InputError(f"{path}: expected an .npz file of vectors, found a pipe or a device; write them to a file")
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive, path)
            return {name.removesuffix(".npy"): _read_array(archive, name, path) for name in archive.namelist()}
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(
            f"{path}: expected an .npz file of vectors, found {describe_os_error(error).lower()}; check the path"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error
    except _DAMAGED as error:
        reason = str(error)[:_LONGEST_REASON]
        raise InputError(
            f"{path}: expected an .npz file of vectors, found a damaged or other file ({reason}); "
            "copy it again, or write it with numpy.savez"
        ) from error


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    """Each array once, and as NumPy packs it; deflate packs a run of zeros 1,000 to 1, which no file of vectors needs.

    Other ways to pack say in other ways that they are damaged, and are without a limit.
    """
    names = archive.namelist()
    if len(set(names)) < len(names):
        raise ValueError("an array twice")
    if any(member.compress_type not in _METHODS for member in archive.infolist()):
        raise ValueError("arrays that are packed in another way")
    expanded = sum(member.file_size for member in archive.infolist())
    allowed = MAX_EXPANSION * path.stat().st_size + _ALWAYS_ALLOWED
    if expanded > allowed:
        raise InputError(
            f"{path}: claims {expanded} bytes of arrays in a file of {path.stat().st_size}; it is not read: "
            "save the arrays with numpy.savez"
        )


def _read_array(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    """One array, after its header is found to claim no more bytes than the member has."""
    size = archive.getinfo(name).file_size
    with archive.open(name) as file:
        shape, dtype = _read_header(file)
    if dtype.hasobject or dtype.names:
        raise InputError(f"{path}: {name} holds Python objects or records, which are not read; save plain arrays")
    if math.prod(shape) * dtype.itemsize > size:
        raise InputError(
            f"{path}: {name} claims an array of shape {shape} in {size} bytes; the file is damaged, copy it again"
        )
    with archive.open(name) as file:
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"array format {version}")
    try:
        shape, _, dtype = npy.read_array_header_1_0(file) if version == (1, 0) else npy.read_array_header_2_0(file)
    # NumPy reads a header as Python, and lets through what Python says of one that is none
    except (SyntaxError, tokenize.TokenError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError("an array with a damaged header") from error
    return shape, dtype
