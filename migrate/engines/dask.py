"""Dask: `--engine dask:tcp://HOST:8786`, `dask:local:N` for N processes here, or `dask` as Dask is configured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from typing import Any, Final

from migrate.engines.base import Engine
from migrate.engines.row_ranges import RowRange
from migrate.errors import UsageError

_LOCAL: Final = "local:"
# Arbitrary: a cluster that is being started gets so long for its first worker.
_PATIENCE_S: Final = 30


class DaskEngine(Engine):
    """Submits a task for each part; a worker that dies has its tasks done by others."""

    name = "dask"
    library = "distributed"
    package = "distributed"

    def __init__(self, address: str = "") -> None:
        super().__init__(address)
        count = address.removeprefix(_LOCAL)
        if address.startswith(_LOCAL) and not (count.isdecimal() and int(count)):
            raise UsageError(f"--engine dask:{address}: no number of processes; write it as in dask:local:4")

    def map(self, function: Callable[[RowRange], str], row_ranges: Sequence[RowRange]) -> Generator[str, None, None]:
        """Yield what the tasks return, as they end."""
        from distributed import as_completed

        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # it logs a traceback for each worker that goes
        with ExitStack() as stack:
            client = self._connect(stack)
            client.wait_for_workers(1, timeout=_PATIENCE_S)
            # a task of its own, as the stitch may be large; and one that can be done again where its worker died
            shared = client.submit(_same, function, pure=False)
            # Not `pure`: Dask would then hash the stitch for each task, and hand out what an earlier run has returned.
            tasks = [client.submit(_apply, shared, row_range, pure=False) for row_range in row_ranges]
            for task in as_completed(tasks):
                yield task.result()

    def _connect(self, stack: ExitStack) -> Any:
        from distributed import Client, LocalCluster

        cluster: Any = self.address or None
        if self.address.startswith(_LOCAL):
            count = int(self.address.removeprefix(_LOCAL))
            cluster = stack.enter_context(LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None))
        return stack.enter_context(Client(cluster, timeout=_PATIENCE_S))


def _same(function: Callable[[RowRange], str]) -> Callable[[RowRange], str]:
    return function


def _apply(function: Callable[[RowRange], str], row_range: RowRange) -> str:
    return function(row_range)
