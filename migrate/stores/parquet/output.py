"""Writes Parquet: files like those of another store with other vectors, or shards of the documents of any store."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import canonical_json, output_errors, reach, sha256_file, write_json
from migrate.manifest import MANIFEST_NAME, StoreFacts
from migrate.reading import MalformedError, as_table, parse_json
from migrate.stores.base import Resume, Store
from migrate.stores.binary_reader import read_errors, read_exactly
from migrate.stores.file_store import Sha256, hash_files
from migrate.stores.kept import sync_tree
from migrate.stores.outputs import FolderOutput, ServerOutput
from migrate.stores.parquet.columns import OWN
from migrate.stores.parquet.files import (
    SHARDS_NAME,
    SUFFIX,
    UNFINISHED_NAME,
    RemoteFiles,
    shards_in,
    shards_json,
)
from migrate.stores.parquet.store import ParquetStore
from migrate.stores.records import WaitingWriter, import_client, metadata_as_json
from migrate.vectors import Document, Vectors

_FLOAT_BYTES: Final = 4
_GROUP_BYTES: Final = 16 << 20
_GROUP_ROWS: Final = 8_192
"""As many documents are in memory at once, whatever else they have."""

_GROUPS_A_SHARD: Final = 16
_HUGGINGFACE: Final = b"huggingface"
_WRITTEN_AS: Final = {"kind": "parquet"}


class ParquetOutput(FolderOutput):
    """A folder of this machine."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(path)
        self.location = location

    def writer(self, source: Store, content: Path, dim: int, resume: Resume) -> ParquetWriter:
        """A writer of the files."""
        return ParquetWriter(source, content, dim, resume)

    def facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """The hashes of the files, and that this kind was asked for."""
        return _facts(content, sha256)


def _facts(content: Path, sha256: Sha256) -> dict[str, Any]:
    first, *more_names = [shard["name"] for shard in _shards(content)]
    return {**StoreFacts(written_as=_WRITTEN_AS).as_details(), **hash_files(content, first, more_names, sha256)}


def _shards(content: Path) -> list[dict[str, Any]]:
    path = content / SHARDS_NAME
    with output_errors(path):
        return shards_in(path.read_bytes(), str(path))


