"""Writes Parquet: files like those of another store with other vectors, or shards of the documents of any store."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from io import RawIOBase
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from migrate.digests import hash_file, new_hasher, noted
from migrate.errors import StoreError, UsageError
from migrate.files import (
    OWN_FOLDER,
    canonical_json,
    let_others_read,
    output_errors,
    read_file,
    sync_path,
    write_json,
)
from migrate.manifest import MANIFEST_NAME, StoreFacts
from migrate.reading import MalformedError, as_table, parse_json
from migrate.stores.base import Store
from migrate.stores.documents.arrow import lists_of_vectors
from migrate.stores.documents.columns import list_type
from migrate.stores.file_store import HashFile, hash_files
from migrate.stores.kept import sync_tree
from migrate.stores.outputs import Form, Output, file_name, state_path
from migrate.stores.parquet.files import FORMAT_VERSION, SHARDS_NAME, SUFFIX, UNFINISHED_NAME, RemoteFiles, read_shards
from migrate.stores.parquet.store import OWN, ParquetStore, RowStream
from migrate.stores.records import import_client, left_behind, metadata_as_json, source_documents
from migrate.vectors import Vectors, squared_norms
from migrate.work.rows import Rows
from migrate.work.shards import Shard, ShardFolder, shards_of
from migrate.work.writer import Complete, StoreWriter, Written, all_put

# Arbitrary: vectors that are in memory, and in a row group, at once.
_GROUP_BYTES: Final = 16 << 20
_GROUP_ROWS: Final = 8_192
"""The number of documents in memory at once, whatever else they have."""

# Arbitrary: a killed run makes no more than the rows of one file again, and a store has not too many files.
_GROUPS_A_SHARD: Final = 16
_UNFINISHED: Final = ".part-"
_MANIFEST: Final = f"{OWN_FOLDER}/{MANIFEST_NAME}"


def _shard_facts(_source: Store, content: Path, hash_of: HashFile) -> dict[str, Any]:
    """Return the hashes of the files, and that this kind was asked for."""
    first, *more = _shard_names(content)
    return {**StoreFacts(written_as={"kind": "parquet"}).as_details(), **hash_files(content, first, more, hash_of)}


def _shard_names(content: Path) -> list[str]:
    path = content / SHARDS_NAME
    with output_errors(path):
        return [shard["name"] for shard in read_shards(read_file(path), str(path))]


class ParquetWriter(StoreWriter):
    """Writes the files one by one, in any order: each is a part, with the vectors of some rows.

    They go to `folder`, unless to `storage`. The vectors take the place of those of
    the source; or they go into a `column` beside them, and `complete` writes what belongs to that.
    """

    def __init__(
        self,
        source: Store,
        folder: Path,
        dim: int,
        storage: ObjectOutput | None = None,
        *,
        column: str | None = None,
        complete: Complete = all_put,
    ) -> None:
        import_client("pyarrow", "parquet")
        super().__init__(dim, complete)
        self.source = source
        self.folder = folder
        self._like: ParquetStore | None = None
        if isinstance(source, ParquetStore):
            self._like = source
        self._storage = storage
        self._column = column
        self.takes_room = storage is None
        row_bytes = 4 * dim
        self._at_once = max(min(_GROUP_BYTES // row_bytes, _GROUP_ROWS), 1)
        self._files: list[tuple[Shard, str]] = []
        if self._like is not None:
            row = 0
            for file, count in zip(self._like.shards, self._like.table.file_rows, strict=True):
                self._files.append((Shard(row, row + count), file.name))
                row += count
        else:
            shards = list(shards_of(source.info.count, self._at_once * _GROUPS_A_SHARD)) or [Shard(0, 0)]
            self._files = [(shard, f"part-{number:05d}{SUFFIX}") for number, shard in enumerate(shards)]
        self._parts = {shard: name for shard, name in self._files if len(shard)}
        self._hashes: dict[str, str] = {}
        self._unnamed: list[tuple[Path, str]] = []
        """Files that are written, and their names, which they get once they are durable."""

    def begin(self) -> None:
        """Claim the place on object storage."""
        if self._storage is not None:
            self._storage.claim([name for _, name in self._files])

    def shards(self) -> Sequence[Shard] | None:
        """Return the files as shards."""
        return sorted(self._parts)

    def put(self, shard: Shard, batches: Iterable[Vectors]) -> Mapping[str, Any] | None:
        """Write the file of a shard, if it has one."""
        name = self._parts.get(shard)
        if name is None:
            return None
        return self._write(shard, name, batches)

    def sync(self) -> None:
        """Make the files that were put durable, and give them their names."""
        while self._unnamed:
            path, name = self._unnamed.pop(0)
            with output_errors(path.parent):
                try:
                    if self._storage is not None:
                        self._storage.files().put(path, name)
                    else:
                        sync_path(path)
                        # `tempfile` makes files that their owner alone may read.
                        let_others_read(path)
                        path.replace(self.folder / name)
                        sync_path(self.folder)
                finally:
                    path.unlink(missing_ok=True)

    def is_sound(self, shard: Shard, details: Mapping[str, Any]) -> bool:
        """Return whether the file is there: by its hash, or by its size where it would have to be fetched."""
        name = str(details["name"])
        if self._storage is not None:
            return self._storage.files().size_of(name) == int(details["bytes"])
        path = self.folder / name
        return path.is_file() and hash_file(path) == str(details["hash"])

    def finish(self, rows: Rows, shards: ShardFolder) -> Written:
        """Write the files that are left, and `_shards.json` last."""
        written = {}
        for shard in shards:
            put = shards.details(shard).get("put")
            if put is not None:
                written[put["name"]] = put
        with output_errors(self.folder):
            for unfinished in self.folder.glob(f"{_UNFINISHED}*"):
                unfinished.unlink()
            for shard, name in self._files:
                if name not in written:
                    stretches = shards_of(len(shard), self._at_once, shard.start)
                    batches = (rows.read(stretch.start, stretch.stop) for stretch in stretches)
                    written[name] = self._write(shard, name, batches)
                    self.sync()
            self._hashes = {name: entry["hash"] for name, entry in written.items()}
            if self._column is None:
                (self.folder / OWN_FOLDER).mkdir(exist_ok=True)
            sync_tree(self.folder)
            listed = [written[name] for _, name in self._files]
            write_json(self.folder / SHARDS_NAME, {"format_version": FORMAT_VERSION, "shards": listed})
        return replace(super().finish(rows, shards), remarks=(*self._schema_remarks(), *left_behind(self.source)))

    def _schema_remarks(self) -> tuple[str, ...]:
        schemas = () if self._like is None else self._like.table.schemas
        if not any(b"huggingface" in (schema.metadata or {}) for schema in schemas):
            return ()
        return ("the features that `datasets` notes in the schema are of the old vectors: they are left out",)

    def hash_of(self, path: Path) -> str:
        """Return the hash of a part that was taken when it was written."""
        return self._hashes.get(path.name) or hash_file(path)

    def _write(self, shard: Shard, name: str, batches: Iterable[Vectors]) -> dict[str, Any]:
        """Write one file, which has no name yet, and return its entry in `_shards.json`.

        Some rows are encoded, written and hashed while the next ones are made.
        """
        import pyarrow.parquet

        vectors = RowStream(batches, self.dim)
        summary = []
        key: str | None = "id"
        vector = "vector"
        if self._like is None:
            schema = self._new_schema()
            records = self._new_tables(shard)
            vector_columns = {vector}
        else:
            key = self._like.columns.id
            vector = self._column or self._like.columns.vector
            number = [file.name for file in self._like.shards].index(name)
            schema = self._schema_like(self._like, self._like.table.schemas[number])
            records = self._like.table.whole(self._like.shards[number], self._at_once, but=vector)
            vector_columns = {vector, self._like.columns.vector, *self._like.added}
        at = schema.get_field_index(vector)
        row = shard.start
        # numbers of vectors are hardly ever the same: a dictionary of them would only cost time
        encoded = leaves(schema, but=vector_columns)
        if self._storage is None:
            folder = self.folder
        else:
            folder = Path(tempfile.gettempdir())
        with output_errors(folder), tempfile.NamedTemporaryFile(prefix=_UNFINISHED, dir=folder, delete=False) as file:
            path = Path(file.name)
            hashed = _HashedFile(file)

            def encode(batch: Any, rows: Vectors) -> None:
                lists = lists_of_vectors(rows, schema.field(at).type)
                columns = [lists if field.name == vector else batch.column(field.name) for field in schema]
                writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))

            try:
                with (
                    pyarrow.parquet.ParquetWriter(hashed, schema, use_dictionary=encoded) as writer,
                    ThreadPoolExecutor(1) as thread,
                ):
                    encoding: Future[None] | None = None
                    for batch in records:
                        if not batch.num_rows:
                            continue
                        rows = vectors.take(batch.num_rows)
                        ids = [row, row + len(rows) - 1]
                        if key is not None:
                            column = batch.column(key)
                            ids = [column[0].as_py(), column[len(rows) - 1].as_py()]
                        norms = np.sqrt(squared_norms(rows).astype(np.float64))
                        summary.append((len(rows), *map(str, ids), norms.min(), norms.sum(), norms.max()))
                        row += len(rows)
                        if encoding is not None:
                            encoding.result()
                        encoding = thread.submit(encode, batch, rows)
                    if encoding is not None:
                        encoding.result()
                file.flush()
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            self._unnamed.append((path, name))
            return {"name": name, "bytes": file.tell(), "hash": noted(hashed.hasher), **_summed(summary)}

    def _schema_like(self, source: ParquetStore, schema: Any) -> Any:
        import pyarrow as pa

        field = schema.field(source.columns.vector)
        old_kind = list_type(field.type)
        value = old_kind.value_field.with_type(pa.float32())
        if pa.types.is_fixed_size_list(old_kind):
            kind = pa.list_(value, self.dim)
        else:
            kind = (pa.large_list if pa.types.is_large_list(old_kind) else pa.list_)(value)
        # tensors note their shape there, which is of the old vectors
        notes = {key: note for key, note in (field.metadata or {}).items() if not key.startswith(b"ARROW:extension:")}
        field = field.with_metadata(notes or None)
        metadata = dict(schema.metadata or {})
        if self._column is not None:
            metadata.pop(b"huggingface", None)
            return _with_column(schema, pa.field(self._column, kind)).with_metadata(metadata or None)
        # `datasets` notes the length and the type of the lists there, and would refuse others
        metadata.pop(b"huggingface", None)
        if source.options:
            metadata[OWN] = canonical_json(source.options).encode()
        return schema.set(schema.get_field_index(field.name), field.with_type(kind)).with_metadata(metadata or None)

    def _new_schema(self) -> Any:
        import pyarrow as pa

        names = ["id", *(["text"] if self.source.info.has_texts else []), "metadata"]
        fields = [*((name, pa.string()) for name in names), ("vector", pa.list_(pa.float32(), self.dim))]
        options = {"distance": self.source.info.metric, **{name: name for name in (*names, "vector")}}
        return pa.schema(fields, metadata={OWN: canonical_json(options).encode()})

    def _new_tables(self, shard: Shard) -> Iterator[Any]:
        """Yield the documents of a shard as batches without vectors."""
        import pyarrow as pa

        source_rows = source_documents(self.source, np.arange(shard.start, shard.stop))
        while documents := list(islice(source_rows, self._at_once)):
            columns = {"id": [document.id for document in documents]}
            if self.source.info.has_texts:
                columns["text"] = [document.text for document in documents]
            columns["metadata"] = [metadata_as_json(document) for document in documents]
            try:
                yield pa.RecordBatch.from_pydict({name: pa.array(columns[name], pa.string()) for name in columns})
            except UnicodeError as error:
                for name, values in columns.items():
                    for document, value in zip(documents, values, strict=True):
                        if value != value.encode(errors="replace").decode():
                            raise StoreError(
                                f"document {document.id!r}: {name} with half a character; write it again"
                            ) from error
                raise


PARQUET: Final = Form("parquet", ParquetWriter, _shard_facts)
"""A store in files of Parquet."""


class _HashedFile(RawIOBase):
    """A file that is hashed while it is written, from its beginning to its end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hasher = new_hasher()

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._file.tell()

    def write(self, content: Any) -> int:
        """Hash and write bytes."""
        self.hasher.update(content)
        return self._file.write(content)


