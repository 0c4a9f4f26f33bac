"""A runner that makes shards on a Dask cluster, which is used for nothing but to run functions, and to run them again.

As on one machine, the files of finished shards are all that a later run needs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final

from migrate.errors import LeadMigrateError, OutputError, RemoteError, UsageError
from migrate.reading import MalformedError, read_table
from migrate.work.jobs import Pool, Task, Work
from migrate.work.remote import Folder
from migrate.work.shards import Shard

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_CONNECT_S: Final = 30.0
_ANSWER_S: Final = 2.0
_GO_ON: Final = "run the same command again, it continues"
_LOCAL: Final = "local:"


def named_runner(address: str, shards: str | None) -> DaskRunner:
    """Return the runner of `local:N`, a scheduler's address or its file; `shards` as in `DaskRunner`."""
    if address.startswith(_LOCAL) and not (address.removeprefix(_LOCAL).isdecimal() and int(address[6:]) > 0):
        raise UsageError(f"dask:{address}: no number of worker processes; write it as in dask:local:4")
    is_address = address.startswith((_LOCAL, "tcp://", "tls://", "ws://", "wss://", "ucx://"))
    if not is_address and not Path(address).is_file():
        raise UsageError(f"dask:{address}: no such file of a scheduler; name one, or dask:tcp://HOST:PORT")
    return DaskRunner(address, shards)


