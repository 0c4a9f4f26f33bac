"""The kind of stores that are one file of records with vectors.

The vectors are read once into a temporary file of rows, and what else the records hold into another; a file of JSON is
held in memory while it is read and while another is written, lines and rows are not.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final

import numpy as np

from migrate.errors import UsageError
from migrate.files import FileStamp
from migrate.locations import Address
from migrate.stores.base import NO_TEXTS, WAY_TO_TEXTS, KindSupport, StoreInfo
from migrate.stores.binary_reader import RowFile, malformed, read_errors
from migrate.stores.child import temporary_file, write_all
from migrate.stores.documents.base import (
    LOOKED_AT,
    DocumentsInfo,
    DocumentSource,
    HeldDocuments,
    NoTextsError,
)
from migrate.stores.documents.json_shapes import KEY
from migrate.stores.documents.matching import Numbering
from migrate.stores.documents.names import LIKELY_IDS, VECTORS, first_of
from migrate.stores.documents.own_file import Record, own_documents
from migrate.stores.file_store import RowFileStore, only_file, own_manifest
from migrate.stores.record_file.contents import TABLES, Content, numbers_of
from migrate.stores.record_file.formats import content_of, holds_vectors
from migrate.stores.records import Distance, check_options, choose, read_metric
from migrate.stores.switching import BESIDE
from migrate.vectors import Document, Vectors
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import StoreWriter, Written

_OPTIONS: Final = ("vector", "id", "text", "distance")
_DISTANCES: Final[Mapping[str, Distance]] = MappingProxyType({"l2": "l2", "cosine": "cosine", "dot": "ip", "ip": "ip"})
_SAMPLE: Final = 64


class RecordFileKind:
    """Files of records with vectors, as the registry knows them."""

    name = "records"
    support = KindSupport(
        "records with vectors: JSON, JSON lines, CSV, pickle, nano-vectordb",
        ("FILE", "FOLDER", "records:FILE#?vector=FIELD&text=FIELD"),
        "",
        "ids, order, texts, all other fields and the shape of the file",
        "vectors are written as float32; spaces and line ends may differ",
        "bounded for lines and CSV; JSON and pickles as a whole",
    )

    def recognises(self, path: Path) -> bool:
        """Return True for a file that begins as one of records with vectors, or a folder with exactly one."""
        if path.is_dir():
            return len(_files_in(path)) == 1
        return holds_vectors(path)

    def open(self, location: str) -> RecordFileStore:
        """Open a file, or a folder with exactly one; `PATH#?vector=FIELD&text=FIELD&id=FIELD` names its fields.

        Raises a StoreError where there is none, or more than one; or it is malformed, or has no field of vectors.
        """
        address = Address.of_path(location)
        check_options(f"{self.name}:{location}", address.options, _OPTIONS)
        path = Path(address.place)
        index = path
        if not path.is_file():
            index = only_file(path, _files_in, "files of records with vectors")
        return RecordFileStore(path, index, address.options)


def _files_in(folder: Path) -> list[Path]:
    with read_errors(folder):
        files = sorted(file for file in folder.iterdir() if file.name not in BESIDE)
    return [file for file in files if not file.name.startswith(".") and holds_vectors(file)]


class RecordFileStore(RowFileStore):
    """A file of records: `path` is what the user gave, `index` the file, `fields` are those of its location.

    Raises a StoreError where it is malformed, has no field of vectors, or they are not of one length.
    """

    mixes_vectors = True

    def __init__(self, path: Path, index: Path, fields: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(index)
        stamp = FileStamp.of(index)
        manifest, foreign = own_manifest(index)
        named = {**((manifest and manifest.store.fields) or {}), **fields}
        content = content_of(index)
        self._field = _choose_vector(index, content, named.get("vector"))
        self._file, records, without = _read(content, stamp, self._field)
        stamp.check()
        documents = {option: field for option, field in named.items() if option in ("id", "text")}
        self.source = _documents(index, records, self._file.count, documents)
        # Each record has its own vector: numbers in its id say nothing here.
        self.source.positions = None
        self.source.info = replace(self.source.info, matched="")
        self.named_fields = named
        self.stamps = (stamp,)
        sample = self._file.read(0, min(_SAMPLE, self._file.count))
        metric, notes = read_metric(_distance(path, named.get("distance")) or content.distance, sample)
        self.info = StoreInfo(
            location=str(path),
            kind=RecordFileKind.name,
            index_type=content.index_type,
            count=self._file.count,
            dim=self._file.dim,
            metric=metric,
            exact=True,
            has_texts=self.source.info.has_texts,
            manifest=manifest,
            notes=(*notes, *self.source.info.notes, *foreign),
            details={
                "index": index.name,
                "index_bytes": stamp.size,
                "field": self._field,
                "documents": self.source.info.kind,
            },
            without_vector=without,
        )

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Return a writer of the same file, under the same name, with other vectors."""

        def complete(rows: Rows, _shards: ShardFolder) -> Written:
            target = location / self.index_path.name
            content = content_of(self.index_path)
            # What else the records hold is read again: of another file it would stand beside vectors of this one
            self.stamps[0].check()
            content.save(target, self._field, rows)
            self.stamps[0].check()
            return Written()

        return StoreWriter(dim, complete)


