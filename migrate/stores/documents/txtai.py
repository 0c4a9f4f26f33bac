"""Documents of a txtai folder: config.json, and an SQLite file `documents` or, without content, a file `ids`.

`ids` is a MessagePack array of texts, integers and nulls (https://github.com/msgpack/msgpack/blob/master/spec.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any, Final

import numpy as np

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.files import output_errors, write_json
from migrate.stores.binary_reader import malformed
from migrate.stores.documents.base import DocumentSource, Labels, Rows, copy_files, label_values, sidecar_files
from migrate.stores.documents.json_file import AGAIN, parse_json, read_json, read_whole, unique_ids
from migrate.stores.documents.sqlite_file import SqliteFile
from migrate.vectors import Document

_NIL: Final = 0xC0
_ARRAYS: Final = {0xDC: ">H", 0xDD: ">I"}
_TEXTS: Final = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_INTEGERS: Final = {0xCC + place: f">{kind}" for place, kind in enumerate("BHIQbhiq")}


_INDEX: Final = "embeddings"
_CONFIG: Final = "config.json"
_PICKLED_CONFIG: Final = "config"
_DOCUMENTS: Final = "documents"
_IDS: Final = "ids"
# a keyword index and a graph, which know texts and ids but no vectors
_SPARSE: Final = ("scoring*", "graph*")
_REFUSED: Final = {
    "pca": "vectors reduced by PCA, which txtai would also apply to queries of the new model",
    "indexes": "subindexes with vectors of their own",
}


def read_ids(path: Path) -> list[str | None]:
    """The ids by label, None where a document was deleted; integers are written out."""
    try:
        return _Reader(read_whole(path)).array()
    except (ValueError, IndexError, struct.error) as error:
        raise malformed(path, "a MessagePack array of ids", f"other ({error})") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def array(self) -> list[str | None]:
        code = self._byte()
        count = code & 0x0F if code >> 4 == 9 else self._number(_ARRAYS, code)
        # one by one: the count is not trusted before the items are there
        items = [self._item() for _ in range(count)]
        if self._position != len(self._content):
            raise ValueError(f"{len(self._content) - self._position} bytes after its end")
        return items

    def _item(self) -> str | None:
        code = self._byte()
        if code == _NIL:
            return None
        if code >> 5 == 5:
            return self._text(code & 0x1F)
        if code in _TEXTS:
            return self._text(self._number(_TEXTS, code))
        if code < 0x80 or code >= 0xE0:
            return str(code - 256 if code >= 0xE0 else code)
        return str(self._number(_INTEGERS, code))

    def _byte(self) -> int:
        self._position += 1
        return self._content[self._position - 1]

    def _number(self, layouts: dict[int, str], code: int) -> int:
        if code not in layouts:
            raise ValueError(f"byte {code:#x} at {self._position - 1}")
        layout = struct.Struct(layouts[code])
        (value,) = layout.unpack_from(self._content, self._position)
        self._position += layout.size
        return int(value)

    def _text(self, size: int) -> str:
        end = self._position + size
        if end > len(self._content):
            raise ValueError("a text beyond the end")
        text = self._content[self._position : end].decode()
        self._position = end
        return text


def is_txtai(index: Path) -> bool:
    """Whether an index has the files of a txtai folder beside it."""
    configs = (index.with_name(name) for name in (_CONFIG, _PICKLED_CONFIG))
    return index.name == _INDEX and any(file.exists() for file in configs)


def open_txtai(index: Path, labels: Labels, count: int) -> DocumentSource:
    """The documents of a txtai folder, with or without content."""
    config = _read_config(index)
    kind = TxtaiDocuments if config.get("content") else TxtaiIds
    return kind(index, labels, count, config)


def _read_config(index: Path) -> dict[str, Any]:
    path = index.with_name(_CONFIG)
    if not path.exists():
        raise UnsupportedStoreError(
            f"{index.with_name(_PICKLED_CONFIG)}: the configuration is a pickle, which could execute "
            "anything; load the store with a current txtai, set its config format to json, and save it "
            "again"
        )
    config = read_json(path)
    for name, why in _REFUSED.items():
        if config.get(name):
            raise UnsupportedStoreError(f"{path}: the index has {why}, which is not read; index again without")
    return config


class _TxtaiFolder(DocumentSource):
    """What both kinds share: how the folder is written."""

    format = "txtai"

    def __init__(self, index: Path, labels: Labels, count: int, config: dict[str, Any]) -> None:
        self._index = index
        self._labels = label_values(labels, range(count))
        self._config = config
        self.also_read = (index.with_name(_CONFIG),)
        model = config.get("path")
        self.notes = (
            (f"{_CONFIG} names the model {model}; see that a new store is loaded with its own",) if model else ()
        )

    def for_dimension(self, dim: int) -> DocumentSource:
        """The same with another dimension in its config.json."""
        changed = copy(self)
        changed._config = self._config | {"dimensions": dim}
        return changed

    def write(self, folder: Path) -> None:
        """Copy the files byte for byte, except for the dimension in config.json."""
        copy_files(sidecar_files(self._index, _DOCUMENTS, _IDS, *_SPARSE), folder)
        with output_errors(folder / _CONFIG):
            write_json(folder / _CONFIG, self._config)


class TxtaiDocuments(_TxtaiFolder):
    """Sections of the SQLite database by row; texts are read when they are needed.

    Parameters
    ----------
    index
        The FAISS file.
    labels
        The label of each row: the section's `indexid`.
    count
        How many rows the index has.
    config
        The content of config.json.
    """

    kind = "documents, by indexid"

    def __init__(self, index: Path, labels: Labels, count: int, config: dict[str, Any]) -> None:
        super().__init__(index, labels, count, config)
        columns = config.get("columns")
        self._text_column = str(columns.get("text", "text")) if isinstance(columns, dict) else "text"
        self.file = index.with_name(_DOCUMENTS)
        self._database = SqliteFile(self.file)
        section_ids = self._database.integers("SELECT indexid FROM sections ORDER BY indexid")
        if not np.array_equal(section_ids, np.sort(self._labels)):
            what = f"{section_ids.size} sections" + (" with others" if section_ids.size == count else "")
            raise malformed(self.file, f"{count} sections with the ids of the index", what, AGAIN)
        self._check_ids()
        missing = self._database.first("SELECT count(*) FROM sections WHERE coalesce(text, '') = ''")
        self.has_texts = missing < count
        if missing:
            self.notes = (*self.notes, f"{missing} of {count} sections have no text")

    def _check_ids(self) -> None:
        odd = self._database.first("SELECT count(*) FROM sections WHERE typeof(id) <> 'text'")
        if odd:
            raise malformed(self._database.path, "ids that are text", f"{odd} that are none", AGAIN)
        twice = self._database.first("SELECT id FROM sections GROUP BY id HAVING count(*) > 1 LIMIT 1")
        if twice is not None:
            raise malformed(self._database.path, "a different id for each section", f"{twice[:80]!r} twice", AGAIN)

    def ids(self, rows: Rows) -> list[str]:
        """The ids of some rows' sections."""
        query = "SELECT indexid, id FROM sections WHERE indexid IN (SELECT value FROM json_each(?))"
        return [doc_id for _, doc_id in self._database.by_key(query, self._keys(rows))]

    def documents(self, rows: Rows) -> Iterator[Document]:
        """The sections of some rows; metadata are the other fields of the document, and its tags."""
        if not self.has_texts:
            raise StoreError(f"{self._database.path}: no section has a text; index texts")
        query = (
            "SELECT s.indexid, s.id, s.text, s.tags, d.data FROM sections s LEFT JOIN documents d ON s.id = d.id "
            "WHERE s.indexid IN (SELECT value FROM json_each(?))"
        )
        return (self._document(*row[1:]) for row in self._database.by_key(query, self._keys(rows)))

    def _keys(self, rows: Rows) -> np.ndarray[Any, np.dtype[np.int64]]:
        return self._labels[rows.start : rows.stop] if isinstance(rows, range) else self._labels[rows]

    def _document(self, doc_id: str, text: Any, tags: Any, data: Any) -> Document:
        if not isinstance(text or "", str) or not isinstance(data or "", str):
            raise malformed(self._database.path, f"a text for id {doc_id!r}", "bytes or a number", AGAIN)
        metadata = parse_json(data, self._database.path, f"JSON for id {doc_id!r}") if data else {}
        metadata.pop(self._text_column, None)
        return Document(doc_id, text or "", metadata | ({"tags": tags} if tags else {}))


class TxtaiIds(_TxtaiFolder):
    """Ids alone, by label; the parameters are those of `TxtaiDocuments`."""

    kind = "ids, without texts"
    has_texts = False

    def __init__(self, index: Path, labels: Labels, count: int, config: dict[str, Any]) -> None:
        super().__init__(index, labels, count, config)
        self.file = index.with_name(_IDS)
        self._path = self.file
        ids = read_ids(self.file)
        used = [label for label, doc_id in enumerate(ids) if doc_id is not None]
        if used != np.sort(self._labels).tolist():
            what = f"{len(used)} ids" + (" at other places" if len(used) == count else "")
            raise malformed(self.file, f"an id for each of {count} vectors", what, AGAIN)
        self._ids = unique_ids([ids[label] or "" for label in self._labels.tolist()], self.file)

    def ids(self, rows: Rows) -> list[str]:
        """The ids of some rows."""
        return self._ids[rows.start : rows.stop] if isinstance(rows, range) else [self._ids[row] for row in rows]

    def documents(self, rows: Rows) -> Iterator[Document]:
        """There are none."""
        raise StoreError(f"{self._path}: the store has ids but no texts; index again with content, or give the texts")