def _summed(batches: Sequence[tuple[int, str, str, float, float, float]]) -> dict[str, Any]:
    """Return the rows, ids and norms of a file from those of its batches."""
    if not batches:
        return {"rows": 0}
    rows, first, last, low, total, high = zip(*batches, strict=True)
    return {
        "rows": sum(rows),
        "first_id": first[0],
        "last_id": last[-1],
        "norm_min": float(min(low)),
        "norm_mean": float(sum(total)) / sum(rows),
        "norm_max": float(max(high)),
    }


def _with_column(schema: Any, field: Any) -> Any:
    """Return a schema with a further column at its end, or in the place of the one of its name."""
    position = schema.get_field_index(field.name)
    if position < 0:
        return schema.append(field)
    return schema.set(position, field)


def leaves(schema: Any, *, but: Collection[str]) -> list[str]:
    """Return the paths of all columns of a Parquet file but some, as an empty file of that schema names them."""
    import pyarrow.parquet

    empty = pyarrow.BufferOutputStream()
    with pyarrow.parquet.ParquetWriter(empty, schema):
        pass
    columns = pyarrow.parquet.read_metadata(pyarrow.BufferReader(empty.getvalue())).schema
    paths = [columns.column(number).path for number in range(len(columns.names))]
    return [path for path in paths if not path.startswith(tuple(f"{name}." for name in but))]


