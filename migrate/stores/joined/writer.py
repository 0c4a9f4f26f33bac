"""Writes the collections of a joined store, one after the other."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from migrate.files import output_errors
from migrate.stores.database import DatabaseWriter
from migrate.stores.kept import sync_tree
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import StoreWriter, write_rows

if TYPE_CHECKING:
    from migrate.stores.joined.store import JoinedStore


class JoinedWriter(StoreWriter):
    """Writes one collection after the other once all rows are there.

    `open_writer` returns the writer of a collection, by its name, into a folder: one for all, or one for each. Those
    that are `unwritten`, by name, are left out.
    """

    def __init__(
        self,
        source: JoinedStore,
        folder: Path,
        dim: int,
        open_writer: Callable[[str, Path], StoreWriter],
        *,
        in_one_folder: bool,
        unwritten: Sequence[str] = (),
    ) -> None:
        self.source, self.folder, self.dim = source, folder, dim
        self._open, self._in_one_folder = open_writer, in_one_folder
        self._orders: list[NDArray[np.int64]] | None = None
        self._unwritten = unwritten
        for name in (
            source.members if in_one_folder else ()
        ):  # what cannot be written is refused before anything is made
            open_writer(name, folder)

    @property
    def order(self) -> NDArray[np.int64] | None:
        """The orders of the collections, one after the other."""
        return None if self._orders is None else np.concatenate(self._orders)

    def finish(self, rows: Rows, shards: ShardFolder) -> None:
        """Write all, in the place of what a killed run left."""
        with output_errors(self.folder):
            for path in self.folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        orders, remarks, has_order = dict[str, NDArray[np.int64]](), Counter[str](), False
        for name, own_rows in self.source.collections().items():
            if name in self._unwritten:
                continue
            start, stop = (int(own_rows[0]), int(own_rows[-1]) + 1) if len(own_rows) else (0, 0)
            writer, vectors = self._writer(name), rows.part(start, stop)
            if isinstance(writer, DatabaseWriter):
                writer.finish(vectors, shards)
            else:
                write_rows(writer, vectors.batches(), len(vectors), self.folder.parent)
            order = writer.order
            has_order = has_order or order is not None
            orders[name] = own_rows if order is None else own_rows[order]
            remarks.update(writer.remarks)
            if writer.recall is not None:
                self.recall = min(writer.recall, writer.recall if self.recall is None else self.recall)
        as_listed = sorted(orders, key=self._listed_as)
        self._orders = [orders[name] for name in as_listed] if has_order or as_listed != [*orders] else None
        written = len(self.source.members) - len(self._unwritten)
        self.remarks = tuple(text if n == written else f"{text} ({n:,} of {written:,})" for text, n in remarks.items())
        if self._unwritten:
            self.remarks += (f"empty, and not written: {', '.join(self._unwritten)}",)
        sync_tree(self.folder)

    def folder_of(self, name: str) -> Path:
        """Return the folder that a collection is written into: one of its name, in which no path has a slash."""
        return self.folder if self._in_one_folder else self.folder / self.source.copied_name(name).replace("/", "%2F")

    def _listed_as(self, name: str) -> str:
        """Return the name by which a collection has its place among those that were written."""
        return self.source.copied_name(name) if self._in_one_folder else self.folder_of(name).name

    def _writer(self, name: str) -> StoreWriter:
        folder = self.folder_of(name)
        folder.mkdir(exist_ok=True)
        writer = self._open(name, folder)
        if isinstance(writer, DatabaseWriter) and self._in_one_folder:
            writer.share_folder()
        return writer
