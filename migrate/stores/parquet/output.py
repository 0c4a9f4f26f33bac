"""Writes Parquet: files like those of another store with other vectors, or shards of the documents of any store."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import canonical_json, output_errors, reach, sha256_file, sync_path, write_json
from migrate.manifest import MANIFEST_NAME, StoreFacts
from migrate.reading import MalformedError, as_table, parse_json
from migrate.stores.base import Store
from migrate.stores.file_store import Sha256, hash_files
from migrate.stores.kept import sync_tree
from migrate.stores.outputs import FolderOutput, ServerOutput
from migrate.stores.parquet.columns import OWN
from migrate.stores.parquet.files import (
    SHARDS_NAME,
    SUFFIX,
    UNFINISHED_NAME,
    ParquetFile,
    RemoteFiles,
    shards_in,
    shards_json,
)
from migrate.stores.parquet.store import ParquetStore
from migrate.stores.records import import_client, metadata_as_json, records_without_vector, source_documents
from migrate.vectors import Document, Vectors
from migrate.work.shards import Rows, Shard, shards_of
from migrate.work.writer import StoreWriter

_FLOAT_BYTES: Final = 4
_GROUP_BYTES: Final = 16 << 20
_GROUP_ROWS: Final = 8_192
"""As many documents are in memory at once, whatever else they have."""

_GROUPS_A_SHARD: Final = 16
_UNFINISHED: Final = ".part-"
_PART_BYTES: Final = 256 << 20
"""A larger file is not written by the one who makes its vectors: much would be lost with it."""

_HUGGINGFACE: Final = b"huggingface"
_WRITTEN_AS: Final = {"kind": "parquet"}


class ParquetOutput(FolderOutput):
    """A folder of this machine."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(path)
        self.location = location

    def writer(self, source: Store, content: Path, dim: int) -> ParquetWriter:
        """A writer of the files."""
        return ParquetWriter(source, content, dim)

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


