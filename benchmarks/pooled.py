"""Audits by a pool beside audits by a full re-embed, of the same queries: verdicts, bounds, and what each embeds.

    python benchmarks/pooled.py DATA [-o FILE] [--documents 200000] [--spaces ...] [--draws N] [--unjudged]

DATA holds `scifact/` and `nfcorpus/` in BEIR layout and `pairs/SET.SPACE.npz`; the target is all-MiniLM-L6-v2. Each
set is moved from each source space by `ridge` on 1,000 pairs, and audited both ways. Vectors are looked up in files.

Then SciFact's queries are asked of a made-up collection of `--documents`: the documents of both sets, and distractors.
A distractor's vector is w a + (1 - w) b + 0.3 (c - d), brought to unit length, of four documents a, b, c, d of both
sets and w between 0.5 and 0.9, all drawn from the seed and the same in every space, so that a map between two spaces
holds for distractors as well as it does for real documents. Its text is 15 words of a, 15 of b and its number.

With `--draws N`, nothing else is done than this: on a made-up collection, pools of the first 10 are grown N times from
each space, each with another sample of the documents outside. Printed is how often what the full re-embed is said to
score at least is more than what it scores: NOT SAFE may err by that in 1 %.

With `--unjudged`, nothing else is done than this: the judgements are left out, and there is no source, as for somebody
who has an index and nothing else. Beside the translations by `ridge`, stores of which some vectors are true, and true
vectors that are spoilt, as `benchmarks/unjudged.py` makes them. Printed are agreement@10 with its bounds and the
verdict of both audits, and what agreement is in the pool, which is to be at least the true one. Exits with 1 where it
is lower by 0.002, or where the pool says SAFE or NOT SAFE and the full audit does not.

Printed otherwise: documents embedded by the pool and their share, dollars of both at `--price` a million tokens,
retention with its bounds and the verdict, of the full audit and of the pool. Then, of two stages, the lower bound of
retention, of each arm alone, and whether that is SAFE, of the full audit and of the pool; those of `two-stage 50` are
of a pool that was asked for them, with what it embeds. Last, query by query, that the full re-embed scores at least as
much in the pool as in truth. Exits with 1 where it does not, where two stages score otherwise in the pool, where the
pool says SAFE or NOT SAFE and the full audit does not, or where the made-up collection needs more than 5 % of its
documents. FILE gets the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from unjudged import degraded, translated, with_true

import migrate
from migrate.audit.audit import run_audit
from migrate.audit.bounds import Bounds, Outcome
from migrate.audit.inputs import prepare_audit
from migrate.audit.measures import Scores, ndcg
from migrate.audit.options import POOL
from migrate.audit.pool import PoolSummary, grow_pool
from migrate.audit.query_set import QuerySet, load_questions
from migrate.audit.result import AuditResult
from migrate.audit.results import AGREEMENT, FULL, NDCG, TRANSLATED
from migrate.audit.retrieval import search_stores
from migrate.audit.step import Audit
from migrate.audit.verdict import Verdict
from migrate.datasets.beir import load_beir
from migrate.embed import embed_corpus, reembed_store
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.file import read_arrays
from migrate.facts import as_plain
from migrate.manifest import Manifest
from migrate.report.terminal import table
from migrate.search.runs import search
from migrate.stores import create_store, open_store
from migrate.stores.base import Store
from migrate.vectors import Batch, Document, Vectors, unit_rows

SETS = ("scifact", "nfcorpus")
SPACES = ("tfidf:256", "wordpieces", "layer3-cls", "layer4-mean", "layer5-mean", "minilm")
TARGET = "minilm"
LARGE = "made-up"
LARGE_SPACES = ("layer5-mean", "minilm")
MOST_SHARE = 0.05
STAGES = (20, 50)
TRUE_SHARES = (0.8, 0.95)
SPOILT = ("noise of 0.15", "noise of 0.3", "128 directions", "2% lost", "10% lost", "one bit")
TOO_LOW = 0.002
WORDS, NOISE, PAIRS = 15, 0.3, 1_000


@dataclass(frozen=True)
class Migration:
    """Documents and queries, and the specs of the models that they move between."""

    name: str
    documents: tuple[Document, ...]
    query_set: QuerySet
    source: str
    target: str


def of_set(data: Path, name: str, space: str) -> Migration:
    """A set as it is."""
    documents = tuple(load_beir(data / name).documents())
    questions = load_questions(str(data / name))
    return Migration(f"{name}, {space}", documents, questions, spec(data, name, space), spec(data, name, TARGET))


def spec(data: Path, name: str, space: str) -> str:
    """The model spec of a space."""
    return space if ":" in space else f"file:{data / 'pairs' / f'{name}.{space}.npz'}"


class MadeUp:
    """The made-up collection; its vectors are written to a file for each space."""

    def __init__(self, data: Path, count: int, folder: Path, seed: int = 0) -> None:
        self.data, self.folder = data, folder
        self.real = [document for name in SETS for document in load_beir(data / name).documents()]
        rng = np.random.default_rng(seed)
        self.parts = rng.integers(len(self.real), size=(4, count - len(self.real)))
        self.shares = rng.uniform(0.5, 0.9, (count - len(self.real), 1)).astype(np.float32)
        self.documents = (*self.real, *map(self._distractor, range(self.parts.shape[1])))

    def _distractor(self, number: int) -> Document:
        a, b = (self.real[row].text.split() for row in self.parts[:2, number])
        return Document(f"made-up-{number}", " ".join([*a[:WORDS], *b[-WORDS:], str(number)]))

    def migration(self, space: str) -> Migration:
        """From a space to the target, by SciFact's queries."""
        questions = load_questions(str(self.data / SETS[0]))
        return Migration(f"{LARGE}, {space}", self.documents, questions, self._file(space), self._file(TARGET))

    def _file(self, space: str) -> str:
        path = self.folder / f"{LARGE}.{space}.npz"
        if not path.exists():
            arrays = [read_arrays(self.data / "pairs" / f"{name}.{space}.npz") for name in SETS]
            real = self._in_order(arrays)
            a, b, c, d = (real[rows] for rows in self.parts)
            mixed = unit_rows(self.shares * a + (1 - self.shares) * b + np.float32(NOISE) * (c - d))
            np.savez(
                path,
                doc_ids=[document.id for document in self.documents],
                docs=np.concatenate([real, mixed]).astype(np.float16),
                query_ids=arrays[0]["query_ids"],
                queries=arrays[0]["queries"],
            )
        return f"file:{path}"

    def _in_order(self, arrays: list[dict[str, np.ndarray]]) -> Vectors:
        rows = {str(i): v for part in arrays for i, v in zip(part["doc_ids"], part["docs"], strict=True)}
        return unit_rows(np.stack([rows[document.id] for document in self.real]).astype(np.float32))


