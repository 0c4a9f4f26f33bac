"""What re-embedding a part of a store keeps: every policy, two stages, on SciFact from three source spaces.

    python benchmarks/frontier.py DATA [--spaces wordpieces ...] [--shares 0.2 0.3 0.5] [--policies query-log ...]

DATA holds `scifact/` in BEIR layout with qrels for `train` and `test`, and `pairs/scifact.SPACE.npz` with `doc_ids`,
`docs`, `query_ids` and `queries`; the target space is `minilm` (all-MiniLM-L6-v2).

A stitch is fitted on 500 random documents. The train queries are the query log, the test queries judge; those that
are both are left out of the log. A share counts the 500. Prints the frontier and the two-stage arms of each source as
`lead-migrate audit --frontier` does, and at last whether query-log keeps at least 0.90 at 30 % and 0.94 at 50 %, and
two stages at least 0.93 with 50 documents and 0.96 with 200; exits with 1 where it does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import migrate
from migrate.audit.frontier import Frontier, find_frontier
from migrate.audit.query_set import QuerySet
from migrate.audit.report import AuditReport
from migrate.audit.step import Audit
from migrate.datasets.beir import load_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder, TokenTable
from migrate.embedders.file import FileEmbedder
from migrate.report.audit_sections import audit_sections, frontier_blocks
from migrate.report.terminal import as_text, report_text, table
from migrate.selection.sample import QUERY_LOG
from migrate.steps.translate.choice import POLICIES
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.vectors import Query

SPACES = ("wordpieces", "layer4-mean", "layer5-mean")
TARGET, TARGET_MODEL = "minilm", "packaged:all-MiniLM-L6-v2"
WANTED = {f"{QUERY_LOG} 30%": 0.90, f"{QUERY_LOG} 50%": 0.94, "two-stage 50": 0.93, "two-stage 200": 0.96}


class Stored(FileEmbedder):
    """The target's vectors from the file, with the token table of the model itself."""

    def token_table(self) -> TokenTable | None:
        """That of the packaged model."""
        return self._table

    @cached_property
    def _table(self) -> TokenTable | None:
        return load_embedder(TARGET_MODEL).token_table()


def store_of(data: Path, embedder: Embedder, folder: Path) -> Store:
    """The collection as a store of an embedder's vectors."""
    documents = load_beir(data / "scifact").documents
    embed_corpus(documents, embedder, folder)
    return open_store(folder)


def try_space(
    data: Path, space: str, target: Embedder, reference: Store, arguments: argparse.Namespace, folder: Path
) -> tuple[Frontier, AuditReport]:
    """The frontier and the audit from one source space."""
    judged = load_beir(data / "scifact", split="test")
    log: tuple[Query, ...] = load_beir(data / "scifact", split="train").queries
    query_set = QuerySet(judged.queries, judged.qrels, "scifact")
    store = store_of(data, load_embedder(f"file:{data / 'pairs' / f'scifact.{space}.npz'}"), folder / "source")
    fitted = migrate.fit(store, target, sample=arguments.pairs, kind=arguments.stitch, seed=arguments.seed)
    print(f"\n{space}: {fitted.stitch.spec} from {arguments.pairs} of {store.info.count:,} documents\n", flush=True)
    migrate.translate(store, fitted, folder / "translated")
    audit = Audit(
        folder / "translated",
        reference,
        judged=query_set,
        target=target,
        source=store,
        two_stage=(50, 200),
        frontier=fitted,
        frontier_shares=arguments.shares,
        query_log=log,
        policy=arguments.policies,
        price=arguments.price,
        seed=arguments.seed,
        max_cost=None,
    )
    report = replace(audit, frontier=None).execute()
    print(report_text(audit_sections(report)), flush=True)
    found = find_frontier(audit, reference)
    print("\n" + as_text(frontier_blocks(found)), flush=True)
    return found, report


def retentions(found: Frontier, report: AuditReport) -> dict[str, float]:
    """Retention by what was tried, under the names of `WANTED`."""
    kept = {f"{point.policy} {point.share:.0%}": point.verdict.retention.estimate for point in found.points}
    return kept | {name: one.retention.estimate for name, one in report.comparisons.items()}


def main() -> int:
    """Print everything; 1 where something is not kept that should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--spaces", nargs="+", default=list(SPACES))
    parser.add_argument("--shares", nargs="+", type=float, default=[0.2, 0.3, 0.5])
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--stitch", default="auto")
    parser.add_argument("--price", type=float, default=0.02, help="as if the target cost so many dollars per Mtok")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.perf_counter()
    kept: dict[str, dict[str, float]] = {}
    target = Stored(arguments.data / "pairs" / f"scifact.{TARGET}.npz")
    with tempfile.TemporaryDirectory() as aside:
        reference = store_of(arguments.data, target, Path(aside) / "reference")
        for space in arguments.spaces:
            folder = Path(aside) / space
            folder.mkdir()
            kept[space] = retentions(*try_space(arguments.data, space, target, reference, arguments, folder))
    rows = [[name, f"{least:.2f}", *(_cell(kept[space], name) for space in kept)] for name, least in WANTED.items()]
    print("\n" + table([["retention of nDCG@10", "wanted", *kept], *rows]))
    print(f"\n{arguments.pairs} pairs, seed {arguments.seed}, {time.perf_counter() - started:.0f} s")
    short = [(space, name) for space in kept for name in WANTED if kept[space].get(name, 1) < WANTED[name]]
    for space, name in short:
        print(f"{space}: {name} keeps less than wanted")
    return 1 if short else 0


def _cell(kept: dict[str, float], name: str) -> str:
    return f"{kept[name]:.3f}" if name in kept else "-"


if __name__ == "__main__":
    sys.exit(main())
