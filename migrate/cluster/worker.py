"""The functions that workers of a Dask cluster run. Imported where `distributed` is: by workers, and by the runner."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

from distributed import WorkerPlugin, get_worker

from migrate import __version__
from migrate.errors import LeadMigrateError, RemoteError, UsageError
from migrate.work.jobs import Task
from migrate.work.remote import Folder


class TaskOffer(WorkerPlugin):  # type: ignore[misc]
    """A task, as every worker has it, those that join later too.

    It travels beside the shards and not with them: no key of Dask's, which its pages and logs show, holds a secret.
    """

    def __init__(self, name: str, task: Task, folder: Folder | None) -> None:
        self.name = name
        self.version = __version__
        self.task, self.folder = task, folder


_here = threading.local()
"""What this thread has opened, by the name of the task; a store's connection is one thread's."""


def version() -> str:
    """Return the version of this worker's package."""
    return __version__


def sees(folder: Folder, name: str) -> bool:
    """Return whether another process has put a file into this very folder, and this one can too; raises as `Folder`."""
    if folder.read(name) is None:
        return False
    probe = f".{uuid.uuid4().hex}"
    folder.write(probe, b"")
    folder.remove(probe)
    return True


def do(name: str, *arguments: Any) -> Any:
    """Do a shard of the task of that name, which is opened once."""
    opened: dict[str, Callable[..., Any]] = _here.__dict__
    if name not in opened:
        opened.clear()
        opened[name] = _open(name)
    try:
        return opened[name](*arguments)
    except OSError as error:  # which this machine's output has no part in
        raise RemoteError(f"the worker {get_worker().address} cannot go on: {error}") from error


def _open(name: str) -> Callable[..., Any]:
    worker = get_worker()
    offer: TaskOffer | None = worker.plugins.get(name)
    if offer is None:
        raise RemoteError(f"the worker {worker.address} was not told what to do; run the same command again")
    if offer.version != __version__:
        raise UsageError(other_versions({worker.address: __version__}))
    try:
        return offer.task.open_in(offer.folder)
    except (LeadMigrateError, ImportError, OSError) as error:  # of its surroundings, and not of rows that are done
        raise RemoteError(f"the worker {worker.address} cannot begin: {error}") from error


def other_versions(versions: dict[str, str]) -> str:
    """Return the message for workers of other versions, by address."""
    named = ", ".join(f"{address} ({version})" for address, version in sorted(versions.items()))
    return f"workers have other versions than {__version__}: {named}; install lead-migrate of one version on all"
