"""Names what people have that is not read, by its first bytes or the names of its files, and says the way out.

The way out is always the same: the vectors in a `.npy` with a docs.jsonl beside it, or records in JSON or Parquet. The
programs in the messages are to be run where the library that wrote the file is installed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from migrate.errors import UnsupportedStoreError
from migrate.stores.binary_reader import SQLITE_MAGIC, read_errors, read_head
from migrate.stores.faiss import fourcc
from migrate.stores.switching import BESIDE

_HEAD_BYTES: Final = 4_096
_MOST_FILES: Final = 100
"""Files of a folder that are looked at: those that tell a kind come first, or are many."""

_BESIDE: Final = (
    'put the documents beside it, in the same order, as docs.jsonl ({"id", "text"} a line), and give vectors.npy'
)

PICKLE_TO_JSON: Final = (
    "import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), open(sys.argv[2], 'w'), "
    "default=lambda it: it.to_dict('list') if hasattr(it, 'to_dict') else it.tolist())"
)
"""A program that writes what a pickle holds as JSON: lists, dictionaries, arrays, data frames."""

_LANGCHAIN_TO_FOLDER: Final = (
    "import faiss, pickle, sys; s = pickle.load(open(sys.argv[1], 'rb')); "
    "s.index = s.index or faiss.read_index(sys.argv[2]); s.save_local(sys.argv[3])"
)
SAVE_BY_LANGCHAIN: Final = (
    "if you trust it, save it by a LangChain of then (pip install langchain==0.0.150 'openai<1' faiss-cpu): "
    'python -c "' + _LANGCHAIN_TO_FOLDER + '" {path} docs.index saved; give the folder saved'
)
"""What to do with a whole vector store that LangChain pickled; `docs.index` is read where the index lies apart."""

_MILVUS_TO_LINES: Final = (
    "import json, sys; from pymilvus import MilvusClient as M; "
    "i = M(sys.argv[1]).query_iterator(sys.argv[2], output_fields=['*']); "
    "print(*(json.dumps(r, default=float) for b in iter(i.next, []) for r in b), sep=chr(10))"
)
WRITE_BY_OLD_MILVUS: Final = (
    "write each collection as JSON lines by an earlier client, in an environment of its own (pip install "
    "'pymilvus<2.6' 'milvus-lite<3' 'setuptools<80'): "
    'python -c "' + _MILVUS_TO_LINES + '" {path} COLLECTION > collection.jsonl; give that file'
)
"""What to do with a file of milvus-lite before 3."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A kind that is not read: its name, the test of a file or of the names in a folder, and what to do.

    `{path}` in `way_out` is the file, and `{stem}` the file without its ending.
    """

    name: str
    way_out: str
    is_file: Callable[[Path, bytes], bool] = lambda _path, _head: False
    in_folder: frozenset[str] = frozenset()


def _ends(*suffixes: str) -> Callable[[Path, bytes], bool]:
    return lambda path, _head: path.suffix in suffixes


def _begins(*magic: bytes) -> Callable[[Path, bytes], bool]:
    return lambda _path, head: head.startswith(magic)


def is_langchain_store(head: bytes) -> bool:
    """Return whether a pickle begins as a whole vector store of LangChain."""
    return head.startswith(b"\x80") and b"langchain.vectorstores.faiss" in head[:200]


def _is_torch(path: Path, head: bytes) -> bool:
    return path.suffix in (".pt", ".pth", ".bin") and head.startswith(b"PK\x03\x04")


def _is_search_export(path: Path, head: bytes) -> bool:
    return path.suffix in (".json", ".jsonl", ".ndjson") and b'"_index"' in head and b'"_source"' in head


FOREIGN: Final = (
    Foreign(
        "an archive of NumPy",
        'python -c "import numpy as n, sys; z = n.load(sys.argv[1]); n.save(sys.argv[2], z[sys.argv[3]])" {path} '
        "vectors.npy embeddings (or the name of the array with the vectors); " + _BESIDE,
        _ends(".npz"),
    ),
    Foreign(
        "a file of PyTorch",
        'python -c "import numpy as n, sys, torch; t = torch.load(sys.argv[1], weights_only=True); '
        "n.save(sys.argv[2], t['embeddings'] if isinstance(t, dict) else t)\" {path} vectors.npy; " + _BESIDE,
        _is_torch,
    ),
    Foreign(
        "a file of safetensors",
        'python -c "import numpy as n, sys; from safetensors.numpy import load_file as f; '
        "n.save(sys.argv[2], next(iter(f(sys.argv[1]).values())))\" {path} vectors.npy; " + _BESIDE,
        _ends(".safetensors"),
    ),
    Foreign(
        "a table of Arrow (Feather)",
        'python -c "import pyarrow.feather as f, pyarrow.parquet as p, sys; '
        'p.write_table(f.read_table(sys.argv[1]), sys.argv[2])" {path} {stem}.parquet; give that file',
        _ends(".feather", ".arrow"),
    ),
    Foreign(
        "a file of joblib",
        'if you trust it, write it as JSON: python -c "' + PICKLE_TO_JSON.replace(
            "pickle.load(open(sys.argv[1], 'rb'))", "joblib.load(sys.argv[1])"
        ).replace("pickle", "joblib") + '" {path} {stem}.json; give that file',
        _ends(".joblib"),
    ),
    Foreign(
        "a vector store that LangChain pickled whole",
        SAVE_BY_LANGCHAIN,
        lambda _path, head: is_langchain_store(head),
    ),
    Foreign(
        "the documents of a store of LangChain",
        "give the folder of FAISS.save_local, in which the .faiss file of the same name stands beside it",
        lambda path, head: path.suffix == ".pkl" and b"InMemoryDocstore" in head,
    ),
    Foreign(
        "a file of milvus-lite before 3, which later ones do not read",
        WRITE_BY_OLD_MILVUS,
        lambda _path, head: head.startswith(SQLITE_MAGIC) and b"TABLE collection_meta" in head,
    ),
    Foreign(
        "an index of usearch",
        'python -c "import numpy as n, sys; from usearch.index import Index; i = Index.restore(sys.argv[1]); '
        "k = n.sort([int(it) for it in i.keys]); n.save(sys.argv[2], n.array(i.get(k), 'f4')); print(*k)\" {path} "
        "vectors.npy (it prints the keys, in the order of the rows); " + _BESIDE,
        _ends(".usearch"),
    ),
    Foreign(
        "an index of Annoy",
        'python -c "import annoy, numpy as n, sys; a = annoy.AnnoyIndex(int(sys.argv[2]), sys.argv[3]); '
        "a.load(sys.argv[1]); v = [a.get_item_vector(i) for i in range(a.get_n_items())]; "
        "n.save('vectors.npy', n.array(v, 'f4'))\" "
        "{path} DIMENSION angular; " + _BESIDE,
        _ends(".ann", ".annoy"),
    ),
    Foreign(
        "an index of hnswlib, as LangChain.js keeps it",
        'python -c "import hnswlib, numpy as n, sys; h = hnswlib.Index(sys.argv[2], int(sys.argv[3])); '
        "h.load_index(sys.argv[1]); n.save('vectors.npy', n.array(h.get_items(sorted(h.get_ids_list())), 'f4'))\" "
        "{path}/hnswlib.index cosine DIMENSION; " + _BESIDE,
        in_folder=frozenset({"hnswlib.index"}),
    ),
    Foreign(
        "an index of vectra",
        "write its `items` as a list of objects with id, text and vector to a file of JSON, and give that",
        lambda path, head: path.name == "index.json" and b'"metadata_config"' in head,
        frozenset({"index.json", "vectra.json"}),
    ),
    Foreign(
        "the data of a Weaviate server",
        "start the server, and write its objects as JSON lines with their vectors "
        "(`iterator(include_vector=True)` of its Python client); give that file",
        in_folder=frozenset({"schema.db"}),
    ),
    Foreign(
        "notes of Smart Connections",
        "its vectors are one file a note; let Obsidian build them anew with the other model",
        _ends(".ajson"),
        frozenset({"smart_env.json"}),
    ),
    Foreign(
        "a database of redb",
        "write its records as JSON lines with id, text and vector by the program that made it, and give that file",
        _begins(b"redb\x1a\x0a\xa9\x0d\x0a"),
    ),
    Foreign(
        "an index of Elasticsearch or OpenSearch, or an export of one",
        "write the fields of each `_source` as a line of JSON, with `_id` as id: "
        "jq -c '{id: ._id} + ._source' {path} > {stem}.flat.jsonl; give that file",
        _is_search_export,
    ),
)  # fmt: skip
"""The kinds that are named, the likeliest first."""

_INSIDE: Final = {
    "chroma.sqlite3": "a folder of Chroma",
    "data_level0.bin": "an index inside a folder of Chroma; give the folder above it",
    "index_metadata.pickle": "an index inside a folder of Chroma; give the folder above it",
    "docstore.json": "the documents of a store",
    "index_store.json": "the list of indexes of a store",
}
"""Files that are a part of a store, by name."""


def for_path(way_out: str, path: Path) -> str:
    """Return what to do with a file or folder."""
    # not `format`: the programs have braces of their own
    way_out = way_out.replace("{path}", shlex.quote(str(path)))
    return way_out.replace("{stem}", shlex.quote(str(path.with_suffix(""))))


def refuse_foreign(path: Path) -> None:
    """Raise an UnsupportedStoreError that names what lies at a path, if that is known and holds no index of FAISS."""
    files = [path]
    if path.is_dir():
        with read_errors(path):
            files = [file for file in sorted(path.iterdir()) if file.is_file() and file.name not in BESIDE]
    names = {file.name for file in files}
    # Where an index should be, it is damaged, and that is told by what reads it
    if any(file.suffix == ".faiss" for file in files):
        return
    # A device or a pipe may have no end, and none of these files is one
    heads = {file: read_head(file, _HEAD_BYTES) for file in files[:_MOST_FILES] if file.is_file()}
    if any(fourcc.is_index(head[: fourcc.HEAD_BYTES]) for head in heads.values()):
        return
    for foreign in FOREIGN:
        named = next((file for file, head in heads.items() if foreign.is_file(file, head)), None)
        if named is None and path.is_dir() and foreign.in_folder & names:
            named = path
        if named is not None:
            raise UnsupportedStoreError(f"{named}: this is {foreign.name}; {for_path(foreign.way_out, named)}")
    if path.is_file() and path.name in _INSIDE:
        raise UnsupportedStoreError(f"{path}: this is {_INSIDE[path.name]}; give the folder {path.parent}")