def audit_all(migration: Migration, folder: Path, price: float) -> tuple[list[AuditResult], list[float]]:
    """The audit by a full re-embed, the one by a pool, that by a pool asked for two stages, and the seconds of each."""
    source, target = load_embedder(migration.source), load_embedder(migration.target)
    embed_corpus(lambda: migration.documents, source, folder / "source")
    store = open_store(folder / "source")
    fitted = migrate.fit(store, target, kind="ridge", sample=PAIRS)
    migrate.translate(store, fitted, folder / "new")
    reembed_store(store, target, folder / "reference")
    reports, seconds = [], []
    new = open_store(folder / "new")
    for reference, stages in ((folder / "reference", None), (POOL, None), (POOL, STAGES)):
        started = time.perf_counter()
        audit = Audit(
            new,
            reference,
            judged=migration.query_set,
            target=target,
            source=store,
            source_model=source,
            two_stage=stages,
            price=price,
            max_cost=None,
        )
        reports.append(run_audit(audit.open().inputs))
        seconds.append(time.perf_counter() - started)
    return reports, seconds


def floors(migration: Migration, folder: Path, draws: int) -> list[str]:
    """How often the floor of the full re-embed is above what it scores: a row of a table."""
    source, target = load_embedder(migration.source), load_embedder(migration.target)
    embed_corpus(lambda: migration.documents, source, folder / "source")
    store = open_store(folder / "source")
    migrate.translate(store, migrate.fit(store, target, kind="ridge", sample=PAIRS), folder / "new")
    truth = ndcg(
        search(
            [Batch([d.id for d in migration.documents], target.embed_documents(migration.documents))],
            migration.query_set.query_ids,
            target.embed_queries(migration.query_set.queries),
            metric="ip",
        ),
        migration.query_set.qrels or {},
        migration.query_set.query_ids,
        10,
    ).mean()
    audit = Audit(
        open_store(folder / "new"),
        reference="pool:10",
        judged=migration.query_set,
        target=target,
        source=store,
        source_model=source,
        two_stage=(),
    )
    inputs = audit.open().inputs
    prepared = prepare_audit(inputs)
    # The least that a pool has: BM25 would add documents that vectors do not find
    experiment = replace(prepared.experiment, ranks_words=False)
    runs = search_stores(experiment, for_pool=True)
    within, expected, least = [], [], []
    for seed in range(draws):
        drawn = replace(experiment, settings=replace(experiment.settings, seed=seed))
        pool = grow_pool(drawn, runs, prepared.costs, inputs.embedder)
        floor = pool.evidence.rules.floor
        assert floor is not None
        within.append(pool.evidence.runs.full)
        expected.append(floor.expected.mean())
        least.append(floor.least.mean())
    qrels, ids = migration.query_set.qrels or {}, migration.query_set.query_ids
    most = np.mean([ndcg(run, qrels, ids, 10).mean() for run in within])
    above = np.mean(np.array(least) > truth)
    return [
        migration.name, f"{pool.summary.share:.1%}", f"{truth:.3f}", f"{most:.3f}", f"{np.mean(expected):.3f}",
        f"{np.min(least):.3f}", f"{np.mean(least):.3f}", f"{np.max(least):.3f}", f"{above:.1%}",
    ]  # fmt: skip


