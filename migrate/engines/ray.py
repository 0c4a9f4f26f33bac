"""Ray: `--engine ray:ADDRESS`, or `ray` for the cluster that RAY_ADDRESS names, else one of this machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence

from migrate.engines.base import Engine
from migrate.engines.row_ranges import RowRange


class RayEngine(Engine):
    """Runs a task for each part; Ray does the tasks of a worker that dies again."""

    name = "ray"
    library = "ray"
    package = "ray"

    def map(self, function: Callable[[RowRange], str], row_ranges: Sequence[RowRange]) -> Generator[str, None, None]:
        """Yield what the tasks return, as they end."""
        import ray

        is_ours = not ray.is_initialized()
        if is_ours:
            # What workers print would stand among the output of the command.
            ray.init(self.address or None, log_to_driver=False, logging_level=logging.ERROR)
        try:
            task = ray.remote(_apply)
            shared = ray.put(function)  # once, as the stitch may be large
            waiting = [task.remote(shared, row_range) for row_range in row_ranges]
            while waiting:
                done, waiting = ray.wait(waiting)
                yield from ray.get(done)
        finally:
            if is_ours:
                ray.shutdown()


def _apply(function: Callable[[RowRange], str], row_range: RowRange) -> str:
    return function(row_range)
