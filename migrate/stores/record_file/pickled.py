"""Finds the records with vectors in a pickle, and writes it with other vectors. Runs in a guarded process only.

Records are what `json_shapes.py` finds in lists and dictionaries, rows of an array or of a data frame, and tuples,
whose fields are numbers. See `stubs.py` for what is read of a pickle, and how it is written.
"""

from __future__ import annotations

import base64
import datetime
import gc
import json
import math
import pathlib
import shlex
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import open_file
from migrate.stores.binary_reader import shown
from migrate.stores.documents.json_shapes import KEY, records_in
from migrate.stores.documents.names import LISTS, VECTORS
from migrate.stores.documents.unpickle import HARMLESS, MAX_DEPTH, TAG
from migrate.stores.foreign import PICKLE_TO_JSON
from migrate.stores.frames import DONE, LONGEST, TEXT, RefusedError, send, send_facts
from migrate.stores.record_file.arrays import array_of, scalar_of, strings_of
from migrate.stores.record_file.stubs import Doubles, Stub, StubPickler, StubUnpickler

VECTOR: Final = VECTORS[0]
"""The field of a vector in records that are nothing else."""

_FEWEST_NUMBERS: Final = 5
"""Numbers in an array that is taken for the vector of a key: there may be as many scores or labels."""

_FRAME_BYTES: Final = 1 << 20
# Arbitrary: beyond what the file itself explains, so that records which share their parts may be written out.
_SPARE_BYTES: Final = 1 << 28
_SPARE_VALUES: Final = 1 << 18
_LOWEST_PROTOCOL: Final = 4
"""The first of pickle with STACK_GLOBAL, which names of stubs are written with."""

FRAME_TO_PARQUET: Final = "import pandas, sys; pandas.read_pickle(sys.argv[1]).to_parquet(sys.argv[2])"
"""A program that writes a pickled data frame as Parquet."""


class Held:
    """Numbers of a pickle that may be a vector: an array, a row of one, or a list."""

    __slots__ = ("numbers", "row", "source")

    def __init__(self, numbers: NDArray[Any], source: Any, row: int | None = None) -> None:
        self.numbers = numbers
        self.source = source
        self.row = row


