"""From a budget to a stitch of all that is paid for, saved, so that no run pays again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from migrate.check.facts import model_differences
from migrate.cost import tally_of
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel
from migrate.embedders import load_known
from migrate.embedders.abilities import token_table_of
from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.embedders.kinds import runs_code
from migrate.errors import StitchError, UsageError
from migrate.files import refuse_existing, sha256_json
from migrate.manifest import MANIFEST_NAME, StitchFacts
from migrate.selection.choosers import choosers_of, digests_of
from migrate.selection.model_match import ASKED_AGAIN, Claim, matches, needs_proof
from migrate.selection.query_log import MOST_QUERIES
from migrate.selection.sample import QUERY_LOG, RANDOM
from migrate.steps.base import RunContext
from migrate.steps.fit.inputs import require_texts
from migrate.steps.fit.job import fit_reader
from migrate.steps.opening import log_of
from migrate.steps.translate.choice import (
    Budget,
    Choice,
    choose_policy,
    choose_within,
    look_over,
)
from migrate.steps.translate.options import TranslateOptions
from migrate.steps.translate.refit import extended, refit
from migrate.stitch.fitted import DOCUMENT, FittedStitch, require_direction
from migrate.stitch.persistence import load_stitch, stitch_folder
from migrate.stores.base import Store, difference_from
from migrate.stores.file_store import check_files
from migrate.vectors import Document, Progress, Query, no_progress

# The stitch's sample is proven before the documents are embedded, and these after it
_AGAIN: Final = 2 * ASKED_AGAIN


@dataclass(frozen=True, eq=False)
class Refit:
    """The budget of a translation that is still to be spent, and the stitch of all pairs that is to come of it.

    `dependencies` are all that the stitch depends on. `earlier` is the stitch that the same call has left there before:
    nothing is embedded then. `choice` are the documents to embed; None where a model that costs money chooses them.
    """

    options: TranslateOptions
    context: RunContext
    store: Store
    fitted: FittedStitch
    folder: Path
    budget: Budget
    embedder: Embedder
    log: Sequence[Query]
    policy: str
    dependencies: Mapping[str, Any]
    earlier: FittedStitch | None
    choice: Choice | None = None

    def models(self) -> list[PlannedModel]:
        """Return the target, for the queries of the log and about the documents that the budget has room for."""
        if self.earlier is not None:
            return []
        return [
            PlannedModel(
                self.embedder,
                self.context.cap,
                documents=self.expected_documents,
                queries=self._queries(),
                again=_AGAIN,
            )
        ]

    def _queries(self) -> Sequence[Query]:
        if self.policy != QUERY_LOG:
            return ()
        return self.log[:MOST_QUERIES]

    def expected_documents(self) -> Sequence[Document]:
        """Return the documents that will be embedded, or others at random where choosing them asks a paid model."""
        choice = self.choice or self.choose(RANDOM, no_progress)
        return choice.sample.documents

    @property
    def asks_to_choose(self) -> bool:
        """True where a model that may cost money is asked which documents to embed."""
        if self.policy == QUERY_LOG:
            return True
        reader = self.fitted.reader
        # Chance looks at no vectors, so that nothing is translated to choose
        if reader is None or self.policy == RANDOM:
            return False
        return any(self.context.cap.meter_of(view) is not None for view in reader.models.values())

    def choose(self, policy: str, progress: Progress) -> Choice:
        """Choose the documents to embed; by a log, its queries are embedded for that."""
        queries = None
        if policy == QUERY_LOG:
            queries = self.embedder.embed_queries(self._queries(), progress=progress)
        survey = look_over(policy, self.store, self.fitted, queries, progress=progress)
        tally = tally_of(self.embedder, self.options.price)
        return choose_within(self.store, survey, self.budget, policy, tally=tally, seed=self.options.seed)

    def execute(self) -> FittedStitch:
        """Embed what the budget has room for, fit the stitch again on all pairs, and save it."""
        context = self.context
        announce = context.announce
        if self.earlier is not None:
            announce.stitch(self.earlier)
            return self.earlier
        if self.policy == QUERY_LOG:
            announce.log(PlannedModel(self.embedder, context.cap, queries=self._queries()))
        choice = self.choice or self.choose(self.policy, context.progress)
        documents = choice.sample.documents
        announce.choice(choice, PlannedModel(self.embedder, context.cap, documents=lambda: documents, again=_AGAIN))
        if needs_proof(self.embedder):
            self._prove_model()
        self._refit(choice, context.progress).save(self.folder, force=self.options.force)
        # A run that broke off finds the stitch in the folder, so this one goes on with what lies there too
        saved = load_stitch(self.folder)
        announce.stitch(saved)
        return saved

    def _prove_model(self) -> None:
        """Make sure that the model gives the vectors that the stitch was fitted on."""
        sample = self.fitted.sample
        position_of = {doc_id: position for position, doc_id in enumerate(sample.ids)}
        sampled: list[Document] = []
        if position_of:
            sampled = [document for document in self.store.documents() if document.id in position_of]
        vectors = sample.vectors[[position_of[document.id] for document in sampled]]
        # Past the cache, which may have vectors of the host that the stitch was fitted with
        matches(Claim(sampled, vectors), self.embedder, past_cache=True).require(self.store.info.location)

    def _refit(self, choice: Choice, progress: Progress) -> FittedStitch:
        store = self.store
        fitted = self.fitted
        seed = self.options.seed
        query_digests = digests_of(self.log[:MOST_QUERIES])
        true = with_choosers(self.embedder, query_digests).embed_documents(choice.sample.documents, progress=progress)
        claim = Claim(choice.sample.documents, true)
        # Proven once more: the new true vectors stand beside those of the sample, and servers of one name may differ
        matches(claim, self.embedder, past_cache=True).require(store.info.location)
        paid = choice.survey.paid.copy()
        paid[choice.sample.rows] = True
        chosen = {"documents": len(choice.sample.rows), "from query log": choice.from_log}
        choosers = query_digests | choosers_of(fitted.manifest)
        return refit(
            store,
            fitted,
            extended(store, fitted.sample, choice.sample.documents, true),
            np.flatnonzero(paid),
            reader=fitted.reader or fit_reader(store, token_table_of(self.embedder), seed=seed),
            details=StitchFacts(
                reembedding={"asked": self.dependencies, **chosen, "tokens, about": choice.cost.tokens},
                chosen_by=tuple(sorted(choosers)),
            ).as_details(),
            seed=seed,
            progress=progress,
        )


def refit_of(
    options: TranslateOptions,
    store: Store,
    fitted: FittedStitch,
    target: Embedder,
    folder: Path,
    context: RunContext,
) -> Refit:
    """Return the stitch that is to come of a budget, after making sure that it can be spent.

    A stitch that the same call has left in `folder` before is taken as it is.

    Raises UsageError: the policy cannot be followed; or the folder of the stitch holds something else, and `force` is
    not given. StitchError: the stitch was fitted for another store or another model, or is one for queries. StoreError:
    the store has no texts, or is not the one of its manifest.
    """
    budget = Budget.parse(str(options.reembed))
    log = log_of(options.query_log)
    policy = choose_policy(options.policy, fitted, has_log=bool(log))
    check_files(store)
    require_texts(store)
    target.fit(store.documents())
    _check_same(store, fitted, target)
    log_digest = None
    if log:
        log_digest = sha256_json([query.text for query in log[:MOST_QUERIES]])
    # As JSON holds them: they are compared with those in the manifest of an earlier stitch
    dependencies = {
        "budget": str(budget),
        "policy": policy,
        "price": options.price,
        "seed": options.seed,
        "model": target.cache_scope("document"),
        "query log": log_digest,
        "stitch": fitted.digest(),
        "store": sha256_json(store.snapshot().as_json()),
    }
    earlier = None
    if not options.force:
        earlier = _earlier(folder, dependencies)
    if earlier is None:
        refuse_existing(folder, force=options.force)
    refit = Refit(
        options=options,
        context=context,
        store=store,
        fitted=fitted,
        folder=folder,
        budget=budget,
        embedder=context.cap.meter(target, options.price),
        log=log,
        policy=policy,
        dependencies=dependencies,
        earlier=earlier,
    )
    if earlier is not None or refit.asks_to_choose:
        return refit
    return replace(refit, choice=refit.choose(policy, context.progress))


def target_of(options: TranslateOptions, fitted: FittedStitch) -> Embedder:
    """Return the model to embed with: the one that is named, or the one that the stitch leads to."""
    recorded = fitted.manifest.model
    target = options.target
    if isinstance(target, Embedder):
        return target
    state = None
    if options.stitch is not None and not isinstance(options.stitch, FittedStitch):
        state = stitch_folder(options.stitch)
    if target is None and recorded is None:
        raise UsageError("the stitch does not say its model; name it with `target`")
    if target is None and recorded is not None and runs_code(recorded.spec):
        raise UsageError(f"the model of the stitch is {recorded.spec}, whose code is not run; name it with `target`")
    return load_known(target, recorded, state=state)


def with_metered_views(fitted: FittedStitch, cap: SpendingCap) -> FittedStitch:
    """Return the stitch, whose views that may cost money spend under a cap."""
    reader = fitted.reader
    if reader is None:
        return fitted
    models = {spec: cap.meter(view) for spec, view in reader.models.items()}
    return replace(fitted, reader=reader.with_models(models))


def _check_same(store: Store, fitted: FittedStitch, embedder: Embedder) -> None:
    require_direction(fitted.manifest, DOCUMENT, source=store.info.location)
    difference = difference_from(store, fitted.manifest.stitch.fitted_on, store.snapshot())
    if difference is not None:
        raise StitchError(
            f"{store.info.location}: the stitch was fitted on another store ({difference}), whose documents it has "
            "true vectors of; fit one on this store to re-embed by"
        )
    expected = fitted.manifest.model
    actual = embedder.identity
    if expected is not None and expected != actual:
        differences = "; ".join(model_differences(expected, actual).values())
        raise StitchError(
            f"the stitch leads to another model: in its manifest {differences}; name that model, or fit a stitch for "
            "this one"
        )


def _earlier(folder: Path, dependencies: dict[str, Any]) -> FittedStitch | None:
    """Return the stitch in `folder`, if the same call has left it there."""
    if not (folder / MANIFEST_NAME).is_file():
        return None
    earlier = load_stitch(folder)
    reembedding = earlier.manifest.stitch.reembedding or {}
    if reembedding.get("asked") != dependencies:
        return None
    return earlier
