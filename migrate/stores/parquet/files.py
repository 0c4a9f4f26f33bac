"""Where the files of a Parquet store lie: a file or a folder of this machine, or anything that fsspec knows by a URL.

LOCATION/part-00000.parquet ...    the rows
LOCATION/_shards.json              which files there are, with rows, ids, norms and SHA-256 of each; written last
LOCATION/_unfinished.json          while files are put to object storage: who does, and which; removed last
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

from migrate.errors import LeadMigrateError, RemoteError, StoreError, UsageError
from migrate.files import FileStamp, canonical_json, is_endless
from migrate.locations import scrub
from migrate.reading import parse_json
from migrate.stores.binary_reader import FileIdentity, read_errors
from migrate.stores.records import import_client

SUFFIX: Final = ".parquet"
SHARDS_NAME: Final = "_shards.json"
UNFINISHED_NAME: Final = "_unfinished.json"
_VERSION: Final = 1
_BLOCK_BYTES: Final = 4 << 20
_SHOWN: Final = 5
_VERSIONS: Final = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "created")
"""What file systems call that which changes when an object is written, the surest first."""


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A file of rows: its name in the folder, its path as the file system has it, what changes when it is written."""

    name: str
    path: str
    size: int
    version: Any


class Files(ABC):
    """The files of one store. `location` is for errors; `is_folder` says whether a folder was named, or one file."""

    location: str
    is_folder: bool

    @abstractmethod
    def list_all(self) -> list[ParquetFile]:
        """All files of rows below the folder, by their paths in it, and what lies beside; the one that was named."""

    @abstractmethod
    def opened(self, file: ParquetFile) -> Any:
        """A context with the open file; it is still the one that was listed."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """What a small file in the folder holds; None where there is none."""

    def find(self) -> list[ParquetFile]:
        """The files of rows, in their order.

        Raises
        ------
        StoreError
            There are none, or others than `_shards.json` lists; or they are not all there yet.
        """
        listed = self.list_all()
        if not self.is_folder:
            return listed
        names = {file.name: file for file in listed}
        files = [file for file in listed if file.name.endswith(SUFFIX) and not _is_hidden(file.name)]
        if SHARDS_NAME in names:
            return self._as_listed(names, files)
        if UNFINISHED_NAME in names:
            raise StoreError(
                f"{self.location}: expected a complete store, found one that is being written ({UNFINISHED_NAME}); "
                "wait for the run that writes it, or continue it"
            )
        deeper = next((file.name for file in files if "/" in file.name), None)
        if deeper is not None:
            raise StoreError(
                f"{self.location}: expected all files in one folder, found {deeper}; name the folder that it is in, "
                "or write the data without partitions"
            )
        if not files:
            raise StoreError(
                f"{self.location}: expected a file {SUFFIX} or a folder of such, found none; check the path"
            )
        return files

    def _as_listed(self, names: Mapping[str, ParquetFile], files: Sequence[ParquetFile]) -> list[ParquetFile]:
        listed = shards_in(self.read(SHARDS_NAME) or b"", f"{self.location}/{SHARDS_NAME}")
        for shard in listed:
            found = names.get(shard["name"])
            if found is None or found.size != shard["bytes"]:
                size = "none" if found is None else f"one of {found.size:,}"
                raise StoreError(
                    f"{self.location}: expected a file {shard['name']} of {shard['bytes']:,} bytes, as {SHARDS_NAME} "
                    f"says, found {size}; copy it again, or remove {SHARDS_NAME} to read what is there"
                )
        unlisted = sorted({file.name for file in files} - {shard["name"] for shard in listed})
        if unlisted:
            raise StoreError(
                f"{self.location}: expected the files that {SHARDS_NAME} lists, found {', '.join(unlisted[:_SHOWN])} "
                f"beside them; move these away, or remove {SHARDS_NAME} to read all of them"
            )
        return [names[shard["name"]] for shard in listed]


def _is_hidden(name: str) -> bool:
    """As every reader of such folders has it."""
    return any(part.startswith(("_", ".")) for part in PurePosixPath(name).parts)


def shards_in(content: bytes, path: str) -> list[dict[str, Any]]:
    """The shards that a `_shards.json` lists.

    Raises
    ------
    StoreError
        It is damaged.
    """
    try:
        listed = parse_json(content)
        shards = [dict(shard) for shard in listed["shards"]]
        is_sound = listed["format_version"] == _VERSION and all(
            type(shard["bytes"]) is int and type(shard["name"]) is str and "/" not in shard["name"] for shard in shards
        )
    except (ValueError, KeyError, TypeError):
        is_sound = False
    if not is_sound or not shards:
        raise StoreError(
            f"{path}: expected a list of shards of version {_VERSION}, found another file; copy it again, or remove it"
        )
    return shards


def shards_json(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What `_shards.json` holds."""
    return {"format_version": _VERSION, "shards": list(shards)}