def print_floors(made_up: MadeUp, spaces: list[str], draws: int, aside: str) -> int:
    """Print how high the floors are; 1 where they are too high too often."""
    rows = []
    for space in spaces:
        with tempfile.TemporaryDirectory(dir=aside) as folder:
            rows.append(floors(made_up.migration(space), Path(folder), draws))
        print(f"{rows[-1][0]} is done", flush=True)
    head = ["migration", "share", "true nDCG@10", "in the pool", "expected", "least: min", "mean", "max", "too high"]
    print(f"\n{draws} draws of each\n\n{table([head, *rows])}")
    return int(any(float(line[-1].rstrip("%")) > 1 for line in rows))


def unjudged_stores(migration: Migration) -> Iterator[tuple[str, Vectors]]:
    """What is audited in the place of the target's true vectors, by name."""
    source, target = load_embedder(migration.source), load_embedder(migration.target)
    source.fit(migration.documents)
    old, true = (embedder.embed_documents(migration.documents) for embedder in (source, target))
    rng = np.random.default_rng(0)
    order = rng.permutation(len(true))
    if migration.source == migration.target:
        yield from ((name, unit_rows(vectors)) for name, vectors in degraded(true, rng) if name in SPOILT)
        return
    made = translated("ridge", old, true, np.sort(order[:PAIRS]))
    yield "ridge", made
    for share in TRUE_SHARES:
        yield f"ridge, {share:.0%} true", with_true(made, true, order[: round(share * len(true))])


def audit_unjudged(migration: Migration, folder: Path, price: float) -> Iterator[Unjudged]:
    """Both audits of each store, without judgements and without a source."""
    target = load_embedder(migration.target)
    questions = replace(migration.query_set, qrels=None)
    reference = written(folder / "reference", migration.documents, target.embed_documents(migration.documents), target)
    for number, (name, vectors) in enumerate(unjudged_stores(migration)):
        store = written(folder / f"new-{number}", migration.documents, vectors, target)
        audits = [
            Audit(store, by, judged=questions, target=target, two_stage=(), price=price, max_cost=None)
            for by in (reference, POOL)
        ]
        full, pooled = (run_audit(audit.open().inputs) for audit in audits)
        found = Unjudged.of(f"{migration.name}, {name}", full, pooled)
        print(f"{found.name} is done", flush=True)
        yield found


def written(folder: Path, documents: Sequence[Document], vectors: Vectors, target: Embedder) -> Store:
    """A store that says whose vectors it has."""
    folder.mkdir()
    writer = create_store(folder, format="faiss", dim=vectors.shape[1], metric="ip")
    writer.append(documents, np.ascontiguousarray(vectors, dtype=np.float32))
    writer.finish()
    Manifest("store", model=target.identity, details={"index": "index.faiss"}).write(folder)
    return open_store(folder)


