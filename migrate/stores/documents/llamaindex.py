"""Documents of a LlamaIndex folder: docstore.json, and for a FAISS vector store the files that map rows to its nodes.

`FaissVectorStore` keeps the node of each row in index_store.json (`nodes_dict`); `FaissMapVectorStore` keeps it in
id_map.json, and its `nodes_dict` is no use. All are JSON and held in memory, as LlamaIndex itself does.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.files import open_file
from migrate.reading import MalformedError, expect, parse_json, read_small, read_table
from migrate.stores.binary_reader import read_errors
from migrate.stores.documents.base import (
    MOST_BYTES,
    DocumentSource,
    copy_files,
    is_faiss,
    json_errors,
    label_values,
    sidecar_files,
)
from migrate.stores.documents.matching import Labels
from migrate.vectors import Document

VECTORS_NAME: Final = "default__vector_store.json"
EMBEDDINGS: Final = "embedding_dict"
"""The name of the vectors by id in a file of a `SimpleVectorStore`."""

_EMPTY_BYTES: Final = 1_000
"""A larger file of a `SimpleVectorStore` holds a vector."""

_DOCSTORE: Final = "docstore.json"
_INDEX_STORE: Final = "index_store.json"
_ID_MAP: Final = "id_map.json"


def is_llamaindex(index: Path) -> bool:
    """Return whether an index has the files of a LlamaIndex folder beside it."""
    siblings = (index.with_name(name) for name in (_DOCSTORE, _INDEX_STORE, _ID_MAP))
    return index.name.endswith("vector_store.json") and any(file.exists() for file in siblings)


class NodeDocuments(DocumentSource):
    """Nodes of a docstore.json beside a file of vectors, `index`, by the ids of its rows.

    The text of a document is what LlamaIndex embeds: the node's metadata, as far as it is not excluded, and its text,
    put together by the node's own templates. A target model has to see the same text as the source model did.
    """

    format = "llamaindex"
    file: Path
    _no_texts = "all nodes have empty texts; save the store again"

    def __init__(self, index: Path, ids: list[str], kind: str = _DOCSTORE) -> None:
        self.file = self._path = index.with_name(_DOCSTORE)
        self._index = index
        self._ids = ids
        with json_errors(self._path):
            self._nodes = _table(read_table(self._path, MOST_BYTES), "docstore/data")
            missing = [node_id for node_id in self._ids if node_id not in self._nodes]
            if missing:
                raise MalformedError(f"a vector has no node, for example {missing[0]!r} ({len(missing)} missing)")
            # each node has a text, and metadata
            self.has_texts = max((len(self._document(node_id).text) for node_id in self._ids), default=0) > 0
        self.kind = kind
        self.notes = tuple(self._remarks())

    def _remarks(self) -> Iterator[str]:
        orphans = len(self._nodes) - len(self._ids)
        if orphans:
            yield f"{orphans} nodes in {_DOCSTORE} belong to no vector; they are kept as they are"
        if any(self._nodes[node_id]["__data__"].get("metadata") for node_id in self._ids):
            yield "texts are what LlamaIndex embeds: the metadata of a node before its text, by its own template"
        for file in sidecar_files(self._index, "*vector_store.json"):
            if is_faiss(file) or _has_simple_vectors(file):
                yield f"{file.name} holds vectors of another namespace; they are kept as they are"

    def _ids_at(self, positions: NDArray[np.int64]) -> list[str]:
        return [self._ids[position] for position in positions.tolist()]

    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        return map(self._document, self._ids_at(positions))

    def _document(self, node_id: str) -> Document:
        fields = _table(self._nodes[node_id], "__data__")
        resource = fields.get("text_resource")
        text = fields.get("text", resource.get("text") if isinstance(resource, dict) else None)
        metadata = fields.get("metadata", fields.get("extra_info"))
        if not isinstance(text or "", str) or not isinstance(metadata or {}, dict):
            raise MalformedError(f"node {node_id!r} lacks a text or metadata")
        return Document(node_id, embedded_text(text or "", metadata or {}, fields), metadata or {})

    def write(self, folder: Path) -> None:
        """Copy the JSON files byte for byte."""
        copy_files(sidecar_files(self._index, "*store.json", _ID_MAP), folder)


class LlamaIndexDocuments(NodeDocuments):
    """Nodes of a folder with a FAISS vector store, by row."""

    def __init__(self, index: Path, labels: Labels, count: int) -> None:
        id_map = index.with_name(_ID_MAP)
        rows_file = id_map if id_map.exists() else index.with_name(_INDEX_STORE)
        self.also_read = (rows_file,)
        with json_errors(rows_file):
            node_of = _listed_nodes(rows_file) if rows_file != id_map else _mapped_nodes(id_map)
            ids = _ids_by_row(node_of, label_values(labels, range(count)))
        super().__init__(index, ids, f"{_DOCSTORE}, by {rows_file.name}")


def is_simple(file: Path) -> bool:
    """Return whether a file begins as one that LlamaIndex's `SimpleVectorStore` writes."""
    with read_errors(file), open_file(file) as opened:
        head = opened.read(64).lstrip()
    return head.startswith(b"{") and f'"{EMBEDDINGS}"'.encode() in head