def read_records(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send a line of JSON for each record; numbers that may be a vector are in base64."""
    path = Path(job["path"])
    most = _SPARE_BYTES + 8 * path.stat().st_size
    waiting = bytearray()
    for record in _load(path).records():
        try:
            waiting += json.dumps(record, ensure_ascii=False, default=_packed).encode() + b"\n"
        except UnicodeEncodeError as error:
            raise RefusedError("a text of it holds half a character; save it again") from error
        if len(waiting) >= _FRAME_BYTES:
            most -= len(waiting)
            _send_text(pipe, waiting)
        if most < 0:
            raise RefusedError("its records refer to their own parts so often that they have no end")
    _send_text(pipe, waiting)
    send_facts(pipe, DONE, {})


def write_records(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send the same pickle with other vectors, those of the file `vectors`, float32 (count, `dim`)."""
    content = _load(Path(job["path"]))
    with open_file(Path(job["vectors"])) as file:
        vectors = np.frombuffer(file.read(), "<f4").reshape(-1, job["dim"])
    field = job["field"]
    records = list(content.records())
    held = [record[field] for record in records if _has_vector(record.get(field))]
    if len(held) != len(vectors):
        raise RefusedError(f"it has {len(held)} vectors now, and {len(vectors)} are to be written; open it again")
    stream = _Stream(pipe)
    protocol = max(_LOWEST_PROTOCOL, content.protocol)
    replacements = _replacements(held, vectors)
    _check_alone(records, field, replacements)
    StubPickler(stream, protocol, replacements).dump(content.value)
    stream.flush()
    send_facts(pipe, DONE, {})


def _has_vector(value: Any) -> bool:
    return value is not None and value not in ("", [])


def _packed(held: Held) -> dict[str, str]:
    """Return numbers as JSON holds them here, see `contents._revive`."""
    numbers = held.numbers.astype(held.numbers.dtype.newbyteorder("<"), copy=False)
    return {TAG: f"{numbers.dtype.str} {base64.b64encode(numbers.tobytes()).decode()}"}


def _send_text(pipe: BinaryIO, waiting: bytearray) -> None:
    for first in range(0, len(waiting), LONGEST):
        send(pipe, TEXT, waiting[first : first + LONGEST])
    waiting.clear()


class _Stream:
    """Writes to frames of a pipe."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._waiting = bytearray()

    def write(self, content: bytes) -> None:
        self._waiting += content
        if len(self._waiting) >= _FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        _send_text(self._pipe, self._waiting)


def _replacements(held: Sequence[Held], vectors: NDArray[np.float32]) -> dict[int, deque[Any]]:
    """Return what is written in the place of each array and list that holds vectors, by its identity.

    One that several records share is written for each of them, in their order: their new vectors may differ.
    """
    made: dict[int, deque[Any]] = {}
    arrays: dict[int, dict[int, int]] = {}
    sources = {id(one.source): one.source for one in held}
    for place, one in enumerate(held):
        if one.row is None:
            made.setdefault(id(one.source), deque()).append(_like(one.source, vectors[place]))
        else:
            arrays.setdefault(id(one.source), {})[one.row] = place
    for key, places in arrays.items():
        rows = range(len(array_of(sources[key])))
        # A row of a new length cannot stand beside rows of the old one.
        if sorted(places) != list(rows) or sum(id(one.source) == key for one in held) != len(rows):
            raise RefusedError("some rows of an array of vectors have no record, or several; write it anew")
        made[key] = deque([_like(sources[key], vectors[[places[row] for row in rows]])])
    return made


def _check_alone(records: Sequence[Mapping[str, Any]], field: str, replaced: Collection[int]) -> None:
    """Make sure that what is replaced is nothing else's: the same list in two fields would become two new vectors."""
    for record in records:
        for name, entry in record.items():
            if name != field and isinstance(entry, Held) and id(entry.source) in replaced:
                raise RefusedError(f"the fields {field!r} and {name!r} share one vector; write it anew without one")


def _like(source: Any, numbers: NDArray[np.float32]) -> Any:
    """Return a list or an array of the same type with other numbers."""
    if isinstance(source, list):
        return Doubles(numbers)
    if source.role == "buffer":
        buffer, kind, _, _ = source.args
        kind, numbers = _typed(kind, numbers)
        new = type(source)(type(buffer)(numbers.tobytes()), kind, numbers.shape, "C")
    else:
        version, _, kind, _, _ = source.state
        kind, numbers = _typed(kind, numbers)
        new = type(source)(*source.args)
        new.state = (version, numbers.shape, kind, False, numbers.tobytes())
    return new


def _typed(kind: Stub, numbers: NDArray[np.float32]) -> tuple[Stub, NDArray[Any]]:
    """Return a type of NumPy and the numbers in it: that of the old vectors, float32 if they were whole numbers."""
    if kind.args[0].startswith("f"):
        return kind, numbers.astype(f"{kind.state[1]}{kind.args[0]}")
    single = type(kind)("f4", False, True)
    single.state = (3, "<", None, None, None, -1, -1, 0)
    return single, numbers.astype("<f4")


def _load(path: Path) -> _Content:
    gc.disable()  # millions of new values, none of them garbage; the process ends before that matters
    with open_file(path) as file:
        head = file.read(2)
        file.seek(0)
        unpickler = StubUnpickler(file)
        try:
            value = unpickler.load()
        except RefusedError as error:
            raise _unread(path, str(error), is_frame=unpickler.has_frame) from error
        if file.read(1):
            raise RefusedError("there are bytes after the end of the pickle; copy it again")
    return _Content(path, value, head[1])


def _unread(path: Path, problem: str, *, is_frame: bool) -> RefusedError:
    """Return the error of a pickle that is not read, with the program that writes what it holds in another way."""
    program = PICKLE_TO_JSON
    suffix = ".json"
    if is_frame:
        program = FRAME_TO_PARQUET
        suffix = ".parquet"
    target = shlex.quote(str(path.with_suffix(suffix)))
    return RefusedError(
        f"{problem}; if you trust the file, write it anew where the library that wrote it is installed: "
        f'python -c "{program}" {shlex.quote(str(path))} {target}; give that file'
    )


class _Content:
    """The content of a pickle."""

    def __init__(self, path: Path, value: Any, protocol: int) -> None:
        self.value = value
        self.protocol = protocol
        self._path = path
        self._values = _SPARE_VALUES + path.stat().st_size

    def refuse(self, problem: str) -> RefusedError:
        """Return the error of content that is not read."""
        if _is_stub(self.value, "frame"):
            return _unread(self._path, problem, is_frame=True)
        return RefusedError(f"{problem}; pickle a list of dictionaries, each with id, text and embedding")

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records, by the names of their fields; raises a RefusedError where one is none."""
        try:
            for number, record in enumerate(self._records(), start=1):
                if isinstance(record, list):
                    record = _numbered(record)
                if not isinstance(record, dict):
                    raise self.refuse(f"record {number} is {shown(_plain(record))}, no dictionary")
                yield {name: _present(entry) for name, entry in record.items()}
        except StoreError as error:
            raise self.refuse(str(error).removeprefix(f"{self._path}: ").partition(";")[0]) from error

    def _records(self) -> Iterator[Any]:
        value = self.value
        if _is_stub(value, "frame"):
            return iter(self._rows(value))
        value = self._read(value, 0)
        if isinstance(value, list) and value and all(isinstance(entry, Held) for entry in value):
            return iter([{VECTOR: entry} for entry in value])
        if isinstance(self.value, tuple) and self._are_columns(value):
            value = _numbered(value)
        if isinstance(value, dict):
            if _are_vectors_by_key(value):
                return iter([{KEY: key, VECTOR: entry} for key, entry in value.items()])
            if isinstance(self.value, dict) and all(type(entry) is tuple for entry in self.value.values()):
                return iter([{KEY: key, **_numbered(entry)} for key, entry in value.items()])
            value = _columns(value)
        if not isinstance(value, list | dict):
            raise self.refuse(f"it holds {shown(_plain(value))}, no records")
        return records_in(self._path, value)

    @staticmethod
    def _are_columns(value: Any) -> bool:
        """Return whether entries of a tuple are lists, as in `pickle.dump((texts, vectors), file)`."""
        return isinstance(value, list) and bool(value) and all(isinstance(entry, list | Held) for entry in value)

    def _read(self, value: Any, depth: int) -> Any:
        """Return a value of lists, dictionaries, texts, numbers, and numbers that may be a vector."""
        self._values -= 1
        if depth > MAX_DEPTH:
            raise self.refuse(f"it is nested more than {MAX_DEPTH} deep, or holds itself")
        if self._values < 0:
            raise self.refuse("its records refer to their own parts so often that they have no end")
        kind = type(value)
        if kind in (str, int, float, bool, type(None)):
            return value
        if kind in (list, tuple, set, frozenset):
            return self._read_list(value, depth)
        if isinstance(value, dict):
            return self._read_fields(value, depth)
        if isinstance(value, Stub):
            return self._read_stub(value, depth)
        return self._as_text(value)

    def _as_text(self, value: Any) -> str:
        """Return as text what JSON has no values of."""
        kind = type(value)
        if kind in (bytes, bytearray):
            return base64.b64encode(value).decode()
        if isinstance(value, datetime.datetime | datetime.date | datetime.time):
            return value.isoformat()
        if isinstance(value, pathlib.PurePath) or kind in HARMLESS.values():
            return str(value)
        named = value if isinstance(value, type) else kind
        raise self.refuse(f"it holds a {getattr(named, 'qualified', named.__name__)[:80]} among its values")

    def _read_stub(self, value: Stub, depth: int) -> Any:
        if value.role == "scalar":
            return self._scalar(value)
        if value.role in ("array", "buffer"):
            return self._read_array(value, depth)
        raise self.refuse(f"it holds a {value.qualified[:80]} among its values")

    def _scalar(self, value: Stub) -> Any:
        try:
            return scalar_of(value)
        except ValueError as error:
            raise self.refuse(str(error)) from error

    def _read_list(self, value: Any, depth: int) -> Any:
        entries = [self._read(entry, depth + 1) for entry in value]
        # By the type itself, as `True` is an `int`, and NumPy would make a 1 of it.
        if len(entries) > 1 and type(value) is list and all(type(entry) in (float, int) for entry in entries):
            numbers = np.array(entries)
            # whole numbers of more than 64 bits are none
            if numbers.dtype.kind in "fi":
                return Held(numbers, value)
        return entries

    def _read_fields(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        fields = {}
        for key, entry in value.items():
            name = self._read(key, depth + 1)
            if not isinstance(name, str | int | float):
                raise self.refuse(f"a key of it is {shown(name)}, no text or number")
            fields[str(name)] = self._read(entry, depth + 1)
        if len(fields) < len(value) or TAG in fields:
            raise self.refuse("two keys of a dictionary are the same as text")
        return fields

    def _array(self, stub: Stub) -> NDArray[Any]:
        try:
            return array_of(stub)
        except (ValueError, TypeError) as error:
            raise self.refuse(f"an array of it cannot be read ({error})") from error

    def _read_array(self, stub: Stub, depth: int) -> Any:
        array = self._array(stub)
        if array.dtype.kind == "O":
            if array.ndim != 1:
                raise self.refuse(f"it holds an array of objects of {array.ndim} dimensions")
            return [self._read(entry, depth + 1) for entry in array]
        if array.ndim == 1 and len(array) > 1 and array.dtype.kind in "fiu":
            return Held(array, stub)
        if array.ndim == 2 and array.dtype.kind in "fiu" and array.shape[1] > 1:
            return [Held(row, stub, number) for number, row in enumerate(array)]
        if array.ndim > 2:
            raise self.refuse(f"it holds an array of {array.ndim} dimensions")
        if array.dtype.kind == "M":
            return np.datetime_as_string(array).tolist()
        return array.tolist()

    def _rows(self, frame: Stub) -> Iterator[dict[str, Any]]:
        """Yield the rows of a data frame, or of a series, which has one column."""
        try:
            columns = self._frame_columns(frame)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise self.refuse(f"a data frame of an unknown layout ({error})") from error
        for row in zip(*columns.values(), strict=True):
            yield dict(zip(columns, row, strict=True))

    def _frame_columns(self, frame: Stub) -> dict[str, list[Any]]:
        manager = frame.state["_mgr"]
        if manager.args:
            blocks = [(block.args[0], block.args[1]) for block in manager.args[0]]
            axes = manager.args[1]
        else:
            held = manager.state[-1]["0.14.1"]
            blocks = [(block["values"], block["mgr_locs"]) for block in held["blocks"]]
            axes = held["axes"]
        index_name, index = self._index(axes[-1])
        columns: dict[str, list[Any]] = {}
        if index is not None:
            columns[index_name] = index
        if len(axes) == 1:
            (series,) = self._block(blocks[0][0])
            name = frame.state.get("_name", frame.state.get("name"))
            return {**columns, str(name or VECTOR): series}
        _, names = self._index(axes[0])
        placed: dict[int, list[Any]] = {}
        for values, places in blocks:
            numbers = range(*places.args) if _is_stub(places, "slice") else self._array(places).tolist()
            placed.update(zip(numbers, self._block(values), strict=True))
        for number, name in enumerate(names or range(len(placed))):
            if str(name) in columns:
                raise ValueError(f"two columns have the name {name!r:.80}")
            columns[str(name)] = placed[number]
        return columns

    def _index(self, index: Stub) -> tuple[str, list[Any] | None]:
        """Return the name and the labels of an axis; no labels if they are the numbers of rows, or others unnamed."""
        facts = index.args[1]
        name = facts["name"]
        if "data" not in facts:
            return "", None
        (labels,) = self._block(facts["data"])
        is_text = all(isinstance(label, str) for label in labels)
        if name is None and not is_text:
            return "", None
        return KEY if name is None else str(name), labels

    def _block(self, values: Any) -> list[list[Any]]:
        """Return the columns in some values of a data frame, or an index."""
        if _is_stub(values, "strings"):
            return [strings_of(next(values.state[name] for name in ("_pa_array", "_data") if name in values.state))]
        if _is_stub(values, "backed"):
            # as `NDArrayBacked.__reduce__`: type, array, attributes, in either order of the first two
            values = next(part for part in values.state if _is_stub(part, "array") or _is_stub(part, "buffer"))
        if not (_is_stub(values, "array") or _is_stub(values, "buffer")):
            raise ValueError(f"columns of {type(values).__name__}")
        array = np.atleast_2d(self._array(values))
        if array.dtype.kind == "O":
            return [[_present(self._read(entry, 1)) for entry in column] for column in array]
        if array.dtype.kind in "Mm":
            return [[None if np.isnat(entry) else str(entry) for entry in column] for column in array]
        return [[_present(entry) for entry in column.tolist()] for column in array]


def _is_stub(value: Any, role: str) -> bool:
    return isinstance(value, Stub) and value.role == role


def _numbered(entries: Any) -> dict[str, Any]:
    """Return the entries of a tuple as fields, by their numbers."""
    if isinstance(entries, Held):
        return {VECTOR: entries}
    return {str(place): entry for place, entry in enumerate(entries)}


def _present(value: Any) -> Any:
    """Return a value of a record; pandas has NaN where there is none."""
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def _plain(value: Any) -> Any:
    """Return a value for a message."""
    if isinstance(value, Held):
        return value.numbers.tolist()
    return value


def _are_vectors_by_key(value: Mapping[str, Any]) -> bool:
    if not value or not all(isinstance(entry, Held) for entry in value.values()):
        return False
    lengths = {len(entry.numbers) for entry in value.values()}
    return min(lengths) >= _FEWEST_NUMBERS and not LISTS.keys() & value.keys()


def _columns(value: dict[str, Any]) -> dict[str, Any]:
    """Return a dictionary with lists in the place of single arrays, which are columns of numbers."""
    if len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, dict):
            return {name: _columns(inner) for name in value}
    return {name: entry.numbers.tolist() if isinstance(entry, Held) else entry for name, entry in value.items()}
