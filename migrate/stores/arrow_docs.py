"""The documents of rows in Arrow or Parquet, whatever holds the rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.documents import Document
from migrate.errors import StoreError
from migrate.stores.arrow import ArrowIds, Columns, rows_in_order, to_document
from migrate.stores.doc_source import DocumentSource
from migrate.stores.labels import Labels, Rows, label_values


class ArrowDocuments(DocumentSource):
    """What Parquet files and datasets share; a subclass sets these fields and reads the rows.

    `_places` are the places of the rows' documents, None where row i is document i.
    """

    _path: Path
    _pyarrow: Any
    _columns: Columns
    _ids: ArrowIds
    _places: Labels

    @abstractmethod
    def _read(self, places: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """The rows at ascending places."""

    def _describe(self, kind: str) -> None:
        columns = self._columns
        self.kind = f"{kind}, text: {columns.text or 'none'}, ids: {columns.id or 'row numbers'}"
        self.has_texts = columns.text is not None
        names = ", ".join(columns.vectors)
        note = f"{self._path.name} also holds vectors ({names}); a new store has them as they are, untranslated"
        self.notes = (note,) if names else ()

    def ids(self, rows: Rows) -> list[str]:
        """The ids of some rows."""
        return self._ids.take(label_values(self._places, rows))

    def documents(self, rows: Rows) -> Iterator[Document]:
        """The documents of some rows; metadata are the other columns, without vectors and bytes."""
        if not self.has_texts:
            raise StoreError(f"{self._path}: expected a column of texts, found none; name one of them text")
        places = label_values(self._places, rows)
        found = rows_in_order(places, self._read)
        return (to_document(place, row, self._columns) for place, row in zip(places, found, strict=True))


def check_count(path: Path, expected: int, found: int) -> None:
    """Make sure that there are as many documents as vectors.

    Raises
    ------
    StoreError
        There are not.
    """
    if found != expected:
        raise StoreError(
            f"{path}: expected {expected} documents, one for each vector, found {found}; "
            "write both from the same documents, neither filtered nor changed in between"
        )
