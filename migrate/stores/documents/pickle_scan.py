"""Checks a pickle without loading it: rejects what no docstore needs and what no honest file can hold.

The unpickler follows every instruction: it allocates memory for a length before the bytes are there, and hashes any
value that the file uses as a key, in one call that nothing can interrupt. A few bytes can claim gigabytes, and a few
hundred can build a value that refers to itself so often that it cannot be printed, compared or hashed. So each
instruction is measured here first: what it would build, how deeply that is nested, and how large it is with every
shared part written out.

On the stack of the scan a plain value is an int, its size in bytes. A container is a list as long as it may grow, and a
tuple after that. A value inside another may not grow any more, so no value can contain itself.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable
from typing import Any, Final

MAX_DEPTH: Final = 100
"""How deeply values may be nested, so that code may walk them by recursion."""

MAX_BYTES: Final = 1 << 28
"""How large a document, or what else has a state of its own, may be where all that it shares is written out."""

MAX_NUMBER_BYTES: Final = 1785
"""Those of 4,300 digits, which is as many as Python prints."""

_MAX_STACK: Final = 1 << 22
_MAX_STATES: Final = 3
"""A docstore holds documents, which hold what has a state of its own at most, as UUIDs have."""

_NODE_BYTES: Final = 8
_VALUE_BYTES: Final = 256
_SMALL_NUMBER_BYTES: Final = 8
_LARGEST_KEY: Final = 512
_MOST_ODD_KEYS: Final = 100
"""How many keys of a dictionary may be neither text nor small numbers: their hashes can be made to be the same."""
_STATE_BYTES: Final = 256
"""What a value with a state counts for in another one: its state was weighed when it got it."""

_HALF_CHARACTER: Final = re.compile(rb"\xed[\xa0-\xbf]")


def _code(*names: str) -> frozenset[int]:
    return frozenset(ord(opcode.code) for opcode in pickletools.opcodes if opcode.name in names)


def _table(sizes: dict[int, int]) -> list[int]:
    """The sizes by opcode, -1 where it has none."""
    return [sizes.get(code, -1) for code in range(256)]


_NAMES: Final = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_PLAIN: Final = _table(
    {
        **dict.fromkeys(_code("NONE", "NEWTRUE", "NEWFALSE", "EMPTY_TUPLE"), 0),
        **dict.fromkeys(_code("BININT1"), 1),
        **dict.fromkeys(_code("BININT2"), 2),
        **dict.fromkeys(_code("BININT"), 4),
        **dict.fromkeys(_code("BINFLOAT"), 8),
    }
)
"""The bytes of the argument of what pushes a plain value of fixed size."""
_TEXTS: Final = _code("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_WIDTHS: Final = {
    **dict.fromkeys(_code("SHORT_BINUNICODE", "SHORT_BINBYTES", "LONG1"), 1),
    **dict.fromkeys(_code("BINUNICODE", "BINBYTES", "LONG4"), 4),
    **dict.fromkeys(_code("BINUNICODE8", "BINBYTES8", "BYTEARRAY8"), 8),
}
"""The bytes of the length of what follows its own length."""
_PUTS: Final = {**dict.fromkeys(_code("BINPUT"), 1), **dict.fromkeys(_code("LONG_BINPUT"), 4)}
_TUPLES: Final = {number: size for size in (1, 2, 3) for number in _code(f"TUPLE{size}")}
_SINGLE: Final = {number: size for size, name in ((1, "APPEND"), (2, "SETITEM")) for number in _code(name)}
"""How many values of the stack they take; others take those since the mark."""
(_BINGET,), (_MEMOIZE,), (_MARK,), (_STOP,) = map(_code, ("BINGET", "MEMOIZE", "MARK", "STOP"))
(_SETITEM,), (_SETITEMS,), (_APPENDS,) = map(_code, ("SETITEM", "SETITEMS", "APPENDS"))
(_ADDITEMS,), (_FROZENSET,) = map(_code, ("ADDITEMS", "FROZENSET"))

_Done = tuple[int, int, int]
"""Bytes, depth, and how deep states are nested, of a value that is complete."""

_BYTES, _DEPTH, _PLACE, _STATES, _ODD_KEYS = range(5)
"""What the list of an open value holds, besides: its place in the memo, -1 for none, and how many odd keys it has."""


class _RefusedError(Exception):
    """What is wrong with a pickle, as `found ...`."""


def scan_pickle(content: bytes, memory: int = 1 << 40) -> str | None:
    """What is wrong with a pickle, as `found ...`; None where nothing is.

    Where it is None, unpickling takes time in proportion to the size, and about `memory` bytes at most; nothing is
    nested deeper than `MAX_DEPTH` or holds itself, no integer has more than 4,300 digits, and each value with a state
    (see `MAX_BYTES`) is written out in that many bytes, plus those of the file eight times over.
    """
    try:
        _Scan(content, memory).run()
    except _RefusedError as error:
        return str(error)
    except IndexError:
        return "a cut pickle, or one that uses what it does not have"
    return None


class _Scan:
    """One walk; `run` does what is frequent, and a method for each of the others the rest."""

    def __init__(self, content: bytes, memory: int) -> None:
        self._content = content
        self._largest = MAX_BYTES + _NODE_BYTES * len(content)
        self._most_values = memory // _VALUE_BYTES
        self._memo: list[Any] = []
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._values = 0
        # UTF-8 has no halves of characters, and other bytes look like one seldom: then each text is looked at
        self._check_texts = _HALF_CHARACTER.search(content) is not None

    def run(self) -> None:
        """Walk to the end."""
        content, memo, stack, marks = self._content, self._memo, self._stack, self._marks
        # names of a function are read faster than those of a module, and a folder has millions of instructions
        push, remember, plain, handlers = stack.append, memo.append, _PLAIN, _OTHERS
        get, memoize, mark, setitems = _BINGET, _MEMOIZE, _MARK, _SETITEMS
        position, code = 0, 0
        while code != _STOP:
            code = content[position]
            position += 1
            if code == get:
                value = memo[content[position]]
                push(self._close(value) if value.__class__ is list else value)
                position += 1
            elif code == memoize:
                value = stack[-1]
                if value.__class__ is list:
                    value[_PLACE] = len(memo)
                remember(value)
            elif code == mark:
                marks.append(len(stack))
            elif code == setitems:
                self._fill_from(marks.pop(), code)
            elif (size := plain[code]) >= 0:
                push(size)
                position += size
            elif code in handlers:
                position = handlers[code](self, code, position)
            else:
                raise _RefusedError(f"the pickle instruction {_NAMES.get(code, hex(code))}, which no docstore needs")
        if position != len(content):
            raise _RefusedError(f"{len(content) - position} bytes after its end")

    def _text(self, code: int, position: int) -> int:
        """A text or bytes."""
        start, end = self._argument(_WIDTHS[code], position)
        if self._check_texts and code in _TEXTS:
            _check_text(self._content[start:end])
        self._stack.append(end - start)
        return end

    def _number(self, code: int, position: int) -> int:
        """An integer of any length."""
        start, end = self._argument(_WIDTHS[code], position)
        size = end - start
        if size > MAX_NUMBER_BYTES:
            raise _RefusedError(f"an integer of {size} bytes, which has more than 4,300 digits")
        # what is more than a word may have the hash of another, so keys of it are counted
        self._stack.append(size if size <= _SMALL_NUMBER_BYTES else (size, 0, 0))
        return end

    def _argument(self, width: int, position: int) -> tuple[int, int]:
        """Where the bytes begin and end that follow their own length."""
        start = position + width
        end = start + int.from_bytes(self._content[position:start], "little")
        if end > len(self._content):
            raise _RefusedError("a cut pickle, or an absurd length in it")
        return start, end

    def _frame(self, _code: int, position: int) -> int:
        end = position + 8 + int.from_bytes(self._content[position : position + 8], "little")
        if end > len(self._content):
            raise _RefusedError("a cut pickle, or an absurd frame in it")
        return position + 8

    def _proto(self, _code: int, position: int) -> int:
        return position + 1

    def _stop(self, _code: int, position: int) -> int:
        return position

    def _empty(self, _code: int, position: int) -> int:
        """A list, a dictionary or a set."""
        self._stack.append([_NODE_BYTES, 1, -1, 0, 0])
        self._count()
        return position

    def _tuple(self, code: int, position: int) -> int:
        """A tuple or a frozen set."""
        stack = self._stack
        start = len(stack) - _TUPLES[code] if code in _TUPLES else self._marks.pop()
        if start < 0:
            raise IndexError
        made = [_NODE_BYTES, 1, -1, 0, 0]
        self._fill(made, stack[start:], _ADDITEMS if code == _FROZENSET else _APPENDS)
        stack[start:] = [self._close(made)]
        self._count()
        return position

    def _items(self, code: int, position: int) -> int:
        """Values go into an open one."""
        self._fill_from(len(self._stack) - _SINGLE[code] if code in _SINGLE else self._marks.pop(), code)
        return position

    def _new(self, _code: int, position: int) -> int:
        """A value of a class, with arguments."""
        size, depth, states = self._complete(self._stack.pop())
        self._check(size, depth, states)
        self._stack[-1] = [_NODE_BYTES + size, depth + 1, -1, states, 0]
        self._count()
        return position

    def _reduce(self, code: int, position: int) -> int:
        """As `_new`, of what is complete then: dates and numbers are made so."""
        self._new(code, position)
        self._stack[-1] = self._close(self._stack[-1])
        return position

    def _build(self, _code: int, position: int) -> int:
        """A value gets its state."""
        size, depth, states = self._complete(self._stack.pop())
        target = self._stack[-1]
        _require_open(target)
        self._check(target[_BYTES] + size, depth, states)
        target[_BYTES] = _STATE_BYTES
        target[_DEPTH] = max(target[_DEPTH], depth + 1)
        target[_STATES] = max(target[_STATES], states + 1)
        return position

    def _long_get(self, _code: int, position: int) -> int:
        index = int.from_bytes(self._content[position : position + 4], "little")
        value = self._memo[index]
        self._stack.append(self._close(value) if value.__class__ is list else value)
        return position + 4

    def _put(self, code: int, position: int) -> int:
        end = position + _PUTS[code]
        index = int.from_bytes(self._content[position:end], "little")
        # an index decides how long the memo gets, and picklers count them up
        if index > len(self._memo):
            raise _RefusedError(f"an absurd memo index ({index})")
        value = self._stack[-1]
        if value.__class__ is list:
            value[_PLACE] = index
        self._memo[index : index + 1] = [value]
        return end

    def _stack_global(self, _code: int, position: int) -> int:
        """A class; the unpickler looks whether it is one of ours."""
        self._stack[-2:] = [0]
        return position

    def _global(self, _code: int, position: int) -> int:
        for _ in range(2):
            position = self._content.find(b"\n", position) + 1
            if not position:
                raise _RefusedError("a cut pickle")
        self._stack.append(0)
        return position

    def _count(self) -> None:
        self._values += 1
        if self._values > self._most_values or len(self._stack) > _MAX_STACK:
            raise _RefusedError("more values than the memory holds")

    def _fill_from(self, start: int, code: int) -> None:
        """Put the values from a place of the stack on into the one before them."""
        if start < 1:
            raise IndexError
        stack = self._stack
        items = stack[start:]
        del stack[start:]
        target = stack[-1]
        try:
            target[_BYTES] += sum(items) + _NODE_BYTES * len(items)
        except TypeError:
            self._fill(target, items, code)

    def _complete(self, value: Any) -> _Done:
        """A value that goes into another one, and may not grow any more."""
        if value.__class__ is int:
            return value, 0, 0
        if value.__class__ is list:
            return self._close(value)
        done: _Done = value
        return done

    def _close(self, value: list[Any]) -> _Done:
        """Mark a value as complete or referred to; it may still be on the stack."""
        if len(value) == 1:
            done: _Done = value[0]
            return done
        done = (value[_BYTES], value[_DEPTH], value[_STATES])
        if value[_PLACE] >= 0:
            self._memo[value[_PLACE]] = done
        value[:] = [done]
        return done

    def _fill(self, target: Any, items: list[Any], code: int) -> None:
        """Put values into one that is open."""
        _require_open(target)
        size, deepest, states = _NODE_BYTES * len(items), 0, 0
        for number, item in enumerate(items):
            if item.__class__ is int:
                size += item
                continue
            more, depth, inner = self._close(item) if item.__class__ is list else item
            size += more
            if depth > deepest:
                deepest = depth
            if inner > states:
                states = inner
            if code == _ADDITEMS or (number % 2 == 0 and code in (_SETITEM, _SETITEMS)):
                self._check_key(target, more)
        target[_BYTES] += size
        target[_DEPTH] = max(target[_DEPTH], deepest + 1)
        target[_STATES] = max(target[_STATES], states)
        if deepest >= MAX_DEPTH:
            raise _RefusedError(f"values nested more than {MAX_DEPTH} deep")

    def _check_key(self, target: list[int], size: int) -> None:
        """Hashing and comparing keys must take no longer than reading them."""
        target[_ODD_KEYS] += 1
        if size > _LARGEST_KEY or target[_ODD_KEYS] > _MOST_ODD_KEYS:
            raise _RefusedError("keys, or members of sets, that are large or many and neither text nor numbers")

    def _check(self, size: int, depth: int, states: int) -> None:
        if size > self._largest:
            raise _RefusedError(f"a value that refers to its own parts so often that it has {size:.3g} bytes")
        if depth >= MAX_DEPTH or states >= _MAX_STATES:
            raise _RefusedError(f"values nested more than {MAX_DEPTH} deep, or documents inside documents")


def _require_open(value: Any) -> None:
    if value.__class__ is not list or len(value) == 1:
        raise _RefusedError("a value that holds itself, or grows after it was complete")


def _check_text(raw: bytes) -> None:
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise _RefusedError("a text with half a character, or one that is not UTF-8") from None


_Do = Callable[[_Scan, int, int], int]
_OTHERS: Final[dict[int, _Do]] = {
    **dict.fromkeys(_TEXTS, _Scan._text),
    **dict.fromkeys(_code("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"), _Scan._text),
    **dict.fromkeys(_code("LONG1", "LONG4"), _Scan._number),
    **dict.fromkeys(_code("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"), _Scan._empty),
    **dict.fromkeys(_code("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET"), _Scan._tuple),
    **dict.fromkeys(_code("APPEND", "APPENDS", "SETITEM", "ADDITEMS"), _Scan._items),
    **dict.fromkeys(_code("NEWOBJ"), _Scan._new),
    **dict.fromkeys(_code("REDUCE"), _Scan._reduce),
    **dict.fromkeys(_code("BUILD"), _Scan._build),
    **dict.fromkeys(_code("LONG_BINGET"), _Scan._long_get),
    **dict.fromkeys(_PUTS, _Scan._put),
    **dict.fromkeys(_code("STACK_GLOBAL"), _Scan._stack_global),
    **dict.fromkeys(_code("GLOBAL"), _Scan._global),
    **dict.fromkeys(_code("FRAME"), _Scan._frame),
    **dict.fromkeys(_code("PROTO"), _Scan._proto),
    **dict.fromkeys(_code("STOP"), _Scan._stop),
}
