"""The protocol of Drift-Adapter: the old index, asked by the new model through a map for queries.

    python benchmarks/drift_adapter.py DATA [--pairs 1000 2000] [--seed 0]

Drift-Adapter (EMNLP 2025) moves from all-MiniLM-L6-v2 to all-mpnet-base-v2 without touching the index: a map from the
new space to the old one is fitted on pairs of documents, and queries of the new model are sent through it. It counts
how many of the ten documents that the new model would find are among the ten that are found: recall@10. Here are its
three maps (orthogonal Procrustes; a linear one of rank 64; a residual network with 256 hidden units, GELU and dropout
of 0.1, by Adam on the squared error until a tenth of the pairs that is held out gets worse), and `fit --direction
query`. Beside them stand the ceiling of any such map, which is the old model itself asked with the query's text, and
what is not limited by it: the translated store (`auto`, without the target's tokens), and this and the old store
together.

DATA is as for `benchmarks/retrieval.py`; documents of the sample are left out of the index. Queries are those of the
set, and 300 documents of it, which do not find themselves, as in the paper.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from retrieval import AUTO, SETS, HeldOut, load_space, read_set

from migrate.report.terminal import table
from migrate.search.fusion import RankComparison, reciprocal_rank_fusion
from migrate.search.runs import Rankings, search
from migrate.stitch.base import Pairing
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import select_query_stitch
from migrate.vectors import Batch, Vectors, unit_rows

OLD, NEW = "minilm", "mpnet"
DOCUMENTS_ASKED = 300
COLUMNS = ("procrustes", "rank 64", "network", "ours", "ceiling", "translated", "together")


@torch.enable_grad()
def network(new: Vectors, old: Vectors, seed: int) -> torch.nn.Module:
    """The residual network of the paper, from the new space to the old one."""
    torch.manual_seed(seed)
    width, out = new.shape[1], old.shape[1]

    class Residual(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.straight = torch.nn.Linear(width, out)
            self.around = torch.nn.Sequential(
                torch.nn.Linear(width, 256), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, out)
            )

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.straight(rows) + self.around(rows)
            return found

    model, x, y = Residual(), torch.tensor(new), torch.tensor(old)
    order = torch.randperm(len(x))
    held, fit = order[: len(x) // 10], order[len(x) // 10 :]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, kept, patience = float("inf"), model.state_dict(), 0
    while patience < 10:
        model.train()
        for rows in torch.split(fit[torch.randperm(len(fit))], 64):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        model.eval()
        with torch.no_grad():
            error = float(torch.nn.functional.mse_loss(model(x[held]), y[held]))
        patience += 1
        if error < best:
            best, patience = error, 0
            kept = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(kept)
    return model.eval()


def mapped(kind: str, new: Vectors, old: Vectors, queries: Vectors, seed: int) -> Vectors:
    """Queries of the new model in the old space."""
    if kind == "network":
        with torch.no_grad():
            return unit_rows(network(new, old, seed)(torch.tensor(queries)).numpy())
    if kind == "ours":
        kind = select_query_stitch(Pairing(new, old, seed=seed)).chosen
    spec = {"rank 64": "lowrank:64"}.get(kind, kind)
    return unit_rows(new_stitch(spec).fit(new, old).transform(queries))


def recalls(held_out: HeldOut, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Recall@10 of each column, by the queries of the set and by documents."""
    fit, rest = held_out.rows
    old, new = (unit_rows(space.documents) for space in (held_out.source, held_out.target))
    ids = [held_out.collection.documents[row].id for row in rest]
    translated, _ = held_out.translated(held_out.select(AUTO))
    chosen = np.random.default_rng(seed).permutation(rest)[:DOCUMENTS_ASKED]
    asked = {
        "queries": (held_out.collection.query_ids, held_out.source.queries, held_out.target.queries),
        "documents": ([held_out.collection.documents[row].id for row in chosen], old[chosen], new[chosen]),
    }
    for name, (query_ids, old_queries, new_queries) in asked.items():

        def ranked(documents: Vectors, queries: Vectors, names: list[str] = list(query_ids)) -> Rankings:  # noqa: B006
            return search([Batch(ids, documents)], names, unit_rows(queries), metric="ip")

        truth = ranked(new[rest], new_queries)
        runs = {kind: ranked(old[rest], mapped(kind, new[fit], old[fit], new_queries, seed)) for kind in COLUMNS[:4]}
        runs["ceiling"] = ranked(old[rest], old_queries)
        runs["translated"] = ranked(translated, new_queries)
        weight = RankComparison.of(runs["translated"], runs["ceiling"]).weight(len(ids))
        runs["together"] = reciprocal_rank_fusion([runs["translated"], runs["ceiling"]], weights=(2 - weight, weight))

        def first(run: Rankings, query_id: str) -> set[str]:
            return set([doc_id for doc_id in run.top(query_id, 11) if doc_id != query_id][:10])

        yield (
            name,
            {
                kind: float(np.mean([len(first(run, q) & first(truth, q)) / 10 for q in query_ids]))
                for kind, run in runs.items()
            },
        )


def main() -> None:
    """Print a table for each number of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000, 2_000])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for name in SETS:
        read = read_set(arguments.data, name, [], None, NEW)
        source = load_space(arguments.data, name, OLD, read.collection)
        for pairs in arguments.pairs:
            held_out = HeldOut(read.collection, source, read.target, read.texts, pairs, arguments.seed)
            for asked, found in recalls(held_out, arguments.seed):
                rows.append([f"{name}, {asked}", f"{pairs:,}", *(f"{found[column]:.3f}" for column in COLUMNS)])
    print(f"\nrecall@10 of what {NEW} finds, {OLD} in the index\n")
    print(table([["set, asked by", "pairs", *COLUMNS], *rows]))


if __name__ == "__main__":
    main()
