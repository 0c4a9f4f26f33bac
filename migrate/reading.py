"""Reads small files of JSON and TOML, which a person or another program may have written, and trusts nothing in them.

Whatever such a file holds, reading it ends in a value or in a `MalformedError`. `typed` makes a dataclass of a table,
and makes sure that each value is of the type of its field.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from migrate.files import open_file

# Arbitrary: far more than a manifest or a report takes, and still held in memory by most machines.
MOST_BYTES: Final = 1 << 30
DEEPEST: Final = 100
"""Levels of lists and tables in each other; what is made of a value goes down as far, and Python only so far."""

# A float ends at 2^1024: what is counted with such a number in it stays finite.
_LARGEST: Final = 1 << 1000
_TOO_LARGE: Final = "a whole number of more than 1,000 bits"
_WORD: Final = 1 << 64
_HALF: Final = re.compile("[\ud800-\udfff]")
"""Half of a character; none is in text that was decoded from UTF-8, unless JSON escapes it."""

_ESCAPED_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""The beginning of one in JSON, alone or before the other half."""

# `_LARGEST` has 302 digits.
_DIGITS: Final = 300
"""The length of a number that may be too large."""

_DIGIT: Final = re.compile("[0-9]")
_LONG_NUMBER: Final = re.compile(f"[0-9]{{{_DIGITS}}}")
_DECODER: Final = json.JSONDecoder()
Made = TypeVar("Made")


class MalformedError(ValueError):
    """Content that is malformed; the message says how."""


class Extensible:
    """Base of dataclasses whose tables later versions add names to, which `typed` leaves out."""

    __slots__ = ()


