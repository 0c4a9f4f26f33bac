"""The work of a fit: a sample, embedded, judged, and the stitch fitted on all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from migrate.cost.rates import CALIBRATION_TEXTS, measure_rate
from migrate.cost.spending import SOURCE_MODEL, VIEW, PlannedModel
from migrate.embedders.abilities import TokenTable, state_of, token_table_of
from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.files import sha256_json
from migrate.manifest import Manifest, StitchFacts
from migrate.selection import Pairs, Sample, draw_sample, embed_pairs, random_order
from migrate.selection.choosers import choosers_of, choosers_of_source, digests_of
from migrate.selection.matches import ASKED_AGAIN, Claim, Tolerance, matches
from migrate.steps.base import Job, RunContext
from migrate.steps.fit.inputs import FitInputs, open_inputs, prior_map, reads_texts
from migrate.steps.fit.options import FitOptions
from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import QUERY, FittedStitch, TrueVectors, fit_fallback, fit_norm
from migrate.stitch.linear import Ridge
from migrate.stitch.mixture import find_mixture
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import TriedTokens, TriedViews, select_query_stitch, select_stitch, some_of
from migrate.stitch.text_reader import CORPUS_SIZE, TextReader, view_of
from migrate.stores.base import Store
from migrate.threads import threads_for
from migrate.vectors import Document, Progress, check_vectors, no_progress

_COMPARED: Final = 2 * ASKED_AGAIN
"""Documents of the sample by which a view is held against the target: most must agree, and a few may be cut off."""

_OF_ANOTHER_HOST: Final = Tolerance(1e-2)
"""A model that is run in two ways, with other weights or cut off elsewhere, is one model to a stitch."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FitJob(Job[FittedStitch]):
    """A fit whose store and models are open.

    Attributes
    ----------
    sample
        The documents to fit on; None where the source model is asked which ones the log finds.
    """

    options: FitOptions
    inputs: FitInputs
    sample: Sample | None

    def execute(self) -> FittedStitch:
        """Embed the sample, judge the candidates on it, and fit the chosen one on all."""
        check_stored_vectors(self.options, self.inputs)  # before a log is embedded to draw the sample
        sample = draw(self.options, self.inputs) if self.sample is None else self.sample
        return fit(self.options, self.inputs, sample)


def open_fit(options: FitOptions, context: RunContext) -> FitJob:
    """Open what a fit names, as it is by itself. Nothing is embedded."""
    return fit_job(options, open_inputs(options, context))


def fit_job(options: FitOptions, inputs: FitInputs) -> FitJob:
    """Return the fit of what is open. Nothing is embedded."""
    log = inputs.log
    asks_model = log is not None and log.embedder is not None
    sample = None if asks_model else draw(options, inputs)
    documents = partial(expected_documents, options, inputs, sample)
    models = [PlannedModel(inputs.embedder, inputs.context.cap, documents=documents, again=ASKED_AGAIN)]
    if log is not None and log.embedder is not None:
        models.append(PlannedModel(log.embedder, inputs.context.cap, SOURCE_MODEL, queries=log.looked_up))
    models += [PlannedModel(view, inputs.context.cap, VIEW, documents=documents) for view in inputs.views.values()]
    return FitJob(options=options, context=inputs.context, models=tuple(models), inputs=inputs, sample=sample)


def expected_documents(options: FitOptions, inputs: FitInputs, sample: Sample | None) -> Sequence[Document]:
    """Return the documents of the sample, or as many others where drawing it asks a model."""
    if sample is None:
        sample = draw_sample(inputs.store, options.sample, seed=options.seed)
    return sample.documents


def draw(options: FitOptions, inputs: FitInputs) -> Sample:
    """Choose the documents to fit on; those of an earlier stitch, which are paid for, come first."""
    earlier = inputs.grown_from
    return draw_sample(
        inputs.store,
        options.sample,
        strategy=options.strategy,
        query_log=inputs.log,
        paid=() if earlier is None else earlier.sample.ids,
        seed=options.seed,
        progress=inputs.context.progress,
    )


