"""Jobs on untrusted files in guarded processes, which may crash, hang or run out of memory without harm to us.

A server process (`worker.py`) is started with the first job, and ends with this process. It imports FAISS once, and
forks a process with limits of its own for each job, which takes milliseconds.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Final

from migrate.errors import OutputError, StoreError, UnsupportedStoreError
from migrate.files import output_errors
from migrate.stores.frames import DONE, FAILED, HEADER, LONGEST, OS_ERROR, REFUSED
from migrate.stores.worker import EXIT_CODE, JOB_SIZE

# Arbitrary: whatever else writes there meanwhile is not to meet a full disk.
_SPARE_BYTES: Final = 64 << 20
"""What stays free of the file system that decoded content is written to."""
# Arbitrary: less refuses sound files on a busy machine, more waits longer for a file that hangs FAISS.
QUIET_S: Final = 120.0
"""How long a job may be silent, in addition to the time for reading the file."""

Frame = tuple[bytes, bytes]


class _Server:
    """The process that forks others for jobs."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        # It finds the modules that this process finds, and nothing in the folder it happens to be started from.
        # The server forks, and a fork takes no other thread along: none is to be started before it.
        threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
        environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with theirs:
            # FAISS prints warnings itself, as of few points for many centroids: nobody who runs a command can use them.
            streams = [
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)),
            ]
            command = [sys.executable, "-P", "-m", "migrate.stores.worker"]
            self.process = os.posix_spawn(sys.executable, command, environment, file_actions=streams)

    def start(self, job: Mapping[str, Any]) -> tuple[socket.socket, socket.socket]:
        """Start a job; return where to read its answers, and where its exit code comes from; closing this kills it."""
        # paths in a job may be relative, and this process may have gone to another folder since
        located = json.dumps({**job, "folder": str(Path.cwd())}).encode()
        replies, their_answers = socket.socketpair()
        status, their_status = socket.socketpair()
        try:
            socket.send_fds(
                self._control, [JOB_SIZE.pack(len(located))], [their_answers.fileno(), their_status.fileno()]
            )
            self._control.sendall(located)
        except BaseException:
            replies.close()
            status.close()
            self.close()  # it may have received a part of a job
            raise
        finally:
            their_answers.close()
            their_status.close()
        return replies, status

    def close(self) -> None:
        self._control.close()


_lock = Lock()
_server: _Server | None = None


def _start(job: Mapping[str, Any]) -> tuple[socket.socket, socket.socket]:
    global _server
    with _lock:
        if _server is not None:
            with suppress(OSError):  # somebody has killed it
                return _server.start(job)
            end_server()
        _server = _Server()
        return _server.start(job)


def end_server() -> None:
    """End the server process and the jobs in it; the next job starts another."""
    global _server
    if _server is not None:
        _server.close()
        with suppress(ChildProcessError):
            os.waitpid(_server.process, 0)
        _server = None


def _forget_server() -> None:
    """Leave the server to the process that started it."""
    global _server, _lock
    _lock = Lock()
    if _server is not None:
        _server.close()
        _server = None


os.register_at_fork(after_in_child=_forget_server)
atexit.register(end_server)


def run_job(
    path: Path,
    job: Mapping[str, Any],
    *,
    file_bytes: int,
    quiet_s: float | None = None,
    reader: str = "FAISS",
    remedy: str = "copy it again or build it again",
) -> Iterator[Frame]:
    """Do a job in a guarded process; yield its frames up to and including the last one.

    `do` names the job, `memory_bytes` and `cpu_s` limit it; the process may be silent for `quiet_s`, and for as long as
    `file_bytes` take to be read. Errors name the `path`, the `reader` of it, and the `remedy`.
    """
    # a slow disk, in bytes a second
    limit = (QUIET_S if quiet_s is None else quiet_s) + file_bytes / 5_000_000
    replies, status = _start(job)
    with replies, status:  # at their end the server kills the process, if it is still there
        for tag, content in _frames(path, replies, limit, reader, remedy):
            if tag == REFUSED:
                raise UnsupportedStoreError(f"{path}: {_text(content)}")
            if tag == FAILED:
                raise StoreError(f"{path}: {reader} cannot read the file ({_text(content)}); {remedy}")
            if tag == OS_ERROR:
                number = json.loads(content)["errno"]
                if number == errno.ENOMEM:
                    raise MemoryError
                with output_errors(path):
                    raise OSError(number, os.strerror(number))
            yield tag, content
            if tag == DONE:
                return
        raise StoreError(f"{path}: {reader} cannot read the file: {_ending(status)}; {remedy}")


def _frames(path: Path, replies: socket.socket, limit: float, reader: str, remedy: str) -> Iterator[Frame]:
    """Yield frames until the process ends, of which the last may be cut off."""
    replies.settimeout(limit)
    try:
        with replies.makefile("rb", buffering=1 << 20) as stream:
            while len(header := stream.read(HEADER.size)) == HEADER.size:
                tag, size = HEADER.unpack(header)
                if size > LONGEST:
                    raise StoreError(f"{path}: {reader} sent a frame of {size} bytes, which is too many; {remedy}")
                content = stream.read(size)
                if len(content) < size:
                    return
                yield tag, content
    except TimeoutError as error:
        raise StoreError(
            f"{path}: {reader} did not respond within {limit:.0f} s: the file is probably damaged, or this machine too "
            f"busy; {remedy}, or try again"
        ) from error
    except ConnectionResetError:  # it ended with a part of the frame unread
        return


def _ending(status: socket.socket) -> str:
    """Return how a process ended, in words."""
    with suppress(OSError):  # the server may be gone
        status.shutdown(socket.SHUT_WR)
    packed = status.recv(EXIT_CODE.size)
    if len(packed) < EXIT_CODE.size:
        return "its process was killed"
    (code,) = EXIT_CODE.unpack(packed)
    if code == -signal.SIGXCPU:
        return "it takes longer than its size explains"
    if code >= 0:
        return f"its process ended with {code}"
    try:
        return f"its process ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process ended by signal {-code}"


def _text(content: bytes) -> str:
    return " ".join(content.decode("utf-8", errors="replace").split())


def temporary_file(path: Path, size: int) -> FileIO:
    """Open a file without a name for `size` bytes that are read from `path`; it disappears with the process."""
    folder = Path(tempfile.gettempdir())
    with output_errors(folder):
        free = shutil.disk_usage(folder).free
        if size + _SPARE_BYTES > free:
            raise OutputError(
                f"cannot read {path}: what is decoded from it takes {size} bytes in {folder}, which has {free}; free "
                "some space, or set TMPDIR to a folder that has it"
            )
        return tempfile.TemporaryFile(dir=folder, buffering=0)


def write_all(file: BinaryIO, content: bytes) -> None:
    """Append to a temporary file."""
    view = memoryview(content)
    with output_errors(Path(tempfile.gettempdir())):
        while view:
            view = view[file.write(view) :]
