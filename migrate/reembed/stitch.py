"""From a budget to a stitch of all that is paid for, saved, so that no run pays again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from migrate.cost import tally_of
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel, SpendingPlan
from migrate.embedders.again import ASKED_AGAIN, needs_proof, prove_answers
from migrate.embedders.base import Embedder
from migrate.errors import StitchError
from migrate.files import canonical_json, refuse_existing
from migrate.fit import fit_reader, require_texts
from migrate.manifest import MANIFEST_NAME, StitchFacts
from migrate.reembed.choice import (
    QUERY_LOG,
    RANDOM,
    Budget,
    Choice,
    choose_documents,
    choose_policy,
    choose_within,
    look_over,
)
from migrate.reembed.refit import extended, refit
from migrate.selection.choosers import choosers_of, digests_of
from migrate.selection.query_log import MOST_QUERIES
from migrate.stitch.fitted import DOCUMENT, FittedStitch, require_direction
from migrate.stitch.persistence import load_stitch
from migrate.stores.base import Store
from migrate.stores.file_store import verify_files
from migrate.vectors import Document, Progress, Query, no_progress


@dataclass(frozen=True, slots=True)
class Reembedding:
    """What is to be re-embedded.

    `log` are the queries of a query log, the most frequent first. The price, US dollars per million tokens, is by
    default that of the registry.
    """

    budget: Budget
    policy: str | None = None
    log: Sequence[Query] = ()
    price_usd_per_mtok: float | None = None
    seed: int = 0


_AGAIN: Final = 2 * ASKED_AGAIN


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Announce:
    """Called as a re-embedding goes on; what raises stops it before anything further is paid for.

    Attributes
    ----------
    log
        With the target model and the queries of the log, before these are embedded, which the policy needs to choose.
    choice
        With the documents that were chosen, and the target model, before it embeds them.
    stitch
        With the stitch that came of it.
    """

    log: Callable[[PlannedModel], None] = _ignore
    choice: Callable[[Choice, PlannedModel], None] = _ignore
    stitch: Callable[[FittedStitch], None] = _ignore


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RefitPlan(SpendingPlan[FittedStitch]):
    """A budget that is still to be spent, and the stitch of all pairs that is to come of it, in `folder`.

    `earlier` is the stitch that the same call has left there before: nothing is embedded then.
    """

    store: Store
    fitted: FittedStitch
    embedder: Embedder
    request: Reembedding
    policy: str
    folder: Path
    force: bool
    facts: Mapping[str, Any]
    earlier: FittedStitch | None
    announce: Announce
    _choices: list[Choice] = field(default_factory=list, init=False, repr=False)

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the queries of the log and about the documents that the budget has room for."""
        if self.earlier is not None:
            return ()
        return (
            PlannedModel(
                self.embedder, self.cap, documents=self.expected_documents, queries=self._queries, again=_AGAIN
            ),
        )

    @property
    def _queries(self) -> Sequence[Query]:
        return self.request.log[:MOST_QUERIES] if self.policy == QUERY_LOG else ()

    def expected_documents(self) -> Sequence[Document]:
        """The documents that will be embedded, or as many others at random where choosing them asks a paid model."""
        reader = self.fitted.reader
        views = [] if reader is None or self.policy == RANDOM else list(reader.models.values())
        asks = self.policy == QUERY_LOG or any(self.cap.meter_of(view) is not None for view in views)
        if not asks or self._choices:
            return self.choice().sample.documents
        unseen = look_over(RANDOM, self.store, self.fitted, None)
        tally = tally_of(self.embedder, self.request.price_usd_per_mtok)
        return choose_within(
            self.store, unseen, self.request.budget, RANDOM, tally=tally, seed=self.request.seed
        ).sample.documents

    def choice(self, *, progress: Progress = no_progress) -> Choice:
        """The documents to embed, chosen once; by a log, its queries are embedded for that."""
        if not self._choices:
            self._choices.append(
                choose_documents(
                    self.store,
                    self.fitted,
                    self.embedder,
                    self.request.budget,
                    self.policy,
                    self.request.log,
                    price_usd_per_mtok=self.request.price_usd_per_mtok,
                    seed=self.request.seed,
                    progress=progress,
                )
            )
        return self._choices[0]

    def execute(self, progress: Progress) -> FittedStitch:
        """Embed what the budget has room for, fit the stitch again on all pairs, and save it."""
        if self.earlier is not None:
            self.announce.stitch(self.earlier)
            return self.earlier
        if self.policy == QUERY_LOG:
            self.announce.log(PlannedModel(self.embedder, self.cap, queries=self._queries))
        choice = self.choice(progress=progress)
        documents = choice.sample.documents
        self.announce.choice(choice, PlannedModel(self.embedder, self.cap, documents=lambda: documents, again=_AGAIN))
        if needs_proof(self.embedder):
            self._prove_model()
        self._refit(choice, progress).save(self.folder, force=self.force)
        saved = load_stitch(self.folder)
        self.announce.stitch(saved)
        return saved

    def _prove_model(self) -> None:
        """Make sure that the model gives the vectors that the stitch was fitted on."""
        sample = self.fitted.sample
        place_of = {doc_id: place for place, doc_id in enumerate(sample.ids)}
        known = [document for document in self.store.documents() if document.id in place_of] if place_of else []
        vectors = sample.vectors[[place_of[document.id] for document in known]]
        prove_answers(self.embedder, known, vectors, source=self.store.info.location)

    def _refit(self, choice: Choice, progress: Progress) -> FittedStitch:
        store, fitted, seed = self.store, self.fitted, self.request.seed
        asked = digests_of(self.request.log[:MOST_QUERIES])
        true = self.embedder.chosen_by(asked).embed_documents(choice.sample.documents, progress=progress)
        prove_answers(self.embedder, choice.sample.documents, true, source=store.info.location)
        paid = choice.survey.paid.copy()
        paid[choice.sample.rows] = True
        chosen = {"documents": len(choice.sample.rows), "from query log": choice.from_log}
        choosers = asked | choosers_of(fitted.manifest)
        return refit(
            store,
            fitted,
            extended(store, fitted.sample, choice.sample.documents, true),
            np.flatnonzero(paid),
            reader=fitted.reader or fit_reader(store, self.embedder, seed=seed),
            details=StitchFacts(
                reembedding={"asked": self.facts, **chosen, "tokens, about": choice.cost.tokens},
                chosen_by=tuple(sorted(choosers)),
            ).as_details(),
            seed=seed,
            progress=progress,
        )


