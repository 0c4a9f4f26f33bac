"""Reading files of lines strictly: UTF-8, JSON objects, ids and texts. What a line means is somebody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from migrate.errors import DatasetError, OutputError
from migrate.files import describe_os_error

_BOM = b"\xef\xbb\xbf"


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of every line that is not blank, without its line end; a BOM is skipped.

    Lines end at a newline byte only: Unicode has other line separators, and BEIR texts contain them.

    Raises
    ------
    DatasetError
        There is no such file, or a line is not UTF-8.
    OutputError
        The operating system refused to read it.
    """
    if not path.exists():
        raise DatasetError(f"{path}: expected a file, found nothing; check the path")
    if not path.is_file():
        raise DatasetError(f"{path}: expected a file, found a folder or a device; check the path")
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                line = _decode(raw.removeprefix(_BOM) if number == 1 else raw, path, number)
                if line.strip():
                    yield number, line
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error


def _decode(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        found = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
        raise DatasetError(f"{path}:{number}: expected UTF-8, found {found}; convert the file to UTF-8") from None


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place ("file:line") and content of every line of a JSONL file, each a JSON object.

    Raises
    ------
    DatasetError
        As `read_lines`; or a line is not a JSON object.
    OutputError
        The operating system refused to read it.
    """
    for number, line in read_lines(path):
        place = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            # some errors of the decoder quote the line; ours stays one line
            reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
            raise DatasetError(f"{place}: expected a JSON object, found bad JSON ({reason}); mend the line") from None
        if not isinstance(record, dict):
            raise DatasetError(f"{place}: expected a JSON object, found {describe_type(record)}; mend the line")
        yield place, record


def record_id(record: dict[str, Any], place: str) -> str:
    """The id of a record, under `_id` (BEIR) or `id`; an integer becomes its decimal digits.

    Raises
    ------
    DatasetError
        There is none, it is empty, or it is of another type.
    """
    value = record.get("_id", record.get("id"))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        found = describe_type(value) if "_id" in record or "id" in record else "no id"
        raise DatasetError(f'{place}: expected a string under "_id" or "id", found {found}; give the record an id')
    return encodable(value, place)


def record_text(record: dict[str, Any], key: str, place: str, *, default: str | None = None) -> str:
    """The text under `key`; where it is absent or null, `default`, unless that is None too.

    Raises
    ------
    DatasetError
        It is absent without a default, of another type, or cannot be written as UTF-8.
    """
    value = record.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        found = describe_type(value) if key in record else "none"
        raise DatasetError(f'{place}: expected a text under "{key}", found {found}; mend the line')
    return encodable(value, place)


def encodable(text: str, place: str) -> str:
    r"""`text`, once it is known that UTF-8 can hold it: JSON may spell half a surrogate pair, as in `"\ud83d"`.

    Raises
    ------
    DatasetError
        It holds half a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"half a surrogate pair (U+{ord(text[error.start]):04X})"
        raise DatasetError(f"{place}: expected Unicode text, found {found}; mend the line") from None
    return text


def describe_type(value: object) -> str:
    """What JSON calls a value, for messages; an empty text says so."""
    if value == "" and isinstance(value, str):
        return "an empty text"
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
