"""Files of Parquet: `parquet:LOCATION`, a file or a folder of shards, here or where fsspec can read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from migrate.digests import hash_open_file
from migrate.errors import StoreError, UsageError
from migrate.files import (
    OWN_FOLDER,
    FileStamp,
    atomic_folder,
    beside,
    cache_folder,
    open_file,
    output_errors,
    real_path,
    sha256_json,
    write_bytes,
)
from migrate.locations import Address, place_of
from migrate.manifest import MANIFEST_NAME, Manifest
from migrate.stores.added_fields import are_of_same_records, field_is_asked
from migrate.stores.base import Companions, KindSupport, Store, StoreInfo
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.file_store import FileCompanions, FileStore, check_hashes, expected_hashes
from migrate.stores.old_checksums import SOURCES_NAME
from migrate.stores.outputs import Output
from migrate.stores.parquet.files import SHARDS_NAME, SUFFIX, LocalFiles, ParquetFile, RemoteFiles
from migrate.stores.parquet.old_chroma import refuse_old_chroma
from migrate.stores.parquet.output import PARQUET, ObjectOutput, ParquetWriter
from migrate.stores.parquet.store import OPTIONS, ParquetStore
from migrate.stores.records import check_options, import_client
from migrate.stores.switching import OWN_FILES, Exchange, Folders


class ParquetKind:
    """Files of Parquet."""

    name = "parquet"
    support = KindSupport(
        "Parquet",
        ("parquet:FILE", "parquet:FOLDER", "parquet:s3://BUCKET/PREFIX"),
        "parquet",
        "all columns with types and nulls, order, files, schema and field metadata",
        "compression, size of row groups; vectors are written as float32; rows without a vector, partitions",
    )

    def recognises(self, path: Path) -> bool:
        """Return True for a file of Parquet, or a folder with nothing else that holds vectors."""
        if path.is_file():
            return path.suffix == SUFFIX and _has_magic(path)
        files = sorted(file for file in path.glob(f"*{SUFFIX}") if file.is_file())
        # Parquet beside an array has the documents of its vectors.
        arrays = [file for file in path.glob("*.npy") if file.name not in (CONFIDENCE_NAME, SOURCES_NAME)]
        return bool(files) and not arrays and _has_magic(files[0])

    def open(self, location: str) -> Store:
        """Open `LOCATION#?vector=COLUMN&id=COLUMN&text=COLUMN&metadata=COLUMN&distance=l2`, the options as needed."""
        # A path that is there is meant as it is, even if its name has a # or a ? in it.
        if Path(location).exists():
            address = Address(location)
        else:
            address = Address.parse(location)
        root = _check(location, address, OPTIONS)
        import_client("pyarrow", self.name)
        if isinstance(path := place_of(root), str):
            return RemoteParquetStore(location, RemoteFiles(path, path), address.options)
        refuse_old_chroma(path)
        return LocalParquetStore(location, LocalFiles(root, path), address.options)

    def output(self, location: str) -> Output:
        """Return a folder that is not there yet, or a prefix of object storage with nothing under it."""
        root = _check(location, Address.parse(location), ())
        if root.rstrip("/").endswith(SUFFIX):
            raise UsageError(
                f"{self.name}:{location}: a new store is a folder of files, with the manifest beside them; leave out "
                f"{SUFFIX}"
            )
        if isinstance(path := place_of(root), str):
            return ObjectOutput(f"{self.name}:{path}", path)
        return Output(path, f"{self.name}:{location}", PARQUET)


def _check(location: str, address: Address, options: Sequence[str]) -> str:
    """Return the place of an address that has one, no name, and none but these options."""
    location = f"{ParquetKind.name}:{location}"
    if not address.place:
        raise UsageError(f"{location}: no file, folder or URL comes after the colon; add it")
    if address.name:
        raise UsageError(
            f"{location}: only options may follow the #, not the name {address.name!r}; for a column of vectors, write "
            f"#?vector={address.name}"
        )
    check_options(location, address.options, options)
    return address.place


def _has_magic(file: Path) -> bool:
    try:
        with open_file(file) as opened:
            return opened.read(4) == b"PAR1"
    except OSError:
        return False


class LocalParquetStore(ParquetStore, FileStore):
    """A file or a folder of this machine."""

    files: LocalFiles
    mixes_vectors = True

    def __init__(self, location: str, files: LocalFiles, options: Mapping[str, str]) -> None:
        self.files = files
        self.named_options = options
        ParquetStore.__init__(self, location, files, options)
        FileStore.__init__(self, Path(self.shards[0].path))
        self.stamps = tuple(FileStamp.of(Path(shard.path)) for shard in self.shards)
        # They were listed a moment ago, and a program may have replaced one since.
        if [[*stamp.signature] for stamp in self.stamps] != [shard.version for shard in self.shards]:
            raise StoreError(f"{files.location}: the files changed while they were opened; run again")
        if files.is_folder:
            self.info = replace(self.info, records=f"parquet:{real_path(files.path)}", vector=self.columns.vector)

    @property
    def folder(self) -> Path:
        """The folder with what lies beside the files, or beside a column that was added."""
        return self.column_folder or beside(self.files.folder)

    @property
    def companions(self) -> FileCompanions:
        """The manifest, where other readers of the folder pass over it."""
        return FileCompanions(self, None if self.column_folder is not None else self.files.folder / OWN_FOLDER)

    @property
    def added_column(self) -> str | None:
        """The column of its vectors, if it was added beside another."""
        if self.column_folder is None:
            return None
        return self.columns.vector

    def destination(self, location: Path, dim: int) -> ParquetWriter:
        """Return a writer of files of the same names, with the same columns; the vectors are float32."""
        return ParquetWriter(self, location, dim)

    def exchange(self, new: Store) -> Exchange:
        """Return how two folders trade places, whatever the names of the files in them."""
        if not isinstance(new, LocalParquetStore):
            raise UsageError(f"{new.info.location}: this is not a Parquet store; switch stores of one kind")
        if are_of_same_records(self, new):
            raise field_is_asked(self.info.location, new.info.location, new.columns.vector)
        if not (self.files.is_folder and new.files.is_folder):
            return super().exchange(new)
        return Folders.exchange(
            self.files.folder, new.files.folder, excluded=(SHARDS_NAME, *(shard.name for shard in self.shards))
        )

    def strangers(self) -> list[str]:
        """Return files and folders beside those of the store and of this tool."""
        return [name for name in super().strangers() if name != SHARDS_NAME]


class RemoteParquetStore(ParquetStore):
    """Files on object storage. Those beside them are copied to the user's cache folder when the store is opened."""

    files: RemoteFiles
    _beside: Path | None = None

    def __init__(self, location: str, files: RemoteFiles, options: Mapping[str, str]) -> None:
        if not files.is_folder:
            self._beside = None
        else:
            self._beside = _copied(files)
        super().__init__(location, files, options)
        self.info = replace(self.info, opened_as=self.shards[0].name)
        if not files.is_folder:
            self._companions = None
        else:
            self._companions = RemoteCompanions(files, self.shards, self.info)

    @property
    def folder(self) -> Path | None:
        """The copy of what lies beside the files; None for a single file."""
        return self._beside

    @property
    def companions(self) -> RemoteCompanions | None:
        """The manifest beside the files; None for a single file."""
        return self._companions

    def destination(self, location: Path, dim: int) -> ParquetWriter:
        """Return a writer of files of the same names, with the same columns; the vectors are float32."""
        return ParquetWriter(self, location, dim)


