"""The query side on real embedding pairs: the old store, asked by the new model through each stitch for queries.

    python benchmarks/bridge.py DATA

DATA and the held-out collection are those of `benchmarks/retrieval.py`. Printed is retention of nDCG@10: of staying
with the old model, of each stitch for queries, of what `--direction query` chooses by itself, and of a store that was
translated with `ridge`; mean over seeds.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from retrieval import SETS, SPACES, TARGET, Collection, Space, load_space, run_over

from migrate.audit.measures import ndcg
from migrate.datasets.beir import load_beir
from migrate.report.terminal import table
from migrate.stitch.base import Pairing
from migrate.stitch.linear import Identity, Ridge
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import QUERY_CANDIDATES, select_query_stitch
from migrate.vectors import Vectors, unit_rows

STITCHES = tuple(spec for spec in QUERY_CANDIDATES if spec != Identity.kind)
COLUMNS = ("stay", *STITCHES, "auto", "translated")


def retentions(collection: Collection, source: Space, target: Space, pairs: int, seed: int) -> dict[str, float]:
    """Retention of each column, with the fit documents taken out of index and judgements."""
    order = np.random.default_rng(seed).permutation(len(collection.documents))
    fit, rest = np.sort(order[:pairs]), np.sort(order[pairs:])
    inside = {collection.documents[row].id for row in rest}
    qrels = {q: {d: g for d, g in grades.items() if d in inside} for q, grades in collection.qrels.items()}
    asked = [query_id for query_id in collection.query_ids if any(grade > 0 for grade in qrels[query_id].values())]

    def quality(documents: Vectors, queries: Vectors) -> float:
        return float(ndcg(run_over(collection, rest, documents[rest], queries), qrels, asked, 10).mean())

    old, new = source.documents[fit], target.documents[fit]
    found = {"stay": quality(source.documents, source.queries)}
    for spec in STITCHES:
        mapped = new_stitch(spec).fit(new, old).transform(target.queries)
        found[spec] = quality(source.documents, unit_rows(mapped))
    found["auto"] = found[select_query_stitch(Pairing(new, old, seed=seed), specs=STITCHES).chosen]
    found["translated"] = quality(unit_rows(Ridge().fit(old, new).transform(source.documents)), target.queries)
    full = quality(target.documents, target.queries)
    return {column: value / full for column, value in found.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    started = time.perf_counter()
    rows = {}
    for name in SETS:
        data = load_beir(arguments.data / name)
        collection = Collection(data, tuple(data.documents()))
        target = load_space(arguments.data, name, TARGET, collection)
        for space in SPACES:
            source = load_space(arguments.data, name, space, collection)
            found = [retentions(collection, source, target, arguments.pairs, seed) for seed in arguments.seeds]
            rows[f"{name} {space}"] = [float(np.mean([cell[column] for cell in found])) for column in COLUMNS]
    rows["mean"] = np.mean(list(rows.values()), axis=0).tolist()
    print("retention of nDCG@10, held-out collection\n")
    cells = [[row, *(f"{value:.3f}" for value in values)] for row, values in rows.items()]
    print(table([["set and source", *COLUMNS], *cells]))
    print(f"\n{arguments.pairs:,} pairs, seeds {arguments.seeds}, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
