"""Reads a JSON file of another program whole, and trusts nothing in it."""

from __future__ import annotations

import codecs
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

from migrate.errors import StoreError
from migrate.stores.binary_reader import malformed, read_errors

_HALF_CHARACTER: Final = re.compile(rb"\\u[dD][89a-fA-F]")
AGAIN: Final = "save the store again"


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    return parse_json(read_whole(path), path)


def read_whole(path: Path) -> bytes:
    """Return the bytes of a file that is held in memory."""
    if not path.is_file():
        raise malformed(path, "a file", "none", "copy the whole folder")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with read_errors(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > memory // 2:
            advice = "use a machine with more memory"
            raise malformed(path, f"a file of at most half the memory ({memory} bytes)", f"{size} bytes", advice)
        return file.read()


def decode_json(content: bytes) -> Any:
    """Return the value of some JSON; raises UnicodeError, ValueError or RecursionError where it is none."""
    value = json.loads(content.decode())
    # "\\ud800" is JSON but no text: nothing could print, hash or embed it
    if _HALF_CHARACTER.search(content):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def parse_json(content: bytes | str, path: Path, what: str = "a JSON object") -> dict[str, Any]:
    """Return a JSON object from its bytes, or from a text inside another file."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    try:
        value = decode_json(raw.removeprefix(codecs.BOM_UTF8))
    except UnicodeError as error:
        raise malformed(path, what, f"text that is not UTF-8 ({error})", AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise malformed(path, what, f"other ({error})") from error
    if not isinstance(value, dict):
        raise malformed(path, what, type(value).__name__, AGAIN)
    return value


def entry(fields: Any, name: str, path: Path) -> dict[str, Any]:
    """Return the object under a name."""
    value = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(value, dict):
        raise malformed(path, f'an object "{name}"', "nothing" if value is None else type(value).__name__, AGAIN)
    return value


def unique_ids(ids: list[str], path: Path) -> list[str]:
    """Return ids that are texts, each another one; raises `StoreError` if they are not."""
    for doc_id in ids:
        if not isinstance(doc_id, str):
            raise malformed(path, "ids that are text", repr(doc_id)[:40], AGAIN)
    doc_id, count = next(iter(Counter(ids).most_common(1)), ("", 0))
    if count > 1:
        raise StoreError(f"{path}: two vectors have the id {doc_id[:80]!r}; {AGAIN}")
    return ids
