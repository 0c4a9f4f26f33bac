"""How much the ranks of the old store should count beside those of the new one while true vectors come.

    python benchmarks/fading.py DATA [--spaces mpnet wordpieces layer4-mean layer5-mean tfidf:256] [--seeds 0 1]

DATA is as for `benchmarks/retrieval.py`; documents, queries and their log are those of `benchmarks/live.py`, and a
ridge stitch from 1,000 pairs translates the store. The log is replayed in one process: a query has ten documents
embedded, and the worker four more of those that are most wanted, until four fifths of the store are true. Rules:

- `without`: the old store is not asked
- `candidates`: it only brings candidates
- `both`: the ranks of both count alike, whatever is true
- `fading`: the larger the share of true vectors among the candidates, the less the old ranks count
- `learned`: so, and the less the old model finds of what true vectors put first, the less they count, as it is served

Printed for each space and rule: the part of a full re-embed's nDCG@10 in the first 100 and in all 1,000 queries, for
the queries of either set, and overlap@10 with it. Numbers of the rules were chosen by the queries of SciFact.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from live import KEPT, PAIRS, World, read_world
from numpy.typing import NDArray
from retrieval import SETS

from migrate.audit.measures import ndcg
from migrate.report.terminal import table
from migrate.search.fusion import RankComparison, fuse_old, reciprocal_rank_fusion
from migrate.search.runs import Rankings, by_score
from migrate.stitch.base import Pairing
from migrate.stitch.select import select_stitch
from migrate.vectors import Vectors, unit_rows

DEPTH = 200
BY_QUERY, BY_WORKER, BATCH, WRITTEN_EVERY = 10, 4, 32, 20
BUDGET = 0.8

Weight = Callable[[float, float], float]
RULES: dict[str, Weight] = {
    "without": lambda _, __: 0.0,
    "candidates": lambda _, __: 0.0,
    "both": lambda _, __: 1.0,
    "fading": lambda true_share, _: 1 - true_share,
    "learned": lambda true_share, weight: (1 - true_share) * weight,
}


def translate(world: World) -> tuple[Vectors, NDArray[np.bool_]]:
    """Return the vectors of the translated store, and which of them are true."""
    pairs = np.sort(np.random.default_rng(0).permutation(len(world.new))[:PAIRS])
    known = Pairing(world.old[pairs], world.new[pairs])
    selection = select_stitch(known, specs=["ridge"])
    assert selection.stitch is not None
    vectors = unit_rows(known.fit(selection.stitch).predict(world.old).vectors)
    vectors[pairs] = world.new[pairs]
    is_true = np.zeros(len(vectors), bool)
    is_true[pairs] = True
    return vectors, is_true


class Store:
    """The ids of documents, and the first of them by some vectors."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ids = [document.id for document in world.documents]
        self.row_of = {doc_id: row for row, doc_id in enumerate(self.ids)}

    def first_of(self, vectors: Vectors, query: Vectors, depth: int = DEPTH) -> list[str]:
        """Return the first documents by those vectors."""
        scores = vectors @ query
        near = np.argpartition(-scores, depth)[:depth]
        return [self.ids[row] for row in near[np.argsort(-scores[near], kind="stable")]]