def _has_simple_vectors(file: Path) -> bool:
    """Return whether a file of a `SimpleVectorStore` holds any vectors; an empty one has three names and no more."""
    if not is_simple(file):
        return False
    with json_errors(file):
        return file.stat().st_size > _EMPTY_BYTES or bool(read_table(file).get(EMBEDDINGS))


def embedded_text(text: str, metadata: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    r"""Return the text of a node that LlamaIndex embeds, `get_content(MetadataMode.EMBED)`.

    >>> embedded_text("Fresh bread.", {"page": 3, "shelf": 1}, {"excluded_embed_metadata_keys": ["shelf"]})
    'page: 3\n\nFresh bread.'
    """
    keys = fields.get("excluded_embed_metadata_keys")
    excluded = keys if isinstance(keys, list) else []
    template = fields.get("metadata_template", fields.get("metadata_tmpl")) or "{key}: {value}"
    separator = fields.get("metadata_separator", fields.get("metadata_seperator")) or "\n"
    lines = [_fill(template, key=key, value=str(value)) for key, value in metadata.items() if key not in excluded]
    joined = str(separator).join(lines).strip()
    if not joined:
        return text
    template = fields.get("text_template") or "{metadata_str}\n\n{content}"
    return _fill(template, metadata_str=joined, content=text).strip()


def _fill(template: Any, **values: str) -> str:
    # not str.format: a template out of a file could reach into objects with it, or ask for gigabytes of padding
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), str(template))


def _table(fields: Any, name: str) -> dict[str, Any]:
    table: dict[str, Any] = expect(fields, {name: Mapping[str, Any]})[name]
    return table


def _listed_nodes(path: Path) -> dict[Any, Any]:
    """Return the `nodes_dict` of all vector indexes of an index_store.json, which share the rows."""
    node_of: dict[Any, Any] = {}
    for struct in _table(read_table(path, MOST_BYTES), "index_store/data").values():
        if not isinstance(struct, dict) or struct.get("__type__") not in ("vector_store", "multimodal"):
            continue
        data = struct.get("__data__")
        nodes = _table(parse_json(data) if isinstance(data, str) else data, "nodes_dict")
        if shared := node_of.keys() & nodes.keys():
            raise MalformedError(f"row {min(shared)!r} is in two indexes")
        node_of |= nodes
    return node_of


def _mapped_nodes(path: Path) -> dict[Any, Any]:
    content = read_small(path, MOST_BYTES)
    try:
        # the first versions of FaissMapVectorStore wrote Python literals
        fields = ast.literal_eval(content.decode()) if content.startswith(b"{'") else parse_json(content)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise MalformedError(" ".join(f"no JSON: {error}".split())) from error
    return _table(fields, "faiss_id_to_node_id_map")


def _ids_by_row(node_of: Mapping[Any, Any], labels: NDArray[np.int64]) -> list[str]:
    by_label = {str(label): node_id for label, node_id in node_of.items()}
    ids = [by_label.get(str(label)) for label in labels.tolist()]
    if without := ids.count(None):
        raise MalformedError(f"{without} vectors have no node")
    if len(by_label) > len(ids):
        raise MalformedError(f"{len(by_label) - len(ids)} nodes have no vector")
    if strange := [node_id for node_id in ids if not isinstance(node_id, str)]:
        raise MalformedError(f"{strange[0]!r:.40} is no id of a node, which is a text")
    doc_id, count = next(iter(Counter(ids).most_common(1)), ("", 0))
    if count > 1:
        raise MalformedError(f"two vectors have the node {doc_id!r:.80}")
    return [str(node_id) for node_id in ids]
