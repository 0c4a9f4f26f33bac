"""Reads a MessagePack array of ids (texts, integers, nothing): what txtai writes where it keeps no content.

See https://github.com/msgpack/msgpack/blob/master/spec.md for the format.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from migrate.stores.cursor import malformed
from migrate.stores.json_file import read_whole

_NIL: Final = 0xC0
_ARRAYS: Final = {0xDC: ">H", 0xDD: ">I"}
_TEXTS: Final = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_INTEGERS: Final = {0xCC + place: f">{kind}" for place, kind in enumerate("BHIQbhiq")}


def read_ids(path: Path) -> list[str | None]:
    """The ids by label, None where a document was deleted; integers are written out.

    Raises
    ------
    StoreError
        The file is not such an array.
    """
    try:
        return _Reader(read_whole(path)).array()
    except (ValueError, IndexError, struct.error) as error:
        raise malformed(path, "a MessagePack array of ids", f"other ({error})") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def array(self) -> list[str | None]:
        code = self._byte()
        count = code & 0x0F if code >> 4 == 9 else self._number(_ARRAYS, code)
        # one by one: the count is not trusted before the items are there
        items = [self._item() for _ in range(count)]
        if self._position != len(self._content):
            raise ValueError(f"{len(self._content) - self._position} bytes after its end")
        return items

    def _item(self) -> str | None:
        code = self._byte()
        if code == _NIL:
            return None
        if code >> 5 == 5:
            return self._text(code & 0x1F)
        if code in _TEXTS:
            return self._text(self._number(_TEXTS, code))
        if code < 0x80 or code >= 0xE0:
            return str(code - 256 if code >= 0xE0 else code)
        return str(self._number(_INTEGERS, code))

    def _byte(self) -> int:
        self._position += 1
        return self._content[self._position - 1]

    def _number(self, layouts: dict[int, str], code: int) -> int:
        if code not in layouts:
            raise ValueError(f"byte {code:#x} at {self._position - 1}")
        layout = struct.Struct(layouts[code])
        (value,) = layout.unpack_from(self._content, self._position)
        self._position += layout.size
        return int(value)

    def _text(self, size: int) -> str:
        end = self._position + size
        if end > len(self._content):
            raise ValueError("a text beyond the end")
        text = self._content[self._position : end].decode()
        self._position = end
        return text