@dataclass(frozen=True, slots=True)
class DaskRunner:
    """Does shards on a Dask cluster.

    `address` is that of the scheduler, `tcp://host:8786`, or its file, or `local:N` for N processes here that end
    with the run. `shards` is where workers leave finished shards, as fsspec knows it (`s3://bucket/folder`): that
    outlives all of them; without one, shards come back over the network. After `patience_s` without a worker the
    run breaks off.
    """

    address: str
    shards: str | None = None
    patience_s: float = 30.0
    embeds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        path = None if self.shards is None else Folder(self.shards).path
        if path is not None:  # workers are in folders of their own
            object.__setattr__(self, "shards", str(path.absolute()))

    @property
    def is_local(self) -> bool:
        """True if the workers are processes of this machine, which write to its files."""
        return self.address.startswith(_LOCAL)

    @property
    def sees_files(self) -> bool:
        """True if the workers leave nothing elsewhere, and are of this machine."""
        return self.is_local and self.shards is None

    def run(self, work: Work, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make every shard; where only this process can make them, they are made here."""
        task = work.job.task(work.path if self.sees_files else None)
        if task is None:
            yield from work.make_here(shards)
            return
        # for each thread a shard that it does, and one that waits for it
        with self.pool(
            lambda _: task, ahead=2, most=None, folder=work.shards.folder if self.sees_files else None
        ) as pool:
            yield from work.make_by(pool, shards)

    @contextmanager
    def pool(
        self, task: Callable[[int], Task], *, ahead: int, most: int | None, folder: Folder | None = None
    ) -> Iterator[ClusterPool]:
        """Have the workers open a task, as many threads as there are now, and those of later where there is no `most`.

        What an earlier run has left in shared files is taken first.
        """
        with self.cluster() as cluster:
            if self.shards is not None:
                cluster.check_place(self.shards)
            users = max(cluster.threads(), 1)
            users = users if most is None else min(users, most)
            opened = task(users)
            if self.shards is not None:
                folder = Folder(f"{self.shards.rstrip('/')}/{opened.digest[:32]}", f"--shards {self.shards}")
            with cluster.offer(opened, folder) as name:
                yield ClusterPool(opened, folder, cluster, name, ahead, None if most is None else users)

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Connect; a local cluster is started, and ends with the context."""
        try:
            import dask
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise UsageError("a Dask runner needs distributed; pip install 'lead-migrate[dask]'") from error
        settings = {"distributed.comm.timeouts.connect": f"{_CONNECT_S}s", "distributed.admin.log-length": 0}
        with _silence(), dask.config.set(settings), ExitStack() as stack:
            try:
                if self.is_local:
                    local = LocalCluster(
                        n_workers=int(self.address.removeprefix(_LOCAL)),
                        threads_per_worker=1,
                        processes=True,
                        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                        memory_limit=0,
                        silence_logs=logging.CRITICAL,
                    )
                    stack.callback(_close, local)
                    client = Client(local, set_as_default=False)
                else:
                    scheduler = _scheduler_at(self.address)
                    with ThreadPoolExecutor(1) as pool:  # a notebook's thread has a loop of its own
                        pool.submit(asyncio.run, _shake_hands(scheduler, _CONNECT_S)).result()
                    with warnings.catch_warnings(record=True) as caught:
                        client = Client(scheduler, timeout=_CONNECT_S, set_as_default=False)
                    _tell_versions(caught)
            except (OSError, ValueError) as error:  # a TimeoutError is an OSError
                raise RemoteError(
                    f"no Dask scheduler answers at {self.address} ({str(error) or 'time is up'}); start one with "
                    f"`dask scheduler`, then {_GO_ON}"
                ) from error
            stack.callback(_close, client)
            cluster = Cluster(client, self.address, self.patience_s)
            cluster.check_workers()
            yield cluster


async def _shake_hands(address: str, timeout_s: float) -> None:
    """Make sure that one of Dask's processes answers; its own client waits for any that takes a connection, forever."""
    from distributed import Security
    from distributed.comm import connect

    options = Security().get_connection_args("client")
    try:
        comm = await asyncio.wait_for(connect(address, timeout=timeout_s, **options), timeout_s + _ANSWER_S)
    except (OSError, ValueError):
        raise
    except Exception as error:  # whatever comes of reading what another service says
        raise OSError(f"what answers there does not speak as one: {error}") from error
    comm.abort()


async def _answer(addresses: Sequence[str]) -> bool:
    """Return whether workers are reached from here, which saves a way through the scheduler; a few answer for all."""
    hands = [_shake_hands(address, _ANSWER_S) for address in addresses[:8]]
    return not any(await asyncio.gather(*hands, return_exceptions=True))


def _tell_versions(caught: Sequence[warnings.WarningMessage]) -> None:
    """Say in a line what Dask shows as a table: which packages are not the same everywhere."""
    for warning in caught:
        lines = [line for line in str(warning.message).splitlines() if line.startswith("| ")]
        names = ", ".join(line.split("|")[1].strip() for line in lines[1:])
        if names:
            _log.warning("versions differ between this process, the Dask scheduler and its workers, of: %s", names)


def _scheduler_at(address: str) -> str:
    """Return an address, or the one that a scheduler has written to its file."""
    if "://" in address:
        return address
    try:
        address_read = str(read_table(Path(address))["address"])
    except (OSError, MalformedError, KeyError) as error:
        raise UsageError(f"{address}: not a file that `dask scheduler --scheduler-file` wrote; name that") from error
    return address_read


def _close(closable: Any) -> None:
    """Leave a cluster that may be gone already."""
    with suppress(Exception):
        closable.close(timeout=5)


@contextmanager
def _silence() -> Iterator[None]:
    """Let Dask say nothing of workers that come and go: what matters is an error of this run."""
    talkative = ("distributed", "tornado", "asyncio")
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in talkative]
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class ClusterPool(Pool):
    """Workers that know a task by its name; `users` of their threads at most."""

    def __init__(
        self, task: Task, folder: Folder | None, cluster: Cluster, name: str, ahead: int, users: int | None
    ) -> None:
        super().__init__(task, folder)
        self._cluster, self._name, self._ahead, self._users = cluster, name, ahead, users
        self._numbers = count()
        self._stopped = False

    @property
    def capacity(self) -> int:
        """Number of calls that are worth having under way."""
        return self._ahead * (self._users or max(self._cluster.threads(), 1))

    def result(self, *arguments: Any) -> Any:
        """Return what a worker returns; it may be lost with the cluster."""
        from migrate.cluster import worker

        cluster, done = self._cluster, threading.Event()
        try:
            key = (self._name, next(self._numbers))
            future = cluster.client.submit(worker.do, self._name, *arguments, key=key, pure=False)
        except Exception as error:
            raise cluster.lost() from error
        future.add_done_callback(lambda _: done.set())
        while not done.wait(_LOOK_S):
            if self._stopped:
                future.cancel(force=True)
                raise RemoteError(f"the run was broken off; {_GO_ON}")
            cluster.threads()
        shard_made = cluster.outcome(future)
        future.release()
        return shard_made

    def stop(self) -> None:
        """Let those that wait raise an error."""
        self._stopped = True


