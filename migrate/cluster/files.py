"""Files of finished shards at a place that all machines see: `s3://`, `gs://`, a folder ...

    LOCATION/CONFIGURATION/NAME-SHA256.npz

CONFIGURATION is a digest of what the shards are made from, NAME says which one it is: its rows, or a digest of the
texts that are embedded in it. SHA256 is that of the content.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from migrate.cluster.folder import Folder
from migrate.errors import OutputError
from migrate.runners import Made, Pool, RemoteTask

_NAME = re.compile(r"([0-9a-f-]+)-([0-9a-f]{64})\.npz")
_FACTS = "facts"

ROUNDS: Final = 3
"""How often a shard is made whose file proves damaged."""


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """The shards of one piece of work, whose configuration has the digest `of`."""

    location: str
    of: str

    def find(self) -> dict[str, str]:
        """The files that are there, by the name of the shard; raises as `Folder.names`."""
        matches = filter(None, map(_NAME.fullmatch, self._folder.names()))
        return {match[1]: match[0] for match in matches}

    def write(self, shard: str, made: Made) -> str:
        """Keep a shard and return the name of its file; the same one for the same content. Raises as `Folder.write`."""
        content = _packed(made)
        name = f"{shard}-{hashlib.sha256(content).hexdigest()}.npz"
        self._folder.write(name, content)
        return name

    def read(self, name: str) -> Made | None:
        """What a file holds; None where it is gone or is not what its name says."""
        content, match = self._folder.read(name), _NAME.fullmatch(name)
        if content is None or match is None or hashlib.sha256(content).hexdigest() != match[2]:
            return None
        return _unpacked(content)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files whose rows are in their place; one that is gone is no error."""
        for name in names:
            self._folder.remove(name)

    def unreadable(self) -> OutputError:
        """The error of a place that does not keep what it is given."""
        return OutputError(f"--shards {self.location}: what is written there is not what is read; use another place")

    @property
    def _folder(self) -> Folder:
        return Folder(f"{self.location.rstrip('/')}/{self.of[:32]}", f"--shards {self.location}")


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
        return lambda *arguments: self.files.write(self.task.name_of(*arguments), make(*arguments))


@dataclass(slots=True)
class KeptCalls:
    """Calls of a task whose workers leave files; what an earlier run has left there (`found`) is taken first."""

    calls: Pool
    task: RemoteTask
    files: ShardFiles
    found: dict[str, str] = field(default_factory=dict)

    @property
    def places(self) -> int:
        """As of the calls."""
        return self.calls.places

    def call(self, *arguments: Any) -> Made:
        """As of any pool; the file stays until it is released."""
        name = self.found.pop(self.task.name_of(*arguments), None)
        if name is not None and (made := self.files.read(name)) is not None:
            return made.kept_as(name, is_new=False)
        for _ in range(ROUNDS):
            name = self.calls.call(*arguments)
            if (made := self.files.read(name)) is not None:
                return made.kept_as(name, is_new=True)
        raise self.files.unreadable()

    def release(self, names: Iterable[str]) -> None:
        """Remove files."""
        self.files.remove(names)

    def stop(self) -> None:
        """As of the calls."""
        self.calls.stop()