def plan_refit(
    store: Store,
    fitted: FittedStitch,
    embedder: Embedder,
    request: Reembedding,
    folder: Path,
    *,
    force: bool = False,
    announce: Announce | None = None,
    cap: SpendingCap | None = None,
) -> RefitPlan:
    """Plan to embed what the budget has room for, and to fit the stitch again on all pairs, saved in `folder`.

    A stitch that the same call has left there before is taken as it is. `cap` is shared with other plans.

    Raises
    ------
    UsageError
        The policy cannot be followed; or `folder` holds something else, and `force` is not given.
    StitchError
        The stitch was fitted for another store or another model, or is one for queries.
    StoreError
        The store has no texts, or is not the one of its manifest.
    """
    policy = choose_policy(request.policy, fitted, has_log=bool(request.log))
    verify_files(store)
    require_texts(store)
    embedder.fit(store.documents())
    _check_same(store, fitted, embedder)
    facts = _facts(store, fitted, embedder, request, policy)
    earlier = None if force else _earlier(folder, facts)
    if earlier is None:
        refuse_existing(folder, force=force)
    cap = cap or SpendingCap()
    return RefitPlan(
        store=store,
        fitted=with_metered_views(fitted, cap, request.price_usd_per_mtok),
        embedder=cap.meter(embedder, request.price_usd_per_mtok),
        request=request,
        policy=policy,
        folder=folder,
        force=force,
        facts=facts,
        earlier=earlier,
        announce=announce or Announce(),
        cap=cap,
    )


def reembedded_stitch(
    store: Store,
    fitted: FittedStitch,
    embedder: Embedder,
    request: Reembedding,
    folder: Path,
    *,
    force: bool = False,
    announce: Announce | None = None,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Plan a refit, and run it without a cap.

    Raises
    ------
    UsageError
        As `plan_refit`, or the budget is used up already.
    LeadMigrateError
        As `plan_refit` and the embedder.
    """
    return plan_refit(store, fitted, embedder, request, folder, force=force, announce=announce).run(progress=progress)


def with_metered_views(fitted: FittedStitch, cap: SpendingCap, price_usd_per_mtok: float | None = None) -> FittedStitch:
    """The stitch, whose views that may cost money spend under a cap; the price is of the target."""
    reader = fitted.reader
    if reader is None:
        return fitted
    prices = {} if reader.base is None else {reader.base: price_usd_per_mtok}
    models = {spec: cap.meter(view, prices.get(spec)) for spec, view in reader.models.items()}
    return replace(fitted, reader=reader.with_models(models))


def _check_same(store: Store, fitted: FittedStitch, embedder: Embedder) -> None:
    require_direction(fitted.manifest, DOCUMENT, source=store.info.location)
    difference = store.snapshot().difference(fitted.manifest.stitch.fitted_on)
    if difference is not None:
        raise StitchError(
            f"{store.info.location}: the stitch was fitted on another store ({difference}), whose documents it has "
            "true vectors of; fit one on this store to re-embed by"
        )
    expected, actual = fitted.manifest.model, embedder.identity
    if expected is not None and expected != actual:
        raise StitchError(
            f"expected the model that the stitch leads to, {expected.spec} ({expected.dim} dimensions, revision "
            f"{str(expected.revision)[:12]}), found {actual.spec} ({actual.dim}, {str(actual.revision)[:12]}); name "
            "that model, or fit a stitch for this one"
        )


def _facts(store: Store, fitted: FittedStitch, embedder: Embedder, request: Reembedding, policy: str) -> dict[str, Any]:
    """All that the stitch depends on, as JSON holds it."""
    log = canonical_json([query.text for query in request.log[:MOST_QUERIES]])
    return {
        "budget": str(request.budget),
        "policy": policy,
        "price": request.price_usd_per_mtok,
        "seed": request.seed,
        "model": embedder.cache_scope("document"),
        "query log": _digest(log) if request.log else None,
        "stitch": fitted.digest(),
        "store": _digest(canonical_json(store.snapshot().as_json())),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _earlier(folder: Path, facts: dict[str, Any]) -> FittedStitch | None:
    """The stitch in `folder`, if the same call has left it there."""
    if not (folder / MANIFEST_NAME).is_file():
        return None
    earlier = load_stitch(folder)
    return earlier if (earlier.manifest.stitch.reembedding or {}).get("asked") == facts else None
