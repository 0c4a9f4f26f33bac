"""Ways to spend one budget of tokens: what a fit expects of each, and what each keeps.

    python benchmarks/mix.py DATA --cache FOLDER [--sets scifact] [--spaces wordpieces ...] [--budget 0.2] [--prefix 24]

DATA is that of `benchmarks/retrieval.py`; the target is all-MiniLM-L6-v2, whose vectors are kept in FOLDER. From each
source a stitch is fitted on 300 random documents, once on the old vectors and the texts, and once on the first tokens
of every document too. What is left of the budget, a share of the tokens of a full re-embed, buys further documents: at
random, the least sure translations, or what a query log finds (SciFact's train queries; NFCorpus has none).

Printed are the tokens that were used, the overlap@10 that the fit expected inside its sample, and that of the judged
queries with the full re-embed, and retention of nDCG@10. `two-stage 50` ranks the best 50 of each query by true
vectors, beside the sample alone, and beside first tokens; what it embeds for queries is not counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import migrate
from migrate.audit.frontier import find_frontier
from migrate.audit.query_set import QuerySet
from migrate.audit.step import Audit
from migrate.cost import tally_of
from migrate.cost.quality import StitchQuality
from migrate.datasets.beir import load_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.prefix import first_of
from migrate.report.terminal import table
from migrate.selection.sample import QUERY_LOG
from migrate.steps.translate.choice import why_unsure
from migrate.stitch.fitted import FittedStitch
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.vectors import Query

TARGET_MODEL = "packaged:all-MiniLM-L6-v2"
LOGS = {"scifact": "train"}
DEPTH = 50


@dataclass(frozen=True)
class Cell:
    """A set and a source: the source's store, a full re-embed, and the queries."""

    name: str
    store: Store
    reference: Store
    target: Embedder
    queries: QuerySet
    log: tuple[Query, ...]
    folder: Path
    budget: float

    def rows(self, prefix: int, pairs: int, seed: int) -> Iterator[list[str]]:
        """A line for each way."""
        cut = first_of(self.store.documents(), self.target.loaded_profile().counter, prefix)
        whole, first = (tally_of(self.target).cost(texts).tokens for texts in (self.store.documents(), cut))
        plain = migrate.fit(self.store, self.target, sample=pairs, kind="ridge+text", seed=seed, view={})
        leaning = migrate.fit(self.store, self.target, sample=pairs, kind="prefix+text", first_tokens=prefix, seed=seed)
        yield from self._frontier("", plain, self.budget)
        yield from self._frontier(f"first {prefix} tokens, ", leaning, self.budget - first / whole)
        for fitted in (plain, leaning):
            yield self._two_stage(fitted)

    def _frontier(self, lead: str, fitted: FittedStitch, share: float) -> Iterator[list[str]]:
        policies = ["random", *([] if why_unsure(fitted) else ["confidence"]), *([QUERY_LOG] if self.log else [])]
        if share * self.store.info.count <= len(fitted.sample.ids):
            yield [self.name, f"{lead}nothing left", *["-"] * 4]
            return
        quality = StitchQuality(len(fitted.sample.ids), fitted.selection)
        asked = Audit(
            self.reference,
            self.reference,
            judged=self.queries,
            target=self.target,
            source=self.store,
            frontier=fitted,
            frontier_shares=[share],
            query_log=self.log,
            policy=policies,
        )
        for point in find_frontier(asked, self.reference).points:
            expected = quality.expected(point.documents, self.store.info.count)
            yield [
                self.name,
                f"{lead}{point.policy}",
                f"{point.share_of_tokens:.0%}",
                "-" if expected is None else f"{expected.estimate:.3f}",
                f"{point.arm.mean('overlap@10'):.3f}",
                f"{point.comparison.retention.estimate:.3f}",
            ]

    def _two_stage(self, fitted: FittedStitch) -> list[str]:
        first = "" if fitted.first_tokens is None else f"first {fitted.first_tokens} tokens, "
        output = self.folder / f"translated {fitted.stitch.spec}"
        migrate.translate(self.store, fitted, output)
        audit = Audit(
            output, self.reference, judged=self.queries, target=self.target, two_stage=(DEPTH,), max_cost=None
        )
        report = audit.run()
        name = f"two-stage {DEPTH}"
        found, arm = report.comparisons[name], next(arm for arm in report.arms if arm.name == name)
        expected = None if fitted.selection.partial is None else fitted.selection.partial.two_stage
        cells = ["-" if expected is None else f"{expected:.3f}", f"{arm.mean('overlap@10'):.3f}"]
        return [self.name, first + name, "-", *cells, f"{found.retention.estimate:.3f}"]


def cells(arguments: argparse.Namespace, target: Embedder, aside: Path) -> Iterator[Cell]:
    """Every set from every source."""
    for name in arguments.sets:
        judged = load_beir(arguments.data / name)
        log = load_beir(arguments.data / name, split=LOGS[name]).queries if name in LOGS else ()
        embed_corpus(judged.documents, target, aside / name)
        for space in arguments.spaces:
            folder = aside / f"{name} {space}"
            folder.mkdir()
            embed_corpus(
                judged.documents,
                load_embedder(f"file:{arguments.data / 'pairs' / f'{name}.{space}.npz'}"),
                folder / "source",
            )
            yield Cell(
                f"{name} {space}",
                open_store(folder / "source"),
                open_store(aside / name),
                target,
                QuerySet(judged.queries, judged.qrels, name),
                tuple(log),
                folder,
                arguments.budget,
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--sets", nargs="+", default=["scifact", "nfcorpus"])
    parser.add_argument("--spaces", nargs="+", default=["wordpieces", "layer4-mean", "mpnet"])
    parser.add_argument("--budget", type=float, default=0.2)
    parser.add_argument("--prefix", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.perf_counter()
    target = load_embedder(TARGET_MODEL, device="cpu", cache=arguments.cache / "embeddings.sqlite")
    head = ["set and source", "way", "tokens", "expected", "overlap@10", "retention"]
    with tempfile.TemporaryDirectory() as aside:
        for cell in cells(arguments, target, Path(aside)):
            print(table([head, *cell.rows(arguments.prefix, arguments.pairs, arguments.seed)]) + "\n", flush=True)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
