"""Click logs taken for judgements: how often an audit by them says SAFE of a store that is not.

    python benchmarks/clicks.py DATA [--every 4] [--targets minilm mpnet]

DATA is as `benchmarks/retrieval.py` reads it. Stores are those of `benchmarks/unjudged.py` that keep at least 80 %,
every fourth by default. Users of a simulated log look at the document in place i with chance 1 / i in each of three
sessions, click nine of ten relevant ones, by the judgements that there are, and a share of others: noise. An audit by
the log has its lower bound at the margin although the truth, by all judgements, is below: SAFE would be wrong. Printed
are these audits, and those that no doubt about the judgements prevents; and how many right ones a doubt prevents.
The limits in `migrate.audit.findings` were chosen on SciFact. Exits with 1 where honest judgements are doubted.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path

import numpy as np
from retrieval import Collection, Space
from unjudged import SPACES, TARGETS, Searched, load, stores_of

from migrate.audit.findings import contradicted, one_sided
from migrate.audit.measures import Qrels, Scores, ndcg
from migrate.audit.query_set import QuerySet
from migrate.audit.unjudged import TopScores, agreement
from migrate.audit.verdict import MARGIN, Bootstrap, Bounds
from migrate.report.terminal import table
from migrate.search.runs import Rankings
from migrate.vectors import Vectors, unit_rows

SETS = ("scifact", "nfcorpus")
_LEAST, _QUERIES, _DEPTH, _MOST = 0.8, 330, 30, 1.05

Log = dict[str, dict[str, int]]


def clicks(
    run: Rankings, qrels: Qrels, rng: np.random.Generator, *, noise: float = 0.0, depth: int = 10, fading: float = 1.0
) -> Log:
    """What users click, by query id; a document's grade is 1."""
    log: Log = {}
    for query_id in run.rankings:
        for _, (place, doc_id) in product(range(3), enumerate(run.top(query_id, depth), start=1)):
            likes = 0.9 if qrels[query_id].get(doc_id, 0) > 0 else noise
            if rng.random() < place**-fading and rng.random() < likes:
                log.setdefault(query_id, {})[doc_id] = 1
    return log


def logs_of(
    own: Rankings, full: Rankings, old: Rankings | None, qrels: Qrels, rng: np.random.Generator
) -> Iterator[tuple[str, Mapping[str, Mapping[str, int]]]]:
    """Judgements by the name of how they came about; those of the first two are honest."""
    honest = {query_id: dict(qrels[query_id]) for query_id in own.rankings}
    both = {q: {*own.top(q, 10), *full.top(q, 10)} for q in honest}
    yield "all there are", honest
    yield "of what both find", {q: {d: grades.get(d, 0) for d in both[q]} for q, grades in honest.items()}
    yield "clicks", clicks(own, qrels, rng)
    yield "clicks, to the end of the page", clicks(own, qrels, rng, fading=0.3)
    for noise in (0.05, 0.2):
        yield f"clicks, noise {noise:g}", clicks(own, qrels, rng, noise=noise)
    shown = clicks(own, qrels, rng, noise=0.05)
    yield "clicks, 0 for what else was shown", {q: dict.fromkeys(own.top(q, 10), 0) | log for q, log in shown.items()}
    yield "clicks, 5 shown", clicks(own, qrels, rng, noise=0.05, depth=5)
    yield "clicks, 30 shown", clicks(own, qrels, rng, noise=0.05, depth=30, fading=0.5)
    noisy = clicks(own, qrels, rng, noise=0.1)
    yield (
        "half clicks, half honest",
        {q: log for q in honest if (log := noisy.get(q) if rng.random() < 0.5 else honest[q])},
    )
    yield "clicks beside honest ones", {q: {**noisy.get(q, {}), **grades} for q, grades in honest.items()}
    yield "1 for all that both find, or 2", {q: {d: 1 + (honest[q].get(d, 0) > 0) for d in both[q]} for q in honest}
    if old is not None:
        yield "clicks on the old store", clicks(old, qrels, rng, noise=0.05)
        yield "the same, noise 0.2", clicks(old, qrels, rng, noise=0.2)
    yield "clicks on the full re-embed", clicks(full, qrels, rng, noise=0.05)