def _choose_vector(path: Path, content: Content, named: str | None) -> str:
    """Return the field of vectors: the one that is named, the one with a usual name, or the only one."""
    looked_at = list(islice(content.records(), LOOKED_AT))
    names = dict.fromkeys(name for record in looked_at for name in record)
    vectors = [name for name in names if any(numbers_of(record.get(name)) is not None for record in looked_at)]
    if named is None and (usual := first_of(VECTORS, vectors)) is not None:
        return usual
    if not vectors:
        have = ", ".join(filter(None, names))[:200] or "no records"
        raise malformed(path, f"no field holds vectors: it has {have}", "give each record a list of numbers, embedding")
    return choose(path, "field of vectors", vectors, named, f"say records:{path}#?vector=FIELD for one")


def _distance(path: Path, named: str | None) -> Distance | None:
    if named is None:
        return None
    if named not in _DISTANCES:
        raise UsageError(f"{path}: unknown distance {named!r}; say l2, cosine or dot")
    return _DISTANCES[named]


def _read(content: Content, stamp: FileStamp, field: str) -> tuple[RowFile, BinaryIO, int]:
    """Return the vectors, what else the records with a vector hold, line by line, and the number of those without."""
    path = content.path
    dim = 0
    count = 0
    without = 0
    with ExitStack() as stack:
        vectors = stack.enter_context(temporary_file(path, stamp.size))
        others = stack.enter_context(temporary_file(path, stamp.size))
        for number, record in enumerate(content.records(), start=1):
            vector = _vector_of(content, number, record.get(field), field)
            if vector is None:
                without += 1
                continue
            dim = dim or len(vector)
            if len(vector) != dim:
                problem = f"record {number} has a vector of {len(vector)} numbers, and others of {dim}"
                raise malformed(path, problem, "correct the file")
            write_all(vectors, vector.tobytes())
            rest = {name: entry for name, entry in record.items() if name != field}
            write_all(others, (json.dumps(rest, ensure_ascii=False, default=np.ndarray.tolist) + "\n").encode())
            count += 1
        if not count:
            raise malformed(path, "it holds no vectors", "give a file with some")
        rows = RowFile(stamp, np.array([[0, count]]), dim, descriptor=vectors.fileno())
        weakref.finalize(rows, vectors.close)
        stack.pop_all()
    return rows, others, without


def _vector_of(content: Content, number: int, value: object, field: str) -> Vectors | None:
    """Return the vector of a record, (dim,), None where it has none."""
    if value is None or (not isinstance(value, np.ndarray) and value in ("", [])):
        return None
    if isinstance(value, str) and not content.reads_texts:
        problem = f"record {number} has as {field!r} the text of a list"
        raise malformed(content.path, problem, "make lists of these texts, as by json.loads, and write the file anew")
    vector = numbers_of(value)
    if vector is None:
        raise malformed(content.path, f"record {number} has as {field!r} no list of numbers", "correct the file")
    return vector


def _documents(path: Path, records: BinaryIO, count: int, named: Mapping[str, str]) -> DocumentSource:
    """Return the documents of the records, whose ids alone count where no field could hold texts."""

    def read() -> Iterator[Record]:
        records.seek(0)
        # a reader of its own, as another one may be at its beginning
        with os.fdopen(os.dup(records.fileno()), "rb", buffering=1 << 20) as lines:
            yield from map(json.loads, lines)

    rows = Numbering(labels=None, added=None, count=count, is_index=False)
    try:
        return own_documents(path, path, rows, named, kind=RecordFileKind.name, read=read)
    except NoTextsError as error:
        if "text" in named:
            raise
        ids = _ids(path, list(read()), named.get("id"))
        return HeldDocuments([Document(doc_id, "") for doc_id in ids], _without_texts(path, error))
    finally:
        records.close()


def _without_texts(path: Path, error: NoTextsError) -> DocumentsInfo:
    # Each record has its own text: no file beside this one is read.
    why = str(error).removesuffix(f", or {WAY_TO_TEXTS}")
    return DocumentsInfo("none but ids", file=path, no_texts=why, notes=(f"{NO_TEXTS}{why}",))


def _ids(path: Path, records: Sequence[Record], named: str | None) -> list[str]:
    """Return the id that is named of each record, else its key, else its own id, else its number."""
    # In a table the key is what stands in a column without a name.
    usual = (*LIKELY_IDS, KEY) if path.suffix in TABLES else (KEY, *LIKELY_IDS)
    for name in usual if named is None else (named,):
        ids = [str(record[name]) for record in records if isinstance(record.get(name), int | str)]
        if len(set(ids)) == len(records):
            return ids
    if named is not None:
        raise malformed(path, f"the field {named!r} is no id: records lack it, or have the same", "name another")
    return list(map(str, range(len(records))))
