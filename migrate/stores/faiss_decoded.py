"""Opens FAISS files: those that can be read without FAISS as they are, the others decoded in a child process."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import OutputError, StoreError
from migrate.files import output_errors
from migrate.stores.cursor import read_errors
from migrate.stores.faiss_facts import check_facts
from migrate.stores.faiss_frames import DONE, FACTS, LABELS, ROWS
from migrate.stores.faiss_layout import FLOAT_BYTES, Decoded, Header, Layout
from migrate.stores.faiss_lists import NeedsFaissError
from migrate.stores.faiss_ondisk import find_lists
from migrate.stores.faiss_process import memory_for, run_job
from migrate.stores.faiss_reader import FaissFile

_SPARE_BYTES: Final = 64 << 20
_APPROXIMATE: Final = (
    "the index keeps its vectors in short form; they are read back approximately, and what is made of them is no better"
)


def open_file(path: Path) -> FaissFile:
    """A FAISS file of any kind.

    Raises
    ------
    StoreError
        It is no FAISS file, a damaged one, or one whose vectors cannot be told.
    OutputError
        The operating system refused.
    """
    try:
        return FaissFile(path)
    except NeedsFaissError as error:
        return DecodedFile(path, error.header)


class DecodedFile(FaissFile):
    """A FAISS file whose vectors FAISS decodes, in a child process, into a temporary file without a name.

    Parameters
    ----------
    path
        The file.
    header
        What its outermost index claims; held against what FAISS finds.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._header = header
        super().__init__(path)

    def _read_layout(self) -> Layout:
        lists = find_lists(self.path)
        size = self.identity.size + (lists.size if lists else 0)
        header = self._header
        if header.count > 8 * size:
            raise StoreError(
                f"{self.path}: expected at least a bit for each vector, found {size} bytes for {header.count} vectors; "
                "the file is damaged or was not copied whole; copy it again"
            )
        self._spool = _temporary_file(self.path, header.count * header.dim * FLOAT_BYTES)
        weakref.finalize(self, self._spool.close)
        job = {"do": "read", "path": str(self.path), "memory_bytes": memory_for(size, header.count)}
        return _Receiver(self.path, header, self._spool).receive(job, size)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with read_errors(self.path):
            with self.path.open("rb", buffering=0) as file:
                self._check_unchanged(file.fileno())
            yield self._spool.fileno()

    def _check_unchanged(self, descriptor: int) -> None:
        if descriptor != self._spool.fileno():
            self.identity.check(self.path, descriptor)


def _temporary_file(path: Path, size: int) -> BinaryIO:
    """A file that has no name, and so goes away with the process, whatever becomes of it."""
    folder = Path(tempfile.gettempdir())
    with output_errors(folder):
        free = shutil.disk_usage(folder).free
        if size + _SPARE_BYTES > free:
            raise OutputError(
                f"cannot read {path}: its decoded vectors take {size} bytes in {folder}, which has {free}; free some "
                "space, or set TMPDIR to a folder that has it"
            )
        return tempfile.TemporaryFile(dir=folder, buffering=0)


class _Receiver:
    """Takes in what the child says, and believes nothing that does not fit the header."""

    def __init__(self, path: Path, header: Header, spool: BinaryIO) -> None:
        self._path = path
        self._header = header
        self._spool = spool
        self._facts: dict[str, Any] = {}
        self._labels = bytearray()
        self._left = header.count * header.dim * FLOAT_BYTES

    def receive(self, job: dict[str, Any], file_bytes: int) -> Decoded:
        for tag, content in run_job(self._path, job, file_bytes=file_bytes):
            if tag == FACTS and not self._facts:
                self._facts = check_facts(self._path, content, self._header)
            elif tag == LABELS and self._facts.get("labels"):
                self._labels += content
                self._expect(len(self._labels) <= 8 * self._header.count, "as many labels as vectors")
            elif tag == ROWS and self._facts:
                self._spool_rows(content)
            else:
                self._expect(tag == DONE, "frames in order")
        return self._decoded()

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            raise StoreError(f"{self._path}: expected {what} from FAISS, found otherwise; the file is damaged")

    def _spool_rows(self, content: bytes) -> None:
        self._left -= len(content)
        self._expect(self._left >= 0, f"{self._header.count} vectors")
        view = memoryview(content)
        with output_errors(Path(tempfile.gettempdir())):
            while view:
                view = view[self._spool.write(view) :]

    def _decoded(self) -> Decoded:
        facts, header = self._facts, self._header
        self._expect(bool(facts) and self._left == 0, f"{header.count} vectors")
        labels: NDArray[np.int64] | None = None
        if facts["labels"]:
            self._expect(len(self._labels) == 8 * header.count, f"{header.count} labels")
            labels = np.frombuffer(bytes(self._labels), "<i8").astype(np.int64, copy=False)
        remarks = tuple(facts["remarks"]) if facts["exact"] else (_APPROXIMATE, *facts["remarks"])
        return Decoded(header, facts["chain"], facts["recipe"], facts["exact"], labels, remarks)
