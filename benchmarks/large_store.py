"""What moving a large store costs until it is SAFE, beside a full re-embed: real docstrings, real models.

    python benchmarks/large_store.py FOLDER [--sizes 6000 20000 50000] [--pairs 500 1000 2000 8000] [--ranked 30]
        [--plan together-50] [--reverse]

FOLDER is what `benchmarks/large_texts.py` makes. The store of SIZE documents is the first of them, from
all-MiniLM-L6-v2 to all-mpnet-base-v2, or the other way with `--reverse`; vectors are looked up in files in the place of
the models. Each move is what a user does: `fit --sample PAIRS`, `translate`, and `audit --reference pool
--ranked-queries RANKED --plan PLAN --judged ... --source ... --source-model ...`, whose report is read as JSON;
`--ranked 0` leaves that option out. A query is the first line of a docstring, of six words or more, by which that
document alone is sought, and of several that are alike by either model (`migrate.audit.query_groups`) one.

Printed for each arm: what it keeps of a full re-embed's nDCG@10 in truth, by an audit of the same queries against a
full re-embed; what the audit by the pool says that it keeps at least, and its verdict. Then all documents that were
embedded by then, of the sample and of the pool, as a share of the store; their tokens, the price at $0.02, $0.13 and
$0.18 per million tokens (text-embedding-3-small, text-embedding-3-large, voyage-3-large), and the minutes that the
target takes for them on two cores; and the same of a full re-embed. Last, what each step of the pool embedded. Exits
with 1 where an arm is said to be SAFE and keeps less than the margin.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import migrate
from migrate.audit.query_groups import alike
from migrate.audit.query_set import QuerySet
from migrate.datasets.stdlib import DemoSet, Docstring, as_beir
from migrate.embed import embed_corpus, reembed_store
from migrate.embedders import load_embedder
from migrate.report.terminal import table
from migrate.stores import open_store

SIZES = (6_000, 20_000, 50_000)
PAIRS = (500, 1_000, 2_000, 8_000)
PRICES = (0.02, 0.13, 0.18)
DOCUMENTS_PER_S = {"minilm": 95, "mpnet": 21}
"""On two cores without other work, as `benchmarks/large_texts.py` embeds them."""

MARGIN = 0.95
STAGES = (20, 50)
FEWEST_WORDS = 6
QUERIES = 4_000


def blocks(folder: Path, count: int) -> np.ndarray:
    """The first vectors of blocks, (count, dim)."""
    paths = sorted(path for path in folder.glob("*.npy") if path.stem.isdigit())
    vectors = np.concatenate([np.load(path) for path in paths])[:count]
    if len(vectors) < count:
        sys.exit(f"{folder} has {len(vectors):,} vectors of {count:,}; let large_texts.py embed the others")
    return vectors


@dataclass(frozen=True)
class Move:
    """A store of some documents between two models, in a folder of its own."""

    folder: Path
    documents: DemoSet
    queries: QuerySet
    source: str
    target: str

    @classmethod
    def of(cls, data: Path, folder: Path, size: int, names: tuple[str, str]) -> Move:
        """Write the vectors to files of the models, and the source store."""
        with (data / "docstrings.jsonl").open(encoding="utf-8") as lines:
            corpus = as_beir(Docstring(**json.loads(line)) for _, line in zip(range(size), lines, strict=False))
        rows = _telling(corpus, data, names)
        judging = [corpus.queries[row] for row in rows]
        for name in names:
            np.savez(
                folder / f"{name}.npz",
                doc_ids=[document.id for document in corpus.documents],
                docs=blocks(data / f"{name}-docs", size),
                query_ids=[query.id for query in judging],
                queries=blocks(data / f"{name}-queries", QUERIES)[rows],
            )
        qrels = {query.id: corpus.qrels[query.id] for query in judging}
        source, target = (f"file:{folder / f'{name}.npz'}" for name in names)
        move = cls(folder, corpus, QuerySet(judging, qrels, "first lines"), source, target)
        embed_corpus(lambda: corpus.documents, load_embedder(source), folder / "source")
        reembed_store(open_store(folder / "source"), load_embedder(target), folder / "full")
        return move

    def translate(self, pairs: int) -> Path:
        """Fit on some pairs, and translate."""
        stitch = migrate.fit(self.folder / "source", self.target, sample=pairs)
        new = self.folder / f"new-{pairs}"
        migrate.translate(self.folder / "source", stitch, new)
        return new

    def audit(
        self, new: Path, reference: str | Path, plan: str, stages: tuple[int, ...] = (), ranked: int | None = None
    ) -> dict[str, Any]:
        """The report of an audit, as JSON has it."""
        report = migrate.audit(
            new,
            reference,
            judged=self.queries,
            target=self.target,
            source=self.folder / "source",
            source_model=self.source,
            plan=plan,
            two_stage=stages or None,
            ranked_queries=ranked,
            margin=MARGIN,
            price=PRICES[0],
            max_cost=None,
        )
        return dict(report.document)


def _telling(corpus: DemoSet, data: Path, names: tuple[str, str]) -> list[int]:
    """The rows of queries that ask for one document, and for what no other query asks for."""
    # Lines such as "Return the name." are true of many documents
    rows = [row for row in range(QUERIES) if len(corpus.queries[row].text.split()) >= FEWEST_WORDS]
    # Packages have copies of others, whose lines say nearly the same: they are one observation
    for name in names:
        labels = alike(blocks(data / f"{name}-queries", QUERIES)[rows].astype(np.float32))
        firsts = np.sort(np.unique(labels, return_index=True)[1])
        rows = [rows[first] for first in firsts.tolist()]
    return rows


@dataclass(frozen=True)
class Found:
    """The report by a pool of a store fitted on some pairs, and that by the full re-embed."""

    size: int
    pairs: int
    target: str
    plan: str
    pooled: dict[str, Any]
    full: dict[str, Any]

    def truth(self, arm: str) -> float:
        """What an arm keeps, by all queries."""
        return float(_of(self.full, arm)["retention"]["estimate"])

    def said(self, arm: str) -> tuple[float, str]:
        """The lower bound of an arm and its verdict, as a user reads them."""
        if arm == "translated":
            verdict = self.pooled["verdict"]
            return float(verdict["retention"]["lower"]), verdict["outcome"]
        bounds = self.pooled["family"].get(arm)
        if bounds is None:
            # It was not asked about, or the old model cannot serve new queries, as it is a file here
            return math.nan, "-"
        options = {option["name"]: option for option in self.pooled["options"]}
        return float(bounds["lower"]), "SAFE" if options[arm]["is_safe"] else "not shown"

    @property
    def share(self) -> float:
        """All documents with a true vector, of the sample and the pool."""
        pool = self.pooled["pool"]
        return float(pool["documents"] + pool["true_outside"]) / self.size

    def rows(self) -> Iterator[list[str]]:
        """Lines of the table."""
        others = [f"two-stage {depth}" for depth in STAGES if f"two-stage {depth}" != self.plan]
        for arm in ("translated", "together", *others, self.plan):
            lower, verdict = self.said(arm)
            yield [
                f"{self.size:,}",
                f"{self.pairs:,}",
                arm,
                f"{self.truth(arm):.3f}",
                f"{lower:.3f}".replace("nan", "-"),
                verdict,
            ]

    def costs(self) -> Iterator[list[str]]:
        """Lines of the table of costs: until the verdict, and of a full re-embed."""
        tokens = self.pooled["pool"]["full_tokens"]
        for name, share in ((f"{self.pairs:,} pairs, until {self.said(self.plan)[1]}", self.share), ("full", 1.0)):
            minutes = share * self.size / DOCUMENTS_PER_S[self.target] / 60
            prices = [f"${share * tokens * price / 1e6:.2f}" for price in PRICES]
            amounts = [f"{share:.1%}", f"{share * tokens / 1e6:.2f} M", *prices, f"{minutes:.1f}"]
            yield [f"{self.size:,}", name, f"{round(share * self.size):,}", *amounts]


def _of(report: dict[str, Any], arm: str) -> dict[str, Any]:
    against: dict[str, Any] = next(each["against"] for each in report["arms"] if each["name"] == arm)
    return against


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--pairs", type=int, nargs="+", default=PAIRS)
    parser.add_argument("--ranked", type=int, default=30)
    parser.add_argument("--plan", default="together-50")
    parser.add_argument("--reverse", action="store_true")
    arguments = parser.parse_args()
    family, _, depth = arguments.plan.rpartition("-")
    plan = f"{family} {depth}"
    names = ("mpnet", "minilm") if arguments.reverse else ("minilm", "mpnet")
    found: list[Found] = []
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            move = Move.of(arguments.folder, Path(folder), size, names)
            for pairs in (pairs for pairs in arguments.pairs if pairs < size / 2):
                started = time.perf_counter()
                new = move.translate(pairs)
                pooled = move.audit(new, "pool", plan, ranked=arguments.ranked or None)
                seconds = time.perf_counter() - started
                full = move.audit(new, Path(folder) / "full", plan, STAGES)
                found.append(Found(size, pairs, names[1], plan, pooled, full))
                n_queries = len(move.queries.queries)
                print(f"{size:,} documents, {pairs:,} pairs, {n_queries:,} queries: {seconds:.0f} s", flush=True)
                for step in pooled["pool"]["steps"]:
                    print(f"    depth {step['depth']}, {step['queries']} queries: {step['documents']:,}", end="")
                    print(f", {step['sampled']} of them at random", flush=True)
                print(*(f"    {note}" for note in pooled["notes"] if "ranked by true" in note), sep="\n", flush=True)
    print(f"\n{names[0]} -> {names[1]}, {arguments.ranked or 'all'} queries are ranked\n")
    head = ["documents", "pairs", "arm", "keeps", "at least", "verdict"]
    print(table([head, *(row for each in found for row in each.rows())]))
    head = ["store", "embedded", "documents", "share", "tokens", *(f"at ${price}" for price in PRICES), "minutes"]
    print(f"\n{table([head, *(row for each in found for row in each.costs())])}")
    wrong = [
        f"{each.size:,}, {each.pairs:,} pairs: {arm} is said to be SAFE and keeps {each.truth(arm):.3f}"
        for each in found
        for arm in ("translated", plan)
        if each.said(arm)[1] == "SAFE" and each.truth(arm) < MARGIN
    ]
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
