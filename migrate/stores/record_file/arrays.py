"""Reads stubs of arrays: of NumPy, and of texts by Arrow. Runs in a guarded process only, see `stubs.py`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.record_file.stubs import Stub

_PLAIN_TYPE: Final = re.compile(r"b1|[iu][1248]|f[248]|U[0-9]{1,9}|S[0-9]{1,9}")
_ORDERS: Final = ("<", ">", "|", "=")
_OFFSETS: Final = {"string": "<i4", "large_string": "<i8"}


def _type_of(stub: Any) -> np.dtype[Any]:
    """Return the type of a stub of `numpy.dtype`; raises a ValueError where it is not read."""
    code = stub.args[0] if isinstance(stub, Stub) and stub.role == "dtype" and stub.args else None
    if not isinstance(code, str) or not isinstance(stub.state, tuple) or stub.state[1] not in _ORDERS:
        raise ValueError("of an unknown type")
    if code in ("O", "O8"):
        return np.dtype(object)
    if code in ("M8", "m8"):
        unit = stub.state[-1][1][0].decode()
        if not re.fullmatch("[a-zA-Z]{1,2}", unit):
            raise ValueError("of times in an unknown unit")
        return np.dtype(f"{stub.state[1]}{code}[{unit}]")
    if not _PLAIN_TYPE.fullmatch(code):
        raise ValueError(f"of the type {code!r:.40}")
    return np.dtype(f"{stub.state[1]}{code}")


def array_of(stub: Stub) -> NDArray[Any]:
    """Return the array of a stub, of objects as they were unpickled; raises a ValueError where it is not read."""
    if stub.role == "buffer":
        content, kind, shape, order = stub.args
    else:
        _, shape, kind, in_columns, content = stub.state
        order = "F" if in_columns else "C"
    dtype = _type_of(kind)
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("of an unknown shape")
    if dtype.kind != "O":
        return np.frombuffer(content, dtype).reshape(shape, order=order)
    if not isinstance(content, list) or len(content) != math.prod(shape):
        raise ValueError("of objects that are not there")
    flat = np.empty(len(content), object)
    for place, entry in enumerate(content):
        flat[place] = entry
    return flat.reshape(shape, order=order)


def scalar_of(stub: Stub) -> Any:
    """Return a scalar of NumPy as the plain value that it equals; raises a ValueError where there is none."""
    kind, content = stub.args
    dtype = _type_of(kind)
    if dtype.kind == "O" or not isinstance(content, bytes) or len(content) != dtype.itemsize:
        raise ValueError("it holds a scalar of NumPy that is no number and no text")
    if not content:
        return ""
    value = np.frombuffer(content, dtype)[0]
    if dtype.kind in "Mm":
        return str(value)
    return value.item()


def strings_of(stub: Stub) -> list[str | None]:
    """Return the texts in an array of Arrow, or in chunks of one; raises a ValueError where it is not read."""
    if stub.role == "arrow chunks":
        return [text for chunk in stub.args[0] for text in strings_of(chunk)]
    if stub.role != "arrow array":
        raise ValueError(f"texts in a {type(stub).__name__}")
    kind, length, _, start, buffers, *_ = stub.args[0]
    name = kind.args[0] if isinstance(kind, Stub) and kind.args else None
    if name not in _OFFSETS:
        raise ValueError(f"texts of the type {name!r:.40}")
    validity, ends, content = (buffer.args[0] if buffer is not None else b"" for buffer in buffers)
    offsets = np.frombuffer(ends, _OFFSETS[name])[start : start + length + 1] if length else np.zeros(1, int)
    is_there = np.ones(length, bool)
    if validity:
        is_there = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[start : start + length] > 0
    return list(_cut(bytes(content), offsets.tolist(), is_there.tolist()))


def _cut(content: bytes, offsets: list[int], is_there: list[bool]) -> Iterator[str | None]:
    for start, stop, exists in zip(offsets[:-1], offsets[1:], is_there, strict=True):
        yield content[start:stop].decode() if exists else None
