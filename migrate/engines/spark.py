"""Spark: `--engine spark:MASTER`, as in `spark:spark://HOST:7077`, or `spark` for what Spark is configured for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from migrate.engines.base import Engine
from migrate.engines.row_ranges import RowRange


class SparkEngine(Engine):
    """Maps the parts as a table with a partition for each; Spark does the tasks of an executor that dies again."""

    name = "spark"
    library = "pyspark"
    package = "pyspark"

    def map(self, function: Callable[[RowRange], str], row_ranges: Sequence[RowRange]) -> Generator[str, None, None]:
        """Yield what the tasks return, once all have ended."""
        from pyspark.sql import SparkSession

        # Spark starts the `python3` that it finds first, which need not have this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("lead-migrate").config("spark.ui.showConsoleProgress", "false")
        if self.address.startswith("sc://"):
            builder = builder.remote(self.address)
        elif self.address:
            builder = builder.master(self.address)
        is_ours = SparkSession.getActiveSession() is None
        session = builder.getOrCreate()

        def results(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                files = [function(row_ranges[number]) for number in batch.column("id").to_pylist()]
                yield pa.RecordBatch.from_pydict({"answer": files})

        numbers = session.range(0, len(row_ranges), 1, numPartitions=len(row_ranges))
        try:
            for row in numbers.mapInArrow(results, "answer string").collect():
                yield row["answer"]
        finally:
            if is_ours:
                session.stop()
