"""Tells whether a file that was read is still the same one, within a run and from one run to its continuation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from migrate.errors import OutputError, StoreError


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file as the file system knew it at one moment. Time and size stand for the content; it is not read."""

    path: Path
    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """The stamp of a file now.

        Raises
        ------
        OutputError
            It is not there, or may not be looked at.
        """
        try:
            status = path.stat()
        except OSError as error:
            raise OutputError(f"cannot read {path}: {error.strerror}; check that it is there and readable") from error
        return cls(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    @property
    def facts(self) -> tuple[str, int, int]:
        """Name, size and time: what a later run can hold a file against, even one that was copied back."""
        return self.path.name, self.size, self.modified_ns

    def check(self) -> None:
        """Make sure that the path still leads to the same, unchanged file.

        Raises
        ------
        StoreError
            It was changed or replaced.
        OutputError
            It vanished.
        """
        if self.of(self.path) != self:
            raise StoreError(f"{self.path}: changed while it was read; nothing was written, run again")
