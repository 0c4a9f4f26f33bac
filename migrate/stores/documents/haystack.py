"""Documents of a Haystack 1.x FAISSDocumentStore: `<x>.json` beside `<x>.faiss`, and the SQLite file it names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.files import copy_file, output_errors, write_json
from migrate.manifest import MANIFEST_NAME
from migrate.stores.binary_reader import malformed, read_errors
from migrate.stores.documents.base import DocumentSource, Labels, Rows, label_values, sidecar_files
from migrate.stores.documents.json_file import AGAIN, read_json
from migrate.stores.documents.sqlite_file import SqliteFile
from migrate.vectors import Document

_DEFAULT_DATABASE: Final = "faiss_document_store.db"
_DEFAULT_INDEX: Final = "document"
_SCHEME: Final = "sqlite:///"
_KNOWN: Final = frozenset({"sql_url", "embedding_dim", "vector_dim", "faiss_index_factory_str", "similarity"})
_COUNT: Final = 'SELECT count(*) FROM document WHERE "index" = ? '
_LARGEST_CONFIG: Final = 1 << 16


def is_haystack(index: Path) -> bool:
    """Whether an index has the configuration of a FAISSDocumentStore beside it."""
    return _find_config(index) is not None


def _find_config(index: Path) -> Path | None:
    """`<x>.json`, where `save` puts it by default; else the one small file that names a database."""
    config = index.with_suffix(".json")
    names = _names_in(config) if config != index else None
    if names is not None and (names & _KNOWN or (not names and index.with_name(_DEFAULT_DATABASE).exists())):
        return config
    configs = [file for file in sidecar_files(index, "*") if "sql_url" in (_names_in(file) or ())]
    return configs[0] if len(configs) == 1 else None


def _names_in(file: Path) -> frozenset[str] | None:
    """The names in a small JSON object; None where the file is none."""
    with read_errors(file):
        if not file.is_file() or file.stat().st_size > _LARGEST_CONFIG:
            return None
        content = file.read_bytes()
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return frozenset(fields) if isinstance(fields, dict) else None


class HaystackDocuments(DocumentSource):
    """Documents of the SQLite database by row; texts are read when they are needed.

    One database serves several indexes: the configuration names the one that the vectors belong to.

    Parameters
    ----------
    index
        The FAISS file.
    labels
        The label of each row: the document's `vector_id`, as a number.
    count
        How many rows the index has.
    """

    format = "haystack"

    def __init__(self, index: Path, labels: Labels, count: int) -> None:
        self._config_path = _find_config(index) or index.with_suffix(".json")
        self._config = read_json(self._config_path)
        self.also_read = (self._config_path,)
        self._index_name = str(self._config.get("index", _DEFAULT_INDEX))
        self.file = _find_database(index, self._config, self._config_path)
        self._database = SqliteFile(self.file)
        self._check_ids()
        self._rowids = self._match(label_values(labels, range(count)))
        empty = self._count("AND content IN ('\"\"', 'null')")
        self.kind = f"{self.file.name}, by vector_id in {self._index_name!r}"
        self.has_texts = empty < count
        self.notes = tuple(self._remarks())

    def _count(self, condition: str) -> int:
        return int(self._database.first(_COUNT + condition, self._index_name))

    def _check_ids(self) -> None:
        odd = self._count("AND typeof(id) <> 'text'")
        if odd:
            raise malformed(self._database.path, "ids that are text", f"{odd} that are none", AGAIN)
        query = 'SELECT id FROM document WHERE "index" = ? GROUP BY id HAVING count(*) > 1 LIMIT 1'
        twice = self._database.first(query, self._index_name)
        if twice is not None:
            raise malformed(self._database.path, "a different id for each document", f"{twice[:80]!r} twice", AGAIN)
        # SQLite reads a number out of any text, 0 if need be
        odd = self._count("AND vector_id IS NOT NULL AND CAST(CAST(vector_id AS INTEGER) AS TEXT) <> vector_id")
        if odd:
            raise malformed(self._database.path, "numbers as vector_id", f"{odd} that are none", AGAIN)

    def _match(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rowid of each row's document."""
        where = 'FROM document WHERE "index" = ? AND vector_id IS NOT NULL ORDER BY rowid'
        vector_ids = self._database.integers(f"SELECT CAST(vector_id AS INTEGER) {where}", self._index_name)
        rowids = self._database.integers(f"SELECT rowid {where}", self._index_name)
        order = np.argsort(vector_ids, kind="stable")
        ordered = vector_ids[order]
        if not np.array_equal(ordered, np.sort(labels)):
            summary = f"{ordered.size} in the index {self._index_name!r}"
            raise malformed(
                self._database.path,
                f"documents with the vector_id of each of {labels.size} vectors",
                summary + (" with others" if ordered.size == labels.size else ""),
                "deleting documents shifts the vectors of a flat index: run update_embeddings, and save again",
            )
        matched: NDArray[np.int64] = rowids[order][np.searchsorted(ordered, labels)]
        return matched

    def _remarks(self) -> Iterator[str]:
        if without := self._count("AND vector_id IS NULL"):
            yield f"{without} documents in {self._database.path.name} have no vector; they are kept as they are"
        if tables := self._count("AND content_type <> 'text'"):
            yield f"{tables} documents are tables or images; what their content is as JSON passes for their text"
        count = self._database.first('SELECT count(*) FROM document WHERE "index" <> ?', self._index_name)
        if count:
            yield f"{count} documents in {self._database.path.name} belong to other indexes; they are kept as they are"

    def ids(self, rows: Rows) -> list[str]:
        """The ids of some rows' documents."""
        query = "SELECT rowid, id FROM document WHERE rowid IN (SELECT value FROM json_each(?))"
        return [doc_id for _, doc_id in self._database.by_key(query, self._keys(rows))]

    def documents(self, rows: Rows) -> Iterator[Document]:
        """The documents of some rows, with their metadata."""
        if not self.has_texts:
            raise StoreError(f"{self._database.path}: all texts are empty; {AGAIN}")
        query = (
            "SELECT d.rowid, d.id, d.content, (SELECT json_group_array(json_array(m.name, m.value)) "
            'FROM meta_document m WHERE m.document_id = d.id AND m.document_index = d."index") '
            "FROM document d WHERE d.rowid IN (SELECT value FROM json_each(?))"
        )
        return (self._document(*row[1:]) for row in self._database.by_key(query, self._keys(rows)))

    def _keys(self, rows: Rows) -> NDArray[np.int64]:
        return self._rowids[rows.start : rows.stop] if isinstance(rows, range) else self._rowids[rows]

    def _document(self, doc_id: str, content: Any, metadata: str) -> Document:
        if not isinstance(content, str):
            raise malformed(self._database.path, f"JSON as the content of {doc_id!r}", type(content).__name__, AGAIN)
        value = _value(content)
        text = value if isinstance(value, str) else "" if value is None else content
        return Document(doc_id, text, {str(name): _value(cell) for name, cell in json.loads(metadata)})

    def for_dimension(self, dim: int) -> DocumentSource:
        """The same with another dimension in its configuration."""
        changed = copy(self)
        # where the older name is present too, Haystack uses that one
        dims = dict.fromkeys(("embedding_dim", *self._config.keys() & {"vector_dim"}), dim)
        changed._config = self._config | dims | {"sql_url": f"{_SCHEME}{self._database.path.name}"}
        return changed

    def write(self, folder: Path) -> None:
        """Copy the database byte for byte; the configuration gets the new dimension, and the copy as its database."""
        database, config = folder / self._database.path.name, folder / self._config_path.name
        with output_errors(database):
            copy_file(self._database.path, database)
        with output_errors(config):
            write_json(config, self._config)


def _value(cell: Any) -> Any:
    """The value of a cell; versions before 1.0 wrote some as plain text."""
    try:
        value = json.loads(cell)
        json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return cell
    return value


def _find_database(index: Path, config: dict[str, Any], config_path: Path) -> Path:
    """The SQLite file of a configuration, which is looked for beside the index only.

    Folders are copied and moved; and a path out of a stranger's file must not lead to what is not his.
    """
    url = str(config.get("sql_url", _SCHEME + _DEFAULT_DATABASE))
    if not url.startswith(_SCHEME):
        # not the whole URL: it may hold a password
        raise UnsupportedStoreError(
            f"{config_path}: the documents are in {url.split(':')[0]!r}, only SQLite is read; export them "
            "to a docs.jsonl beside the index"
        )
    path = Path(url.removeprefix(_SCHEME).split("?")[0])
    if path.name in ("", "..", index.name, config_path.name, MANIFEST_NAME):
        raise malformed(config_path, "the name of an SQLite file in sql_url", repr(path.name), "correct it")
    local = index.with_name(path.name)
    with read_errors(config_path):
        if not local.is_file():
            advice = f"copy or link {path} there"
            raise malformed(config_path, f"the database {path.name} beside the index", "no such file", advice)
        return local
