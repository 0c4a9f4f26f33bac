"""An audit that is planned first: the reference that is built for it, the audit, and the frontier."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from migrate.audit.audit import audit_store
from migrate.audit.frontier import find_frontier
from migrate.audit.inputs import AGAIN, AuditRequest, PoolReference, bridged_store
from migrate.audit.pool import expected_documents
from migrate.audit.query_set import QuerySet
from migrate.audit.reference import check_target, spot_documents
from migrate.audit.report import AuditReport, check_plan
from migrate.check.again import prove_model
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import SOURCE_MODEL, VIEW, PlannedModel, SpendingPlan
from migrate.embed import reembed_store
from migrate.embed.corpus import AGAIN as EMBEDDED_AGAIN
from migrate.embedders.prefix import PrefixEmbedder, first_of, whole_embedder
from migrate.errors import StoreError, UsageError
from migrate.selection.choosers import Choosers, choosers_in
from migrate.steps.reembed import Reembed
from migrate.steps.translate.stitch import with_metered_views
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, no_progress


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AuditPlan(SpendingPlan[AuditReport]):
    """An audit that is still to be done; the models of `request` have meters in them.

    `query_set` judges, `choosers` are of the translated store. `documents_per_s` is how fast the target model embeds,
    for the report; None where not measured.
    """

    request: AuditRequest
    query_set: QuerySet
    choosers: Choosers
    documents_per_s: float | None = None

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the reference and all queries; the source model; and the views of the frontier's stitch."""
        request, queries, trial = self.request, self.query_set.queries, self.request.trial
        # What is asked for again is in the cache by then
        log = () if trial is None else trial.log
        again = AGAIN + EMBEDDED_AGAIN * (len(request.prefixes) + (request.reference is None))
        models = [
            PlannedModel(
                request.embedder, self.cap, documents=self._all_documents, queries=[*queries, *log], again=again
            )
        ]
        source = request.source
        if source is not None and request.source_embedder is not None:
            spot = PlannedModel(
                request.source_embedder,
                self.cap,
                SOURCE_MODEL,
                documents=lambda: spot_documents(source),
                queries=queries,
            )
            models.append(spot)
        if source is not None and trial is not None and trial.fitted.reads_texts and source.info.has_texts:
            reader = trial.fitted.reader
            views = () if reader is None else reader.models.values()
            models += [PlannedModel(view, self.cap, VIEW, documents=source.documents) for view in views]
        return tuple(models)

    def _all_documents(self) -> Iterator[Document]:
        """Yield the documents of the reference, and those that arms are given of all documents."""
        yield from self._documents()
        counter = self.request.embedder.profile.counter
        for tokens in self.request.prefixes:
            yield from first_of(self.request.translated.documents(), counter, tokens)

    def _documents(self) -> Iterable[Document]:
        """The documents that are embedded for the reference: all, about those of a pool, or those that prove it."""
        request = self.request
        if isinstance(request.reference, PoolReference):
            others = (request.source_embedder, request.bridge)
            arms = 1 + sum(other is not None for other in others) + len(request.prefixes)
            return expected_documents(request.translated, self.query_set, arms, request.options)
        if request.reference is not None:
            return spot_documents(request.reference)
        if request.save_reference is None:
            return request.translated.documents()
        return self._reembedding(request.save_reference).left()

    def _reembedding(self, folder: Path, progress: Progress = no_progress) -> Reembed:
        request = self.request
        return Reembed(
            request.translated,
            request.embedder,
            folder,
            force=request.force,
            restart=request.restart,
            progress=progress,
            cap=self.cap,
        )

    def execute(self, progress: Progress) -> AuditReport:
        """Build the reference where there is none, and the stores of first tokens, audit, and try the frontier."""
        request, trial = self.request, self.request.trial
        with self._open_reference(progress) as reference, self._open_prefixes(progress) as prefixes:
            request = replace(
                request, query_set=self.query_set, reference=reference, prefixes=prefixes, choosers=self.choosers
            )
            report = replace(audit_store(request, progress=progress), documents_per_s=self.documents_per_s)
            if self.request.reference is None and request.save_reference is None:
                report = replace(report, reference_at=None)  # it goes away with this audit
            if trial is None or request.source is None:
                return report
            return report.with_frontier(find_frontier(request, report.stay, report.findings, progress=progress))

    @contextmanager
    def _open_reference(self, progress: Progress) -> Iterator[Store | PoolReference]:
        """Return what to compare with: a store that is there, a pool, or a store that is embedded now."""
        request = self.request
        if request.reference is not None:
            yield request.reference
            return
        prove_model(request.translated, request.embedder, seed=request.options.seed)  # before every text is paid for
        with tempfile.TemporaryDirectory() as aside:
            path = request.save_reference or Path(aside) / "reference"
            try:
                self._reembedding(path, progress).execute()
            except KeyboardInterrupt as error:
                if request.save_reference is None:
                    error.__notes__ = []  # of parts that are done, in a folder that goes away now
                raise
            yield open_store(path)

    @contextmanager
    def _open_prefixes(self, progress: Progress) -> Iterator[Mapping[int, Store]]:
        """Stores of the first tokens of all documents, which go away with the audit; the cache keeps their vectors."""
        request = self.request
        if not request.prefixes:
            yield {}
            return
        with tempfile.TemporaryDirectory() as aside:
            folders = {tokens: Path(aside) / str(tokens) for tokens in sorted(set(request.prefixes))}
            for tokens, folder in folders.items():
                stage = f"embed the first {tokens} tokens"
                embedder = PrefixEmbedder(request.embedder, tokens)
                try:
                    reembed_store(request.translated, embedder, folder, progress=_staged(progress, stage))
                except KeyboardInterrupt as error:
                    error.__notes__ = []  # as above
                    raise
            yield {tokens: open_store(folder) for tokens, folder in folders.items()}


