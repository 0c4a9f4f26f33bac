"""Files of finished shards at a place that all machines see: `s3://`, `gs://`, a folder ...; by fsspec.

    LOCATION/CONFIGURATION/START-STOP-SHA256.npz

The name says what is in a file: the digest of the configuration, the rows, and the hash of the content. A file is
written aside and renamed where the place is a folder; an object store puts it whole. What is there is never changed.
"""

from __future__ import annotations

import hashlib
import io
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from migrate.errors import OutputError, UsageError
from migrate.locations import scrub
from migrate.runners import Made, RemoteTask, Shard

_NAME = re.compile(r"(\d+)-(\d+)-([0-9a-f]{64})\.npz")
_FACTS = "facts"


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """The shards of one piece of work, whose configuration has the digest `of`."""

    location: str
    of: str

    def find(self) -> dict[Shard, str]:
        """The names of the files that are there, by their rows.

        Raises
        ------
        UsageError
            Nothing is known of such places.
        OutputError
            The place cannot be read.
        """
        with self._errors():
            system, folder = self._open()
            if not system.exists(folder):
                return {}
            system.invalidate_cache()
            names = [str(path).rpartition("/")[2] for path in system.ls(folder, detail=False)]
        matches = filter(None, map(_NAME.fullmatch, sorted(names)))
        return {Shard(int(match[1]), int(match[2])): match[0] for match in matches}

    def write(self, shard: Shard, made: Made) -> str:
        """Keep a shard and return the name of its file; the same one for the same content.

        Raises
        ------
        OutputError
            The place cannot be written to.
        """
        content = _packed(made)
        name = f"{shard.start:012d}-{shard.stop:012d}-{hashlib.sha256(content).hexdigest()}.npz"
        with self._errors():
            system, folder = self._open()
            if "file" not in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,)):
                system.pipe_file(f"{folder}/{name}", content)  # whole, or not at all
                return name
            system.makedirs(folder, exist_ok=True)
            aside = f"{folder}/.{uuid.uuid4().hex}"
            system.pipe_file(aside, content)
            system.mv(aside, f"{folder}/{name}")
        return name

    def read(self, name: str) -> Made | None:
        """What a file holds; None where it is gone or is not what its name says."""
        with self._errors():
            system, folder = self._open()
            try:
                content: bytes = system.cat_file(f"{folder}/{name}")
            except FileNotFoundError:
                return None
        match = _NAME.fullmatch(name)
        if match is None or hashlib.sha256(content).hexdigest() != match[3]:
            return None
        return _unpacked(content)

    def remove(self, name: str) -> None:
        """Remove a file whose rows are in their place; one that is gone is no error."""
        with self._errors():
            system, folder = self._open()
            try:
                system.rm_file(f"{folder}/{name}")
            except FileNotFoundError:
                return

    def _open(self) -> tuple[Any, str]:
        import fsspec

        system, path = fsspec.core.url_to_fs(self.location)
        return system, f"{str(path).rstrip('/')}/{self.of[:32]}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate what fsspec raises, which is anything: each kind of place has a library of its own."""
        try:
            yield
        except (ImportError, ValueError) as error:
            raise UsageError(f"--shards {self.location}: {scrub(str(error))}; install what that kind needs") from error
        except Exception as error:
            raise OutputError(f"--shards {self.location}: {scrub(str(error))}; the same command continues") from error


def _packed(made: Made) -> bytes:
    """The same bytes for the same arrays: an archive without compression, whose members have one fixed date."""
    buffer = io.BytesIO()
    facts = np.frombuffer(made.facts_json, np.uint8)
    np.savez(buffer, allow_pickle=False, **{_FACTS: facts, **made.arrays})
    return buffer.getvalue()


def _unpacked(content: bytes) -> Made:
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return Made.of(arrays.pop(_FACTS).tobytes(), arrays)


@dataclass(frozen=True)
class KeptTask(RemoteTask):
    """A task whose shards are kept as files: what comes back of each is the name."""

    task: RemoteTask
    files: ShardFiles

    def open(self) -> Any:
        """Open the task."""
        make = self.task.open()
        return lambda shard: self.files.write(shard, make(shard))