def fit(options: FitOptions, inputs: FitInputs, sample: Sample) -> FittedStitch:
    """Embed a sample, judge the candidates on it, and fit the chosen one on all."""
    seed, progress = options.seed, inputs.context.progress
    store, embedder = inputs.store, inputs.embedder
    if store.info.has_texts:
        embedder.fit(store.documents())
    log = digests_of(inputs.log.looked_up if inputs.log else ())
    pairs = embed_pairs(store, with_choosers(embedder, log), sample, progress=progress)
    chosen_by = log | choosers_of_source(store, embedder, pairs.source, pairs.target)
    manifest = _manifest(options, inputs, sample, chosen_by)
    state = dict(state_of(embedder))
    with threads_for(len(pairs.source)):
        mixture = find_mixture(pairs.source, pairs.target, seed=seed)
    if options.direction == QUERY:
        fitted = fit_query_pairs(pairs, options.specs, manifest=manifest, state=state, seed=seed, progress=progress)
        return replace(fitted, selection=replace(fitted.selection, mixture=mixture))
    views, targets = dict(inputs.views), list[str]()
    if not inputs.named:  # a view that nobody named, and that is the target in disguise, is none
        new = Claim(sample.documents, pairs.target, _OF_ANOTHER_HOST)
        targets = [spec for spec, view in views.items() if matches(new, view, _COMPARED).is_mostly_right]
        views = {spec: view for spec, view in views.items() if spec not in targets}
    texts = [document.text for document in sample.documents]
    reader, tokens = None, None
    if store.info.has_texts and reads_texts(options.specs):
        with threads_for(len(pairs.source)):
            reader = fit_reader(store, token_table_of(embedder), views, seed=seed)
            if inputs.free is not None and reader.pieces is None:
                reader, tokens = _with_free_tokens(inputs, reader, pairs, texts, seed=seed)
    fitted = fit_pairs(
        pairs,
        options.specs,
        manifest=manifest,
        state=state,
        seed=seed,
        texts=texts,
        reader=reader,
        prior=None if inputs.prior is None else prior_map(inputs.prior),
        trial=None if inputs.named else store.info.count,
        progress=progress,
    )
    tried = fitted.selection.tried
    if tried is not None and tried.helps and not tried.is_used:
        tried = replace(tried, minutes=_minutes(views[tried.specs[0]], store, sample))
    fitted = replace(fitted, selection=replace(fitted.selection, tokens=tokens, tried=tried, mixture=mixture))
    if targets:
        selection = fitted.selection
        overlap = selection.best.scores.overlap_at_10
        tried = TriedViews(tuple(targets), 1.0, overlap, helps=False, documents=store.info.count, is_target=True)
        fitted = replace(fitted, selection=replace(selection, tried=tried))
    return fitted if fitted.reader is None else replace(fitted, reader=fitted.reader.with_models(inputs.given))


def check_stored_vectors(options: FitOptions, inputs: FitInputs) -> None:
    """Make sure, before anything is paid for, that the store holds no vector that `translate` would refuse.

    One whose queries are mapped stays as it is: of its vectors some may be zero.
    """
    store = inputs.store
    start = 0
    for batch in store.scan():
        inputs.context.progress("check the vectors", start, store.info.count)
        check_vectors(batch.ids, batch.vectors, source=store.info.location, allow_zero=options.direction == QUERY)
        start += len(batch)


def _minutes(model: Embedder, store: Store, sample: Sample) -> float | None:
    """Return how long a local model takes for all of a store, by a few documents that it has not embedded yet."""
    order = random_order(store, 0)
    unseen = order[~np.isin(order, sample.rows)][:CALIBRATION_TEXTS]
    documents = list(store.documents(np.sort(unseen)))
    rate = measure_rate(model, documents).requests_per_min if documents else None
    return None if rate is None else store.info.count / rate


def _manifest(options: FitOptions, inputs: FitInputs, sample: Sample, chosen_by: frozenset[str]) -> Manifest:
    store = inputs.store
    earlier = choosers_of(*(stitch.manifest for stitch in (inputs.grown_from, inputs.prior) if stitch is not None))
    return Manifest(
        kind="stitch",
        model=inputs.embedder.identity,
        source_model=inputs.source_model,
        seed=options.seed,
        counts={"pairs": len(sample.rows), "documents": store.info.count},
        details=StitchFacts(
            fingerprint=store.snapshot().fingerprint,
            direction=options.direction,
            sample={"strategy": sample.strategy, "from query log": sample.from_log},
            texts=store.info.has_texts,
            chosen_by=tuple(sorted(earlier | chosen_by)),
            prior=None if inputs.prior is None else inputs.prior.digest(),
            request=request_of(options, inputs),
        ).as_details(),
    )


def request_of(options: FitOptions, inputs: FitInputs) -> str:
    """Return the SHA-256 of what a fit reads and its options: two that have it in common give the same stitch.

    The embedder knows the words of the store by then.
    """
    stitches = {"prior": inputs.prior, "grown from": inputs.grown_from}
    return sha256_json(
        {
            "store": inputs.store.snapshot().fingerprint,
            "model": inputs.embedder.cache_scope("document"),
            "source model": None if inputs.source_model is None else asdict(inputs.source_model),
            "direction": options.direction,
            "stitch": options.specs,
            "sample": options.sample,
            "strategy": options.strategy,
            "seed": options.seed,
            "query log": None if inputs.log is None else inputs.log.digest(),
            "views": {spec: view.cache_scope("document") for spec, view in inputs.views.items()},
            **{name: None if stitch is None else stitch.digest() for name, stitch in stitches.items()},
        }
    )