class ParquetWriter(StoreWriter):
    """Writes the files one by one, in any order: each is a part, with the vectors of some rows.

    Parameters
    ----------
    source
        The documents that the rows belong to.
    folder
        Where the files go, unless they go to `storage`.
    dim
        Dimension of the vectors.
    storage
        Object storage that every machine can write to.
    """

    def __init__(self, source: Store, folder: Path, dim: int, storage: ObjectOutput | None = None) -> None:
        import_client("pyarrow", "parquet")
        self.source, self.folder, self.dim = source, folder, dim
        self._storage = storage
        self.is_shared = storage is not None
        self._parts: dict[Shard, str] = {}
        self._files: list[str] = []
        self._hashes: dict[str, str] = {}
        for shard, name in self._all_parts():
            self._files.append(name)
            if len(shard):
                self._parts[shard] = name

    def _all_parts(self) -> Iterator[tuple[Shard, str]]:
        """The rows of each file, and its name."""
        if isinstance(self.source, ParquetStore):
            row = 0
            for shard in self.source.shards:
                stop = row + self.source.rows_of(shard)
                yield Shard(row, stop), shard.name
                row = stop
            return
        shards = list(shards_of(self.source.info.count, self._at_once * _GROUPS_A_SHARD)) or [Shard(0, 0)]
        yield from ((shard, f"part-{number:05d}{SUFFIX}") for number, shard in enumerate(shards))

    @property
    def _at_once(self) -> int:
        return max(min(_GROUP_BYTES // (_FLOAT_BYTES * self.dim), _GROUP_ROWS), 1)

    def begin(self) -> None:
        """Claim the place on object storage."""
        if self._storage is not None:
            self._storage.claim(self._files)

    def shards(self) -> Sequence[Shard] | None:
        """The files, unless one is so large that much would be lost with it."""
        most = max(map(len, self._parts), default=0) * _FLOAT_BYTES * self.dim
        return sorted(self._parts) if most <= _PART_BYTES else None

    def put(self, shard: Shard, batches: Iterable[Vectors]) -> Mapping[str, Any] | None:
        """Write the file of a shard, if it has one."""
        name = self._parts.get(shard)
        return None if name is None else self._write(shard, name, batches)

    def is_sound(self, shard: Shard, facts: Mapping[str, Any]) -> bool:
        """Whether the file is there: by its hash, or by its size where it would have to be fetched."""
        name = str(facts["name"])
        if self._storage is not None:
            return self._storage.size_of(name) == int(facts["bytes"])
        path = self.folder / name
        return path.is_file() and sha256_file(path) == str(facts["sha256"])

    def finish(self, rows: Rows) -> None:
        """Write the files that are left, and `_shards.json` last."""
        shards = {}
        for shard in rows.shards:
            put = rows.shards.facts(shard).get("put")
            if put is not None:
                shards[put["name"]] = put
        if isinstance(self.source, ParquetStore):
            for file in self.source.shards:  # for the remarks, whoever wrote the parts
                self._schema_like(self.source, self.source.schema_of(file))
        with output_errors(self.folder):
            for unfinished in self.folder.glob(f"{_UNFINISHED}*"):
                unfinished.unlink()
            for shard, name in self._all_parts():
                if name not in shards:
                    stretches = shards_of(len(shard), self._at_once, shard.start)
                    batches = (rows.read(stretch.start, stretch.stop) for stretch in stretches)
                    shards[name] = self._write(shard, name, batches)
            self._hashes = {name: put["sha256"] for name, put in shards.items()}
            sync_tree(self.folder)
            write_json(self.folder / SHARDS_NAME, shards_json([shards[name] for name in self._files]))
        self.remarks = (*self.remarks, *records_without_vector(self.source))

    def sha256(self, path: Path) -> str:
        """That of a part was taken while it was written."""
        return self._hashes.get(path.name) or sha256_file(path)

    def _write(self, shard: Shard, name: str, batches: Iterable[Vectors]) -> dict[str, Any]:
        """Write one file, and return what `_shards.json` says of it."""
        import pyarrow.parquet

        schema, records = self._records(shard, name)
        facts, vectors = _Facts(), _Stream(batches, self.dim)
        folder = Path(tempfile.gettempdir()) if self._storage is not None else self.folder
        with output_errors(folder), tempfile.NamedTemporaryFile(prefix=_UNFINISHED, dir=folder, delete=False) as opened:
            path = Path(opened.name)
            file = _HashedFile(opened)
            try:
                with pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(file, "w"), schema) as writer:
                    for count, ids, columns in records:
                        rows = vectors.take(count)
                        place = schema.get_field_index(self._vector)
                        columns.insert(place, _lists(rows, schema.field(place).type))
                        facts.note(ids, rows)
                        writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
                opened.flush()
                size = opened.tell()
                if self._storage is not None:
                    self._storage.put(path, name)
                else:
                    os.fsync(opened.fileno())
                    os.chmod(path, 0o644)
                    os.replace(path, self.folder / name)
                    sync_path(self.folder)
            finally:
                path.unlink(missing_ok=True)
        return {"name": name, "bytes": size, "sha256": file.digest.hexdigest(), **facts.as_json()}

    @property
    def _vector(self) -> str:
        return self.source.columns.vector if isinstance(self.source, ParquetStore) else "vector"

    def _records(self, shard: Shard, name: str) -> tuple[Any, Iterator[tuple[int, Sequence[str], list[Any]]]]:
        """The schema of a file, and its columns without vectors, some rows at a time: how many, ids, and columns."""
        if isinstance(self.source, ParquetStore):
            file = next(file for file in self.source.shards if file.name == name)
            return self._schema_like(self.source, self.source.schema_of(file)), self._copied(self.source, shard, file)
        return self._new_schema(), self._made(shard)

    def _copied(
        self, source: ParquetStore, shard: Shard, file: ParquetFile
    ) -> Iterator[tuple[int, Sequence[str], list[Any]]]:
        row, key = shard.start, source.columns.id
        for batch in source.whole(file, self._at_once):
            ids = (row, row + batch.num_rows - 1) if key is None else _ends(batch.column(batch.schema.names.index(key)))
            row += batch.num_rows
            names = batch.schema.names
            columns = [batch.column(at) for at, name in enumerate(names) if name != source.columns.vector]
            yield batch.num_rows, [str(doc_id) for doc_id in ids], columns

    def _schema_like(self, source: ParquetStore, schema: Any) -> Any:
        import pyarrow as pa

        place = schema.get_field_index(source.columns.vector)
        old = schema.field(place).type
        value = old.value_field.with_type(pa.float32())
        if pa.types.is_fixed_size_list(old):
            new = pa.list_(value, self.dim)
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

    def _new_schema(self) -> Any:
        import pyarrow as pa

        has_texts = self.source.info.has_texts
        options = {"distance": self.source.info.metric, "id": "id", "metadata": "metadata", "vector": "vector"}
        options = {**options, "text": "text"} if has_texts else options
        texts = [("text", pa.string())] if has_texts else []
        fields = [("id", pa.string()), *texts, ("metadata", pa.string())]
        fields.append(("vector", pa.list_(pa.float32(), self.dim)))
        return pa.schema(fields, metadata={OWN: canonical_json(options).encode()})

    def _made(self, shard: Shard) -> Iterator[tuple[int, Sequence[str], list[Any]]]:
        found = source_documents(self.source, np.arange(shard.start, shard.stop))
        while documents := list(islice(found, self._at_once)):
            ids = [document.id for document in documents]
            columns = [_texts("id", documents, ids)]
            if self.source.info.has_texts:
                columns.append(_texts("text", documents, [document.text for document in documents]))
            yield len(ids), ids, [*columns, _texts("metadata", documents, list(map(metadata_as_json, documents)))]


class _Stream:
    """Rows that come in batches of one size and are taken in others."""

    def __init__(self, batches: Iterable[Vectors], dim: int) -> None:
        self._batches = iter(batches)
        self._waiting = np.empty((0, dim), np.float32)

    def take(self, count: int) -> Vectors:
        """The next rows, (count, dim)."""
        parts, missing = [self._waiting[:count]], count - len(self._waiting)
        self._waiting = self._waiting[count:]
        while missing > 0:
            batch = next(self._batches)
            parts.append(batch[:missing])
            self._waiting, missing = batch[missing:], missing - len(batch)
        return np.concatenate(parts)


class _HashedFile(io.RawIOBase):
    """A file whose bytes are hashed while they are written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, content: Any) -> int:
        """Write and hash."""
        self.digest.update(content)
        return self._file.write(content)

    def tell(self) -> int:
        """Where the next bytes go."""
        return self._file.tell()


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

    Parts are put there by whatever machine makes them. `_unfinished.json`, which only one run can put, stands there
    until `_shards.json`, which comes last, says that all is there. What is there is never replaced.
    """

    is_shared = True

    def __init__(self, location: str, url: str) -> None:
        super().__init__(location, url.rstrip("/").rpartition("/")[2] or "parquet")
        self.url = url
        self.by = f"{platform.node()}:{self.path}"

    def writer(self, source: Store, content: Path, dim: int) -> ParquetWriter:
        """A writer of the files, on any machine."""
        return ParquetWriter(source, content, dim, self)

    def facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """The hashes of the files, and that this kind was asked for."""
        return _facts(content, sha256)

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that there is nothing, but for what this machine's own run has not finished."""
        files = self._files()
        listed = {file.name for file in files.list_all()}
        mark = self._mark(files)
        if not listed or (SHARDS_NAME not in listed and self._is_ours(mark)):
            return
        if mark is not None and SHARDS_NAME not in listed:
            raise UsageError(
                f"{self.location}: another run writes there, or broke off ({mark.get('by')}); continue that one, or "
                "remove what is there"
            )
        raise UsageError(
            f"{self.location} exists; objects are not replaced: choose another output, or remove it yourself"
        )

    def claim(self, names: Sequence[str]) -> None:
        """Put the mark with the names of what is to be put there, unless an earlier call of the same work has."""
        files, mark = self._files(), {"by": self.by, "files": sorted(names)}
        claimed = self._mark(files)
        if claimed == mark:
            return
        mode = "overwrite" if self._is_ours(claimed) else "create"
        with files.errors():
            try:
                files.system.pipe_file(files.path_of(UNFINISHED_NAME), canonical_json(mark).encode(), mode=mode)
            except FileExistsError as error:
                raise UsageError(
                    f"{self.location}: another run writes there, or broke off; continue that one, or remove what is "
                    "there"
                ) from error
        reach("claimed")

    def put(self, path: Path, name: str) -> None:
        """Put a file there, whole."""
        files = self._files()
        with files.errors():
            files.system.put_file(str(path), files.path_of(name))
        reach("put")

    def size_of(self, name: str) -> int | None:
        """The size of a file there; None where it is missing."""
        files = self._files()
        with files.errors():
            try:
                return int(files.system.info(files.path_of(name))["size"])
            except FileNotFoundError:
                return None

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
        """Put what lies beside the parts, the list of them last."""
        files = self._files()
        paths = {path.name: path for path in sorted(content.iterdir()) if path.is_file()}
        shards = paths.pop(SHARDS_NAME)
        self.claim([*(shard["name"] for shard in _shards(content)), *paths])
        for name, path in paths.items():
            self.put(path, name)
        with files.errors():
            files.system.pipe_file(files.path_of(SHARDS_NAME), shards.read_bytes())
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