@dataclass(slots=True)
class Cluster:
    """A connection to a cluster."""

    client: Any
    address: str
    patience_s: float
    _alone_since: float | None = None
    _count: int = 0
    _counted_at: float = 0.0

    def check_workers(self) -> None:
        """Make sure that there are workers, all of them with this version of the package."""
        from migrate import __version__
        from migrate.cluster import worker

        while not self.threads():
            time.sleep(_LOOK_S / 10)
        versions = self.client.run(worker.version, on_error="return")
        differing = {
            address: "none that can be used" if isinstance(version, BaseException) else str(version)
            for address, version in versions.items()
            if version != __version__
        }
        if differing:
            raise UsageError(worker.other_versions(differing))
        self.client.direct_to_workers = self.client.sync(_answer, list(versions))

    def check_place(self, shards: str) -> None:
        """Make sure, before anything is paid for, that files can be put at a place, and that all workers see them."""
        from migrate.cluster import worker

        folder, name = Folder(shards, f"--shards {shards}"), f".{uuid.uuid4().hex}"
        folder.write(name, b"")
        try:
            answers_of = self.client.run(worker.sees, folder, name, on_error="return")
        finally:
            folder.remove(name)
        for address, sees in answers_of.items():  # a worker that is gone by now has another error
            if isinstance(sees, LeadMigrateError):
                raise type(sees)(f"the worker {address} cannot begin: {sees}") from sees
            if sees is False:
                raise UsageError(
                    f"{folder.named}: the worker {address} sees another place there; name one that all machines see, "
                    "such as s3://BUCKET/FOLDER"
                )

    def threads(self) -> int:
        """Return how many threads the workers have now, or had a moment ago; a RemoteError where none come any more."""
        if self.client.status != "running":
            raise self.lost()
        if self._count and time.monotonic() - self._counted_at < _LOOK_S:
            return self._count
        try:
            self._count = count = int(sum(self.client.nthreads().values()))
        except Exception as error:
            raise self.lost() from error
        if count:
            self._alone_since, self._counted_at = None, time.monotonic()
            return count
        self._alone_since = self._alone_since or time.monotonic()
        if time.monotonic() - self._alone_since > self.patience_s:
            raise RemoteError(
                f"the Dask cluster {self.address} has no worker; start one with `dask worker`, then {_GO_ON}"
            )
        return 0

    def lost(self) -> RemoteError:
        """Return the error of a cluster that is gone."""
        return RemoteError(f"the Dask scheduler at {self.address} is gone; when it is back, {_GO_ON}")

    @contextmanager
    def offer(self, task: Task, folder: Folder | None) -> Iterator[str]:
        """Tell the workers of a task, and of where they leave what they make, and return its name."""
        from migrate.cluster.worker import TaskOffer

        name = f"lead-migrate-{uuid.uuid4().hex}"
        try:
            self.client.register_plugin(TaskOffer(name, task, folder), name=name)
            yield name
        finally:
            if self.client.status == "running":  # a scheduler that is gone would be waited for
                with suppress(Exception):
                    self.client.unregister_worker_plugin(name)

    def outcome(self, future: Any) -> Any:
        """Return what a finished future holds, or raise what the worker met.

        Where its worker is gone since, another makes it again.
        """
        from distributed import KilledWorker

        while True:
            try:
                return future.result(timeout=30.0)
            except LeadMigrateError:
                raise
            except KilledWorker as error:
                raise OutputError(
                    f"worker processes ended before their work was done, perhaps for lack of memory; {_GO_ON}"
                ) from error
            except BaseException as error:
                if type(error).__name__ == "CancelledError":  # asyncio's is no Exception
                    raise self.lost() from error
                if not isinstance(error, Exception) or future.status == "error":
                    raise
                if not isinstance(error, TimeoutError):
                    raise self.lost() from error
                self.threads()