class LocalFiles(Files):
    """A file or a folder of this machine."""

    def __init__(self, location: str, path: Path) -> None:
        self.location = location
        self.path = path
        self.is_folder = path.is_dir()
        if not self.is_folder and not path.is_file():
            raise StoreError(f"{location}: expected a Parquet file or a folder of such, found neither; check the path")

    @property
    def folder(self) -> Path:
        """The folder that the files are in."""
        return self.path if self.is_folder else self.path.parent

    def list_all(self) -> list[ParquetFile]:
        """The files of rows below the folder, and the two that say which there are."""
        with read_errors(self.path):
            rows = list(self.path.rglob(f"*{SUFFIX}"))
            self._refuse_strange(rows)
            found = [self.path / SHARDS_NAME, self.path / UNFINISHED_NAME, *rows]
            paths = sorted(path for path in found if path.is_file()) if self.is_folder else [self.path]
            stamps = [FileStamp.of(path) for path in paths]
        return [
            ParquetFile(stamp.path.relative_to(self.folder).as_posix(), str(stamp.path), stamp.size, [*stamp.facts])
            for stamp in stamps
        ]

    def _refuse_strange(self, paths: Sequence[Path]) -> None:
        """Make sure that nothing with the name of a file of rows is a pipe, a device or a link that leads nowhere."""
        for path in sorted(paths):
            if not path.is_file() and not path.is_dir() and not _is_hidden(path.relative_to(self.folder).as_posix()):
                what = "a pipe or a device" if is_endless(path) else "a link that leads nowhere"
                raise StoreError(f"{path}: expected a file of rows, found {what}; remove it, or put the file there")

    @contextmanager
    def opened(self, file: ParquetFile) -> Iterator[BinaryIO]:
        """The open file; that it has not changed is asked before and after."""
        path = Path(file.path)
        with read_errors(path), path.open("rb") as opened:
            if [*FileStamp.of(path).facts] != file.version:
                raise StoreError(
                    f"{path}: expected the file that was opened, found it changed since; run again on a store at rest"
                )
            identity = FileIdentity.of(opened.fileno())
            yield opened
            identity.check(path, opened.fileno())

    def read(self, name: str) -> bytes | None:
        """What a small file in the folder holds."""
        path = self.folder / name
        with read_errors(path):
            return path.read_bytes() if path.is_file() else None


class RemoteFiles(Files):
    """A URL that fsspec knows: `s3://BUCKET/PREFIX`, `gs://...`; what is needed for it is the package that it names."""

    def __init__(self, location: str, url: str) -> None:
        fsspec = import_client("fsspec", "parquet")
        self.location = location
        with self.errors():
            self.system, root = fsspec.core.url_to_fs(url)
            self.root = str(root).rstrip("/")
            self.system.invalidate_cache()
            self.is_folder = not self.root.endswith(SUFFIX) or self.system.info(self.root)["type"] == "directory"

    def list_all(self) -> list[ParquetFile]:
        """All files below the prefix."""
        with self.errors():
            if not self.is_folder:
                return [self._described(self.root.rpartition("/")[2], self.root, self.system.info(self.root))]
            self.system.invalidate_cache()
            found: dict[str, Any] = self.system.find(self.root, detail=True)
            paths = {path: str(path).removeprefix(self.root).lstrip("/") for path in sorted(found)}
            return [self._described(name, path, found[path]) for path, name in paths.items() if name]

    def _described(self, name: str, path: str, facts: Mapping[str, Any]) -> ParquetFile:
        version = next((facts[key] for key in _VERSIONS if facts.get(key) is not None), None)
        moment = version.timestamp() if isinstance(version, datetime) else version
        return ParquetFile(name, path, int(facts["size"] or 0), [name, facts["size"], moment])

    @contextmanager
    def opened(self, file: ParquetFile) -> Iterator[BinaryIO]:
        """The file, read in ranges; that it has not changed is asked before."""
        with self.errors():
            self.system.invalidate_cache()
            if self._described(file.name, file.path, self.system.info(file.path)).version != file.version:
                raise StoreError(
                    f"{self.location}: expected the file {file.name} that was opened, found it changed since; run "
                    "again on a store at rest"
                )
            with self.system.open(file.path, "rb", block_size=_BLOCK_BYTES) as opened:
                yield opened

    def read(self, name: str) -> bytes | None:
        """What a small object holds."""
        with self.errors():
            try:
                content: bytes = self.system.cat_file(self.path_of(name))
            except FileNotFoundError:
                return None
            return content

    def path_of(self, name: str) -> str:
        """The path of a file in the folder."""
        return f"{self.root}/{name}"

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate what fsspec raises, which is anything: each kind of place has a library of its own."""
        try:
            yield
        except LeadMigrateError:
            raise
        except FileNotFoundError as error:
            raise StoreError(f"{self.location}: expected a store, found nothing there; check the location") from error
        except (ImportError, ValueError) as error:
            message = " ".join(scrub(str(error)).split())[:300]
            raise UsageError(f"{self.location}: {message}; install what that kind of place needs") from error
        except Exception as error:
            message = " ".join(scrub(str(error)).split())[:300] or type(error).__name__
            raise RemoteError(f"{self.location}: {message}; see to that, and run the same command again") from error


def is_remote(place: str) -> bool:
    """Whether a place is a URL that is no file of this machine."""
    return "://" in place and not place.startswith(("file://", "local://"))


def local_path(place: str) -> Path:
    """The path of a place that is not remote."""
    return Path(unquote(urlsplit(place).path)) if "://" in place else Path(place)


def files_at(location: str, place: str) -> LocalFiles | RemoteFiles:
    """The files of a place; raises as the two do."""
    return RemoteFiles(location, place) if is_remote(place) else LocalFiles(location, local_path(place))


def versions_of(files: Sequence[ParquetFile]) -> str:
    """What changes whenever one of the files is written to."""
    return canonical_json([file.version for file in files])
