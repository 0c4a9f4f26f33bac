"""Records with vectors in a pickle, which only a guarded process reads and writes, see `pickled.py`."""

from __future__ import annotations

import base64
import json
import os
import tempfile
import weakref
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from migrate.files import output_errors
from migrate.stores.binary_reader import read_errors, read_head
from migrate.stores.child import run_job, temporary_file, write_all
from migrate.stores.documents.own_file import Record
from migrate.stores.documents.unpickle import TAG
from migrate.stores.frames import TEXT
from migrate.stores.record_file.contents import Content
from migrate.work.rows import Rows

PICKLES: Final = (".pkl", ".pickle", ".p")
_OF_CHROMA: Final = "index_metadata.pickle"
"""A part of an index inside a folder of Chroma."""

_BEGINNINGS: Final = tuple(b"\x80" + bytes([protocol]) for protocol in (2, 3, 4, 5))
# Arbitrary: they have to end a hostile pickle, and are never to meet a sound one.
_SPARE_BYTES: Final = 1 << 28
_BYTES_PER_PICKLED_BYTE: Final = 32
_SPARE_CPU_S: Final = 5
_BYTES_PER_CPU_S: Final = 1 << 20
_JOBS: Final = "migrate.stores.record_file.pickled"


def is_pickle(path: Path) -> bool:
    """Return whether a file is named and begins as a pickle, and is not known to be a part of something else."""
    if path.suffix not in PICKLES or path.name == _OF_CHROMA or path.with_suffix(".faiss").exists():
        return False
    return read_head(path, 2).startswith(_BEGINNINGS)


class PickleContent(Content):
    """A pickle of lists, dictionaries, tuples, arrays of NumPy, or a data frame."""

    index_type = "pickle"
    reads_texts = False

    def records(self) -> Iterator[Record]:
        """Yield the records."""
        self._lines.seek(0)
        # a reader of its own, as another one may be at its beginning
        with os.fdopen(os.dup(self._lines.fileno()), "rb", buffering=1 << 20) as lines:
            for line in lines:
                yield json.loads(line, object_hook=_revived)

    @cached_property
    def _lines(self) -> BinaryIO:
        """A temporary file with a line of JSON for each record."""
        with read_errors(self.path):
            size = self.path.stat().st_size
        lines = temporary_file(self.path, size)
        weakref.finalize(self, lines.close)
        self._run("read_records", lines, size)
        return lines

    def _run(self, name: str, target: BinaryIO, size: int, **facts: Any) -> None:
        job = {
            "do": f"{_JOBS}:{name}",
            "path": str(self.path),
            "memory_bytes": _SPARE_BYTES + _BYTES_PER_PICKLED_BYTE * size,
            "cpu_s": _SPARE_CPU_S + size // _BYTES_PER_CPU_S,
            **facts,
        }
        remedy = "copy the file again, or write it again"
        for tag, content in run_job(self.path, job, file_bytes=size, reader="the unpickler", remedy=remedy):
            if tag == TEXT:
                write_all(target, content)

    def save(self, target: Path, field: str, rows: Rows) -> None:
        """Write the same pickle with other vectors; their numbers keep their type."""
        with read_errors(self.path):
            size = self.path.stat().st_size
        # The process that writes can read a file with a name alone.
        with tempfile.NamedTemporaryFile(buffering=0) as vectors:
            for _, batch in rows.batches():
                write_all(vectors, batch.tobytes())  # type: ignore[arg-type]
            with output_errors(target), target.open("wb") as file:
                new_size = size + 16 * rows.count * rows.dim
                self._run("write_records", file, new_size, field=field, vectors=vectors.name, dim=rows.dim)
                file.flush()
                os.fsync(file.fileno())


def _revived(fields: dict[str, Any]) -> Any:
    """Return the numbers that an object stands for, see `pickled._packed`."""
    if TAG not in fields:
        return fields
    dtype, _, numbers = fields[TAG].partition(" ")
    return np.frombuffer(base64.b64decode(numbers), dtype)