class RemoteCompanions(Companions):
    """The manifest of files on object storage, and their hashes in it."""

    def __init__(self, files: RemoteFiles, shards: Sequence[ParquetFile], info: StoreInfo) -> None:
        self._files = files
        self._shards = shards
        self._expected = expected_hashes(info, shards[0].name)
        self._verified: tuple[str, ...] | None = None

    def keep(self, manifest: Manifest) -> str:
        """Put a manifest beside the files."""
        content = json.dumps(manifest.as_json(), indent=2, sort_keys=True) + "\n"
        name = f"{OWN_FOLDER}/{MANIFEST_NAME}"
        self._files.write(name, content.encode())
        return f"{self._files.location}/{name}"

    def verify(self) -> tuple[str, ...]:
        """Hold the files against their hashes as `FileCompanions.verify` does; they are read once."""
        if self._verified is None:
            self._verified = check_hashes(self._files.location, self._expected, self._hash)
        return self._verified

    def _hash(self, name: str, function: str) -> str | None:
        shard = next((shard for shard in self._shards if shard.name == name), None)
        if shard is None:
            return None
        with self._files.opened(shard) as file:
            return hash_open_file(file, function)


def _copied(files: RemoteFiles) -> Path:
    """Return a folder with copies of what lies beside the files, of this very version."""
    names = {f"{OWN_FOLDER}/{name}": name for name in OWN_FILES}
    extra_files = [file for file in files.list_all() if file.name in names]
    of_place = sha256_json(files.location)[:24]
    of_version = sha256_json([file.version for file in extra_files])[:24]
    folder = cache_folder() / "beside" / f"{of_place}-{of_version}"
    if not folder.is_dir():
        with output_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            # Two processes may open the same version at once.
            with atomic_folder(folder, force=True) as copies:
                for file in extra_files:
                    write_bytes(copies / names[file.name], files.read(file.name) or b"")
    return folder
