"""Files of a Parquet store: a file or a folder of this machine, or anything that fsspec knows by a URL.

LOCATION/part-00000.parquet ...    the rows
LOCATION/_lead-migrate/            manifest, confidence and what else is ours
LOCATION/_shards.json              all files with their rows, ids, norms and hashes; written last
LOCATION/_unfinished.json          the run that puts files to object storage, and their names; removed last
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final

from migrate.errors import RemoteError, StoreError
from migrate.files import FileStamp, open_file, read_file, refuse_endless
from migrate.reading import parse_json
from migrate.stores.binary_reader import read_errors
from migrate.work.outputs import why_missing
from migrate.work.remote import Folder

SUFFIX: Final = ".parquet"
SHARDS_NAME: Final = "_shards.json"
UNFINISHED_NAME: Final = "_unfinished.json"
FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A file of rows: its name in the folder, its path in the file system, and a value that a change of it changes."""

    name: str
    path: str
    size: int
    version: Any


def _is_hidden(name: str) -> bool:
    """Return whether readers of such folders pass over a file."""
    return any(name_part.startswith(("_", ".")) for name_part in PurePosixPath(name).parts)


def read_shards(content: bytes, path: str) -> list[dict[str, Any]]:
    """Return the shards that a `_shards.json` lists; raises `StoreError` if it is damaged."""
    try:
        listed = parse_json(content)
        shards = [dict(shard) for shard in listed["shards"]]
        is_sound = listed["format_version"] == FORMAT_VERSION and all(
            type(shard["bytes"]) is int and type(shard["name"]) is str and "/" not in shard["name"] for shard in shards
        )
    except (ValueError, KeyError, TypeError):
        is_sound = False
    if not is_sound or not shards:
        raise StoreError(
            f"{path}: this is not a list of shards of version {FORMAT_VERSION}; copy it again, or remove it"
        )
    return shards


