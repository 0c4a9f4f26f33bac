"""The guarded side of `child.py`: `python -m migrate.stores.worker` with a socket as standard input.

A server imports the libraries that jobs need and forks a process for each job. FAISS and the unpickler read untrusted
files there: they may abort, crash, loop or ask for all memory, and only that process ends. Its memory is limited
before the file is opened, where the system can limit it (macOS cannot).
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import selectors
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

from migrate.stores.frames import FAILED, OS_ERROR, REFUSED, RefusedError, send, send_facts

_MODULES: Final = ("migrate.stores.faiss.jobs", "migrate.stores.documents.unpickle")
"""Loaded before the first job; a job is named as `MODULE:FUNCTION`."""

EXIT_CODE: Final = struct.Struct("<i")
JOB_SIZE: Final = struct.Struct("<I")


def main() -> None:
    """Serve the process at the other end of standard input until it ends."""
    # whoever interrupts the parent ends its jobs through it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in _MODULES:
        import_module(module)
    with socket.socket(fileno=0) as control, selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            # One at a time: the next in a list may be of a socket that this one closes.
            key = selector.select()[0][0]
            if key.data is not None:
                selector.unregister(key.fileobj)
                _end_job(*key.data)
            elif not _start_job(control, selector):
                break
        for key in selector.get_map().values():
            if key.data is not None:
                _end_job(*key.data)


def _start_job(control: socket.socket, selector: selectors.BaseSelector) -> bool:
    """Receive a job and fork a process for it; return False if the parent has ended."""
    header, pipes, _, _ = socket.recv_fds(control, JOB_SIZE.size, 2)
    size = 0
    if header:
        size = JOB_SIZE.unpack(header)[0]
    if size:
        text = control.recv(size, socket.MSG_WAITALL)
    else:
        text = b""
    if not size or len(text) < size:
        return False
    job = json.loads(text)
    replies, status = pipes
    process = os.fork()
    if not process:
        # only the server may keep the sockets of other jobs open
        for key in selector.get_map().values():
            os.close(key.fd)
        os.close(status)
        _do(job, replies)
    os.close(replies)
    # The parent stops sending when it has seen the end of the answers, or does not want them any more.
    ends = socket.socket(fileno=status)
    selector.register(ends, selectors.EVENT_READ, (process, ends))
    return True


def _end_job(process: int, status: socket.socket) -> None:
    """Kill the process of a job, unless it has ended, and send its exit code to the parent, if it still listens."""
    os.kill(process, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with status, suppress(OSError):
        status.send(EXIT_CODE.pack(code))


def _do(job: dict[str, Any], replies: int) -> None:
    """Do a job and end the process."""
    limits_memory = True
    try:
        # Left open: the parent sees the end of the pipe when the process has its exit code, and not before.
        with os.fdopen(replies, "wb", buffering=1 << 20, closefd=False) as pipe:
            try:
                os.chdir(job["folder"])
                limits_memory = _limit(job["memory_bytes"], job.get("cpu_s"))
                function: Callable[[dict[str, Any], BinaryIO], None]
                module, _, name = job["do"].partition(":")
                function = getattr(import_module(module), name)
                function(job, pipe)
            except RefusedError as error:
                send(pipe, REFUSED, str(error).encode(errors="replace"))
            except MemoryError:
                if limits_memory:
                    send(pipe, FAILED, b"it asks for more memory than its size explains")
                else:  # the limit is that of the user's process, and the file not at fault
                    send_facts(pipe, OS_ERROR, {"errno": errno.ENOMEM})
            except Exception as error:
                # FAISS raises RuntimeError, SWIG TypeError, NumPy MemoryError: in any case the file is at fault
                send(pipe, FAILED, _reason(error).encode(errors="replace"))
    finally:
        os._exit(0)


def _reason(error: Exception) -> str:
    """Return the last line of a message, without the line of FAISS's source that it comes from."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return re.sub(r"^.*Error(:| in .* at \S+:\d+:) ", "", lines[-1]).strip()[:300]


def _limit(extra_bytes: int, cpu_s: int | None) -> bool:
    """Allow memory beyond what is mapped now, and processor time; return whether no lower limit of memory was there."""
    limits_memory = False
    with suppress(OSError, ValueError):
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + extra_bytes, mapped + extra_bytes))
        limits_memory = True
    if cpu_s is not None:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    # a crash is an answer, and its memory image of no use to anyone
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return limits_memory


if __name__ == "__main__":
    main()
