"""What the monitor of a live store says of served queries, beside a full re-embed of the same documents.

    python benchmarks/monitor.py DATA [--set scifact] [--queries 400]

DATA as for `unjudged.py`. Stores are true vectors of all-MiniLM-L6-v2 that are spoiled in known ways, and ridge
translations to it; what is served are the store's own first ten, or the best ten of its first 50 by true vectors. For
each: agreement@10 by all true vectors (`truth`), the two means between which the monitor has it (`low`, `high`), the
bounds that hold at all looks, the share of the documents that were embedded for it, and the verdict. Exits with 1 where
SAFE is said of a mean below its limit, or NOT SAFE of one above, or where a mean in the pool is below the truth.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from unjudged import load, stores_of

from migrate.audit.unjudged import agreement, limits_of
from migrate.audit.verdict import MARGIN, Outcome
from migrate.embedders.base import Embedder, Role
from migrate.live.monitor import CALIBRATION, Monitor, ServedPool
from migrate.live.state import ServedQuery
from migrate.manifest import ModelIdentity
from migrate.report.terminal import table
from migrate.stores import create_store, open_store
from migrate.vectors import Document, Progress, Text, Vectors, no_progress

TARGET = "minilm"
DEPTH = 50
LOOK = 50
ROUNDING = 1e-5


class Known(Embedder):
    """A model whose vectors are at hand; counts the documents that it is asked for."""

    def __init__(self, documents: Sequence[Document], vectors: Vectors) -> None:
        self.rows = {document.id: row for row, document in enumerate(documents)}
        self.vectors, self.asked = vectors, set[str]()

    @property
    def identity(self) -> ModelIdentity:
        """Made up."""
        return ModelIdentity("known", self.vectors.shape[1], normalized=True)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """By the ids."""
        self.asked.update(text.id for text in texts)
        found: Vectors = self.vectors[[self.rows[text.id] for text in texts]]
        return found


def first(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """The rows of the k greatest scores of each query, (q, k), best first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def served(vectors: Vectors, true: Vectors, queries: Vectors, depth: int) -> NDArray[np.int64]:
    """The ten rows that are served: the store's own, or the best of its first `depth` by true vectors."""
    near = first(queries @ vectors.T, max(depth, 10))
    if depth:
        scores = np.take_along_axis(queries @ true.T, near, axis=1)
        near = np.take_along_axis(near, first(scores, len(near[0])), axis=1)
    return near[:, :10]


def watched(
    folder: Path,
    documents: Sequence[Document],
    vectors: Vectors,
    embedder: Known,
    queries: Vectors,
    rows: NDArray[np.int64],
) -> Monitor:
    """The monitor after it has looked at all queries, some at a time."""
    folder.mkdir()
    writer = create_store(folder, format="faiss", dim=vectors.shape[1], metric="ip")
    writer.append(documents, vectors)
    writer.finish()
    store, monitor = open_store(folder), Monitor()
    answers = [
        ServedQuery(query, tuple(documents[row].id for row in own), np.zeros(10, np.float32), number=number)
        for number, (query, own) in enumerate(zip(queries, rows, strict=True), start=1)
    ]
    untrue = np.zeros(len(documents), dtype=bool)
    starts = [0, *range(CALIBRATION, len(answers), LOOK)]
    for start, stop in zip(starts, [*starts[1:], len(answers)], strict=True):
        monitor = monitor.judged(ServedPool(store, embedder, answers[start:stop], untrue))
    return monitor


def main() -> int:
    """Print the table; 1 where anything is on the wrong side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", default="scifact")
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--every", type=int, default=4, help="judge every so many of the stores")
    args = parser.parse_args()
    collection, spaces = load(args.data, args.set)
    true, limits = spaces[TARGET].documents, limits_of(MARGIN)
    drawn = np.random.default_rng(0).choice(len(spaces[TARGET].queries), args.queries)  # as users repeat themselves
    queries = spaces[TARGET].queries[drawn]
    rows, wrong = [["store", "served", "truth", "low", "high", "bounds at all looks", "embedded", "verdict"]], 0
    with tempfile.TemporaryDirectory() as folder:
        stores = list(stores_of(spaces, TARGET, few=True, seed=0))[:: args.every]
        for number, (name, vectors) in enumerate(stores):
            for depth in (0, DEPTH):
                own = served(vectors, true, queries, depth)
                embedder = Known(collection.documents, true)
                place = Path(folder) / f"{number} {depth}"
                monitor = watched(place, collection.documents, vectors, embedder, queries, own)
                assert monitor.calibration is not None
                scores = (queries @ true.T).astype(np.float64)
                arm, full = (np.take_along_axis(scores, part, axis=1) for part in (own, first(scores, 10)))
                values = agreement(arm, full, temperature=monitor.calibration.temperature)
                truth, verdict = float(values[CALIBRATION:].mean()), monitor.verdict()
                is_wrong = (
                    verdict.mean < truth - ROUNDING
                    or (verdict.outcome is Outcome.SAFE and truth < limits.safe)
                    or (verdict.outcome is Outcome.NOT_SAFE and truth >= limits.harmful)
                )
                wrong += is_wrong
                rows.append(
                    [
                        name,
                        "50 by true vectors" if depth else "as found",
                        f"{truth:.3f}",
                        f"{verdict.likely:.3f}",
                        f"{verdict.mean:.3f}",
                        f"{verdict.lower:.3f} {verdict.upper:.3f}",
                        f"{len(embedder.asked) / len(true):.0%}",
                        f"{verdict.outcome}{' (WRONG)' if is_wrong else ''}",
                    ]
                )
                print(".", end="", file=sys.stderr, flush=True)
    print(f"\n{args.set}: {len(true):,} documents, {args.queries - CALIBRATION} scored queries\n\n{table(rows)}")
    print(f"\n{wrong} of {len(rows) - 1} on the wrong side")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
