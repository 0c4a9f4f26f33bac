"""How the ranks of the old store should fade out of a fused ranking while true vectors come.

    python benchmarks/fading.py DATA [--space mpnet] [--documents 12000]

DATA is as for `benchmarks/retrieval.py`; documents and queries are those of `benchmarks/live.py`. A ridge stitch from
1,000 pairs translates the store. The first 200 documents of both stores by their fused ranks are ranked again, after
`top` of them and a share of the whole store were embedded, in two ways: `document` counts the new rank of a document
with a true vector twice and never its old one, `first ten` lets the share of true vectors among the first ten by the
new model decide for all documents (`migrate.search.fusion.fuse_untrue`). Printed: the part of a full re-embed's nDCG@10
for queries of either set, and the overlap@10 with it. The rule was chosen by the queries of SciFact.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from live import KEPT, PAIRS, World, read_world
from numpy.typing import NDArray
from retrieval import SETS

from migrate.audit.measures import ndcg
from migrate.report.terminal import table
from migrate.search.fusion import fuse_untrue, reciprocal_rank_fusion
from migrate.search.runs import Rankings, by_score
from migrate.stitch.base import Pairing
from migrate.stitch.select import select_stitch
from migrate.vectors import Vectors, unit_rows

DEPTH = 200
EMBEDDED = ((0, 0.0), (10, 0.0), (20, 0.0), (10, 0.1), (20, 0.2))


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


def first_of(vectors: Vectors, query: Vectors, ids: NDArray[np.object_]) -> tuple[str, ...]:
    """Return the first documents of a store."""
    return tuple(ids[np.argsort(-(vectors @ query), kind="stable")[:DEPTH]])


def by_document(ranking: Sequence[str], old_ranks: dict[str, int], true: set[str]) -> list[str]:
    """Order documents by ranks of their own: the new one twice where their vector is true, else both."""
    scores = {}
    for rank, doc_id in enumerate(ranking, start=1):
        other = rank if doc_id in true else old_ranks.get(doc_id)
        scores[doc_id] = 1 / (60 + rank) + (0 if other is None else 1 / (60 + other))
    return by_score(scores, DEPTH)


def main() -> None:
    """Print a row for each rule and each state of the store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--space", default="mpnet", help="the old one")
    parser.add_argument("--documents", type=int, default=12_000)
    arguments = parser.parse_args()
    world = read_world(arguments.data, arguments.space, arguments.documents, 1_000, 0)
    vectors, is_pair = translate(world)
    ids = np.array([document.id for document in world.documents], object)
    row_of = {doc_id: row for row, doc_id in enumerate(ids)}
    asked = np.unique(world.log)
    query_ids = [world.query_ids[query] for query in asked]
    found = {
        name: [first_of(rows, queries[query], ids) for query in asked]
        for name, rows, queries in (
            ("full", world.new, world.new_queries),
            ("old", world.old, world.old_queries),
            ("translated", vectors, world.new_queries),
        )
    }
    whole = ndcg(Rankings(dict(zip(query_ids, found["full"], strict=True))), world.qrels, query_ids, KEPT)

    def row(title: str, rankings: Sequence[Sequence[str]]) -> list[str]:
        run = Rankings({query_id: tuple(one) for query_id, one in zip(query_ids, rankings, strict=True)})
        scores = ndcg(run, world.qrels, query_ids, KEPT)
        of_set = [np.array([query_id.startswith(f"{name}:") for query_id in query_ids]) for name in SETS]
        both = zip(rankings, found["full"], strict=True)
        shared = np.mean([len({*one[:KEPT]} & {*true[:KEPT]}) / KEPT for one, true in both])
        return [title, *(f"{scores[one].mean() / whole[one].mean():.3f}" for one in of_set), f"{shared:.3f}"]

    rows = [["embedded, rule", *SETS, "overlap@10"], row("old store", found["old"])]
    rows.append(row("translated store", found["translated"]))
    for top, share in EMBEDDED:
        is_true = is_pair.copy()
        is_true[np.random.default_rng(0).permutation(len(ids))[: int(share * len(ids))]] = True
        answers: dict[str, list[list[str]]] = {"document": [], "first ten": []}
        for query, old, new in zip(asked, found["old"], found["translated"], strict=True):
            runs = [Rankings({"query": new}), Rankings({"query": old})]
            pool = reciprocal_rank_fusion(runs, depth=DEPTH).top("query", DEPTH)
            lacking = [doc_id for doc_id in pool if not is_true[row_of[doc_id]]]
            true = set(pool).difference(lacking[top:])
            places = [row_of[doc_id] for doc_id in pool]
            sure = np.array([doc_id in true for doc_id in pool])
            query_vector = world.new_queries[query]
            scores = np.where(sure, world.new[places] @ query_vector, vectors[places] @ query_vector)
            ranking = by_score(dict(zip(pool, scores.tolist(), strict=True)), DEPTH)
            old_ranks = {doc_id: rank for rank, doc_id in enumerate(old, start=1)}
            answers["document"].append(by_document(ranking, old_ranks, true))
            answers["first ten"].append(fuse_untrue(ranking, old_ranks, true))
        rows += [row(f"{top} a query, {share:.0%} of store: {rule}", answer) for rule, answer in answers.items()]
    print(table(rows))


if __name__ == "__main__":
    main()