class LocalFiles:
    """A file or a folder of this machine.

    `location` is for errors; `is_folder` is False if one file was named.
    """

    def __init__(self, location: str, path: Path) -> None:
        self.location = location
        self.path = path
        self.is_folder = path.is_dir()
        if not self.is_folder and not path.is_file():
            raise StoreError(f"{location}: {why_missing(path)}")
        if self.is_folder:
            self.folder = path
        else:
            self.folder = path.parent

    def list_all(self) -> list[ParquetFile]:
        """Return the files of rows below the folder, and the two that list them."""
        with read_errors(self.path):
            paths = [self.path]
            if self.is_folder:
                rows = sorted(self.path.rglob(f"*{SUFFIX}"))
                self._refuse_strange(rows)
                listing = [self.path / SHARDS_NAME, self.path / UNFINISHED_NAME]
                paths = sorted(path for path in [*listing, *rows] if path.is_file())
            stamps = [FileStamp.of(path) for path in paths]
        return [
            ParquetFile(stamp.path.relative_to(self.folder).as_posix(), str(stamp.path), stamp.size, [*stamp.signature])
            for stamp in stamps
        ]

    def _refuse_strange(self, paths: Sequence[Path]) -> None:
        """Make sure that nothing with the name of a file of rows is a pipe, a device or a link that leads nowhere."""
        for path in paths:
            if not _is_hidden(path.relative_to(self.folder).as_posix()):
                refuse_endless(path)
                if not path.exists():
                    raise StoreError(f"{path}: the link leads nowhere; remove it, or put the file there")

    @contextmanager
    def opened(self, file: ParquetFile) -> Iterator[Any]:
        """Open a file, and check before and after that it has not changed."""
        path = Path(file.path)
        with read_errors(path), open_file(path) as opened:
            if [*FileStamp.of(path).signature] != file.version:
                raise StoreError(f"{path}: the file changed since it was opened; stop what writes to it, and run again")
            stamp = FileStamp.of(path, opened.fileno())
            yield opened
            stamp.check(opened.fileno())

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file in the folder."""
        path = self.folder / name
        with read_errors(path):
            if not path.is_file():
                return None
            return read_file(path)


class RemoteFiles(Folder):
    """Objects below a URL that fsspec knows: `s3://BUCKET/PREFIX`, `gs://...`."""

    failure = RemoteError
    remedy = "see to that, and run the same command again"

    @cached_property
    def is_folder(self) -> bool:
        """False if one file was named."""
        with self.open() as (system, root):
            system.invalidate_cache()
            return not root.endswith(SUFFIX) or system.info(root)["type"] == "directory"

    def list_all(self) -> list[ParquetFile]:
        """Return all files below the prefix."""
        with self.open() as (system, root):
            if not self.is_folder:
                return [_described(root.rpartition("/")[2], root, system.info(root))]
            system.invalidate_cache()
            entries: dict[str, Any] = system.find(root, detail=True)
            names = {path: str(path).removeprefix(root).lstrip("/") for path in sorted(entries)}
            return [_described(name, path, entries[path]) for path, name in names.items() if name]

    @contextmanager
    def opened(self, file: ParquetFile) -> Iterator[Any]:
        """Open a file to read it in ranges, and check before that it has not changed."""
        with self.open() as (system, _):
            system.invalidate_cache()
            if _described(file.name, file.path, system.info(file.path)).version != file.version:
                raise StoreError(
                    f"{self.location}: the file {file.name} changed since it was opened; stop what writes to it, and "
                    "run again"
                )
            # Arbitrary: smaller blocks take more requests, and larger ones bring more of what is not read.
            with system.open(file.path, "rb", block_size=4 << 20) as opened:
                yield opened

    def put(self, path: Path, name: str) -> None:
        """Put a file of this machine, whole."""
        with self.open() as (system, root):
            system.put_file(str(path), f"{root}/{name}")

    def size_of(self, name: str) -> int | None:
        """Return the size of an object; None if there is none."""
        with self.open() as (system, root), suppress(FileNotFoundError):
            return int(system.info(f"{root}/{name}")["size"])
        return None

    @contextmanager
    def open(self) -> Iterator[tuple[Any, str]]:
        """Find the place, and translate what fsspec raises."""
        with super().open() as path:
            try:
                yield path
            except FileNotFoundError as error:
                raise StoreError(f"{self.named}: nothing is there; check the location") from error


def _described(name: str, path: str, entry: Mapping[str, Any]) -> ParquetFile:
    # what file systems call that which changes when an object is written, the surest first
    keys = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "created")
    version = next((entry[key] for key in keys if entry.get(key) is not None), None)
    if isinstance(version, datetime):
        # versions are hashed as JSON, which has no moments
        version = version.timestamp()
    return ParquetFile(name, path, int(entry["size"] or 0), [name, entry["size"], version])


def find_files(files: LocalFiles | RemoteFiles) -> list[ParquetFile]:
    """Return the files of rows of a store in their order.

    Raises a StoreError where there are none, or others than `_shards.json` lists; or they are not all there yet.
    """
    by_name = {file.name: file for file in files.list_all()}
    if not files.is_folder:
        return [*by_name.values()]
    names = [name for name in by_name if name.endswith(SUFFIX) and not _is_hidden(name)]
    if SHARDS_NAME in by_name:
        return _find_shards(files, by_name, names)
    if UNFINISHED_NAME in by_name:
        raise StoreError(
            f"{files.location}: the store is still being written ({UNFINISHED_NAME}); wait for the run that writes it, "
            "or continue it"
        )
    deeper = next((name for name in names if "/" in name), None)
    if deeper is not None:
        raise StoreError(
            f"{files.location}: {deeper} is in a folder of its own; name that folder, or write no partitions"
        )
    if not names:
        raise StoreError(f"{files.location}: no file {SUFFIX} was found there; check the path")
    return [by_name[name] for name in names]


def _find_shards(
    files: LocalFiles | RemoteFiles, by_name: Mapping[str, ParquetFile], names: Sequence[str]
) -> list[ParquetFile]:
    shards = read_shards(files.read(SHARDS_NAME) or b"", f"{files.location}/{SHARDS_NAME}")
    for shard in shards:
        file = by_name.get(shard["name"])
        if file is None or file.size != shard["bytes"]:
            size = "is missing"
            if file is not None:
                size = f"has {file.size:,} bytes"
            raise StoreError(
                f"{files.location}: the file {shard['name']} {size}, and {SHARDS_NAME} lists one of {shard['bytes']:,} "
                f"bytes; copy it again, or remove {SHARDS_NAME} to read what is there"
            )
    unlisted = sorted({*names} - {shard["name"] for shard in shards})
    if unlisted:
        raise StoreError(
            f"{files.location}: {SHARDS_NAME} does not list {', '.join(unlisted[:5])}; move them away, or remove "
            f"{SHARDS_NAME} to read all of them"
        )
    return [by_name[shard["name"]] for shard in shards]
