"""Which documents a live store embeds first: what is kept of quality, by order and by the share that is embedded.

    python benchmarks/demand.py DATA [--space layer4-mean mpnet] [--depth 50 200]

DATA is as for `benchmarks/retrieval.py`. A stitch from 500 pairs translates each collection; 10,000 queries are drawn
from its own by Zipf's law, which knows nothing of their quality. Documents that the first `depth` of those queries hold
get true vectors, in some order, until a share of the collection has them; then every query is ranked again. Orders, all
by a sum over the queries that find a document: `times` of one for each, `uncertain` of 1 - its confidence, `place` of
1 / its place, and `place, uncertain` of both. Printed: overlap@10 with the full re-embed, and the part of its nDCG@10.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from retrieval import SETS, TARGET, load_space, read_set

import migrate
from migrate.audit.measures import ndcg
from migrate.embed.corpus import embed_corpus
from migrate.embedders import load_embedder
from migrate.report.terminal import table
from migrate.search.runs import Rankings
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.vectors import Vectors, unit_rows

PAIRS, KEPT, QUERIES = 500, 10, 10_000
SHARES = (0.02, 0.05, 0.1, 0.2)


class Replay:
    """A translated collection and its queries, ranked with any set of documents true."""

    def __init__(self, data: Path, name: str, space: str, seed: int) -> None:
        read = read_set(data, name, [], None)
        self.collection = read.collection
        self.ids = [document.id for document in self.collection.documents]
        self.true, self.queries = (
            unit_rows(rows.astype(np.float32)) for rows in (read.target.documents, read.target.queries)
        )
        old = load_space(data, name, space, self.collection).documents
        self.translated, self.uncertainty = self._translate(data, name, old, seed)
        self.near, self.exact = self.queries @ self.translated.T, self.queries @ self.true.T
        rng = np.random.default_rng(seed)
        weights = 1 / (1 + rng.permutation(len(self.queries)))
        self.times = rng.multinomial(QUERIES, weights / weights.sum())
        self.full = self._best(self.exact)

    def _translate(self, data: Path, name: str, old: Vectors, seed: int) -> tuple[Vectors, NDArray[np.float64]]:
        target = load_embedder(f"file:{data / 'pairs' / f'{name}.{TARGET}.npz'}")
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            np.savez(folder / "old.npz", doc_ids=np.array(self.ids), docs=old)
            documents = self.collection.documents
            embed_corpus(lambda: documents, load_embedder(f"file:{folder / 'old.npz'}"), folder / "old")
            store = open_store(folder / "old")
            migrate.translate(store, migrate.fit(store, target, sample=PAIRS, seed=seed), folder / "new")
            new = open_store(folder / "new")
            confidence = stored_confidence(new)
            assert confidence is not None
            return read_all(new.scan()).vectors, np.clip(1 - np.nan_to_num(np.asarray(confidence, np.float64)), 0, 1)

    @staticmethod
    def _best(scores: Vectors) -> NDArray[np.int64]:
        return np.argsort(-scores, axis=1, kind="stable")[:, :KEPT]

    def orders(self, depth: int) -> Mapping[str, NDArray[np.float64]]:
        """How much each document is wanted, (n,), by order."""
        pool = np.argsort(-self.near, axis=1, kind="stable")[:, :depth]
        places = np.arange(1, depth + 1)
        weights = {"times": np.ones(depth), "place": 1 / places}
        wanted = {}
        for name, weight in weights.items():
            total = np.zeros(len(self.ids))
            np.add.at(total, pool, self.times[:, None] * weight)
            wanted[name] = total
        names = {"times": "uncertain", "place": "place, uncertain"}
        return wanted | {names[name]: total * self.uncertainty for name, total in wanted.items()}

    def kept(self, depth: int, chosen: NDArray[np.int64]) -> tuple[float, float]:
        """Overlap@10 with the full re-embed, and the part of its nDCG@10, with the chosen documents true."""
        is_true = np.zeros(len(self.ids), dtype=bool)
        is_true[chosen] = True
        pool = np.argsort(-self.near, axis=1, kind="stable")[:, :depth]
        scores = np.where(is_true, self.exact, self.near)
        ranked = np.full_like(scores, -np.inf)
        np.put_along_axis(ranked, pool, np.take_along_axis(scores, pool, 1), 1)
        best = self._best(ranked)
        shared = [len(np.intersect1d(*pair)) / KEPT for pair in zip(best, self.full, strict=True)]
        part = (self.quality(best) @ self.times) / (self.quality(self.full) @ self.times)
        return float(np.average(shared, weights=self.times)), float(part)

    def quality(self, best: NDArray[np.int64]) -> NDArray[np.float64]:
        """NDCG@10 of each query, (q,), by the rows of its best documents, (q, k)."""
        ids = self.collection.query_ids
        run = Rankings(
            {query_id: tuple(self.ids[row] for row in rows) for query_id, rows in zip(ids, best, strict=True)}
        )
        return ndcg(run, self.collection.qrels, ids, KEPT)


def main() -> None:
    """Print a table for each collection, space and depth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--space", nargs="+", default=["layer4-mean", "mpnet"])
    parser.add_argument("--depth", nargs="+", type=int, default=[50, 200])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for space in arguments.space:
        for name in SETS:
            replay = Replay(arguments.data, name, space, arguments.seed)
            for depth in arguments.depth:
                rows = []
                for order, wanted in replay.orders(depth).items():
                    ranked = np.argsort(-wanted, kind="stable")
                    results = [replay.kept(depth, ranked[: round(share * len(ranked))]) for share in SHARES]
                    rows.append([order, *(f"{overlap:.3f} / {part:.3f}" for overlap, part in results)])
                bare, ceiling = (
                    replay.kept(depth, chosen) for chosen in (np.empty(0, np.int64), np.arange(len(ranked)))
                )
                print(
                    f"\n{name} from {space}, the first {depth}: overlap@10 / nDCG@10 of the full re-embed; "
                    f"none true {bare[0]:.3f} / {bare[1]:.3f}, all {ceiling[0]:.3f} / {ceiling[1]:.3f}\n"
                )
                print(table([["embedded", *(f"{share:.0%}" for share in SHARES)], *rows]), flush=True)


if __name__ == "__main__":
    main()