def fit_pairs(
    pairs: Pairs,
    specs: Sequence[str],
    *,
    manifest: Manifest,
    state: dict[str, bytes],
    seed: int,
    texts: Sequence[str] = (),
    reader: TextReader | None = None,
    prior: AffineMap | None = None,
    trial: int | None = None,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Choose among `specs` (none, or `auto`: all that apply) on held-out pairs, and fit the chosen one on all pairs.

    `texts` are those of the pairs; without a `reader` no stitch can read them. One that does gets a fallback that does
    not. Models of the reader that the chosen stitch does not use are left out of it. `prior` is what a ridge may lean
    on. With `trial`, the number of documents of the store, further models are used only where they help beyond the
    error of what is measured, and where no more than `MOST_VIEWED` documents would have to be embedded with them.
    """
    read = None if reader is None else reader.read(texts)
    pairing = Pairing(pairs.source, pairs.target, read, seed).in_own_order()
    sample = TrueVectors(pairs.ids, pairs.target, pairs.copies)
    norm = fit_norm(pairs.target)
    with threads_for(len(pairing)):
        tuned = {} if prior is None else {Ridge.kind: _leaning_ridge(pairing, prior)}
        select = partial(select_stitch, specs=specs, tuned=tuned, progress=progress)
        selection = select(pairing)
        tried = [] if reader is None or trial is None else list(reader.models)
        if tried and trial is not None:
            bare = pairing.without_views(map(view_of, tried))
            plain = select(bare)
            views = TriedViews.compare(tuple(tried), selection, plain, documents=trial)
            pairing, selection = (pairing, selection) if views.is_used else (bare, plain)
            selection = replace(selection, tried=views)
        fitted = pairing.fit(selection.stitch or new_stitch(selection.chosen))
        fallback = fit_fallback(pairing, selection) if fitted.reads_texts else None
    if fallback is None or reader is None:
        return FittedStitch(fitted, norm, sample, selection, manifest, state)
    return FittedStitch(fitted, norm, sample, selection, manifest, state, reader.for_stitch(fitted), fallback)


def _leaning_ridge(pairs: Pairing, prior: AffineMap) -> Ridge:
    """Return a ridge that leans on a prior as far as these pairs show that it helps."""
    judged = some_of(pairs)
    return Ridge(prior=prior).tuned(judged.source, judged.target)


def _with_free_tokens(
    inputs: FitInputs, plain: TextReader, pairs: Pairs, texts: Sequence[str], *, seed: int
) -> tuple[TextReader, TriedTokens | None]:
    """Return the reader, with the token embeddings of the free local model if the texts alone find more by them."""
    free = inputs.free
    table = None if free is None else token_table_of(free)
    if free is None or table is None:
        return plain, None
    reader = fit_reader(inputs.store, table, plain.models, seed=seed)
    # Other models embed texts, and would say the same of both
    with_tokens, bare = (
        Pairing(pairs.source, pairs.target, replace(one, models={}).read(texts), seed).in_own_order()
        for one in (reader, plain)
    )
    tried = TriedTokens.compare(free.profile.spec, with_tokens, bare)
    return (reader if tried.is_used else plain), tried


def fit_reader(
    store: Store,
    table: TokenTable | None,
    views: Mapping[str, Embedder] | None = None,
    *,
    seed: int = 0,
) -> TextReader:
    """Learn what stitches need that read texts, from up to `CORPUS_SIZE` texts of the store, and from a token table."""
    rows = random_order(store, seed)[:CORPUS_SIZE]
    texts = [document.text for document in store.documents(rows)]
    return TextReader.fit(texts, table, models=dict(views or {}), seed=seed)


def fit_query_pairs(
    pairs: Pairs,
    specs: Sequence[str],
    *,
    manifest: Manifest,
    state: dict[str, bytes],
    seed: int,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Fit the other way round: from the new vectors of the sample to the old ones, without their texts."""
    pairing = Pairing(pairs.target, pairs.source, seed=seed).in_own_order()
    with threads_for(len(pairing)):
        selection = select_query_stitch(pairing, specs=specs, progress=progress)
        fitted = new_stitch(selection.chosen).fit(pairing.source, pairing.target)
    none = TrueVectors([], pairs.source[:0])  # what is true in the old space is in the store already
    return FittedStitch(fitted, fit_norm(pairs.source), none, selection, manifest, state)
