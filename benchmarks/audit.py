"""How fast an audit is, and how fast it searches.

    python benchmarks/audit.py DATA

DATA holds `scifact/` in BEIR layout and `pairs/scifact.SPACE.npz`. Prints the seconds of an audit of SciFact (5,183
documents, 300 queries) with every arm that embeds nothing - stay, hybrid, BM25, two-stage, controls - and all that it
says of where it hurts; and the rate of exact search as a ratio to FAISS's own exhaustive search of the same vectors in
the same run, each the median of five.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
from frontier import store_of

import migrate
from migrate.audit.query_set import QuerySet
from migrate.audit.step import Audit
from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.report.audit_sections import audit_sections
from migrate.report.page import report_page
from migrate.report.terminal import report_text
from migrate.search.runs import DEPTH, search
from migrate.stores.base import BATCH_SIZE
from migrate.vectors import Batch, unit_rows

ROUNDS = 5


def median_s(work: Callable[[], object]) -> float:
    """Median wall time of a few calls, after one that is not counted."""
    work()
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def search_rates(count: int, dim: int, queries: int, metric: str) -> tuple[float, float]:
    """Vectors a second for one query, of ours and of FAISS, to the same depth."""
    rng = np.random.default_rng(0)
    vectors, asked = (unit_rows(rng.normal(size=(rows, dim)).astype(np.float32)) for rows in (count, queries))
    ids = [f"{row:07}" for row in range(count)]
    batches = [
        Batch(ids[start : start + BATCH_SIZE], vectors[start : start + BATCH_SIZE])
        for start in range(0, count, BATCH_SIZE)
    ]
    names = [str(row) for row in range(queries)]
    ours = median_s(lambda: search(batches, names, asked, metric="ip" if metric == "ip" else "l2"))
    index = faiss.IndexFlatIP(dim) if metric == "ip" else faiss.IndexFlatL2(dim)
    index.add(vectors)
    theirs = median_s(lambda: index.search(asked, DEPTH))
    return count * queries / ours, count * queries / theirs


def audit_seconds(data: Path, space: str, folder: Path) -> float:
    """Audit SciFact from one space, print the report, and say how long it took."""
    judged = load_beir(data / "scifact")
    old, new = (load_embedder(f"file:{data / 'pairs' / f'scifact.{name}.npz'}") for name in (space, "minilm"))
    source, reference = store_of(data, old, folder / "source"), store_of(data, new, folder / "reference")
    migrate.translate(source, migrate.fit(source, new, kind="ridge", sample=500), folder / "translated")
    started = time.perf_counter()
    query_set = QuerySet(judged.queries, judged.qrels, "scifact")
    audit = Audit(
        folder / "translated",
        reference,
        judged=query_set,
        target=new,
        source=source,
        source_model=old,
        two_stage=(50, 200),
        max_cost=None,
    )
    report = audit.run()
    text, page = report_text(audit_sections(report)), report_page(audit_sections(report))
    seconds = time.perf_counter() - started
    print(text)
    print(f"\npage: {len(page.encode()) / 1e3:.0f} kB")
    return seconds


def main() -> int:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--space", default="layer4-mean")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        seconds = audit_seconds(arguments.data, arguments.space, Path(aside))
    print(f"audit of 5,183 documents by 300 queries: {seconds:.1f} s\n")
    for metric in ("ip", "l2"):
        for count, queries in ((5_183, 300), (200_000, 300)):
            ours, theirs = search_rates(count, 384, queries, metric)
            print(
                f"exact search, {metric}, {count:,} x 384, {queries} queries: {ours / 1e6:,.0f} M scores/s, "
                f"FAISS {theirs / 1e6:,.0f} M; ratio {ours / theirs:.2f}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
