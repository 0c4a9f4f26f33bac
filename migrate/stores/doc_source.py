"""What a store knows of its documents besides vectors; here the least of it: labels alone, no texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from migrate.documents import Document
from migrate.errors import StoreError
from migrate.stores.labels import Labels, Rows, label_ids


class DocumentSource(ABC):
    """Ids, texts and metadata by row.

    `kind` is one phrase for a person; `file` is what they are read from, if anything, `also_read` what must not change
    with it; `format` is the store's.
    """

    format = "faiss"
    also_read: tuple[Path, ...] = ()

    kind: str
    file: Path | None
    has_texts: bool
    notes: tuple[str, ...]

    @abstractmethod
    def ids(self, rows: Rows) -> list[str]:
        """The ids of some rows, in the order of `rows`."""

    @abstractmethod
    def documents(self, rows: Rows) -> Iterator[Document]:
        """The documents of some rows, in the order of `rows`."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the same documents into a folder, durably; translation does not change them."""

    def for_dimension(self, dim: int) -> DocumentSource:
        """The source that writes documents for vectors of dimension `dim`; only some formats note it beside them."""
        return self


class LabelsOnly(DocumentSource):
    """An index alone: a document is known by its label, as text.

    Parameters
    ----------
    labels
        The label of each row.
    path
        The index, named in errors.
    """

    kind = "none: ids are the labels of the index"
    file = None
    has_texts = False

    def __init__(self, labels: Labels, path: Path) -> None:
        self._labels = labels
        self._path = path
        self.notes = ()

    def ids(self, rows: Rows) -> list[str]:
        """The labels as text."""
        return label_ids(self._labels, rows)

    def documents(self, rows: Rows) -> Iterator[Document]:
        """There are none."""
        raise StoreError(f"{self._path}: expected texts, found only vectors; put a docs.jsonl beside the index")

    def write(self, folder: Path) -> None:
        """Nothing to write: the labels are in the index."""