class ParquetWriter(WaitingWriter):
    """Rows wait until all are there; the files are then written one after another, in bounded parts."""

    sorts = False

    def load(self) -> None:
        """Write the files anew, and `_shards.json` last."""
        with output_errors(self.folder):
            for left in self.folder.glob(f"*{SUFFIX}"):
                left.unlink()
            parts = self._copied(self.source) if isinstance(self.source, ParquetStore) else self._made()
            shards = [self._write(name, schema, batches) for name, schema, batches in parts]
            sync_tree(self.folder)
            write_json(self.folder / SHARDS_NAME, shards_json(shards))

    def _write(self, name: str, schema: Any, batches: Iterator[tuple[Sequence[str], Vectors, Any]]) -> dict[str, Any]:
        """One file; what `_shards.json` says of it."""
        import pyarrow.parquet

        facts, path = _Facts(), self.folder / name
        with pyarrow.parquet.ParquetWriter(path, schema) as writer:
            for ids, vectors, batch in batches:
                facts.note(ids, vectors)
                writer.write_batch(batch)
        return {"name": name, "bytes": path.stat().st_size, "sha256": sha256_file(path), **facts.as_json()}

    def _copied(self, source: ParquetStore) -> Iterator[tuple[str, Any, Iterator[Any]]]:
        row = 0
        for shard in source.shards:
            schema = self._schema_like(source, source.schema_of(shard))
            yield shard.name, schema, self._with_vectors(source, schema, source.whole(shard, self._at_once), row)
            row += source.rows_of(shard)

    def _with_vectors(
        self, source: ParquetStore, schema: Any, batches: Iterator[Any], row: int
    ) -> Iterator[tuple[Sequence[str], Vectors, Any]]:
        """The batches, with rows `row` and on in the place of their vectors."""
        import pyarrow as pa

        place = schema.get_field_index(source.columns.vector)
        for batch in batches:
            vectors = self._stretch(row, batch.num_rows)
            columns = batch.columns
            columns[place] = _lists(vectors, schema.field(place).type)
            key = source.columns.id
            ids = (row, row + batch.num_rows - 1) if key is None else _ends(batch.column(batch.schema.names.index(key)))
            yield [str(doc_id) for doc_id in ids], vectors, pa.RecordBatch.from_arrays(columns, schema=schema)
            row += batch.num_rows

    def _stretch(self, start: int, count: int) -> Vectors:
        """Some rows on end, (count, dim)."""
        path, vectors = self.rows.path, np.empty((count, self.rows.dim), "<f4")
        with read_errors(path), path.open("rb", buffering=0) as file:
            read_exactly(path, file.fileno(), vectors.reshape(-1).view(np.uint8).data, start * self.rows.row_bytes)
        return vectors.astype(np.float32, copy=False)

    def _schema_like(self, source: ParquetStore, schema: Any) -> Any:
        import pyarrow as pa

        place = schema.get_field_index(source.columns.vector)
        old = schema.field(place).type
        value = old.value_field.with_type(pa.float32())
        if pa.types.is_fixed_size_list(old):
            new = pa.list_(value, self.rows.dim)
        else:
            new = (pa.large_list if pa.types.is_large_list(old) else pa.list_)(value)
        metadata = dict(schema.metadata or {})
        if metadata.pop(_HUGGINGFACE, None) is not None:
            # `datasets` notes the length and the type of the lists there, and would refuse others
            remark = "the features that `datasets` notes in the schema are of the old vectors: they are left out"
            self.remarks = tuple(dict.fromkeys((*self.remarks, remark)))
        if source.asked:
            metadata[OWN] = canonical_json(source.asked).encode()
        return schema.set(place, schema.field(place).with_type(new)).with_metadata(metadata or None)

    @property
    def _at_once(self) -> int:
        return max(min(_GROUP_BYTES // (_FLOAT_BYTES * self.rows.dim), _GROUP_ROWS), 1)

    def _made(self) -> Iterator[tuple[str, Any, Iterator[Any]]]:
        pa = import_client("pyarrow", "parquet")
        has_texts = self.source.info.has_texts
        noted = {"distance": self.source.info.metric, "id": "id", "metadata": "metadata", "vector": "vector"}
        noted = {**noted, "text": "text"} if has_texts else noted
        texts = [("text", pa.string())] if has_texts else []
        vector = ("vector", pa.list_(pa.float32(), self.rows.dim))
        fields = [("id", pa.string()), *texts, ("metadata", pa.string()), vector]
        schema = pa.schema(fields, metadata={OWN: canonical_json(noted).encode()})
        records, number = self.records(self._at_once), 0
        left = self.source.info.count
        while left > 0 or number == 0:
            rows = min(left, self._at_once * _GROUPS_A_SHARD)
            yield f"part-{number:05d}{SUFFIX}", schema, self._batches(schema, records, rows)
            left, number = left - rows, number + 1

    def _batches(
        self, schema: Any, records: Iterator[tuple[list[Document], Vectors]], rows: int
    ) -> Iterator[tuple[Sequence[str], Vectors, Any]]:
        import pyarrow as pa

        while rows > 0:
            documents, vectors = next(records)
            ids = [document.id for document in documents]
            columns = [
                _texts("id", documents, ids),
                _texts("text", documents, [document.text for document in documents]),
                _texts("metadata", documents, list(map(metadata_as_json, documents))),
                _lists(vectors, schema.field("vector").type),
            ]
            if "text" not in schema.names:
                del columns[1]
            yield ids, vectors, pa.RecordBatch.from_arrays(columns, schema=schema)
            rows -= len(documents)


class _Facts:
    """What is said of a shard, as it is written."""

    def __init__(self) -> None:
        self.rows = 0
        self.ids: tuple[str, str] | None = None
        self.norm_sum = 0.0
        self.norms = (np.inf, 0.0)

    def note(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Rows, with the first and the last id of them at least."""
        if not len(vectors):
            return
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        self.rows += len(vectors)
        self.ids = (ids[0] if self.ids is None else self.ids[0], ids[-1])
        self.norm_sum += float(norms.sum())
        self.norms = (min(self.norms[0], float(norms.min())), max(self.norms[1], float(norms.max())))

    def as_json(self) -> dict[str, Any]:
        """Rows, ids and norms."""
        if self.ids is None:
            return {"rows": 0}
        return {
            "rows": self.rows,
            "first_id": self.ids[0],
            "last_id": self.ids[1],
            "norm_min": self.norms[0],
            "norm_mean": self.norm_sum / self.rows,
            "norm_max": self.norms[1],
        }


def _ends(column: Any) -> list[Any]:
    return [column[0].as_py(), column[len(column) - 1].as_py()] if len(column) else []


def _lists(vectors: NDArray[np.float32], kind: Any) -> Any:
    """Rows as lists of one type."""
    import pyarrow as pa

    numbers, dim = pa.array(vectors.reshape(-1), pa.float32()), vectors.shape[1]
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(numbers, type=kind)
    is_large = pa.types.is_large_list(kind)
    ends = np.arange(0, vectors.size + 1, dim, dtype=np.int64 if is_large else np.int32)
    return (pa.LargeListArray if is_large else pa.ListArray).from_arrays(pa.array(ends), numbers, type=kind)


def _texts(name: str, documents: Sequence[Document], values: Sequence[str]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values, pa.string())
    except UnicodeError as error:
        for document, value in zip(documents, values, strict=True):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise StoreError(
                    f"document {document.id!r}: expected {name} of Unicode characters, found others; write it anew"
                ) from error
        raise


class ObjectOutput(ServerOutput):
    """A prefix of object storage, with nothing under it yet.

    The store is made complete on this machine, and put there file by file. `_unfinished.json`, which only one run can
    put, stands there until `_shards.json`, which comes last, says that all is there. What is there is never replaced.
    """

    def __init__(self, location: str, url: str) -> None:
        super().__init__(location, url.rstrip("/").rpartition("/")[2] or "parquet")
        self.url = url
        self.by = f"{platform.node()}:{self.path}"

    def writer(self, source: Store, content: Path, dim: int, resume: Resume) -> ParquetWriter:
        """A writer of the files, on this machine."""
        return ParquetWriter(source, content, dim, resume)

    def facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """The hashes of the files, and that this kind was asked for."""
        return _facts(content, sha256)

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that there is nothing, but for what this machine's own run has not finished."""
        files = self._files()
        listed = {file.name for file in files.list_all()}
        if not listed or (SHARDS_NAME not in listed and self._is_ours(self._mark(files))):
            return
        mark = self._mark(files)
        if mark is not None and SHARDS_NAME not in listed:
            raise UsageError(
                f"{self.location}: another run writes there, or broke off ({mark.get('by')}); continue that one, or "
                "remove what is there"
            )
        raise UsageError(
            f"{self.location} exists; objects are not replaced: choose another output, or remove it yourself"
        )

    def is_published(self, content: Path) -> bool:
        """Whether `_shards.json` is there, of this very store."""
        files = self._files()
        kept = files.read(SHARDS_NAME)
        if kept is None:
            return False
        if content.is_dir():
            names = [name for name in (SHARDS_NAME, MANIFEST_NAME) if (content / name).is_file()]
            if any(files.read(name) != (content / name).read_bytes() for name in names):
                return False
        if self._is_ours(self._mark(files)):  # a run was killed between the last two steps
            self._remove(files, [UNFINISHED_NAME])
        return True

    def publish(self, content: Path, *, force: bool) -> None:
        """Put all files, the list of them last."""
        files = self._files()
        paths = [path for path in sorted(content.iterdir()) if path.is_file()]
        digest = hashlib.sha256(canonical_json({path.name: sha256_file(path) for path in paths}).encode()).hexdigest()
        self._claim(files, digest, [path.name for path in paths])
        there = {file.name: file.size for file in files.list_all()}
        with files.errors():
            for path in paths:
                if path.name == SHARDS_NAME or there.get(path.name) == path.stat().st_size:
                    continue
                files.system.put_file(str(path), files.path_of(path.name))
                reach("put")
            files.system.pipe_file(files.path_of(SHARDS_NAME), (content / SHARDS_NAME).read_bytes())
            reach("listed")
        self._remove(files, [UNFINISHED_NAME])

    def discard(self) -> None:
        """Remove what a run of this machine has put there and not finished."""
        files = self._files()
        mark = self._mark(files)
        if mark is None or not self._is_ours(mark) or files.read(SHARDS_NAME) is not None:
            return
        self._remove(files, [str(name) for name in mark.get("files", []) if "/" not in str(name)])
        self._remove(files, [UNFINISHED_NAME])

    def _claim(self, files: RemoteFiles, digest: str, names: Sequence[str]) -> None:
        """Put the mark, unless an earlier call of the same work has."""
        mark = {"by": self.by, "of": digest, "files": list(names)}
        claimed = self._mark(files)
        if claimed is not None and self._is_ours(claimed) and claimed.get("of") != digest:
            self.discard()
        elif claimed == mark:
            return
        with files.errors():
            try:
                files.system.pipe_file(files.path_of(UNFINISHED_NAME), canonical_json(mark).encode(), mode="create")
            except FileExistsError as error:
                raise UsageError(
                    f"{self.location}: another run writes there, or broke off; continue that one, or remove what is "
                    "there"
                ) from error
        reach("claimed")

    def _files(self) -> RemoteFiles:
        return RemoteFiles(self.location, self.url)

    def _mark(self, files: RemoteFiles) -> dict[str, Any] | None:
        content = files.read(UNFINISHED_NAME)
        if content is None:
            return None
        try:
            return as_table(parse_json(content))
        except MalformedError:
            return {}

    def _is_ours(self, mark: Mapping[str, Any] | None) -> bool:
        return mark is not None and mark.get("by") == self.by

    def _remove(self, files: RemoteFiles, names: Sequence[str]) -> None:
        with files.errors():
            for name in names:
                try:
                    files.system.rm_file(files.path_of(name))
                except FileNotFoundError:
                    continue
