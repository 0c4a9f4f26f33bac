"""Folders on this machine, or where fsspec can write: `s3://`, `gs://`. Files appear whole or not at all.

A file gets its name by a rename where the location is a folder, once it is durable; an object store puts it whole.

What is made for a run (`migrate.work.shards`) lies in such a folder under NAME-HASH, the BLAKE3 of its content: NAME
says which rows it has. So whatever has such a name is finished, any process may make it, and make it again.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from migrate.digests import digits_of, hash_bytes
from migrate.errors import LeadMigrateError, OutputError, UsageError
from migrate.files import already_exists, output_errors, read_file, sync_path
from migrate.locations import scrub


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder at a location; `named` is what a message calls it.

    One without that name is the folder of finished shards beside an output: it is there, and its errors are those of
    outputs.
    """

    location: str
    named: str | None = None
    failure: ClassVar[type[LeadMigrateError]] = OutputError
    remedy: ClassVar[str] = "the same command continues"

    @property
    def path(self) -> Path | None:
        """The path of a folder of this machine, which is listed and written without fsspec; None of any other."""
        path = re.sub(r"(?:file|local)://", "", self.location, count=1)
        if "://" in path or "::" in path:
            return None
        return Path(path)

    def names(self) -> list[str]:
        """Return the names of the files, sorted; none where there is no folder."""
        if (path := self.path) is not None:
            with self.errors():
                if not path.is_dir():
                    return []
                return sorted(file.name for file in path.iterdir())
        with self.open() as (system, folder):
            # fsspec remembers listings: what another process has put there since would not be seen.
            system.invalidate_cache()
            if not system.exists(folder):
                return []
            return sorted(str(entry).rpartition("/")[2] for entry in system.ls(folder, detail=False))

    def write(self, name: str, *pieces: bytes | memoryview) -> None:
        """Write a file of some pieces, whatever is there."""
        if (path := self.path) is not None:
            with self.errors():
                if self.named is not None:
                    path.mkdir(parents=True, exist_ok=True)
                _write_durably(path / name, pieces)
            return
        with self.open() as (system, folder):
            system.pipe_file(f"{folder}/{name}", b"".join(pieces))

    def add(self, name: str, content: bytes) -> bool:
        """Write a file where there is none; False where another content has its name."""
        with self.open() as (system, folder):
            try:
                # The store itself decides: to look first and write then would let two runs both find the place free.
                system.pipe_file(f"{folder}/{name}", content, mode="create")
            except FileExistsError:
                # A run that was killed right after finds its own file, and goes on.
                return bool(system.cat_file(f"{folder}/{name}") == content)
            return True

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None where there is none."""
        with self.open() as (system, folder), suppress(FileNotFoundError):
            return bytes(system.cat_file(f"{folder}/{name}"))
        return None

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone is no error."""
        with self.open() as (system, folder), suppress(FileNotFoundError):
            system.rm_file(f"{folder}/{name}")

    def write_hashed(self, name: str, pieces: Sequence[bytes | memoryview]) -> str:
        """Write a file under NAME-HASH, which is returned: the same for the same content."""
        name = f"{name}-{digits_of(hash_bytes(*pieces))}"
        self.write(name, *pieces)
        return name

    def find_hashed(self) -> dict[str, str]:
        """Return the files NAME-HASH that are there, by NAME."""
        matches = (re.fullmatch(r"([0-9a-f-]+)-[0-9a-f]{64}", name) for name in self.names())
        return {match[1]: match[0] for match in matches if match is not None}

    @contextmanager
    def open(self) -> Iterator[tuple[Any, str]]:
        """Find the place by fsspec, and translate what it raises."""
        with self.errors():
            import fsspec

            system, path = fsspec.core.url_to_fs(self.location)
            yield system, str(path).rstrip("/")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate what is raised at the place, which is anything: each kind has a library of its own.

        A `failure` says that the place cannot be used, a UsageError that nothing is known of such places.
        """
        if self.named is None:
            with output_errors(Path(self.location)):
                yield
            return
        try:
            yield
        except LeadMigrateError:
            raise
        except Exception as error:
            # A library may quote the URL, and keys with it.
            message = f"{self.named}: {' '.join(scrub(str(error)).split())[:300] or type(error).__name__}"
            if isinstance(error, ImportError | ValueError):
                raise UsageError(
                    f"{message}; install what that kind of place needs: pip install 'lead-migrate[s3]' or [gs]"
                ) from error
            raise self.failure(f"{message}; {self.remedy}") from error


def _write_durably(path: Path, pieces: Sequence[bytes | memoryview]) -> None:
    """Write a file that gets its name when it is whole and durable."""
    # Of no form that counts as finished, and for one process alone: two may make the same shard.
    unfinished = path.with_name(f".{uuid.uuid4().hex}")
    with unfinished.open("wb", buffering=0) as file:
        for piece in pieces:
            remaining = memoryview(piece)
            while remaining:
                remaining = remaining[file.write(remaining) :]
        os.fsync(file.fileno())
    # Only now: whatever has its final name counts as finished, to any process that lists the folder.
    os.rename(unfinished, path)
    sync_path(path.parent)


def upload(folder: Path, url: str, *, last: str, force: bool = False) -> None:
    """Copy the files of a folder to a URL, the file `last` after all others: who finds it there finds the others.

    Without `force` no file is put where another one is, so that of two who write to one place one fails; what a run
    that broke off has left is gone on from where it is the same. With it, `last` is removed first.
    """
    target = Folder(url, url)
    names = sorted(path.name for path in folder.iterdir() if path.name != last)
    if force:
        target.remove(last)
    elif last in target.names():
        raise already_exists(url)
    for name in [*names, last]:
        content = read_file(folder / name)
        if force:
            target.write(name, content)
        elif not target.add(name, content):
            raise already_exists(url)


def download(url: str, folder: Path) -> None:
    """Copy the files at a URL into a folder that is there; none where there are none."""
    source = Folder(url, url)
    for name in source.names():
        content = source.read(name)
        if content is not None:
            (folder / name).write_bytes(content)


def refuse_url(url: str, last: str, *, force: bool) -> None:
    """Make sure, before anything is spent, that an output can be written to a URL; raises as `upload`."""
    folder = Folder(url, url)
    probe = f".{uuid.uuid4().hex}"
    if last in folder.names() and not force:
        raise already_exists(url)
    # Found out by doing it: rights to list and to write are granted apart.
    folder.write(probe, b"")
    folder.remove(probe)
