"""Opens FAISS files: flat ones directly, all others by decoding them in a child process.

FAISS runs in a child process, which may crash, hang or run out of memory without harm to this one. What the child
reports is checked against the header of the file, which is read without FAISS.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import OutputError, StoreError, UnsupportedStoreError
from migrate.files import output_errors
from migrate.stores.binary_reader import malformed, read_errors
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.frames import DONE, FACTS, FAILED, HEADER, LABELS, LONGEST, OS_ERROR, REFUSED, ROWS
from migrate.stores.faiss.layout import FLOAT_BYTES, Decoded, Header, Layout
from migrate.stores.faiss.reader import FaissFile
from migrate.stores.faiss.recipe import factory
from migrate.stores.faiss.walk import NeedsFaissError, find_lists

QUIET_S: Final = 120.0
"""How long the child may be silent, in addition to the time for reading the file."""

_BYTES_PER_S: Final = 5_000_000
_CHUNK: Final = 1 << 20

Frame = tuple[bytes, bytes]

BUILD_QUIET_S: Final = 7 * 86_400.0
"""A child that builds an index is silent until it is done; graphs of many million rows take days."""

_READ_SPARE_BYTES: Final = 1 << 30
_BUILD_SPARE_BYTES: Final = 4 << 30
_LABEL_BYTES: Final = 8


_TYPES: Final[dict[str, type]] = {
    "chain": str,
    "dim": int,
    "count": int,
    "metric": int,
    "exact": bool,
    "remarks": list,
    "recipe": dict,
    "labels": bool,
}

_SPARE_BYTES: Final = 64 << 20
_APPROXIMATE: Final = (
    "the index keeps its vectors in short form; they are read back approximately, and what is made of them is no better"
)


def memory_for(file_bytes: int, count: int) -> int:
    """How much a child may allocate to read an index: its file some times over, the labels, and tables."""
    return _READ_SPARE_BYTES + 4 * file_bytes + 4 * _LABEL_BYTES * count


def build_memory(row_bytes: int, count: int) -> int:
    """How much a child may allocate to build an index: rows, and the links of a graph."""
    return _BUILD_SPARE_BYTES + 8 * row_bytes + 4096 * count


def run_job(path: Path, job: Mapping[str, Any], *, file_bytes: int, quiet_s: float | None = None) -> Iterator[Frame]:
    """Do a job in a child process; yields its frames up to and including the last one.

    Parameters
    ----------
    path
        The file that errors name.
    job
        The job and its parameters, as `worker.py` reads them.
    file_bytes
        Size of all that is read, for the limit of time.
    quiet_s
        How long the child may be silent.
    """
    limit = (QUIET_S if quiet_s is None else quiet_s) + file_bytes / _BYTES_PER_S
    with _started(job) as child:
        tag = b""
        for tag, content in _frames(path, child, limit):
            if tag == REFUSED:
                raise UnsupportedStoreError(f"{path}: {_text(content)}")
            if tag == FAILED:
                raise StoreError(
                    f"{path}: FAISS cannot use the index ({_text(content)}); copy it again or build it again"
                )
            if tag == OS_ERROR:
                number = json.loads(content)["errno"]
                with output_errors(path):
                    raise OSError(number, os.strerror(number))
            yield tag, content
            if tag == DONE:
                return
        raise _child_error(path, child)


@contextmanager
def _started(job: Mapping[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    # The child finds the modules that this process finds, and nothing in the folder it happens to be started from.
    threads = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", "migrate.stores.faiss.worker", json.dumps(job)]
    child = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _frames(path: Path, child: subprocess.Popen[bytes], limit: float) -> Iterator[Frame]:
    """Frames until the pipe ends."""
    while header := _receive(path, child, HEADER.size, limit):
        if len(header) < HEADER.size:
            return
        tag, size = HEADER.unpack(header)
        if size > LONGEST:
            raise StoreError(
                f"{path}: FAISS's process sent a frame of {size} bytes, more than the {LONGEST} that are "
                "allowed; try again"
            )
        content = _receive(path, child, size, limit)
        if len(content) < size:
            return
        yield tag, content


def _receive(path: Path, child: subprocess.Popen[bytes], size: int, limit: float) -> bytes:
    """Read so many bytes, or fewer if the pipe ends before."""
    assert child.stdout is not None  # noqa: S101 - Popen was called with a pipe
    descriptor, content = child.stdout.fileno(), bytearray()
    deadline = time.monotonic() + limit
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(content) < size:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise StoreError(
                    f"{path}: FAISS did not respond within {limit:.0f} s: the file is probably damaged, or this "
                    "machine too busy; copy it again or try again"
                )
            part = os.read(descriptor, min(_CHUNK, size - len(content)))
            if not part:
                break
            content += part
    return bytes(content)


def _child_error(path: Path, child: subprocess.Popen[bytes]) -> StoreError:
    code = child.wait()
    try:
        how = f"it ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with code {code}"
    except ValueError:
        how = f"it ended by signal {-code}"
    return StoreError(
        f"{path}: FAISS cannot read the index: {how}; the file is damaged, copy it again or build the index again"
    )


def _text(content: bytes) -> str:
    return " ".join(content.decode("utf-8", errors="replace").split())


def check_facts(path: Path, content: bytes, header: Header) -> dict[str, Any]:
    """The facts in a frame."""
    facts = _parsed(path, content)
    actual = (facts["dim"], facts["count"], facts["metric"])
    expected = (header.dim, header.count, fourcc.METRIC_NUMBERS[header.metric])
    if actual != expected:
        raise malformed(path, f"dimension, count and metric {expected}", actual)
    return facts


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(content)
        typed = all(type(facts[name]) is kind for name, kind in _TYPES.items())
        factory(facts["recipe"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path}: FAISS reports facts about the index that make no sense ({error}); the file is damaged"
        ) from error
    if not typed:
        raise StoreError(f"{path}: FAISS reports facts about the index that do not fit together; the file is damaged")
    return dict(facts)


def open_file(path: Path) -> FaissFile:
    """A FAISS file of any kind."""
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
        What its outermost index claims; checked against what FAISS reads.
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
                f"{self.path}: {size} bytes cannot hold {header.count} vectors; the file is damaged or was not "
                "copied whole; copy it again"
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
    """A file without a name, which disappears with the process."""
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
    """Receives the child's frames, and rejects whatever contradicts the header."""

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
            raise StoreError(f"{self._path}: FAISS did not return {what}; the file is damaged")

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
