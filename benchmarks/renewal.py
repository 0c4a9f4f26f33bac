"""What fitting the stitch again gives while a store is completed, beside putting in true vectors alone.

    python benchmarks/renewal.py DATA [--first 500]

DATA as for `unjudged.py`. A ridge to all-MiniLM-L6-v2 is fitted on the first documents; then more and more of SciFact
have true vectors, at random. Retention of nDCG@10 over that of all true vectors, for the store as `live run` leaves it
without and with `--stitch`. Exits with 1 where fitting again costs more than 0.01.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from unjudged import load

from migrate.audit.measures import ndcg
from migrate.report.terminal import table
from migrate.search.runs import search
from migrate.stitch.registry import new_stitch
from migrate.vectors import Batch, Vectors, unit_rows

TARGET = "minilm"
SOURCES = ("layer5-mean", "layer4-mean", "wordpieces")
SHARES = (0.1, 0.3, 0.6)
WORST = 0.01


def main() -> int:
    """Print the table; 1 where a refit harms."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--first", type=int, default=500)
    args = parser.parse_args()
    collection, spaces = load(args.data, "scifact")
    true, queries = spaces[TARGET].documents, spaces[TARGET].queries
    ids = [document.id for document in collection.documents]

    def quality(vectors: Vectors) -> float:
        run = search([Batch(ids, vectors)], collection.query_ids, queries, metric="ip")
        return float(ndcg(run, collection.qrels, collection.query_ids, 10).mean())

    full, order = quality(true), np.random.default_rng(0).permutation(len(true))
    rows, worst = [["from", "true vectors", "put in", "and the stitch fitted again"]], 0.0
    for name in SOURCES:
        source = spaces[name].documents
        for share in SHARES:
            known, kept = order[: round(share * len(true))], []
            for pairs in (order[: args.first], known):
                made = unit_rows(new_stitch("ridge").fit(source[pairs], true[pairs]).transform(source))
                made[known] = true[known]
                kept.append(quality(made) / full)
            worst = max(worst, kept[0] - kept[1])
            rows.append([name, f"{share:.0%}", *(f"{one:.3f}" for one in kept)])
    print(f"scifact, {len(true):,} documents, first fitted on {args.first:,}: retention of nDCG@10\n\n{table(rows)}")
    return int(worst > WORST)


if __name__ == "__main__":
    sys.exit(main())
