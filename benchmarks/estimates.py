"""What errors of translation that are known tell of those that are not, where few documents of a pool are embedded.

    python benchmarks/estimates.py DATA [--space wordpieces layer4-mean layer5-mean mpnet] [--half even]

DATA is as for `benchmarks/retrieval.py`. A stitch from 500 pairs translates each collection. Of the first 200 documents
that each query finds, the best 5 are embedded, then the next best 5, 10 and 30, and the pool is ranked by what is known
then: `stored`, by the scores of the store, or `estimated`, by `migrate.search.rerank.estimate_scores`. Each query
knows what was embedded for itself alone. Printed: overlap@10 with the full re-embed, and the part of its nDCG@10. The
two numbers of the estimate were chosen on the even half of the queries; the odd one is printed unless told otherwise.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from demand import KEPT, Replay
from numpy.typing import NDArray
from retrieval import SETS

from migrate.report.terminal import table
from migrate.search.rerank import estimate_scores

DEPTH = 200
EMBEDDED = (5, 10, 20, 50)


def best_of(replay: Replay, number: int, *, estimated: bool) -> list[NDArray[np.int64]]:
    """The rows of the ten best documents of a query, after each step."""
    pool = np.argsort(-replay.near[number], kind="stable")[:DEPTH]
    stored, exact = replay.near[number][pool], replay.exact[number][pool]
    # Documents of the sample have had true vectors from the start: they tell nothing of the errors of others.
    lacking = np.flatnonzero(replay.uncertainty[pool] > 0)
    known, scores, found = np.empty(0, np.intp), stored.astype(np.float64), []
    for most in EMBEDDED:
        left = np.setdiff1d(np.arange(len(lacking)), known)
        chosen = left[np.argsort(-scores[lacking[left]], kind="stable")][: most - len(known)]
        known = np.concatenate([known, chosen])
        if estimated:
            scores[lacking] = estimate_scores(
                replay.queries[number],
                stored[lacking],
                replay.translated[pool[lacking]],
                known,
                replay.true[pool[lacking[known]]],
                metric="ip",
            )
        scores[lacking[known]] = exact[lacking[known]]
        found.append(pool[np.argsort(-scores, kind="stable")[:KEPT]])
    return found


def main() -> None:
    """Print a table for each collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--space", nargs="+", default=["wordpieces", "layer4-mean", "layer5-mean", "mpnet"])
    parser.add_argument("--half", choices=["even", "odd"], default="odd")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in SETS:
        rows = []
        for space in arguments.space:
            replay = Replay(arguments.data, name, space, arguments.seed)
            asked = np.arange(len(replay.queries))[arguments.half == "odd" :: 2]
            full = replay.quality(replay.full)[asked].mean()
            for way in ("stored", "estimated"):
                found = [best_of(replay, number, estimated=way == "estimated") for number in asked.tolist()]
                cells = []
                for step in range(len(EMBEDDED)):
                    best = replay.full.copy()
                    best[asked] = [steps[step] for steps in found]
                    shared = [len(np.intersect1d(best[number], replay.full[number])) / KEPT for number in asked]
                    cells.append(f"{np.mean(shared):.3f} / {replay.quality(best)[asked].mean() / full:.3f}")
                rows.append([space, way, *cells])
        print(f"\n{name}, {len(asked)} queries, the first {DEPTH}: overlap@10 / nDCG@10 of the full re-embed\n")
        print(table([["from", "ranked by", *(f"{most} embedded" for most in EMBEDDED)], *rows]), flush=True)


if __name__ == "__main__":
    main()