def replay(store: Store, translated: Vectors, is_pair: NDArray[np.bool_], rule: str) -> list[tuple[str, ...]]:
    """Return the first ten of each query of the log."""
    world = store.world
    vectors, is_true, is_written = translated.copy(), is_pair.copy(), is_pair.copy()
    wanted: Counter[str] = Counter()
    comparison, answers, due = RankComparison(), [], 0
    for number, query in enumerate(world.log):
        new = store.first_of(vectors, world.new_queries[query])
        old = store.first_of(world.old, world.old_queries[query])
        found = [new] if rule == "without" else [new, old]
        runs = [Rankings({"query": tuple(one)}) for one in found]
        pool = reciprocal_rank_fusion(runs, depth=DEPTH).top("query", DEPTH)
        rows = np.array([store.row_of[doc_id] for doc_id in pool])
        lacking = [doc_id for doc_id, row in zip(pool, rows, strict=True) if not is_true[row]]
        wanted.update({doc_id: 1 / (place + 1) for place, doc_id in enumerate(lacking)})
        due += BY_WORKER
        chosen = lacking[:BY_QUERY]
        if due >= BATCH:
            due -= BATCH
            chosen += [doc_id for doc_id, _ in wanted.most_common(2 * BATCH) if not is_true[store.row_of[doc_id]]][
                :BATCH
            ]
        if is_true.mean() < BUDGET:
            is_true[[store.row_of[doc_id] for doc_id in chosen]] = True
        for doc_id in [doc_id for doc_id in chosen if doc_id in wanted]:
            del wanted[doc_id]
        known, asked = is_true[rows], world.new_queries[query]
        scores = np.where(known, world.new[rows] @ asked, vectors[rows] @ asked)
        ranking = by_score(dict(zip(pool, scores.tolist(), strict=True)), DEPTH)
        learned = {doc_id for doc_id, row in zip(pool, rows, strict=True) if is_true[row] and not is_written[row]}
        comparison.add(new, old)
        comparison.add_true([doc_id for doc_id in ranking if doc_id in learned], new, old)
        weight = RULES[rule](float(known.mean()), comparison.weight(len(store.ids)))
        old_ranks = {doc_id: rank for rank, doc_id in enumerate(old, start=1)}
        answers.append(tuple(fuse_old(ranking, old_ranks, weight=weight, depth=KEPT)))
        if number % WRITTEN_EVERY == 0:
            more = is_true & ~is_written
            vectors[more], is_written = world.new[more], is_written | more
    return answers


def measure(store: Store, answers: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return the nDCG@10 and the overlap@10 with the full re-embed of each query of the log, (n, 3) with that one's."""
    world, rows = store.world, []
    full = {query: store.first_of(world.new, world.new_queries[query], KEPT) for query in np.unique(world.log)}
    for query, answer in zip(world.log, answers, strict=True):
        query_id = world.query_ids[query]
        runs = (Rankings({query_id: tuple(one[:KEPT])}) for one in (answer, full[query]))
        scores = [float(ndcg(run, world.qrels, [query_id], KEPT)[0]) for run in runs]
        rows.append([*scores, len({*answer[:KEPT]} & {*full[query]}) / KEPT])
    return np.array(rows)


def main() -> None:
    """Print a row for each space and rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--spaces", nargs="+", default=["mpnet", "wordpieces", "layer4-mean", "layer5-mean", "tfidf:256"]
    )
    parser.add_argument("--documents", type=int, default=12_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    arguments = parser.parse_args()
    rows = [["old space, rule", "first 100", "all", *SETS, "overlap@10"]]
    for space in arguments.spaces:
        measured: dict[str, list[NDArray[np.float64]]] = {}
        for seed in arguments.seeds:
            world = read_world(arguments.data, space, arguments.documents, arguments.queries, seed)
            store = Store(world)
            translated, is_pair = translate(world)
            asked = [world.query_ids[query] for query in world.log]
            parts = [np.arange(len(asked)) < 100, np.ones(len(asked), bool)]
            parts += [np.array([query_id.startswith(f"{name}:") for query_id in asked]) for name in SETS]
            answers: dict[str, Sequence[Sequence[str]]] = {
                "staying": [store.first_of(world.old, world.old_queries[query]) for query in world.log]
            }
            answers |= {rule: replay(store, translated, is_pair, rule) for rule in RULES}
            for title, found in answers.items():
                of_query = measure(store, found)
                ratios = [of_query[part, 0].mean() / of_query[part, 1].mean() for part in parts]
                measured.setdefault(title, []).append(np.array([*ratios, of_query[:, 2].mean()]))
        for title, values in measured.items():
            rows.append([f"{space} {title}", *(f"{value:.3f}" for value in np.mean(values, axis=0))])
    print(table(rows))


if __name__ == "__main__":
    main()
