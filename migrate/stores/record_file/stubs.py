"""Reads a pickle into plain values and stubs, and writes it again. Runs in a guarded process only, see `child.py`.

Each class and function that a pickle names becomes a class of stubs, which remember what they were made of and do
nothing. Only names that arrays of NumPy and data frames of pandas are made with are taken: any other is refused, so
nothing is imported or executed. A stub is written under the name that it was read by.
"""

from __future__ import annotations

import codecs
import collections
import copyreg
import pickle
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, ClassVar, Final, Self

import numpy as np

from migrate.stores.documents.unpickle import HARMLESS
from migrate.stores.frames import RefusedError

_NUMPY: Final = ("numpy.core", "numpy._core")
_ARRAYS: Final = "pandas.core.arrays"
_INDEXES: Final = "pandas.core.indexes"

ROLES: Final[Mapping[tuple[str, str], str]] = {
    ("numpy", "dtype"): "dtype",
    ("numpy", "ndarray"): "class",
    **{(f"{core}.multiarray", "_reconstruct"): "array" for core in _NUMPY},
    **{(f"{core}.numeric", "_frombuffer"): "buffer" for core in _NUMPY},
    **{(f"{core}.multiarray", "scalar"): "scalar" for core in _NUMPY},
    ("builtins", "slice"): "slice",
    **{(module, "DataFrame"): "frame" for module in ("pandas", "pandas.core.frame")},
    **{(module, "Series"): "frame" for module in ("pandas", "pandas.core.series")},
    ("pandas.core.internals.managers", "BlockManager"): "blocks",
    ("pandas.core.internals.managers", "SingleBlockManager"): "blocks",
    ("pandas._libs.internals", "_unpickle_block"): "block",
    (f"{_INDEXES}.base", "_new_Index"): "index",
    **{(module, "Index"): "class" for module in ("pandas", f"{_INDEXES}.base")},
    **{(module, "RangeIndex"): "class" for module in ("pandas", f"{_INDEXES}.range")},
    **{(f"{_INDEXES}.numeric", f"{number}Index"): "class" for number in ("Int64", "UInt64", "Float64")},
    ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"): "backed",
    **{(module, "DatetimeArray"): "class" for module in ("pandas.arrays", f"{_ARRAYS}.datetimes")},
    **{(module, "StringArray"): "class" for module in ("pandas.arrays", f"{_ARRAYS}.string_")},
    **{(module, "StringDtype"): "class" for module in ("pandas", f"{_ARRAYS}.string_")},
    **{(module, "ArrowStringArray"): "strings" for module in ("pandas.arrays", f"{_ARRAYS}.string_arrow")},
    ("pyarrow.lib", "type_for_alias"): "arrow type",
    ("pyarrow.lib", "_restore_array"): "arrow array",
    ("pyarrow.lib", "chunked_array"): "arrow chunks",
    ("pyarrow.lib", "py_buffer"): "arrow buffer",
}  # fmt: skip
"""What the stubs of a name stand for; other names are refused."""


class _Named(type):
    """A class of stubs: calling it and making one by `__new__` are remembered apart, as a pickle does."""

    def __call__(cls, *args: Any) -> Any:
        stub: Any = cls.__new__(cls, *args)  # type: ignore[arg-type]
        stub.is_called = True
        return stub


class Stub(metaclass=_Named):
    """Stands for an object: the arguments that it was made with, and its state."""

    __slots__ = ("args", "is_called", "state")

    module: ClassVar[str]
    qualified: ClassVar[str]
    role: ClassVar[str]
    args: tuple[Any, ...]
    state: Any
    is_called: bool

    def __new__(cls, *args: Any) -> Self:
        """Take the arguments: unpickling calls no `__init__`."""
        stub = super().__new__(cls)
        stub.args = args
        stub.state = None
        stub.is_called = False
        return stub

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        kind = type(self)
        if self.is_called:
            return kind, self.args, self.state
        return copyreg.__newobj__, (kind, *self.args), self.state  # type: ignore[attr-defined]


def _encode(text: str, encoding: str) -> bytes:
    """Return the bytes that a pickle of protocol 2 has as a text; stands for `_codecs.encode`."""
    if type(text) is not str or encoding != "latin1":
        raise RefusedError("the pickle encodes something else than bytes")
    return codecs.latin_1_encode(text)[0]


_PLAIN: Final[Mapping[tuple[str, str], Any]] = {
    **HARMLESS,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): collections.OrderedDict,
}


class StubUnpickler(pickle.Unpickler):
    """Knows the names of `ROLES` as stubs, plain values, and nothing else."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._classes: dict[tuple[str, str], type[Stub]] = {}

    @property
    def has_frame(self) -> bool:
        """True once a data frame has been named."""
        return any(kind.role == "frame" for kind in self._classes.values())

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of stubs for a name, and import nothing; raises a RefusedError for any other name."""
        key = (module, name)
        if key in _PLAIN:
            return _PLAIN[key]
        if key not in ROLES:
            raise RefusedError(f"the pickle names {f'{module}.{name}'[:200]}, and nothing was executed")
        if key not in self._classes:
            names = {"__slots__": (), "module": module, "qualified": name, "role": ROLES[key]}
            self._classes[key] = _Named(name, (Stub,), names)  # type: ignore[assignment]
        return self._classes[key]

    def persistent_load(self, pid: Any) -> Any:
        """Refuse an object that lies elsewhere."""
        raise RefusedError("the pickle refers to an object outside of it")


class Doubles:
    """A list of numbers to be written, as an array of float64."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers


class StubPickler(pickle._Pickler):
    """Writes what `StubUnpickler` read, with others in the place of some objects: the next one each time it is met.

    The C pickler insists on importing every class it names, so this is the Python one.
    """

    # what the base class has and its type stub lacks
    write: Callable[[bytes], Any]
    memoize: Callable[[Any], None]
    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def __init__(self, file: Any, protocol: int, replacements: Mapping[int, deque[Any]]) -> None:
        super().__init__(file, protocol=protocol)
        self._replacements = replacements
        # the pickler tells objects by identity, which another may get once one is gone
        self._kept: list[Any] = []

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Write an object, or what takes its place."""
        waiting = self._replacements.get(id(obj))
        if waiting:
            obj = waiting[0]
            # where it is met again after the last record, it is what that record has
            if len(waiting) > 1:
                waiting.popleft()
            self._kept.append(obj)
        super().save(obj, save_persistent_id)  # type: ignore[misc]

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Write the name of a class of stubs, else that of a harmless one."""
        if isinstance(obj, _Named):
            self.save(obj.module)  # type: ignore[attr-defined]
            self.save(obj.qualified)  # type: ignore[attr-defined]
            self.write(pickle.STACK_GLOBAL)
            self.memoize(obj)
            return
        super().save_global(obj, name)  # type: ignore[misc]

    def save_doubles(self, obj: Doubles) -> None:
        """Write a list of floats at once."""
        opcodes = bytearray(pickle.BINFLOAT * (9 * len(obj.numbers)))
        cells = np.frombuffer(opcodes, np.uint8).reshape(-1, 9)
        cells[:, 1:] = obj.numbers.astype(">f8").view(np.uint8).reshape(-1, 8)
        self.write(pickle.EMPTY_LIST)
        self.memoize(obj)
        self.write(pickle.MARK + bytes(opcodes) + pickle.APPENDS)

    dispatch[Doubles] = save_doubles
