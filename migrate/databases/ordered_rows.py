"""The records of a database as rows: in the order of their ids, whatever order the database has.

Ids are read when they are first needed, and all vectors once more than a few are; with the ids, if nobody has asked
for them before and they come in their order. Both are exported into the work folder (`migrate.files.work_folder`),
where later processes find them while the version stays.
"""

from __future__ import annotations

import operator
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.databases.driver import DatabaseRows, Page, in_parts
from migrate.errors import LeadMigrateError, LockedError, StoreError
from migrate.files import atomic_file, open_descriptor, output_errors, require_room, sha256_json, work_folder
from migrate.pace import with_rests
from migrate.progress import count_pieces
from migrate.stores.base import StoreInfo
from migrate.stores.documents.base import LazyIds
from migrate.stores.export import IDS_NAME, IdIndex, VectorFile
from migrate.vectors import Batch, Document, Vectors

_POLL_S: Final = 0.1
"""Seconds between two looks whether another process has written an export."""
_DOCUMENTS: Final = 4_096
"""Documents that are read at a time."""
_FEW: Final = 4
"""One row in so many is looked up by itself; once there are more, all vectors are exported."""


class RowExport:
    """Ids and vectors of the records of a store in the order of ids, in files of the work folder.

    `info` are the facts of the store, by which errors name it.
    """

    def __init__(self, rows: DatabaseRows, info: StoreInfo) -> None:
        self.rows = rows
        self.info = info
        self._version: tuple[Any, ...] = ()
        self._folder: Path | None = None
        self._index: IdIndex | None = None
        self._file: VectorFile | None = None

    @property
    def nbytes(self) -> int:
        """Size of the exported vectors."""
        return 4 * self.info.count * self.info.dim

    @property
    def opened_at(self) -> Any:
        """The version that is read, asked for once."""
        if not self._version:
            self._version = (self.read_version(),)
        return self._version[0]

    def read_version(self) -> Any:
        """Return the version that would be read now."""
        with self.rows.driver.errors():
            return self.rows.version(of_pages=True)

    def _export(self) -> Path:
        """Return the folder with the export of this version; those of others are removed when it is made."""
        if self._folder is not None:
            return self._folder
        source = sha256_json([self.rows.driver.traits.kind, self.rows.key])[:24]
        version = sha256_json(self.opened_at)[:24]
        folder = work_folder() / "exports" / f"{source}-{version}"
        with output_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for old in folder.parent.glob(f"{source}-*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)
        self._folder = folder
        return folder

    @property
    def index(self) -> IdIndex:
        """The ids, read when they are first asked for."""
        if self._index is None:
            self._index = self._saved_index()
        if self._index is None:
            pages = self._counted(self.pages(vectors=False), "read the ids")
            self._index = self._whole(IdIndex.of((page.ids for page in pages), self.rows.location))
        return self._index

    def _saved_index(self) -> IdIndex | None:
        """Return the ids as a process before has saved them; None if none has."""
        index = IdIndex.load(self._export() / IDS_NAME)
        if index is None or len(index) != self.info.count:
            return None
        return index

    def _whole(self, index: IdIndex) -> IdIndex:
        """Save the ids, for later processes too; raises if some came or went."""
        if len(index) != self.info.count:
            raise self.changed()
        with suppress(LockedError), atomic_file(self._export() / IDS_NAME, force=True) as temporary:
            index.save(temporary)
        return index

    def vectors(self) -> VectorFile:
        """Return the exported vectors, made when first asked for."""
        if self._file is not None:
            return self._file
        if self.rows.notices_vectors:
            self._file = self._lasting_file()
        else:
            self._file = self._passing_file()
        return self._file

    def lasting_path(self) -> Path:
        """Return the file of vectors that later processes use again."""
        return self._export() / "vectors.f32"

    def _lasting_file(self) -> VectorFile:
        """Return a file that later processes use again."""
        path = self.lasting_path()
        while not path.is_file() or path.stat().st_size != self.nbytes:
            require_room(path, self.nbytes)
            try:
                with atomic_file(path, force=True) as temporary:
                    file = self._opened_file(temporary, os.open(temporary, os.O_RDWR | os.O_CLOEXEC))
                    self._fill(file)
                    with output_errors(temporary):
                        file.sync()
                    if self.read_version() != self.opened_at:
                        raise self.changed()
            # another process exports the same
            except LockedError:
                time.sleep(_POLL_S)
        with output_errors(path):
            return self._opened_file(path, open_descriptor(path))

    def _passing_file(self) -> VectorFile:
        """Return a file that is gone with the store: nothing would tell when its vectors are out of date."""
        folder = self._export()
        require_room(folder / "vectors", self.nbytes)
        with output_errors(folder):
            descriptor, name = tempfile.mkstemp(dir=folder)
            Path(name).unlink()
        file = self._opened_file(Path(name), descriptor)
        self._fill(file)
        return file

    def _opened_file(self, path: Path, descriptor: int) -> VectorFile:
        return VectorFile(path, descriptor, self.info.count, self.info.dim)

    def _fill(self, file: VectorFile) -> None:
        with output_errors(file.path):
            file.reserve()
            if self._index is None:
                self._index = self._saved_index()
            if self._index is None:
                self._index = self._list_and_fill(file)
                if self._index is not None:
                    return
            start = 0
            for page in self._counted(self.pages(), "read the store"):
                rows = self.rows_of(page, start)
                file.put(rows, page.vectors)
                start += len(rows)
            if start != self.info.count:
                raise self.changed()

    def _list_and_fill(self, file: VectorFile) -> IdIndex | None:
        """List the ids while vectors are written, in one pass; None at the first that does not come in its order."""
        is_in_order = True

        def listed() -> Iterator[Sequence[str]]:
            nonlocal is_in_order
            start = 0
            last = ""
            for page in self._counted(self.pages(), "read the store"):
                # texts of Python and their bytes in UTF-8 have one order
                ids = [last, *page.ids]
                is_in_order = all(map(operator.lt, ids, page.ids))
                if not is_in_order:
                    return
                rows = np.arange(start, start + len(page.ids))
                start += len(rows)
                file.put(rows, page.vectors)
                last = ids[-1]
                yield page.ids

        index = IdIndex.of(listed(), self.rows.location)
        return self._whole(index) if is_in_order else None

    def _counted(self, pages: Iterable[Page], stage: str) -> Iterator[Page]:
        return count_pieces(pages, stage, self.info.count, lambda page: len(page.ids))

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read all records as the database orders them; vectors are (len(ids), dim), float32."""
        with self.rows.driver.errors():
            for page in with_rests(self.rows.pages(vectors=vectors, records=records)):
                yield replace(page, vectors=self.as_matrix(page)) if vectors else page

    def as_matrix(self, page: Page) -> Vectors:
        """Return the vectors of a page, (len(ids), dim), float32."""
        return np.asarray(page.vectors, np.float32).reshape(len(page.ids), self.info.dim)

    def rows_of(self, page: Page, start: int) -> NDArray[np.int64]:
        """Return the rows of a page whose first record is at position `start`; raises if it has other records."""
        rows = self.index.rows[start : start + len(page.ids)]
        # of a database in the order of its ids, as most are, their bytes lie one after another
        if self.index.is_in_order:
            are_same = self.index.has_from(start, page.ids)
        else:
            are_same = self.index.ids(rows) == list(page.ids)
        if not are_same:
            raise self.changed()
        return rows

    def whole_pages(self) -> Iterator[tuple[Page, NDArray[np.int64]]]:
        """Read all pages with whole records, each with the rows of its ids."""
        start = 0
        for page in self.pages(vectors=False, records=True):
            yield page, self.rows_of(page, start)
            start += len(page.ids)

    def refresh(self) -> None:
        """Forget exported vectors that the database may have replaced without a new version."""
        if not self.rows.notices_vectors:
            self._file = None

    @property
    def is_made(self) -> bool:
        """True once the vectors are in a file."""
        return self._file is not None

    def changed(self) -> StoreError:
        """Return the error of a store that was written to while it was read; it says what came and went."""
        change = "records with the same ids were changed"
        with suppress(LeadMigrateError):
            driver = self.rows.driver
            new_driver = type(driver)(driver.location, driver.address)
            with new_driver.errors():
                new_ids = {doc_id for page in new_driver.open().pages(vectors=False) for doc_id in page.ids}
            old_ids = new_ids if self._index is None else {*self._index.ids(range(len(self._index)))}
            if added_or_gone := sorted(old_ids ^ new_ids):
                counts = f"{len(new_ids - old_ids):,} documents were added and {len(old_ids - new_ids):,} deleted"
                change = f"{counts}, such as {', '.join(map(repr, added_or_gone[:3]))}"
        location = self.info.location
        return StoreError(f"{location}: the store changed while it was read ({change}); nothing was written, run again")


class OrderedRows:
    """Rows of a store in the order of ids: a few are looked up in the database, more are read from its export."""

    def __init__(self, export: RowExport) -> None:
        self.export = export
        self._rows = export.rows
        self._looked_up = 0
        self._streamed = False

    def refresh(self) -> None:
        """Forget exported vectors that the database may have replaced without a new version."""
        self.export.refresh()
        if not self._rows.notices_vectors:
            self._looked_up = 0

    def scan(self, start: int, stop: int, batch_size: int) -> Iterator[Batch]:
        """Read the vectors of rows `start` to `stop` with their ids."""
        if (start, stop) == (0, self.export.info.count) and self._streams():
            yield from self._stream(batch_size)
            return
        self._looked_up += max(stop - start, 0)
        for first in range(start, stop, batch_size):
            rows = range(first, min(first + batch_size, stop))
            if self._is_exported():
                yield self._batch(rows, self.export.vectors().take(np.arange(rows.start, rows.stop)))
            else:
                yield self._look_up(np.asarray(rows, np.int64))

    def _streams(self) -> bool:
        """Return True once, if a file or folder that is read in place has its records in the order of rows."""
        is_in_place = not (self._rows.driver.is_server or self._rows.is_copy)
        is_first = not (self._streamed or self._is_exported() or self.export.lasting_path().exists())
        self._streamed = True
        return is_in_place and is_first and self.export.index.is_in_order

    def _stream(self, batch_size: int) -> Iterator[Batch]:
        """Read all vectors without an export, which would take as long again to write and to read."""

        def parts() -> Iterator[Vectors]:
            start = 0
            for page in self.export.pages():
                start += len(self.export.rows_of(page, start))
                yield page.vectors
            if start != self.export.info.count or self.export.read_version() != self.export.opened_at:
                raise self.export.changed()

        first = 0
        for vectors in _in_batches(parts(), batch_size):
            yield self._batch(range(first, first + len(vectors)), vectors)
            first += len(vectors)

    def _batch(self, rows: range, vectors: Vectors) -> Batch:
        return Batch(LazyIds(len(rows), partial(self.export.index.ids, rows)), vectors)

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """Return the vectors and ids of some rows."""
        self._looked_up += len(rows)
        if self._is_exported():
            return Batch(self.export.index.ids(rows), self.export.vectors().take(rows))
        return self._look_up(rows)

    def _is_exported(self) -> bool:
        return self.export.is_made or self._looked_up * _FEW >= self.export.info.count

    def _look_up(self, rows: NDArray[np.int64]) -> Batch:
        unique, positions = np.unique(rows, return_inverse=True)
        ids = self.export.index.ids(unique)
        row_of, vectors = self.find_vectors(ids, self.export.index.order[unique])
        self._refuse_gone(ids, row_of)
        in_order = vectors[[row_of[doc_id] for doc_id in ids]]
        return Batch(self.export.index.ids(rows), in_order[positions])

    def find_vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None) -> tuple[dict[str, int], Vectors]:
        """Return the vectors of those of some different ids that are there, and the row of each id in them."""
        if not ids:
            return {}, np.empty((0, self.export.info.dim), np.float32)
        with self._rows.driver.errors():
            read = [self._rows.vectors(*chunk) for chunk in self._chunks(ids, at)]
        row_of = {doc_id: row for row, doc_id in enumerate(chain.from_iterable(page.ids for page in read))}
        return row_of, np.concatenate([self.export.as_matrix(page) for page in read])

    def _chunks(self, ids: Sequence[str], at: NDArray[np.int64] | None) -> Iterator[tuple[Any, ...]]:
        size = self._rows.at_once
        return with_rests(zip(in_parts(ids, size), repeat(None) if at is None else in_parts(at, size), strict=False))

    def documents(self, rows: NDArray[np.int64]) -> Iterator[Document]:
        """Read the documents of some rows, in their order."""
        for chunk in in_parts(rows, _DOCUMENTS):
            # a database that is asked for an id twice answers once
            unique = np.unique(chunk)
            documents = self.find_documents(self.export.index.ids(unique), self.export.index.order[unique])
            ids = self.export.index.ids(chunk)
            self._refuse_gone(ids, documents)
            yield from (documents[doc_id] for doc_id in ids)

    def find_documents(self, ids: Sequence[str], at: NDArray[np.int64] | None) -> dict[str, Document]:
        """Return the documents of those of some different ids that are there."""
        with self._rows.driver.errors():
            documents = (document for chunk in self._chunks(ids, at) for document in self._rows.documents(*chunk))
            return {document.id: document for document in documents}

    def _refuse_gone(self, ids: Iterable[str], present: Collection[str]) -> None:
        missing = next((doc_id for doc_id in ids if doc_id not in present), None)
        if missing is not None:
            raise StoreError(
                f"{self.export.info.location}: document {missing!r} was deleted during the read; stop what writes to "
                "the store, and run again"
            )


def _in_batches(chunks: Iterable[Vectors], size: int) -> Iterator[Vectors]:
    """Join parts of any number of rows to batches of one, the last of what is left."""
    joined: list[Vectors] = []
    for vectors in chunks:
        joined.append(vectors)
        if sum(map(len, joined)) >= size:
            batches = list(in_parts(_joined(joined), size))
            joined = []
            if len(batches[-1]) < size:
                joined.append(batches.pop())
            yield from batches
    if joined:
        yield _joined(joined)


def _joined(parts: Sequence[Vectors]) -> Vectors:
    """Return all rows of some parts; those of one as they are, where joining would copy them."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts)
