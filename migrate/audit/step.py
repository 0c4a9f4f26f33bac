"""Audit: the verdict on a translated store, its parameters, options and plan in the fields of one dataclass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.audit.judged import JudgedStep
from migrate.errors import UsageError
from migrate.steps.base import (
    FORCE_REPORTS,
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
    from migrate.vectors import Document, Progress

BUILD, POOL = "build", "pool"
"""References that are no stores: every text is embedded now, or those of a pool."""

_BEFORE: Mapping[str, Any] = {"section": "Before the migration"}
_ARMS: Mapping[str, Any] = {"section": "Arms and verdict"}

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
    The translated and the old store answer by their own index, as users ask them, and the full re-embed is searched
    exactly; the report says what exact search would keep. Queries that chose documents of the translated store or of
    the bridge do not judge; those of one text count once.

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
    search_effort: int | None = field(
        default=None,
        metadata=option(
            "Value of the setting of STORE's search (nprobe, efSearch ...) that your program sets, where another is "
            "stored.",
            "count",
            metavar="N",
            is_seldom=True,
            **_ARMS,
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
    force: bool = field(
        default=False,
        metadata=FORCE_REPORTS,
    )
    resamples: int = field(default=10_000, metadata=parameter("Resamples of the bootstrap."))

    def check(self) -> None:
        """Make sure that options go together, and that there is the device that is to compute."""
        self.check_queries(is_pooled=self.is_pooled)
        if self.pool_depth is not None and not self.is_pooled:
            raise UsageError("pool_depth goes with --reference pool; leave it out")
        if self.pool_depth is not None and self.pool_depth < 10:
            raise UsageError(f"pool_depth={self.pool_depth} is too low for a pool; give 10 or more")
        _ = self.stages

    @property
    def stages(self) -> Sequence[int] | None:
        """The depths of the two-stage arms, with that of the plan; none for `none`, and None for the usual ones."""
        from migrate.audit.results import rerank_depths

        depths = _numbers(self.two_stage, "--two-stage", "documents such as 50,200, or none")
        planned = rerank_depths(self.plan)
        return (*(depths or ()), *planned) if planned else depths

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
            slices=self.slice,
            most_deep=self.most_deep if self.is_pooled else None,
            search_effort=self.search_effort,
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
        from migrate.steps.opening import model_of

        model = model_of(self.translated, self.target, "target")
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
        """The queries without those that chose documents; enough judged ones of these are no documents themselves."""
        from migrate.audit.document_queries import refuse_queries
        from migrate.audit.inputs import check_request
        from migrate.audit.query_set import independent
        from migrate.selection.choosers import choosers_of

        check_request(self)
        bridge = None if self.bridge_stitch is None else self.bridge_stitch.manifest
        judging = independent(self.query_set, self.choosers.queries | choosers_of(bridge))
        refuse_queries(judging, self.translated, self.parent_field)
        return judging

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the reference and all queries; and the source model."""
        from migrate.audit.inputs import AGAIN
        from migrate.audit.reference import spot_documents
        from migrate.cost.spending import SOURCE_MODEL, PlannedModel
        from migrate.embed.corpus import AGAIN as EMBEDDED_AGAIN

        queries, source = self.judging.queries, self.source_store
        # What is asked for again is in the cache by then
        texts_again = AGAIN + EMBEDDED_AGAIN * (self.reference == BUILD)
        models = [
            PlannedModel(self.embedder, self.cap, documents=self._of_reference, queries=queries, again=texts_again)
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
        return tuple(models)

    def _of_reference(self) -> Iterable[Document]:
        """Return all documents, about those of a pool, or those that prove a store."""
        from migrate.audit.pool import expected_documents
        from migrate.audit.reference import spot_documents

        if self.full is not None:
            return spot_documents(self.full)
        if self.reference == BUILD:
            return self.translated.documents()
        extras = (self.source_embedder, self.bridge_stitch)
        arms = 1 + sum(extra is not None for extra in extras)
        both = self.source_embedder is not None
        return expected_documents(
            self.translated, self.judging, arms, stages=self.stages, together=both, seed=self.seed
        )

    def execute(self) -> AuditReport:
        """Build the reference where that is asked for, and audit."""
        from migrate.audit.audit import audit_store
        from migrate.audit.inputs import refuse_documents_found
        from migrate.check.again import prove_model

        _ = self.judging  # before anything is embedded
        with ExitStack() as stack:
            full = self.full
            if self.reference == BUILD:
                prove_model(self.translated, self.embedder, seed=self.seed)  # before every text is paid for
                refuse_documents_found(self)
                full = stack.enter_context(_embedded(self.translated, self.embedder, self.progress))
            return audit_store(self, full)


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
