"""Helpers of kinds whose records are found by id: writers that wait for all rows, columns, metrics, options."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.stores.base import NO_TEXTS, Metric, RecordStore, Store
from migrate.vectors import UNIT_TOLERANCE, Batch, Document, Vectors, squared_norms
from migrate.work.shards import Rows
from migrate.work.writer import StoreWriter

_DOCUMENTS_AT_ONCE: Final = 1_000
TEXT_NAMES: Final = ("text", "content", "contents", "document", "page_content", "body", "chunk", "chunk_text")
"""Names of a column of texts, the likeliest first; only these are taken without being named."""

ID_NAMES: Final = ("id", "_id", "doc_id", "docid", "document_id", "chunk_id", "uuid", "key")
"""Names of a column of ids, the likeliest first."""

_ID_NAME: Final = re.compile(r".*[_\-. ](id|ID|Id)|.*[a-z]I[dD]|[a-z]{1,4}id|[A-Z]{1,4}ID")

Distance = Literal["l2", "ip", "cosine"]
"""How databases compare; `read_metric` says what becomes of it here."""

_NO_DISTANCE: Final = (
    "nothing says how vectors are compared: inner product is assumed; say ?distance=l2 or cosine if not"
)
_COSINE: Final = (
    "compared by cosine, but the vectors are not of unit length: here they are searched by inner product, which ranks "
    "them differently"
)


def is_id_name(name: str) -> bool:
    """Return whether a name may be that of a column of ids, if each value is another.

    >>> [name for name in ("id", "pmid", "PMCID", "articleId", "page_id", "title", "idea") if is_id_name(name)]
    ['id', 'pmid', 'PMCID', 'articleId', 'page_id']
    """
    return name in ID_NAMES or _ID_NAME.fullmatch(name) is not None


class WaitingWriter(StoreWriter):
    """Writes a store at once by `load`, from the rows in the files of their shards.

    Parameters
    ----------
    source
        The documents that the rows belong to.
    folder
        What becomes the output, or what lies beside it.
    dim
        Dimension of the vectors.
    """

    sorts: bool = True
    """Whether the new store is a `RecordStore`, whose rows are in the order of their ids."""

    rows: Rows

    def __init__(self, source: Store, folder: Path, dim: int) -> None:
        self.source = source
        self.folder = folder
        self.dim = dim

    def finish(self, rows: Rows) -> None:
        """Load the store with the rows."""
        self.rows = rows
        self.load()

    @property
    def order(self) -> NDArray[np.int64] | None:
        """Of a source in another order than that of its ids, where the new store has that."""
        if not self.sorts or isinstance(self.source, RecordStore):
            return None
        keys = [doc_id.encode() for batch in self.batches() for doc_id in batch.ids]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)

    @abstractmethod
    def load(self) -> None:
        """Write the store, durably, in the place of whatever an earlier call has left."""

    def vectors(self, rows: int | None = None) -> Iterator[tuple[int, Vectors]]:
        """All rows in order, some at a time, each part with its first row; memory is bounded."""
        return self.rows.batches(rows)

    def vectors_at(self, rows: NDArray[np.int64]) -> Vectors:
        """Some rows, in any order, (len(rows), dim)."""
        return self.rows.at(rows)

    def batches(self) -> Iterator[Batch]:
        """All ids with their rows; of a source that is a `RecordStore`, no vector is read for that."""
        for first, vectors in self.vectors():
            rows = range(first, first + len(vectors))
            if isinstance(self.source, RecordStore):
                yield Batch(self.source.ids(rows), vectors)
            else:
                yield Batch(self.source.get(np.arange(rows.start, rows.stop)).ids, vectors)

    def records(self, at_once: int = _DOCUMENTS_AT_ONCE) -> Iterator[tuple[list[Document], Vectors]]:
        """All documents with their rows; the texts are empty where the source has none."""
        self.remarks = (*self.remarks, *records_without_vector(self.source))
        documents = source_documents(self.source)
        for _, vectors in self.vectors(at_once):
            yield list(islice(documents, len(vectors))), vectors


def source_documents(source: Store, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
    """The documents of a store, or of some rows that follow each other; without texts where it has none."""
    if source.info.has_texts:
        return source.documents(rows)
    first, last = (0, None) if rows is None else (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
    return (Document(doc_id, "") for batch in source.scan(first, last) for doc_id in batch.ids)


def records_without_vector(source: Store) -> Iterator[str]:
    """The remark that records of the source are not in the new store, as they have no vector."""
    if isinstance(source, RecordStore) and source.without_vector:
        yield f"{source.without_vector:,} rows of the source have no vector: they are not in the new store"


def read_metric(distance: Distance | None, sample: Vectors) -> tuple[Metric, tuple[str, ...]]:
    """How a store is searched that compares by `distance`, with a note where that is not the same.

    Cosine ranks vectors of unit length as the inner product does; `sample` are some of them, (n, dim).
    """
    if distance is None:
        return "ip", (_NO_DISTANCE,)
    if distance != "cosine":
        return distance, ()
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(squared_norms(sample)) if len(sample) else np.ones(1, np.float32)
    is_unit = bool((np.abs(norms - 1) < UNIT_TOLERANCE).all())
    return "ip", () if is_unit else (_COSINE,)


def choose_text(location: str, columns: Sequence[str], asked: str | None) -> tuple[str | None, str]:
    """The column of texts among those that could be, and a note that says why.

    The one that is asked for; else the only one; else the only one with a usual name, see `TEXT_NAMES`.

    Raises
    ------
    StoreError
        The one that is asked for is not there.
    """
    if asked is not None:
        if asked not in columns:
            have = ", ".join(columns) or "none"
            raise StoreError(f"{location}: expected a column of texts {asked!r}, found {have}; name one of these")
        return asked, f"the texts are those of column {asked}, as the location says"
    usual = [name for name in TEXT_NAMES if name in columns]
    if usual:
        return usual[0], f"the texts are those of column {usual[0]}, by its name; say ?text=COLUMN for another"
    if len(columns) == 1:
        return columns[0], f"the texts are those of column {columns[0]}, the only one; say ?text=COLUMN for another"
    have = f"it could be {', '.join(columns)}" if columns else "no column holds texts"
    return None, f"{NO_TEXTS}{have}; say ?text=COLUMN for one"


def import_client(module: str, extra: str) -> ModuleType:
    """The client library of a kind.

    Raises
    ------
    UsageError
        It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"stores of the kind {extra} need the Python package {module}, which is not installed: "
            f"pip install 'lead-migrate[{extra}]'"
        ) from error


def check_options(location: str, options: Mapping[str, str], known: Collection[str]) -> None:
    """Make sure that a location has no option that means nothing; without `known` ones, that of a new store, none.

    Raises
    ------
    UsageError
        It has.
    """
    unknown = ", ".join(sorted(options.keys() - set(known)))
    if unknown and not known:
        raise UsageError(
            f"{location}: expected no options, as a new store of this kind takes none, found {unknown}; leave out what "
            "follows the ?"
        )
    if unknown:
        raise UsageError(
            f"{location}: expected options among {', '.join(sorted(known))}, found {unknown}; leave out what is not "
            "among these"
        )


def metadata_as_json(document: Document) -> str:
    """The metadata of a document as a JSON text; raises StoreError where it holds something else."""
    try:
        return json.dumps(dict(document.metadata), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"document {document.id!r}: expected metadata that JSON can hold, found other ({error})"
        ) from error
