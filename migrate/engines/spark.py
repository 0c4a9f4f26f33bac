"""Spark: `--engine spark:MASTER`, as in `spark:spark://HOST:7077`, or `spark` for what Spark is configured for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from migrate.engines.base import Engine
from migrate.engines.parts import Part


class SparkEngine(Engine):
    """Maps the parts as a table with a partition for each; Spark does the tasks of an executor that dies again."""

    name = "spark"
    library = "pyspark"
    package = "pyspark"

    def map(self, function: Callable[[Part], str], parts: Sequence[Part]) -> Generator[str, None, None]:
        """Yield what the tasks return, once all have ended."""
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("lead-migrate").config("spark.ui.showConsoleProgress", "false")
        if self.address.startswith("sc://"):
            builder = builder.remote(self.address)
        elif self.address:
            builder = builder.master(self.address)
        is_ours = SparkSession.getActiveSession() is None
        session = builder.getOrCreate()

        def answers(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                made = [function(parts[number]) for number in batch.column("id").to_pylist()]
                yield pa.RecordBatch.from_pydict({"answer": made})

        numbers = session.range(0, len(parts), 1, numPartitions=len(parts))
        try:
            for row in numbers.mapInArrow(answers, "answer string").collect():
                yield row["answer"]
        finally:
            if is_ours:
                session.stop()
