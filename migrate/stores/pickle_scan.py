"""Walks over a pickle without loading it: refuses what no docstore needs and what no honest file can hold.

The C unpickler allocates what a length or a memo index says before it looks whether the bytes are there; a few bytes
can ask for gigabytes. Here every length must fit into the file, and every memo index must be one a file of this size
can have reached.
"""

from __future__ import annotations

import pickletools
from typing import Final

_PLAIN: Final = (
    *("NONE", "NEWTRUE", "NEWFALSE", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2"),
    *("TUPLE3", "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS", "FROZENSET", "MARK", "MEMOIZE"),
    *("STACK_GLOBAL", "NEWOBJ", "BUILD", "REDUCE", "POP", "POP_MARK"),
)
_ARGUMENT_BYTES: Final = {
    **dict.fromkeys(_PLAIN, 0),
    "PROTO": 1,
    "BININT": 4,
    "BININT1": 1,
    "BININT2": 2,
    "BINFLOAT": 8,
    "BINGET": 1,
    "LONG_BINGET": 4,
    "BINPUT": 1,
}
_LENGTH_BYTES: Final = {
    "SHORT_BINUNICODE": 1,
    "BINUNICODE": 4,
    "BINUNICODE8": 8,
    "SHORT_BINBYTES": 1,
    "BINBYTES": 4,
    "BINBYTES8": 8,
    "BYTEARRAY8": 8,
    "LONG1": 1,
    "LONG4": 4,
}
_LINES: Final = {"GLOBAL": 2}

_NAMES: Final = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_STOP: Final = ord(".")
_FRAME: Final = 0x95
_LONG_BINPUT: Final = ord("r")


def _table(sizes: dict[str, int]) -> list[int]:
    """The sizes by opcode byte, -1 where an opcode has none."""
    return [sizes.get(_NAMES.get(code, ""), -1) for code in range(256)]


_FIXED: Final = _table(_ARGUMENT_BYTES)
_COUNTED: Final = _table(_LENGTH_BYTES)
_TEXT_LINES: Final = _table(_LINES)


def scan_pickle(content: bytes) -> str | None:
    """What is wrong with a pickle, as `found ...`; None where nothing is."""
    position = 0
    while position < len(content):
        code = content[position]
        position += 1
        size = _FIXED[code]
        if size >= 0:
            position += size
        elif code == _STOP:
            return None if position == len(content) else f"{len(content) - position} bytes after its end"
        else:
            end = _after_argument(content, code, position)
            if isinstance(end, str):
                return end
            position = end
    return "a cut pickle"


def _after_argument(content: bytes, code: int, position: int) -> int | str:
    """Where the argument of an opcode of variable size ends, or what is wrong with it."""
    if (width := _COUNTED[code]) >= 0:
        start = position + width
        end = start + int.from_bytes(content[position:start], "little")
        return end if end <= len(content) else "a cut pickle, or an absurd length in it"
    if code == _FRAME:
        end = position + 8 + int.from_bytes(content[position : position + 8], "little")
        return position + 8 if end <= len(content) else "a cut pickle, or an absurd frame in it"
    if code == _LONG_BINPUT:
        # each put takes a byte at least, so an honest index is below the number of bytes before it
        index = int.from_bytes(content[position : position + 4], "little")
        return position + 4 if index < position else f"an absurd memo index ({index})"
    if (lines := _TEXT_LINES[code]) > 0:
        for _ in range(lines):
            position = content.find(b"\n", position) + 1
            if not position:
                return "a cut pickle"
        return position
    return f"the pickle instruction {_NAMES.get(code, hex(code))}, which no docstore needs"