def _staged(progress: Progress, stage: str) -> Progress:
    """Return the same progress under another name."""
    return lambda _, done, total: progress(stage, done, total)


def _check_prefixes(request: AuditRequest) -> None:
    """Make sure, before anything is spent, that the first tokens of documents can be embedded."""
    store = request.translated
    if request.prefixes and not store.info.has_texts:
        raise StoreError(
            f"{store.info.location}: expected texts, whose first tokens --prefix embeds, found vectors only; "
            f"{store.info.way_to_texts}, or leave out --prefix"
        )
    for tokens in request.prefixes:
        PrefixEmbedder(request.embedder, tokens)


def plan_audit(request: AuditRequest) -> AuditPlan:
    """Plan an audit, and the reference and the frontier where they are part of it. Nothing is embedded.

    Raises
    ------
    StoreError
        The store was translated for another model, or has no texts to take the first tokens of.
    UsageError, StitchError
        The bridge has no source, or does not lead from the target model to it; or a frontier is tried with a pool.
    InconclusiveError
        Too few queries would be left for a verdict, without those that chose documents.
    """
    request = replace(request, embedder=whole_embedder(request.embedder))
    check_target(request.translated, request.embedder)
    check_plan(request.options.plan, request.translated.info.count)
    _check_prefixes(request)
    if request.trial is not None and request.query_set.chances is not None:
        raise UsageError(
            f"--frontier: the queries of {request.query_set.name} were drawn to judge one store, and cannot judge "
            "others; leave --frontier out, or judge by queries that were drawn evenly"
        )
    if isinstance(request.reference, PoolReference):
        if request.query_set.chances is not None:
            raise UsageError(
                f"the queries of {request.query_set.name} were drawn by the rankings of a full re-embed, which a pool "
                "lacks; use --reference build or a store, or judge by queries that were drawn evenly"
            )
        if request.trial is not None:
            raise UsageError(
                "a frontier needs the true vectors of all documents, which a pool lacks; use --reference build"
            )
    if request.bridge is not None:
        bridged_store(request.bridge, request.source, request.embedder.identity)
    cap, price = SpendingCap(), request.options.price_usd_per_mtok
    trial, old = request.trial, request.source_embedder
    metered = replace(
        request,
        embedder=cap.meter(request.embedder, price),
        source_embedder=old and cap.meter(old),
        trial=trial and replace(trial, fitted=with_metered_views(trial.fitted, cap, price)),
    )
    choosers = choosers_in(request.translated, request.embedder)
    return AuditPlan(request=metered, query_set=request.judging(choosers), choosers=choosers, cap=cap)