@dataclass(frozen=True)
class Unjudged:
    """What is printed of a pair of audits without judgements; `true` and `within` are mean agreement@10."""

    name: str
    pool: PoolSummary
    full: Verdict
    pooled: Verdict
    true: float
    within: float

    @classmethod
    def of(cls, name: str, full: AuditResult, pooled: AuditResult) -> Unjudged:
        """Those of two audits."""
        assert pooled.pool is not None
        true, within = (float(report.arm(TRANSLATED).mean(AGREEMENT) or 0) for report in (full, pooled))
        return cls(name, pooled.pool, full.verdict, pooled.verdict, true, within)

    @property
    def row(self) -> list[str]:
        """A line of the table."""
        bounds = (verdict.retention for verdict in (self.full, self.pooled))
        shown = [f"{found.lower:.3f} {found.estimate:.3f} {found.upper:.3f}" for found in bounds]
        embedded = [f"{self.pool.share:.1%}", f"{self.pool.depth}"]
        return [self.name, *embedded, shown[0], f"{self.within:.3f}", shown[1], self.full.outcome, self.pooled.outcome]

    @property
    def wrong(self) -> list[str]:
        """What must not be."""
        said = []
        if self.within < self.true - TOO_LOW:
            said.append(f"agreement is {self.true:.4f}, and {self.within:.4f} in the pool")
        if self.pooled.outcome not in (Outcome.INCONCLUSIVE, self.full.outcome):
            said.append(f"{self.pooled.outcome} in the pool, {self.full.outcome} in full")
        return [f"{self.name}: {words}" for words in said]


def print_unjudged(migrations: Iterable[Migration], price: float, aside: str) -> int:
    """Print both audits of all stores without judgements; 1 where something is wrong."""
    results: list[Unjudged] = []
    for migration in migrations:
        with tempfile.TemporaryDirectory(dir=aside) as folder:
            results += audit_unjudged(migration, Path(folder), price)
    head = ["store", "share", "depth", "full audit", "in the pool", "pool", "verdict", "by the pool"]
    print(f"\n{table([head, *(found.row for found in results)])}\n")
    failures = [words for found in results for words in found.wrong]
    within = [found.within - found.true for found in results]
    above = [found.pooled.retention.estimate - found.true for found in results]
    settled = sum(found.pooled.outcome is found.full.outcome for found in results)
    print(
        f"the same verdict for {settled} of {len(results)} stores; less true agreement, agreement in the pool is "
        f"{min(within):+.4f} to {max(within):+.4f}, its estimate {min(above):+.4f} to {max(above):+.4f}"
    )
    print("\n".join(failures) or "nothing is wrong")
    return int(bool(failures))


@dataclass(frozen=True)
class Figures:
    """What is printed of the audits; `within` and `true` are the full re-embed's scores, query by query.

    `stages` are retention of two stages by the full audit and in the pool, `unlike` those of another score.
    """

    name: str
    pool: PoolSummary
    full: Verdict
    pooled: Verdict
    true: Scores
    within: Scores
    asked: PoolSummary
    stages: dict[str, tuple[Bounds, Bounds]]
    unlike: tuple[str, ...]

    @classmethod
    def of(cls, name: str, full: AuditResult, pooled: AuditResult, asked: AuditResult) -> Figures:
        """Those of three audits."""
        assert pooled.pool is not None
        assert asked.pool is not None
        true, within = (report.arm(FULL).scores[NDCG] for report in (full, pooled))
        names = [f"two-stage {depth}" for depth in STAGES]
        stages = {
            stage: (full.comparisons[stage].retention, report.comparisons[stage].retention)
            for stage, report in zip(names, (pooled, asked), strict=True)
        }
        unlike = [
            arm.name
            for report in (pooled, asked)
            for arm in report.arms
            if arm.name.startswith("two-stage") and (arm.scores[NDCG] != full.arm(arm.name).scores[NDCG]).any()
        ]
        return cls(name, pooled.pool, full.verdict, pooled.verdict, true, within, asked.pool, stages, tuple(unlike))

    @property
    def stages_row(self) -> list[str]:
        """A line of the table of two stages."""
        cells = [[f"{part.lower:.3f} {self._safe(part)}" for part in pair] for pair in self.stages.values()]
        pools = [[f"{pool.documents:,}", f"{pool.share:.1%}"] for pool in (self.pool, self.asked)]
        return [self.name, *pools[0], *cells[0], *pools[1], *cells[1]]

    def _safe(self, bounds: Bounds) -> str:
        return "SAFE" if bounds.lower >= self.full.scale.safe else "-"

    @property
    def below(self) -> int:
        """How many queries score less in the pool than in truth."""
        return int((self.within < self.true - 1e-12).sum())

    @property
    def row(self) -> list[str]:
        """A line of the table."""
        bounds = (verdict.retention for verdict in (self.full, self.pooled))
        shown = [f"{found.lower:.3f} {found.estimate:.3f} {found.upper:.3f}" for found in bounds]
        prices = [f"{usd or 0:.4f}" for usd in (self.pool.usd, self.pool.full_usd)]
        embedded = [f"{self.pool.documents:,}", f"{self.pool.share:.1%}", f"{self.pool.depth}"]
        return [self.name, *embedded, *prices, *shown, self.full.outcome, self.pooled.outcome]

    @property
    def check(self) -> str:
        """The guarantee, query by query."""
        queries = len(self.true)
        return (
            f"{self.name}: the full re-embed scores at least as much in the pool in {queries - self.below} of "
            f"{queries} queries, worst difference {(self.within - self.true).min():.1e}"
        )

    @property
    def wrong(self) -> list[str]:
        """What must not be."""
        said = [f"{self.below} queries score less in the pool than in truth"] if self.below else []
        if self.pooled.outcome not in (Outcome.INCONCLUSIVE, self.full.outcome):
            said.append(f"{self.pooled.outcome} in the pool, {self.full.outcome} in full")
        said += [f"{name} scores otherwise in the pool" for name in self.unlike]
        said += [
            f"{name} is SAFE in the pool, and not in full"
            for name, (full, pooled) in self.stages.items()
            if pooled.lower >= self.full.scale.safe > full.lower
        ]
        if self.name.startswith(LARGE) and self.pool.share > MOST_SHARE:
            said.append(f"{self.pool.share:.1%} of the documents were embedded")
        return [f"{self.name}: {words}" for words in said]

    @property
    def document(self) -> dict[str, object]:
        """For JSON."""
        facts = {"pool": self.pool, "full": self.full, "in_pool": self.pooled, "below": self.below}
        facts |= {"asked": self.asked, "stages": self.stages}
        return {"migration": self.name, **{name: as_plain(fact) for name, fact in facts.items()}}


