"""The guarded side of `child.py`: `python -m migrate.stores.worker` with a socket as standard input.

A server imports the libraries that jobs need and forks a process for each job. FAISS and the unpickler read untrusted
files there: they may abort, crash, loop or ask for all memory, and only that process ends. Its memory is limited
before the file is opened.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import select
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

LONGEST_JOB: Final = 1 << 16
EXIT_CODE: Final = struct.Struct("<i")


def main() -> None:
    """Serve the process at the other end of standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever interrupts the parent ends its jobs through it
    for module in _MODULES:
        import_module(module).prepare()
    with socket.socket(fileno=0) as control:
        _Server(control).serve()


class _Server:
    """Forks a process for each job, tells the parent how it ended, and kills it if the parent stops listening."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._jobs: dict[int, tuple[int, int]] = {}
        """Process id and status pipe by pidfd."""

    def serve(self) -> None:
        while True:
            # One at a time: the next in a list may be of a descriptor that this one closes.
            descriptor, _ = self._poller.poll()[0]
            if descriptor == self._control.fileno():
                message, pipes, _, _ = socket.recv_fds(self._control, LONGEST_JOB, 2)
                if not message:
                    self._kill_all()
                    return
                self._start(json.loads(message), *pipes)
            elif descriptor in self._jobs:
                self._reap(descriptor)
            else:
                self._kill_unheard(descriptor)

    def _start(self, job: dict[str, Any], answers: int, status: int) -> None:
        process = os.fork()
        if not process:
            self._control.close()
            _do(job, answers)
        os.close(answers)
        handle = os.pidfd_open(process)
        self._jobs[handle] = process, status
        self._poller.register(handle, select.POLLIN)
        self._poller.register(status, 0)  # reports when the reader has gone

    def _reap(self, handle: int) -> None:
        process, status = self._jobs.pop(handle)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        with suppress(OSError):
            os.write(status, EXIT_CODE.pack(code))
        with suppress(KeyError):
            self._poller.unregister(status)
        self._poller.unregister(handle)
        os.close(status)
        os.close(handle)

    def _kill_unheard(self, status: int) -> None:
        self._poller.unregister(status)
        for process, pipe in self._jobs.values():
            if pipe == status:
                os.kill(process, signal.SIGKILL)

    def _kill_all(self) -> None:
        for process, _ in self._jobs.values():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _do(job: dict[str, Any], answers: int) -> None:
    """Do a job and end the process."""
    limits_memory = True
    try:
        with os.fdopen(answers, "wb", buffering=1 << 20) as pipe:
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
    """The last line of a message, without the line of FAISS's source that it comes from."""
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