def _run(collection: Collection, vectors: Vectors, space: Space) -> Rankings:
    rows = slice(_QUERIES)
    asked = Searched(collection, collection.queries[rows], space.queries[rows], space.documents)
    scores = asked.vectors @ unit_rows(vectors).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :_DEPTH].tolist()
    ids = [document.id for document in collection.documents]
    return Rankings(
        {query.id: tuple(ids[row] for row in found) for query, found in zip(asked.queries, order, strict=True)}
    )


def _true_scores(collection: Collection, space: Space, run: Rankings) -> TopScores:
    """What the target's vectors score the first ten of each query."""
    true, row = unit_rows(space.documents), {document.id: i for i, document in enumerate(collection.documents)}
    tops = [run.top(query.id, 10) for query in collection.queries[:_QUERIES]]
    asked = zip(tops, space.queries[:_QUERIES], strict=True)
    return np.array([true[[row[doc_id] for doc_id in top]] @ query for top, query in asked], dtype=np.float64)


def audits(data: Path, name: str, every: int, targets: Sequence[str]) -> dict[str, list[tuple[bool, bool, bool]]]:
    """For each kind of judgements and store: whether it would be SAFE, whether it is, and whether there is a doubt."""
    collection, spaces = load(data, name)
    rng, said = np.random.default_rng(0), defaultdict(list)
    for target in targets:
        full = _run(collection, spaces[target].documents, spaces[target])
        best = _true_scores(collection, spaces[target], full)
        olds = {space: _run(collection, spaces[space].documents, spaces[space]) for space in SPACES}
        for store, vectors in islice(stores_of(spaces, target, few=False, seed=0), 0, None, every):
            own = _run(collection, vectors, spaces[target])
            truth = _retention(own, full, collection.qrels, list(own.rankings)).estimate
            if truth < _LEAST:
                continue
            agreed = agreement(_true_scores(collection, spaces[target], own), best)
            agrees = dict(zip(own.rankings, agreed.tolist(), strict=True))
            old = olds.get(store.split(": ", maxsplit=1)[0])
            for kind, qrels in logs_of(own, full, old, collection.qrels, rng):
                queries = [query for query in collection.queries if any(qrels.get(query.id, {}).values())]
                bounds = _retention(own, full, qrels, [query.id for query in queries])
                values: Scores = np.array([agrees[query.id] for query in queries])
                doubts = (
                    *one_sided(QuerySet(queries, qrels, name), own, full),
                    *contradicted(bounds, Bootstrap(resamples=1_000).retention(values, np.ones_like(values))),
                )
                said[kind].append((MARGIN <= bounds.lower <= _MOST, truth >= MARGIN, bool(doubts)))
    return said


def _retention(own: Rankings, full: Rankings, qrels: Qrels, ids: Sequence[str]) -> Bounds:
    return Bootstrap(resamples=1_000).retention(ndcg(own, qrels, ids, 10), ndcg(full, qrels, ids, 10))


def main() -> int:
    """Print a table a set; 1 where honest judgements are doubted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    arguments = parser.parse_args()
    failed = False
    for name in SETS:
        rows = [["judgements", "stores", "SAFE, wrong", "not doubted", "SAFE, right", "not doubted"]]
        for kind, found in audits(arguments.data, name, arguments.every, arguments.targets).items():
            safe, is_right, doubted = np.array(found).T
            cells = [safe & ~is_right, safe & ~is_right & ~doubted, safe & is_right, safe & is_right & ~doubted]
            rows.append([kind, str(len(found)), *(str(int(cell.sum())) for cell in cells)])
            failed |= kind in ("all there are", "of what both find") and bool((safe & doubted).any())
        print(f"\n{name}\n\n{table(rows)}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
