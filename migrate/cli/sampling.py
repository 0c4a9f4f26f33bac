"""What the fitting commands share: the query log, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate.documents import Document, Query
    from migrate.embedders.base import Embedder
    from migrate.manifest import Manifest
    from migrate.sample import QueryLog
    from migrate.stores.base import Store


def load_log(path: Path | None, strategy: str | None, embedder: Embedder | None) -> QueryLog | None:
    """The log in a file, searched by `embedder` where the source model is at hand.

    Raises
    ------
    UsageError
        The strategy needs a log, or would not read this one.
    DatasetError, OutputError
        As `read_query_log`.
    """
    from migrate.datasets.query_log import read_query_log
    from migrate.sample import QueryLog, choose_strategy

    choose_strategy(strategy, has_log=path is not None)
    return None if path is None else QueryLog(read_query_log(path), embedder)


def log_queries(log: QueryLog | None) -> Sequence[Query]:
    """The queries of a log that its embedder is asked for."""
    from migrate.sample.query_log import MOST_QUERIES

    return () if log is None else log.queries[:MOST_QUERIES]


def expected_sample(
    store: Store, size: int, strategy: str | None, log: QueryLog | None, seed: int
) -> Sequence[Document]:
    """The documents that a fit will draw, or as many others where drawing them would ask a model."""
    from migrate.sample import draw_sample

    if log is not None and log.embedder is not None:
        return draw_sample(store, size, seed=seed).documents
    return draw_sample(store, size, strategy=strategy, query_log=log, seed=seed).documents


def draws_quickly(strategy: str | None, log: QueryLog | None) -> bool:
    """Whether the sample is drawn without a look at vectors or a search, so that it may be drawn to be counted."""
    return log is None and strategy in (None, "random")


def told_of_log(stitch: Manifest, *, by_vectors: bool) -> str:
    """How much of a stitch's sample the log has chosen, and by what."""
    found, pairs = stitch.details["sample"]["from query log"], stitch.counts["pairs"]
    by = "old vectors and words" if by_vectors else "words only, as no source model was named"
    rest = "" if found == pairs else "; the others are random"
    return f"sample: {found:,} of {pairs:,} documents are near the top for the query log, by {by}{rest}"
