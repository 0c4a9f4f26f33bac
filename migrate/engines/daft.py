"""Daft: `--engine daft`, on this machine, or on Ray where Daft is configured for that (`DAFT_RUNNER=ray`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence

from migrate.engines.base import Engine
from migrate.engines.row_ranges import RowRange
from migrate.errors import UsageError


class DaftEngine(Engine):
    """Maps the parts as a column, in processes of their own; Daft does not do the parts of one that dies again."""

    name = "daft"
    library = "daft"
    package = "daft"

    def __init__(self, address: str = "") -> None:
        super().__init__(address)
        if address:
            raise UsageError(
                f"--engine daft:{address}: Daft takes no address; name daft alone, with DAFT_RUNNER=ray on Ray"
            )

    def map(self, function: Callable[[RowRange], str], row_ranges: Sequence[RowRange]) -> Generator[str, None, None]:
        """Yield what the processes return, as they come."""
        import daft
        from daft.runners import get_or_create_runner

        os.environ.setdefault("DAFT_PROGRESS_BAR", "0")
        is_native = get_or_create_runner().name == "native"

        def make(number: int) -> str:
            return function(row_ranges[number])

        result = daft.func(return_dtype=daft.DataType.string(), use_process=is_native)(make)
        numbers = daft.from_pydict({"number": list(range(len(row_ranges)))})
        # a process of this machine takes a batch at a time, one of Ray a partition
        numbers = numbers.into_batches(1) if is_native else numbers.into_partitions(len(row_ranges))
        for row in numbers.select(result(numbers["number"]).alias("answer")).iter_rows(results_buffer_size=1):
            yield row["answer"]