def read_small(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file that is held in memory.

    Raises
    ------
    InputError
        It is a pipe or a device.
    MalformedError
        It is of more than `most` bytes.
    OSError
        The operating system refused.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise MalformedError(f"{size:,} bytes")
        return file.read()


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """Return the value in a file of JSON; raises as `read_small` and `parse_json`."""
    return parse_json(read_small(path, most))


def read_table(path: Path, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the table (an object) in a file of JSON; raises as `read_json`, and as `as_table`."""
    return as_table(read_json(path, most))


def parse_json(content: bytes | str) -> Any:
    """Return the value of some JSON.

    Raises
    ------
    MalformedError
        It is no JSON, no Unicode, nested more than `DEEPEST` levels, or holds a whole number that no float is near.
    """
    try:
        if isinstance(content, str):
            text = content
        else:
            # Editors of Windows begin a file with a byte order mark, which `json` refuses.
            text = content.decode().removeprefix("\ufeff")
        value = _loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise _malformed(error) from error
    if _may_be_odd(text) or (isinstance(content, str) and _HALF.search(text)):
        _check(value)
    return value


def _loads(text: str) -> Any:
    """Return what `json.loads` does, sooner where the value is all of the text: the lines of a file are millions."""
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        return json.loads(text)
    if text[end:] in ("", "\n", "\r\n"):
        return value
    return json.loads(text)


def _may_be_odd(text: str) -> bool:
    """Return whether some JSON of whole characters may hold what `_check` refuses."""
    if ("\\u" in text and _ESCAPED_HALF.search(text)) or text.count("[") + text.count("{") > DEEPEST:
        return True
    # A long number has a digit at a multiple of its length: most texts are done with after a few characters.
    return _DIGIT.search(text[::_DIGITS]) is not None and _LONG_NUMBER.search(text) is not None


def parse_toml(content: bytes) -> dict[str, Any]:
    """Return the tables of some TOML; raises as `parse_json`."""
    try:
        table = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _malformed(error) from error
    _check(table)
    return table


def as_table(value: Any) -> dict[str, Any]:
    """Return the value, if it is a table.

    Raises
    ------
    MalformedError
        It is not.
    """
    if not isinstance(value, dict):
        raise MalformedError(_shortened(value))
    return value


def expect(value: Any, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value as it is, if it is a table with the names of a `shape` at least, each of the type there.

    A type is that of a field (`str`, `int | None`, `tuple[str, str]`), or the shape of a table in the table.

    Raises
    ------
    MalformedError
        A name is missing, or what it has is of another type; the message names it.
    """
    _expect(value, shape, "")
    return dict(value)


def typed(kind: type[Made], content: Any) -> Made:
    """Return a dataclass of the values of a table, those of other dataclasses among them.

    Raises
    ------
    MalformedError
        A field is missing or unknown, or its value is of another type; the message names it. An `Extensible` one may
        have unknown fields.
    """
    return _build(kind, content, "")


def _expect(value: Any, shape: Mapping[str, Any], path: str) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(value, "a table", path)
    for name, hint in shape.items():
        item = f"{path}{name}"
        if name not in value:
            raise MalformedError(f"{item!r} is missing")
        if isinstance(hint, Mapping):
            _expect(value[name], hint, f"{item}.")
        else:
            _converted(value[name], hint, item)


def _malformed(error: Exception) -> MalformedError:
    if isinstance(error, RecursionError):
        return MalformedError(f"values nested more than {DEEPEST} deep")
    if isinstance(error, UnicodeError):
        return MalformedError("text in another encoding")
    if "integer string conversion" in str(error):
        return MalformedError(_TOO_LARGE)
    return MalformedError(" ".join(str(error).split()))


def _check(value: Any) -> None:
    """Make sure that whoever goes on with a value can hash, print and count what is in it."""
    # Level by level: a function that calls itself would fail at the depth that is to be refused.
    level = [value]
    for _ in range(DEEPEST):
        level = list(_inside(level))
        if not level:
            return
    raise MalformedError(f"values nested more than {DEEPEST} deep")


def _inside(values: Sequence[Any]) -> Iterator[Any]:
    """Yield the parts of lists and tables among some values, one level deeper; the others are checked."""
    for value in values:
        if isinstance(value, dict):
            yield from value
            yield from value.values()
        elif isinstance(value, list):
            yield from value
        elif isinstance(value, str) and not _is_text(value):
            raise MalformedError("half of a character, which no text has")
        elif isinstance(value, int) and abs(value) >= _LARGEST:
            raise MalformedError(_TOO_LARGE)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _build(kind: type[Made], content: Any, path: str) -> Made:
    if not isinstance(content, Mapping):
        raise _wrong(content, "a table", path)
    hints: dict[str, Any] = _hints(kind)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    unknown = sorted(content.keys() - hints.keys())
    if unknown and not issubclass(kind, Extensible):
        raise MalformedError(f"{f'{path}{unknown[0]}'!r} is not known")
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in content:
            values[field.name] = _converted(content[field.name], hints[field.name], f"{path}{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise MalformedError(f"{f'{path}{field.name}'!r} is missing")
    return kind(**values)


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


_SIMPLE: Final[Mapping[Any, tuple[tuple[type, ...], str]]] = {
    str: ((str,), "a text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    NoneType: ((NoneType,), "null"),
}


def _converted(value: Any, hint: Any, path: str) -> Any:
    """Return the value as the type of a field has it: lists as tuples, tables as dataclasses."""
    if hint is Any:
        return value
    inner = get_args(hint)
    if get_origin(hint) in (Union, UnionType):  # of a type and nothing, as all of ours are
        if value is None and NoneType in inner:
            return None
        return _converted(value, next(item for item in inner if item is not NoneType), path)
    if hint in _SIMPLE:
        return _simple(value, hint, path)
    if is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]  # a part that was read before
            return value
        return _build(hint, value, f"{path}.")  # type: ignore[arg-type]
    if get_origin(hint) is Literal:
        return _one_of(value, {name: name for name in inner}, path)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _one_of(value, {str(member.value): member for member in hint}, path)
    return _collected(value, hint, path)


def _simple(value: Any, hint: Any, path: str) -> Any:
    types, expectation = _SIMPLE[hint]
    # By the type itself: `isinstance` takes `true` for a whole number.
    if type(value) not in types:
        raise _wrong(value, expectation, path)
    if hint is int and abs(value) >= _WORD:
        raise _wrong(value, "a whole number of 64 bits", path)
    return value


def _one_of(value: Any, allowed: Mapping[str, Any], path: str) -> Any:
    if not isinstance(value, str) or value not in allowed:
        raise _wrong(value, f"one of {', '.join(allowed)}", path)
    return allowed[value]


def _collected(value: Any, hint: Any, path: str) -> Any:
    """Return a table of values of one type, or a list."""
    origin = get_origin(hint)
    inner = get_args(hint)
    if issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(value, "a table", path)
        return {key: _converted(item, inner[1], f"{path}.{key}") for key, item in value.items()}
    if not isinstance(value, list | tuple):
        raise _wrong(value, "a list", path)
    if origin is tuple and ... not in inner and len(value) != len(inner):
        raise _wrong(value, f"a list of {len(inner)}", path)
    return tuple(_converted(item, inner[0], f"{path}[{at}]") for at, item in enumerate(value))


def _wrong(value: Any, expectation: str, path: str) -> MalformedError:
    name = repr(path.rstrip(".")) if path else "it"
    return MalformedError(f"{name} must be {expectation}, and is {_shortened(value)}")


def _shortened(value: Any) -> str:
    """Return a value as a message shows it: tables in a list would fill the screen otherwise."""
    text = reprlib.repr(value)
    if len(text) <= 100:
        return text
    return f"{text[:97]}..."
