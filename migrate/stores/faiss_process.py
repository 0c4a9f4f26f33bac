"""Runs FAISS in a child process that may crash, hang or be refused memory without harm to this one."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.files import output_errors
from migrate.stores.faiss_frames import DONE, FAILED, HEADER, LONGEST, OS_ERROR, REFUSED

QUIET_S: Final = 120.0
"""How long the child may say nothing, beside the time that reading the file takes."""

_BYTES_PER_S: Final = 5_000_000
_CHUNK: Final = 1 << 20

Frame = tuple[bytes, bytes]

BUILD_QUIET_S: Final = 7 * 86_400.0
"""A child that builds says nothing before it is done; graphs of many million rows take days."""

_READ_SPARE_BYTES: Final = 1 << 30
_BUILD_SPARE_BYTES: Final = 4 << 30
_LABEL_BYTES: Final = 8


def memory_for(file_bytes: int, count: int) -> int:
    """How much a child may allocate to read an index: its file some times over, the labels, and tables."""
    return _READ_SPARE_BYTES + 4 * file_bytes + 4 * _LABEL_BYTES * count


def build_memory(row_bytes: int, count: int) -> int:
    """How much a child may allocate to build an index; rows are trusted, a graph has links beside them."""
    return _BUILD_SPARE_BYTES + 8 * row_bytes + 4096 * count


def run_job(path: Path, job: Mapping[str, Any], *, file_bytes: int, quiet_s: float | None = None) -> Iterator[Frame]:
    """Do a job in a child process; yields its frames up to and including the last one.

    Parameters
    ----------
    path
        The file that is to blame for whatever goes wrong.
    job
        What to do, as `faiss_child` understands it.
    file_bytes
        Size of all that is read, for the limit of time.
    quiet_s
        How long the child may be silent.

    Raises
    ------
    StoreError
        The child refused, failed, crashed, fell silent, or said what cannot be understood.
    """
    limit = (QUIET_S if quiet_s is None else quiet_s) + file_bytes / _BYTES_PER_S
    with _started(job) as child:
        tag = b""
        for tag, content in _frames(path, child, limit):
            if tag == REFUSED:
                raise UnsupportedStoreError(f"{path}: {_text(content)}")
            if tag == FAILED:
                raise StoreError(
                    f"{path}: expected an index that FAISS can use, found a damaged or odd one ({_text(content)}); "
                    "copy it again or build it anew"
                )
            if tag == OS_ERROR:
                number = json.loads(content)["errno"]
                with output_errors(path):
                    raise OSError(number, os.strerror(number))
            yield tag, content
            if tag == DONE:
                return
        raise _ended(path, child)


@contextmanager
def _started(job: Mapping[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    # The child finds the modules that this process finds, and nothing in the folder it happens to be started from.
    threads = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", "migrate.stores.faiss_child", json.dumps(job)]
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
            raise StoreError(f"{path}: expected frames of up to {LONGEST} bytes from FAISS, found {size}; try again")
        content = _receive(path, child, size, limit)
        if len(content) < size:
            return
        yield tag, content


def _receive(path: Path, child: subprocess.Popen[bytes], size: int, limit: float) -> bytes:
    """That many bytes, or fewer where the pipe ends before."""
    assert child.stdout is not None  # noqa: S101 - it was asked for
    descriptor, content = child.stdout.fileno(), bytearray()
    deadline = time.monotonic() + limit
    while len(content) < size:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise StoreError(
                f"{path}: expected FAISS to read it, found no answer within {limit:.0f} s; the file is damaged or "
                "this machine is too busy: try again"
            )
        part = os.read(descriptor, min(_CHUNK, size - len(content)))
        if not part:
            break
        content += part
    return bytes(content)


def _ended(path: Path, child: subprocess.Popen[bytes]) -> StoreError:
    code = child.wait()
    try:
        how = f"it ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with code {code}"
    except ValueError:
        how = f"it ended by signal {-code}"
    return StoreError(
        f"{path}: expected FAISS to read the index, found that it cannot: {how}; the file is damaged, copy it "
        "again or build it anew"
    )


def _text(content: bytes) -> str:
    return " ".join(content.decode("utf-8", errors="replace").split())
