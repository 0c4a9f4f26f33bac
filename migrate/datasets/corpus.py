"""A corpus in one JSONL file, read as a stream, as often as wanted. Folders with queries are in `beir.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate.datasets.records import describe_type, read_records, record_id, record_text
from migrate.documents import Document
from migrate.errors import DatasetError


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents of a JSONL file; every iteration reads the file anew, in constant memory but for the ids.

    Raises (on iteration)
    ---------------------
    DatasetError
        The file is missing or holds no document; a line is not UTF-8, not JSON, has no id or text, or has
        an id that came before. Names file and line.
    OutputError
        The operating system refused to read it.
    """

    path: Path

    def __iter__(self) -> Iterator[Document]:
        seen: set[str] = set()
        for place, record in read_records(self.path):
            document = _document(record, place)
            if document.id in seen:
                raise DatasetError(f"{place}: expected a new document id, found {document.id!r} again; remove one")
            seen.add(document.id)
            yield document
        if not seen:
            raise DatasetError(f"{self.path}: expected documents, found an empty file; check how it was written")


def read_corpus(path: Path) -> Corpus:
    """Documents of a JSONL file of `{"_id" or "id", "text", "title"?, "metadata"?}`, in the file's order.

    A document's text is `title + " " + text`, stripped, as BEIR and sentence-transformers embed it; the title
    is kept in the metadata as well. Other keys of a record are not read. A text may be empty: whether that can
    be embedded is for the embedder to say.

    Parameters
    ----------
    path
        The file. It is opened when the corpus is iterated, each time anew.

    Raises
    ------
    DatasetError
        There is no such file. What is wrong inside it is raised on iteration: see `Corpus`.
    """
    if not path.is_file():
        raise DatasetError(f"{path}: expected a file of documents (JSONL), found none; check the path")
    return Corpus(path)


def _document(record: dict[str, Any], place: str) -> Document:
    title = record_text(record, "title", place, default="")
    text = record_text(record, "text", place)
    metadata = record.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise DatasetError(f'{place}: expected an object under "metadata", found {describe_type(metadata)}; mend it')
    kept = {**metadata, "title": title} if title else metadata
    return Document(record_id(record, place), f"{title} {text}".strip(), kept)
