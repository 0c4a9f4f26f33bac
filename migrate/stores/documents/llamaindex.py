"""Documents of a LlamaIndex folder: docstore.json, and for a FAISS vector store the files that map rows to its nodes.

`FaissVectorStore` keeps the node of each row in index_store.json (`nodes_dict`); `FaissMapVectorStore` keeps it in
id_map.json, and its `nodes_dict` is no use. All are JSON and held in memory, as LlamaIndex itself does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from migrate.files import open_file
from migrate.reading import MalformedError, expect, parse_json, read_small, read_table
from migrate.stores.binary_reader import read_errors
from migrate.stores.documents.base import (
    MOST_BYTES,
    DocumentsInfo,
    DocumentSource,
    HeldDocuments,
    check_known,
    ids_by_label,
    is_faiss,
    json_errors,
    label_values,
    note_of_orphans,
    sidecar_files,
)
from migrate.stores.documents.matching import Labels
from migrate.vectors import Document

VECTORS_NAME: Final = "default__vector_store.json"
EMBEDDINGS: Final = "embedding_dict"
"""The name of the vectors by id in a file of a `SimpleVectorStore`."""

_EMPTY_BYTES: Final = 1_000
"""A larger file of a `SimpleVectorStore` holds a vector."""

DOCSTORE: Final = "docstore.json"
NODE: Final = "_node_content"
"""The field in which vector stores of LlamaIndex keep a whole node, as JSON."""
_INDEX_STORE: Final = "index_store.json"
_ID_MAP: Final = "id_map.json"


def is_llamaindex(index: Path) -> bool:
    """Return whether an index has the files of a LlamaIndex folder beside it."""
    siblings = (index.with_name(name) for name in (DOCSTORE, _INDEX_STORE, _ID_MAP))
    return index.name.endswith("vector_store.json") and any(file.exists() for file in siblings)


def node_documents(index: Path, ids: Sequence[str], *, also_read: Path | None = None) -> DocumentSource:
    """Return the nodes of the file beside an index that have these ids; a row's is that at its place.

    The text of a document is what LlamaIndex embeds: the node's metadata, as far as it is not excluded, and its text,
    put together by the node's own templates. A target model has to see the same text as the source model did.
    `also_read` is the file that the ids are from, if that is not the one of the vectors.
    """
    path = index.with_name(DOCSTORE)
    with json_errors(path):
        nodes = _table(read_table(path, MOST_BYTES), "docstore/data")
        check_known(ids, nodes, "node")
        documents = [_document(node_id, nodes[node_id]) for node_id in ids]
    notes = [*note_of_orphans(len(nodes) - len(documents), "node", path)]
    if any(document.metadata for document in documents):
        notes.append("texts are what LlamaIndex embeds: the metadata of a node before its text, by its own template")
    notes += [
        f"{file.name} holds vectors of another namespace; they are kept as they are"
        for file in sidecar_files(index, "*vector_store.json")
        if is_faiss(file) or _has_simple_vectors(file)
    ]
    has_texts = any(document.text for document in documents)
    info = DocumentsInfo(
        DOCSTORE if also_read is None else f"{DOCSTORE}, by {also_read.name}",
        file=path,
        copied=tuple(sidecar_files(index, "*store.json", _ID_MAP)),
        also_read=() if also_read is None else (also_read,),
        format="llamaindex",
        no_texts="" if has_texts else f"{path}: all nodes have empty texts; save the store again",
        notes=tuple(notes),
    )
    return HeldDocuments(documents, info)


def llamaindex_documents(index: Path, labels: Labels, count: int) -> DocumentSource:
    """Return the nodes of a folder with a FAISS vector store, by row."""
    id_map = index.with_name(_ID_MAP)
    if id_map.exists():
        rows_file = id_map
    else:
        rows_file = index.with_name(_INDEX_STORE)
    with json_errors(rows_file):
        if rows_file != id_map:
            node_of = _listed_nodes(rows_file)
        else:
            node_of = _mapped_nodes(id_map)
        ids = ids_by_label(node_of, label_values(labels, range(count)), "node")
    return node_documents(index, ids, also_read=rows_file)


def _document(node_id: str, node: Any) -> Document:
    fields = _table(node, "__data__")
    resource = fields.get("text_resource")
    text = fields.get("text", resource.get("text") if isinstance(resource, dict) else None)
    # Earlier releases of LlamaIndex wrote nodes with `extra_info`.
    metadata = fields.get("metadata", fields.get("extra_info"))
    if not isinstance(text or "", str) or not isinstance(metadata or {}, dict):
        raise MalformedError(f"node {node_id!r} lacks a text or metadata")
    return Document(node_id, embedded_text(text or "", metadata or {}, fields), metadata or {})


def node_text(content: str) -> str:
    """Return what LlamaIndex embeds of a node that is kept as JSON; raises MalformedError."""
    return _document("", {"__data__": parse_json(content)}).text


def is_simple(file: Path) -> bool:
    """Return whether a file begins as one that LlamaIndex's `SimpleVectorStore` writes."""
    # LlamaIndex writes the vectors first, so that a large file need not be parsed to be known.
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
    if isinstance(keys, list):
        excluded = keys
    else:
        excluded = []
    template = fields.get("metadata_template", fields.get("metadata_tmpl")) or "{key}: {value}"
    # Earlier releases spelled it so.
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
        if content.startswith(b"{'"):
            fields = ast.literal_eval(content.decode())
        else:
            fields = parse_json(content)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise MalformedError(" ".join(f"no JSON: {error}".split())) from error
    return _table(fields, "faiss_id_to_node_id_map")
