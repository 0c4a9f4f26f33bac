"""Files of Parquet: `parquet:LOCATION`, a file or a folder of shards, here or where fsspec can read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from migrate.errors import StoreError, UsageError
from migrate.files import FileStamp, atomic_folder, cache_folder, canonical_json, output_errors, write_bytes
from migrate.locations import Address
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest
from migrate.stores.base import KindSupport, Snapshot, Store
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.file_store import FileStore, expected_hashes
from migrate.stores.outputs import Output
from migrate.stores.parquet.columns import OPTIONS
from migrate.stores.parquet.files import (
    SHARDS_NAME,
    SUFFIX,
    LocalFiles,
    ParquetFile,
    RemoteFiles,
    files_at,
    is_remote,
    local_path,
)
from migrate.stores.parquet.output import ObjectOutput, ParquetOutput, ParquetWriter
from migrate.stores.parquet.store import NAME, ParquetStore
from migrate.stores.records import check_options, import_client
from migrate.stores.sources import SOURCES_NAME
from migrate.stores.switching import BESIDE, Exchange, FolderExchange

_READ_BYTES: Final = 1 << 20


class ParquetKind:
    """Files of Parquet."""

    name = NAME
    support = KindSupport(
        "Parquet",
        ("parquet:FILE", "parquet:FOLDER", "parquet:s3://BUCKET/PREFIX"),
        "parquet",
        "all columns with types and nulls, order, files, schema and field metadata",
        "compression, size of row groups; vectors are written as float32; rows without a vector, partitions",
    )

    def recognises(self, path: Path) -> bool:
        """Whether it is a file of Parquet, or a folder with nothing else that holds vectors."""
        if path.is_file():
            return path.suffix == SUFFIX and _has_magic(path)
        files = sorted(file for file in path.glob(f"*{SUFFIX}") if file.is_file())
        arrays = [file for file in path.glob("*.npy") if file.name not in (CONFIDENCE_NAME, SOURCES_NAME)]
        return bool(files) and not arrays and _has_magic(files[0])

    def open(self, location: str) -> Store:
        """Open `LOCATION#?vector=COLUMN&id=COLUMN&text=COLUMN&metadata=COLUMN&distance=l2`, the options as needed."""
        address = Address(location) if Path(location).exists() else Address.parse(location)
        _check(f"{self.name}:{location}", address, OPTIONS)
        import_client("pyarrow", self.name)
        files = files_at(address.place, address.place)
        if isinstance(files, LocalFiles):
            return LocalParquetStore(location, files, address.options)
        return RemoteParquetStore(location, files, address.options)

    def output(self, location: str) -> Output:
        """A folder that is not there yet, or a prefix of object storage with nothing under it."""
        address, whole = Address.parse(location), f"{self.name}:{location}"
        _check(whole, address, ())
        if address.place.rstrip("/").endswith(SUFFIX):
            raise UsageError(
                f"{whole}: expected a new folder, found the name of a file; leave out {SUFFIX}: files go into a "
                "folder, with the manifest beside them"
            )
        if is_remote(address.place):
            return ObjectOutput(f"{self.name}:{address.place}", address.place)
        return ParquetOutput(whole, local_path(address.place))


def _check(location: str, address: Address, options: Sequence[str]) -> None:
    if not address.place:
        raise UsageError(f"{location}: expected a file, a folder or a URL after the colon, found nothing; add it")
    if address.name:
        raise UsageError(
            f"{location}: expected options after the #, found the name {address.name!r}; a column of vectors is named "
            f"#?vector={address.name}"
        )
    check_options(location, address.options, options)


def _has_magic(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(4) == b"PAR1"
    except OSError:
        return False


class LocalParquetStore(ParquetStore, FileStore):
    """A file or a folder of this machine."""

    files: LocalFiles
    mixes_vectors = True

    def __init__(self, location: str, files: LocalFiles, options: Mapping[str, str]) -> None:
        self.files = files
        super().__init__(location, files, options)
        self.index_path = Path(self.shards[0].path)
        self.stamps = tuple(FileStamp.of(Path(shard.path)) for shard in self.shards)
        if [[*stamp.facts] for stamp in self.stamps] != [shard.version for shard in self.shards]:
            raise StoreError(f"{files.location}: the files changed while they were opened; run again")

    @property
    def folder(self) -> Path:
        """The folder that the files are in."""
        return self.files.folder

    def destination(self, location: Path, dim: int) -> ParquetWriter:
        """Return a writer of files of the same names, with the same columns; the vectors are float32."""
        return ParquetWriter(self, location, dim)

    def exchange(self, new: Store) -> Exchange:
        """Return how two folders trade places, whatever the names of the files in them."""
        if not isinstance(new, LocalParquetStore):
            raise UsageError(f"{new.info.location}: expected files of Parquet, found another kind of store")
        if not (self.files.is_folder and new.files.is_folder):
            return super().exchange(new)
        return FolderExchange.of(self.folder, new.folder, own=(SHARDS_NAME, *(shard.name for shard in self.shards)))

    def strangers(self) -> list[str]:
        """Files and folders beside those of the store, and what this tool leaves."""
        return [name for name in super().strangers() if name != SHARDS_NAME]

    def _find_manifest(self) -> tuple[Manifest | None, tuple[str, ...]]:
        manifest, name = find_manifest(self.folder, "store"), self.shards[0].name
        if manifest is None or manifest.store.index == name:
            return manifest, ()
        return None, (f"the manifest in the folder is not of {name}; it is ignored",)


class RemoteParquetStore(ParquetStore):
    """Files on object storage. What lies beside them is copied to the user's cache folder when the store is opened."""

    files: RemoteFiles
    _beside: Path | None = None
    _noted: tuple[tuple[Any, ...], Snapshot] | None = None
    _verified: tuple[str, ...] | None = None

    def __init__(self, location: str, files: RemoteFiles, options: Mapping[str, str]) -> None:
        self._beside = _copied(files)
        super().__init__(location, files, options)
        self.opened_as = self.shards[0].name

    @property
    def folder(self) -> Path | None:
        """The copy of what lies beside the files; None of a single file."""
        return self._beside

    def destination(self, location: Path, dim: int) -> ParquetWriter:
        """Return a writer of files of the same names, with the same columns; the vectors are float32."""
        return ParquetWriter(self, location, dim)

    @property
    def takes_manifest(self) -> bool:
        """Of a single file, no."""
        return self.files.is_folder

    def keep_manifest(self, manifest: Manifest) -> Path | str:
        """Put it beside the files."""
        files = self.files
        if not files.is_folder:
            return super().keep_manifest(manifest)
        content = json.dumps(manifest.as_json(), indent=2, sort_keys=True) + "\n"
        with files.errors():
            files.system.pipe_file(files.path_of(MANIFEST_NAME), content.encode())
        return f"{files.location}/{MANIFEST_NAME}"

    def verify(self) -> tuple[str, ...]:
        """As `FileStore.verify`; reads all files, once for each store that is opened."""
        if self._verified is None:
            expected = expected_hashes(self.info, self.shards[0].name)
            shards = {shard.name: shard for shard in self.shards}
            for name, digest in expected.items():
                digest_now = self._sha256(shards[name]) if name in shards else "no such file"
                if digest_now != digest:
                    raise StoreError(
                        f"{self.files.location}: expected the SHA-256 of the manifest for {name}, {digest[:12]}..., "
                        f"found {digest_now[:12]}; the file was damaged or replaced: copy it again, or make the store "
                        "again"
                    )
            self._verified = tuple(expected)
        return self._verified

    def _sha256(self, shard: ParquetFile) -> str:
        digest = hashlib.sha256()
        with self.files.opened(shard) as file:
            while part := file.read(_READ_BYTES):
                digest.update(part)
        return digest.hexdigest()

    def snapshot(self) -> Snapshot:
        """As of every store; read again only once a file has another version, as what is read here comes from afar."""
        if self._noted is None:
            self._noted = self._versions(), super().snapshot()
        now = tuple(file.version for file in self.files.find())
        if now == self._noted[0]:
            return self._noted[1]
        raise StoreError(f"{self.files.location}: the store changed while it was read; nothing was written, run again")


def _copied(files: RemoteFiles) -> Path | None:
    """The folder of the copies of what lies beside the files, of this very version."""
    if not files.is_folder:
        return None
    beside_them = [file for file in files.list_all() if file.name in BESIDE]
    of_place, of_version = (
        hashlib.sha256(canonical_json(part).encode()).hexdigest()[:24]
        for part in (files.location, [file.version for file in beside_them])
    )
    parent = cache_folder() / "beside"
    folder = parent / f"{of_place}-{of_version}"
    if not folder.is_dir():
        with output_errors(folder):
            parent.mkdir(parents=True, exist_ok=True)
            with atomic_folder(folder, force=True) as aside:
                for file in beside_them:
                    write_bytes(aside / file.name, files.read(file.name) or b"")
    return folder