def main() -> int:
    """Print the table, and what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--spaces", nargs="*", default=list(SPACES))
    parser.add_argument("--large-spaces", nargs="*", default=list(LARGE_SPACES))
    parser.add_argument("--price", type=float, default=0.02)
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--unjudged", action="store_true")
    arguments = parser.parse_args()
    if arguments.unjudged:
        with tempfile.TemporaryDirectory() as aside:
            migrations = [of_set(arguments.data, name, space) for name in SETS for space in arguments.spaces]
            if arguments.large_spaces:
                collection = MadeUp(arguments.data, arguments.documents, Path(aside))
                migrations += [collection.migration(space) for space in arguments.large_spaces]
            return print_unjudged(migrations, arguments.price, aside)
    if arguments.draws:
        with tempfile.TemporaryDirectory() as aside:
            collection = MadeUp(arguments.data, arguments.documents, Path(aside))
            return print_floors(collection, arguments.large_spaces, arguments.draws, aside)
    started = time.perf_counter()
    results: list[Figures] = []
    with tempfile.TemporaryDirectory() as aside:
        made_up = MadeUp(arguments.data, arguments.documents, Path(aside)) if arguments.large_spaces else None
        tasks = [(name, space) for name in SETS for space in arguments.spaces]
        tasks += [(LARGE, space) for space in arguments.large_spaces]
        for name, space in tasks:
            large = name == LARGE and made_up is not None
            migration = made_up.migration(space) if large and made_up else of_set(arguments.data, name, space)
            with tempfile.TemporaryDirectory(dir=aside) as folder:
                reports, seconds = audit_all(migration, Path(folder), arguments.price)
            results.append(Figures.of(migration.name, *reports))
            shown = ", ".join(
                f"{name} {taken:.0f} s" for name, taken in zip(("full", "pool", "asked"), seconds, strict=True)
            )
            print(f"{migration.name}: {shown}", flush=True)
    head = ["migration", "embedded", "share", "depth", "usd", "full", "full audit", "pool", "verdict", "in the pool"]
    print(f"\n{table([head, *(found.row for found in results)])}\n")
    columns = ["embedded", "share", "two-stage {}", "in the pool"]
    head = ["migration", *(column.format(depth) for depth in STAGES for column in columns)]
    print(f"{table([head, *(found.stages_row for found in results)])}\n")
    print("\n".join(found.check for found in results))
    failures = [words for found in results for words in found.wrong]
    print("\n".join(failures) or f"nothing is wrong; {time.perf_counter() - started:.0f} s")
    if arguments.output is not None:
        arguments.output.write_text(
            json.dumps([found.document for found in results], indent=1) + "\n", encoding="utf-8"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
