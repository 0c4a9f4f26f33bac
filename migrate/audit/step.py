"""Audit: the verdict on a translated store, its parameters, options and plan in the fields of one dataclass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.audit.judged import JudgedStep
from migrate.devices import check_device
from migrate.errors import UsageError
from migrate.steps.base import (
    FORCE_REPORTS,
    QUERIES,
    argument,
    function,
    option,
    parameter,
)

if TYPE_CHECKING:
    from migrate.audit.query_set import QuerySet
    from migrate.audit.report import AuditReport
    from migrate.audit.rules import Settings
    from migrate.cost.spending import PlannedModel
    from migrate.embedders.base import Embedder
    from migrate.selection.choosers import Choosers
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.vectors import Document, Progress, Query

BUILD, POOL = "build", "pool"
"""References that are no stores: every text is embedded now, or those of a pool."""

_BEFORE: Mapping[str, Any] = {"section": "Before the migration"}
_ARMS: Mapping[str, Any] = {"section": "Arms and verdict"}
_TRAINED: Mapping[str, Any] = {"section": "What was trained"}

PARENT_FIELD = option(
    "Metadata field in which a chunk names the document it was cut from.",
    "text",
    metavar="FIELD",
    is_seldom=True,
    **_ARMS,
)
SOURCE_MODEL = option("Model that the source store was built with.", "text", metavar="SPEC", **_BEFORE)


@dataclass(frozen=True, eq=False)
class Audit(JudgedStep["AuditReport"]):
    """Judge a translated store against a full re-embed: SAFE, NOT SAFE or INCONCLUSIVE, with the numbers behind it.

    The verdict is on the translated store alone, and never SAFE where the reference is not shown to be a full re-embed.
    Vectors are searched exactly, whatever the index, so that no arm is blamed for its index. Queries that chose
    documents of the translated store or of the bridge do not judge; those of one text count once.

    Raises
    ------
    UsageError
        Parameters do not go together; or there is no arm of the name of the plan.
    StitchError
        The bridge is a stitch for documents, or not fitted on the source for this model.
    InputError
        There are no queries, or none of the relevant documents is in the stores.
    StoreError
        The stores do not hold the same documents, the reference is not a full re-embed of them by this model, or a
        store is not the one of its manifest.
    VectorError
        A store is not of its model's dimension, or a vector is zero or not finite.
    InconclusiveError
        Too few queries are left for a verdict, without those that chose documents.
    RemoteError, SpendingError
        A text could not be embedded; or it costs more than `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> stitch = migrate.fit("my-store", "tfidf:24", kind="ridge", sample=100)
    >>> _ = migrate.translate("my-store", stitch, "new-store")
    >>> report = migrate.audit("new-store", judged="my-beir", source="my-store")
    >>> report.verdict.outcome in set(migrate.Outcome)
    True
    """

    store: StoreLike = field(metadata=argument("The store that `translate` wrote, or its path.", "store"))
    reference: StoreLike = field(
        default=POOL,
        metadata=option(
            "Full re-embed to compare with, `build` to embed every text now, or `pool` to embed no more than the "
            "verdict needs.",
            "text",
            metavar="STORE|build|pool",
        ),
    )
    _: KW_ONLY
    pool_depth: int | None = field(
        default=None,
        metadata=parameter("Documents of STORE that a pool embeds for a query at most, from 10 on; None is for 200."),
    )
    judge_next: Path | str | None = field(
        default=None,
        metadata=option(
            "File for up to 300 queries of --queries FILE that settle most, with documents to grade. Replace each "
            "null by a grade, 0 for not relevant, and give the file back with --judged.",
            "path",
            metavar="FILE",
            section=QUERIES,
            is_seldom=True,
        ),
    )
    target: ModelLike | None = field(
        default=None,
        metadata=option("Model to embed the queries with.  [default: the store's own]", "text", metavar="SPEC"),
    )
    source: StoreLike | None = field(
        default=None, metadata=option("Store before the migration: adds the arm `stay`.", "store", **_BEFORE)
    )
    source_model: ModelLike | None = field(default=None, metadata=SOURCE_MODEL)
    bridge: FittedStitch | Path | str | None = field(
        default=None,
        metadata=option(
            "Stitch of `fit --direction query`: adds the arm `bridge`, which asks --source with the new model's "
            "queries.",
            "path",
            metavar="STITCH",
            is_seldom=True,
            **_BEFORE,
        ),
    )
    two_stage: Sequence[int] | str | None = field(
        default=None,
        metadata=option(
            "Depths of arms that embed the store's first N documents for a query and rank them again; a pool goes "
            "as deep.  [default: 20, 50 and 200, as far as a pool goes by itself]",
            "text",
            metavar="N,N|none",
            is_seldom=True,
            **_ARMS,
        ),
    )
    first_tokens: Sequence[int] | str | None = field(
        default=None,
        metadata=parameter(
            "Adds an arm for each N: the first N tokens of every document, embedded by the target.",
            old_names=("prefix",),
        ),
    )
    no_bm25: bool = field(
        default=False,
        metadata=parameter(
            "Leave the arms of words out of the report. That the full re-embed is not worse than BM25 is checked even "
            "so."
        ),
    )
    parent_field: str = field(default="parent_id", metadata=PARENT_FIELD)
    slice: Sequence[str] = field(
        default=(),
        metadata=option(
            "Metadata field of the documents to look at queries by, each value apart; can be repeated.",
            "text",
            metavar="FIELD",
            multiple=True,
            is_seldom=True,
            **_ARMS,
        ),
    )
    labels: Mapping[str, str] | Path | str | None = field(
        default=None,
        metadata=option(
            "Labels of documents, as for `compare`: classifiers trained on --reference are judged on translated "
            "vectors.",
            "path",
            metavar="FILE",
            is_seldom=True,
            **_TRAINED,
        ),
    )
    outside: Sequence[str] | Path | str | None = field(
        default=None,
        metadata=option(
            "File of ids, one a line, of documents unlike those with --labels, which a detector is to find.",
            "path",
            metavar="FILE",
            is_seldom=True,
            **_TRAINED,
        ),
    )
    frontier_shares: Sequence[float] | str | None = field(
        default=None,
        metadata=parameter(
            "Shares of the source that a frontier tries, as 10%,30%; None is for 10, 20, 30 and 50 %.",
            old_names=("frontier",),
        ),
    )
    frontier: FittedStitch | Path | str | None = field(
        default=None,
        metadata=option(
            "Stitch fitted on --source: shows what re-embedding 10, 20, 30 or 50 % of it would keep, and the "
            "cheapest that is SAFE.",
            "stitch",
            metavar="STITCH",
            old_names=("stitch",),
        ),
    )
    policy: Sequence[str] = field(
        default=(),
        metadata=parameter(
            "What a frontier chooses documents by: query-log, confidence, random. One alone, decided on beforehand, "
            "has narrower bounds; none is for all that can be used."
        ),
    )
    query_log: Sequence[Query] | Path | str | None = field(
        default=None, metadata=parameter("What users asked, for a frontier that chooses documents by it.")
    )
    force: bool = field(
        default=False,
        metadata={**FORCE_REPORTS, "help": "Replace the files of --report and --judge-next if they exist."},
    )
    resamples: int = field(default=10_000, metadata=parameter("Resamples of the bootstrap."))

    def check(self) -> None:
        """Make sure that options go together, and that there is the device that is to compute."""
        self.check_labels()
        self.check_queries(is_pooled=self.is_pooled)
        if self.pool_depth is not None and not self.is_pooled:
            raise UsageError("pool_depth goes with --reference pool; leave it out")
        if self.pool_depth is not None and self.pool_depth < 10:
            raise UsageError(f"pool_depth={self.pool_depth} is too low for a pool; give 10 or more")
        for name in ("frontier_shares", "query_log", "policy"):
            if self.frontier is None and getattr(self, name):
                raise UsageError(f"{name} goes with the stitch of a frontier; name the stitch, or leave {name} out")
        if isinstance(self.frontier, (list, tuple)):
            raise UsageError(f"frontier={self.frontier!r} is not a stitch; name shares of the store by frontier_shares")
        if self.frontier is not None and self.source is None:
            raise UsageError("--frontier needs --source STORE, the store that its stitch was fitted on; name it too")
        _ = self.stages, self.prefixes, self.shares
        check_device()

    def check_labels(self) -> None:
        """Make sure that there is something to train on."""
        if self.outside is not None and self.labels is None:
            raise UsageError("--outside goes with --labels; add --labels, or leave it out")
        if self.labels is not None and self.reference in (BUILD, POOL):
            raise UsageError(
                f"--labels needs a full re-embed to train on, and --reference is {self.reference}; give a store, such "
                "as `reembed` writes"
            )
        _ = self.trained

    @property
    def stages(self) -> Sequence[int] | None:
        """The depths of the two-stage arms, with that of the plan; none for `none`, and None for the usual ones."""
        from migrate.audit.results import rerank_depths

        depths = _numbers(self.two_stage, "--two-stage", "documents such as 50,200, or none")
        planned = rerank_depths(self.plan)
        return (*(depths or ()), *planned) if planned else depths

    @property
    def prefixes(self) -> Sequence[int]:
        """The numbers of first tokens for which there are arms."""
        return tokens_of(self.first_tokens)

    @property
    def shares(self) -> Sequence[float]:
        """The shares of the store, 0-1, that a frontier tries."""
        from migrate.steps.translate.choice import Budget

        if not isinstance(self.frontier_shares, str):
            return (0.1, 0.2, 0.3, 0.5) if self.frontier_shares is None else self.frontier_shares
        budgets = [Budget.parse(text) for text in self.frontier_shares.split(",")]
        if any(budget.unit != "share" for budget in budgets):
            raise UsageError(
                f"frontier_shares={self.frontier_shares!r} are not shares of the store; give some such as 10%,30%"
            )
        return [budget.amount for budget in budgets]

    @property
    def is_pooled(self) -> bool:
        """True where a pool stands for the full re-embed."""
        return self.reference == POOL

    @property
    def most_deep(self) -> int:
        """The documents of the translated store that a pool has for a query at most."""
        return 200 if self.pool_depth is None else self.pool_depth

    @property
    def settings(self) -> Settings:
        """The parameters that arms and measures read."""
        from migrate.audit.rules import Settings

        return Settings(
            plan=self.plan,
            margin=self.margin,
            seed=self.seed,
            resamples=self.resamples,
            stages=self.stages,
            prefixes=self.prefixes,
            slices=self.slice,
            most_deep=self.most_deep if self.is_pooled else None,
        )

    @cached_property
    def translated(self) -> Store:
        """The store that the verdict is on, opened."""
        from migrate.steps.opening import store_of

        return store_of(self.store, verify=True)

    @cached_property
    def full(self) -> Store | None:
        """The full re-embed, where it is a store that is there."""
        from migrate.steps.opening import store_of

        return None if self.reference in (BUILD, POOL) else store_of(self.reference, verify=True)

    @cached_property
    def source_store(self) -> Store | None:
        """The store before the migration, opened."""
        from migrate.steps.opening import store_of

        return None if self.source is None else store_of(self.source, verify=True)

    @cached_property
    def embedder(self) -> Embedder:
        """The target model, which spends under the cap."""
        from migrate.embedders.prefix import whole_embedder
        from migrate.steps.opening import model_of

        model = whole_embedder(model_of(self.translated, self.target, "target"))
        return self.cap.meter(model, self.price)

    @cached_property
    def source_embedder(self) -> Embedder | None:
        """The model of the source, which spends under the cap; None where nobody says which it is."""
        from migrate.steps.opening import model_of

        store = self.source_store
        if store is None or (self.source_model is None and not (store.info.manifest and store.info.manifest.model)):
            return None
        return self.cap.meter(model_of(store, self.source_model, "source_model"))

    @cached_property
    def bridge_stitch(self) -> FittedStitch | None:
        """The stitch that maps queries to the source."""
        from migrate.steps.opening import stitch_at

        return None if self.bridge is None else stitch_at(self.bridge)

    @cached_property
    def frontier_stitch(self) -> FittedStitch | None:
        """The stitch that a frontier starts from, whose views spend under the cap."""
        from migrate.steps.opening import stitch_at
        from migrate.steps.translate.stitch import with_metered_views

        return None if self.frontier is None else with_metered_views(stitch_at(self.frontier), self.cap, self.price)

    @cached_property
    def log(self) -> Sequence[Query]:
        """The most frequent queries of the log, where a frontier chooses by them."""
        from migrate.selection.query_log import MOST_QUERIES
        from migrate.steps.opening import log_of

        is_used = not self.policy or "query-log" in self.policy
        return log_of(self.query_log)[:MOST_QUERIES] if is_used else ()

    @cached_property
    def trained(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """The labels of documents, and the ids of those that do not belong among them."""
        from migrate.datasets.records import read_ids, read_labels

        labels = read_labels(Path(self.labels)) if isinstance(self.labels, Path | str) else self.labels
        outside = read_ids(Path(self.outside)) if isinstance(self.outside, Path | str) else self.outside
        return labels or {}, outside or ()

    @cached_property
    def query_set(self) -> QuerySet:
        """The queries, with judgements if there are any, without those that are held out."""
        return self.load_queries(self.translated, parent_field=self.parent_field)

    @cached_property
    def choosers(self) -> Choosers:
        """The queries that chose true vectors of the translated store, before anything is embedded for the audit."""
        from migrate.selection.choosers import choosers_in

        return choosers_in(self.translated, self.embedder)

    @cached_property
    def judging(self) -> QuerySet:
        """The queries without those that chose documents, or are going to."""
        from migrate.audit.inputs import check_request
        from migrate.audit.query_set import independent
        from migrate.selection.choosers import choosers_of, digests_of

        check_request(self)
        stitches = (self.bridge_stitch, self.frontier_stitch)
        manifests = [stitch.manifest for stitch in stitches if stitch is not None]
        if self.frontier is not None and self.source_store is not None:
            manifests += filter(None, [self.source_store.info.manifest])
        return independent(self.query_set, self.choosers.queries | choosers_of(*manifests) | digests_of(self.log))

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the reference and all queries; the source model; and the views of the frontier's stitch."""
        from migrate.audit.inputs import AGAIN
        from migrate.audit.reference import spot_documents
        from migrate.cost.spending import SOURCE_MODEL, VIEW, PlannedModel
        from migrate.embed.corpus import AGAIN as EMBEDDED_AGAIN
        from migrate.embedders.again import ASKED_AGAIN

        full = self.full
        if not self.has_queries and full is not None:  # by labels alone
            documents = partial(spot_documents, full)
            return (PlannedModel(self.embedder, self.cap, documents=documents, again=ASKED_AGAIN),)
        queries, source, stitch = self.judging.queries, self.source_store, self.frontier_stitch
        # What is asked for again is in the cache by then
        texts_again = AGAIN + EMBEDDED_AGAIN * (len(self.prefixes) + (self.reference == BUILD))
        models = [
            PlannedModel(
                self.embedder, self.cap, documents=self._documents, queries=[*queries, *self.log], again=texts_again
            )
        ]
        if source is not None and self.source_embedder is not None:
            models.append(
                PlannedModel(
                    self.source_embedder,
                    self.cap,
                    SOURCE_MODEL,
                    documents=partial(spot_documents, source),
                    queries=queries,
                )
            )
        if source is not None and stitch is not None and stitch.reads_texts and source.info.has_texts:
            views = () if stitch.reader is None else stitch.reader.models.values()
            models += [PlannedModel(view, self.cap, VIEW, documents=source.documents) for view in views]
        return tuple(models)

    def _documents(self) -> Iterator[Document]:
        """Yield the documents that are embedded for the reference, and those that arms are given of all documents."""
        from migrate.embedders.prefix import first_of

        yield from self._of_reference()
        for tokens in self.prefixes:
            yield from first_of(self.translated.documents(), self.embedder.profile.counter, tokens)

    def _of_reference(self) -> Iterable[Document]:
        """Return all documents, about those of a pool, or those that prove a store."""
        from migrate.audit.pool import expected_documents
        from migrate.audit.reference import spot_documents

        if self.full is not None:
            return spot_documents(self.full)
        if self.reference == BUILD:
            return self.translated.documents()
        extras = (self.source_embedder, self.bridge_stitch)
        arms = 1 + sum(extra is not None for extra in extras) + len(self.prefixes)
        both = self.source_embedder is not None
        return expected_documents(
            self.translated, self.judging, arms, stages=self.stages, together=both, seed=self.seed
        )

    def execute(self) -> AuditReport:
        """Build the reference where that is asked for, and the stores of first tokens; audit, and try the frontier."""
        from migrate.audit.audit import audit_store
        from migrate.audit.downstream import audit_downstream
        from migrate.audit.drawn_queries import write_unjudged
        from migrate.audit.frontier import find_frontier
        from migrate.check.again import prove_model

        _ = self.judging  # before anything is embedded
        with ExitStack() as stack:
            full = self.full
            if self.reference == BUILD:
                prove_model(self.translated, self.embedder, seed=self.seed)  # before every text is paid for
                full = stack.enter_context(_embedded(self.translated, self.embedder, self.progress))
            prefixes = {tokens: stack.enter_context(self._first_tokens(tokens)) for tokens in self.prefixes}
            report = audit_store(self, full, prefixes)
            if self.frontier is not None and full is not None:
                frontier = find_frontier(self, full, report.stay, report.findings)
                report = report.with_frontier(frontier)
        if self.labels is not None:
            report = replace(report, downstream=audit_downstream(self, is_proven=True))
        if self.judge_next is not None:
            write_unjudged(Path(self.judge_next), report.unjudged, force=self.force)
        return report

    def _first_tokens(self, tokens: int) -> AbstractContextManager[Store]:
        """Embed the first tokens of all documents."""
        from migrate.embedders.prefix import PrefixEmbedder

        def progress(_: str, done: int, total: int | None) -> None:
            self.progress(f"embed the first {tokens} tokens", done, total)

        return _embedded(self.translated, PrefixEmbedder(self.embedder, tokens), progress)


@contextmanager
def _embedded(store: Store, embedder: Embedder, progress: Progress) -> Iterator[Store]:
    """Embed a store into one that goes away with the audit; the cache keeps the vectors."""
    from tempfile import TemporaryDirectory

    from migrate.embed import reembed_store
    from migrate.stores import open_store

    with TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        try:
            reembed_store(store, embedder, path, progress=progress)
        except KeyboardInterrupt as error:
            error.__notes__ = []  # of parts that are done, in a folder that goes away now
            raise
        yield open_store(path)


def tokens_of(value: Sequence[int] | str | None) -> Sequence[int]:
    """Return numbers of first tokens, ascending, as they were typed or given; none where nothing is said."""
    expectation = "tokens above 0 such as 24,64; a text to put before documents is SPEC,document-prefix=TEXT"
    return sorted(set(_numbers(value, "first_tokens", expectation) or ()))


def _numbers(value: Any, flag: str, expectation: str) -> tuple[int, ...] | None:
    """Return numbers as they were typed or given; none for `none`, and None where nothing is said."""
    if not isinstance(value, str):
        return (value,) if isinstance(value, int) else None if value is None else tuple(value)
    if value.strip().lower() == "none" and "none" in expectation:
        return ()
    numbers = [number.strip() for number in value.split(",")]
    if not all(number.isascii() and number.isdigit() and len(number) < 10 and int(number) for number in numbers):
        raise UsageError(f"{flag}: {value!r} is not a list of numbers of {expectation}")
    return tuple(int(number) for number in numbers)


audit = function(Audit)