class ObjectOutput(Output):
    """A prefix of object storage, with nothing under it yet.

    `_unfinished.json`, which only one run can put, stands there until `_shards.json`, which comes last, says that all
    is there. What is there is never replaced.
    """

    def __init__(self, location: str, url: str) -> None:
        name = file_name(url.rstrip("/").rpartition("/")[2] or "parquet")
        super().__init__(state_path(name, location), location, PARQUET, name=name)
        self.url = url
        # By it a run knows its own objects: it goes on from them or removes them, and from nobody else's.
        self.by = f"{platform.node()}:{self.path}"

    def files(self) -> RemoteFiles:
        """Return the objects; a client belongs to the process that opened it."""
        return RemoteFiles(self.url, self.location)

    def writer(self, source: Store, content: Path, dim: int) -> ParquetWriter:
        """Return a writer that puts the files here."""
        return ParquetWriter(source, content, dim, self)

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that nothing is there but unfinished work of this machine."""
        files = self.files()
        listed = {file.name for file in files.list_all()}
        mark = self._mark(files)
        if not listed or (SHARDS_NAME not in listed and self._is_ours(mark)):
            return
        if mark is not None and SHARDS_NAME not in listed:
            raise self._claimed(mark)
        raise UsageError(
            f"{self.location} exists; objects are not replaced: choose another output, or remove it yourself"
        )

    def claim(self, names: Sequence[str]) -> None:
        """Put the mark with the names of the files to come, unless an earlier call of the same work has."""
        files = self.files()
        mark = {"by": self.by, "files": sorted(names)}
        present = self._mark(files)
        if present == mark:
            return
        content = canonical_json(mark).encode()
        if self._is_ours(present):
            files.write(UNFINISHED_NAME, content)
        elif not files.add(UNFINISHED_NAME, content):
            raise self._claimed(self._mark(files) or {})

    def is_published(self, content: Path) -> bool:
        """Return whether `_shards.json` is there, of this very store."""
        files = self.files()
        if files.read(SHARDS_NAME) is None:
            return False
        names = [name for name in (SHARDS_NAME, _MANIFEST) if (content / name).is_file()]
        if any(files.read(name) != read_file(content / name) for name in names):
            return False
        if self._is_ours(self._mark(files)):  # a run was killed between the last two steps
            files.remove(UNFINISHED_NAME)
        return True

    def publish(self, content: Path, *, force: bool) -> None:
        """Put what lies beside the parts, the list of them last."""
        files = self.files()
        paths = [*content.iterdir(), *(content / OWN_FOLDER).iterdir()]
        names = sorted(path.relative_to(content).as_posix() for path in paths if path.is_file())
        names.remove(SHARDS_NAME)
        self.claim([*_shard_names(content), *names])
        for name in names:
            files.put(content / name, name)
        files.write(SHARDS_NAME, read_file(content / SHARDS_NAME))
        files.remove(UNFINISHED_NAME)

    def discard(self) -> None:
        """Remove what a run of this machine has put there and not finished."""
        files = self.files()
        mark = self._mark(files) or {}
        if self._is_ours(mark) and files.read(SHARDS_NAME) is None:
            names = [str(name) for name in mark.get("files", [])]
            # The mark lies where others may write: no name in it may lead out of the place.
            ours = [name for name in names if "/" not in name.removeprefix(f"{OWN_FOLDER}/")]
            for name in [*ours, UNFINISHED_NAME]:
                files.remove(name)

    def _claimed(self, mark: Mapping[str, Any]) -> UsageError:
        return UsageError(
            f"{self.location}: another run writes there, or broke off ({mark.get('by')}); continue that one, or remove "
            "what is there"
        )

    def _mark(self, files: RemoteFiles) -> dict[str, Any] | None:
        content = files.read(UNFINISHED_NAME)
        try:
            if content is None:
                return None
            return as_table(parse_json(content))
        except MalformedError:
            return {}

    def _is_ours(self, mark: Mapping[str, Any] | None) -> bool:
        return mark is not None and mark.get("by") == self.by
