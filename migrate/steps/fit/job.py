"""The work of a fit: a sample, embedded, judged, and the stitch fitted on all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from migrate.cost.rates import CALIBRATION_TEXTS, measure_rate
from migrate.cost.spending import SOURCE_MODEL, VIEW, PlannedModel
from migrate.embedders.abilities import TokenTable, held_by, state_of, token_table_of
from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.files import sha256_json
from migrate.manifest import Manifest, StitchFacts
from migrate.progress import one_step
from migrate.selection import Pairs, Sample, draw_sample, embed_pairs, random_order
from migrate.selection.choosers import choosers_of, choosers_of_source, digests_of
from migrate.selection.model_match import ASKED_AGAIN, Claim, Tolerance, matches
from migrate.steps.base import Job, RunContext
from migrate.steps.fit.inputs import FitInputs, open_inputs, prior_map, reads_texts
from migrate.steps.fit.options import FitOptions
from migrate.steps.fit.words import FEWEST_PAIRS, store_words
from migrate.steps.fit.words import ROLE as WORDS
from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import DOCUMENT, QUERY, FittedStitch, TrueVectors, fit_fallback, fit_norm
from migrate.stitch.linear import Ridge
from migrate.stitch.mixture import find_mixture
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import TriedTokens, TriedViews, TriedWords, select_query_stitch, select_stitch, some_of
from migrate.stitch.text_reader import CORPUS_SIZE, TextReader, view_of
from migrate.stores.base import Store
from migrate.threads import threads_for
from migrate.vectors import Document, Progress, Vectors, check_vectors, no_progress

_COMPARED: Final = 2 * ASKED_AGAIN
"""Documents of the sample by which a view is held against the target: most must agree, and a few may be cut off."""

_PAIRS_FOR_OUTPUTS: Final = 500
"""Pairs from which on each word piece is embedded by the target: that takes as long as some hundred documents."""

_OF_ANOTHER_HOST: Final = Tolerance(1e-2)
"""A model that is run in two ways, with other weights or cut off elsewhere, is one model to a stitch."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FitJob(Job[FittedStitch]):
    """A fit whose store and models are open.

    Attributes
    ----------
    sample
        The documents to fit on; None where the source model is asked which ones the log finds, or a file of vectors
        which ones it holds.
    """

    options: FitOptions
    inputs: FitInputs
    sample: Sample | None

    def execute(self) -> FittedStitch:
        """Embed the sample, judge the candidates on it, and fit the chosen one on all."""
        # Before a log is embedded to draw the sample
        check_stored_vectors(self.options, self.inputs)
        sample = self.sample
        if sample is None:
            sample = draw(self.options, self.inputs)
        return fit(self.options, self.inputs, sample)


def open_fit(options: FitOptions, context: RunContext) -> FitJob:
    """Open what a fit names, as it is by itself. Nothing is embedded."""
    return fit_job(options, open_inputs(options, context))


def fit_job(options: FitOptions, inputs: FitInputs) -> FitJob:
    """Return the fit of what is open. Nothing is embedded."""
    log = inputs.log
    sample = None
    # A log that a model embeds is paid for, and nothing is spent before the estimate was agreed to; a file of vectors
    # may be of gigabytes, and is not read for a plan
    asks_model = log is not None and log.embedder is not None
    if not asks_model and held_by(inputs.embedder) is None:
        sample = draw(options, inputs)
    documents = partial(expected_documents, options, inputs, sample)
    models = [PlannedModel(inputs.embedder, inputs.context.cap, documents=documents, again=ASKED_AGAIN)]
    if log is not None and log.embedder is not None:
        models.append(PlannedModel(log.embedder, inputs.context.cap, SOURCE_MODEL, queries=log.looked_up))
    models += [PlannedModel(view, inputs.context.cap, VIEW, documents=documents) for view in inputs.views.values()]
    if reads_words(options, inputs):
        texts = partial(expected_words, options, inputs, sample)
        models.append(PlannedModel(inputs.embedder, inputs.context.cap, WORDS, documents=texts))
    return FitJob(options=options, context=inputs.context, models=tuple(models), inputs=inputs, sample=sample)


def expected_documents(options: FitOptions, inputs: FitInputs, sample: Sample | None) -> Sequence[Document]:
    """Return the documents of the sample, or as many others where drawing it asks a model."""
    if sample is None:
        sample = draw_sample(inputs.store, options.sample, seed=options.seed)
    return sample.documents


def reads_words(options: FitOptions, inputs: FitInputs) -> bool:
    """Return whether words of the store are embedded."""
    profile = inputs.embedder.profile
    # The word pieces of a local model are at hand, and words add nothing to these (`benchmarks/models.py --words`)
    return (
        options.words > 0
        and not profile.is_local
        and profile.embeds_new_texts
        and options.direction == DOCUMENT
        and inputs.store.info.has_texts
        and min(options.sample, inputs.store.info.count) >= FEWEST_PAIRS
        and reads_texts(options.specs)
    )


def expected_words(options: FitOptions, inputs: FitInputs, sample: Sample | None) -> Sequence[Document]:
    """Return the words of the store that are embedded."""
    documents = expected_documents(options, inputs, sample)
    return store_words(inputs.store, documents, inputs.embedder.profile, options.words, seed=options.seed).texts


def draw(options: FitOptions, inputs: FitInputs) -> Sample:
    """Choose the documents to fit on; those of an earlier stitch, which are paid for, come first."""
    paid: Sequence[str] = ()
    if inputs.grown_from is not None:
        paid = inputs.grown_from.sample.ids
    return draw_sample(
        inputs.store,
        options.sample,
        strategy=options.strategy,
        query_log=inputs.log,
        paid=paid,
        holds=held_by(inputs.embedder),
        seed=options.seed,
        progress=inputs.context.progress,
    )


def fit(options: FitOptions, inputs: FitInputs, sample: Sample) -> FittedStitch:
    """Embed a sample, judge the candidates on it, and fit the chosen one on all."""
    seed = options.seed
    progress = inputs.context.progress
    store = inputs.store
    embedder = inputs.embedder
    if store.info.has_texts:
        embedder.fit(store.documents())
    looked_up = inputs.log.looked_up if inputs.log else ()
    log_digests = digests_of(looked_up)
    pairs = embed_pairs(store, with_choosers(embedder, log_digests), sample, progress=progress)
    chosen_by = log_digests | choosers_of_source(store, embedder, pairs.source, pairs.target)
    manifest = _manifest(options, inputs, sample, chosen_by)
    state = dict(state_of(embedder))
    with threads_for(len(pairs.source)):
        mixture = find_mixture(pairs.source, pairs.target, seed=seed)
    if options.direction == QUERY:
        fitted = fit_query_pairs(pairs, options.specs, manifest=manifest, state=state, seed=seed, progress=progress)
        return replace(fitted, selection=replace(fitted.selection, mixture=mixture))
    targets = _views_of_target(inputs, sample, pairs.target)
    views = {spec: view for spec, view in inputs.views.items() if spec not in targets}
    texts = [document.text for document in sample.documents]
    reader = None
    tokens = None
    vocabulary = None
    if store.info.has_texts and reads_texts(options.specs):
        with threads_for(len(pairs.source)):
            table = token_table_of(embedder)
            reader = fit_reader(store, table, views, seed=seed)
            if table is not None and len(pairs.source) >= _PAIRS_FOR_OUTPUTS:
                reader = _with_better_tokens(reader, table, pairs, texts, seed=seed, progress=progress)
            if inputs.free is not None and reader.pieces is None:
                reader, tokens = _with_free_tokens(inputs, reader, pairs, texts, seed=seed)
            reader, vocabulary = _with_words(options, inputs, reader, pairs, sample.documents)
    prior = None
    if inputs.prior is not None:
        prior = prior_map(inputs.prior)
    fitted = fit_pairs(
        pairs,
        options.specs,
        manifest=manifest,
        state=state,
        seed=seed,
        texts=texts,
        reader=reader,
        prior=prior,
        # Models that a person named are used as asked, and not tried
        trial=None if inputs.named else store.info.count,
        progress=progress,
    )
    tried = fitted.selection.tried
    if tried is not None and tried.helps and not tried.is_used:
        tried = replace(tried, minutes=_minutes(views[tried.specs[0]], store, sample))
    fitted = replace(
        fitted, selection=replace(fitted.selection, tokens=tokens, vocabulary=vocabulary, tried=tried, mixture=mixture)
    )
    if targets:
        selection = fitted.selection
        overlap = selection.best.scores.overlap_at_10
        tried = TriedViews(tuple(targets), 1.0, overlap, helps=False, documents=store.info.count, is_target=True)
        fitted = replace(fitted, selection=replace(selection, tried=tried))
    if fitted.reader is None:
        return fitted
    # Without the meters of this fit: the stitch goes on to runs with caps of their own
    return replace(fitted, reader=fitted.reader.with_models(inputs.unmetered_views))


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


def _views_of_target(inputs: FitInputs, sample: Sample, vectors: Vectors) -> list[str]:
    """Return the free views that are the target under another name; `vectors` are the target's of the sample."""
    # Those that a person named are used as asked
    if inputs.named:
        return []
    # With such a view, to translate would be a full re-embed
    of_target = Claim(sample.documents, vectors, _OF_ANOTHER_HOST)
    return [spec for spec, view in inputs.views.items() if matches(of_target, view, _COMPARED).is_mostly_right]


def _minutes(model: Embedder, store: Store, sample: Sample) -> float | None:
    """Return how long a local model takes for all of a store, by a few documents that it has not embedded yet."""
    # Documents of the sample are in the cache by now, and would take no time
    order = random_order(store, 0)
    unseen = order[~np.isin(order, sample.rows)][:CALIBRATION_TEXTS]
    documents = list(store.documents(np.sort(unseen)))
    if not documents:
        return None
    rate = measure_rate(model, documents).requests_per_min
    if rate is None:
        return None
    return store.info.count / rate


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
    named = {"query log": inputs.log, "prior": inputs.prior, "grown from": inputs.grown_from}
    source_model = None
    if inputs.source_model is not None:
        source_model = asdict(inputs.source_model)
    return sha256_json(
        {
            "store": inputs.store.snapshot().fingerprint,
            "model": inputs.embedder.cache_scope("document"),
            "source model": source_model,
            "direction": options.direction,
            "stitch": options.specs,
            "sample": options.sample,
            "strategy": options.strategy,
            "seed": options.seed,
            "words": options.words,
            "views": {spec: view.cache_scope("document") for spec, view in inputs.views.items()},
            **{name: None if value is None else value.digest() for name, value in named.items()},
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
    read = None
    if reader is not None:
        read = reader.read(texts)
    # Not in the order of rows: the same documents in another order give the same folds, and the same choice
    pairing = Pairing(pairs.source, pairs.target, read, seed).in_own_order()
    sample = TrueVectors(pairs.ids, pairs.target, pairs.copies)
    norm = fit_norm(pairs.target)
    with threads_for(len(pairing)):
        tuned = {}
        if prior is not None:
            tuned[Ridge.kind] = _leaning_ridge(pairing, prior)
        select = partial(select_stitch, specs=specs, tuned=tuned, progress=progress)
        selection = select(pairing)
        if reader is not None and reader.models and trial is not None:
            # Each model costs an embedding of the whole store, so it has to find more than the same choice without it
            tried = tuple(reader.models)
            without_views = pairing.without_views(map(view_of, tried))
            plain_selection = select(without_views)
            views = TriedViews.compare(tried, selection, plain_selection, documents=trial)
            if not views.is_used:
                pairing = without_views
                selection = plain_selection
            selection = replace(selection, tried=views)
        fitted = pairing.fit(selection.stitch or new_stitch(selection.chosen))
        fallback = None
        if fitted.reads_texts:
            # The same stitch may be asked for a store without texts
            fallback = fit_fallback(pairing, selection)
    if fallback is None or reader is None:
        return FittedStitch(fitted, norm, sample, selection, manifest, state)
    return FittedStitch(fitted, norm, sample, selection, manifest, state, reader.for_stitch(fitted), fallback)


def _leaning_ridge(pairs: Pairing, prior: AffineMap) -> Ridge:
    """Return a ridge that leans on a prior as far as these pairs show that it helps."""
    judged = some_of(pairs)
    return Ridge(prior=prior).tuned(judged.source, judged.target)


def _with_better_tokens(
    reader: TextReader,
    table: TokenTable,
    pairs: Pairs,
    texts: Sequence[str],
    *,
    seed: int,
    progress: Progress = no_progress,
) -> TextReader:
    """Return the reader with what the target makes of each piece alone, if the texts find more by that."""
    other = reader.with_outputs(table, progress=progress)
    if other is reader:
        return reader
    if TriedTokens.compare("", *_read_by((other, reader), pairs, texts, seed=seed)).is_used:
        return other
    return reader


def _read_by(readers: Iterable[TextReader], pairs: Pairs, texts: Sequence[str], *, seed: int) -> Iterator[Pairing]:
    """The pairs with their texts as each reader reads them; further models would say the same of all."""
    for reader in readers:
        plain = replace(reader, models={})
        yield Pairing(pairs.source, pairs.target, plain.read(texts), seed).in_own_order()


def _with_free_tokens(
    inputs: FitInputs, plain: TextReader, pairs: Pairs, texts: Sequence[str], *, seed: int
) -> tuple[TextReader, TriedTokens | None]:
    """Return the reader, with the token embeddings of the free local model if the texts alone find more by them."""
    free = inputs.free
    table = None if free is None else token_table_of(free)
    if free is None or table is None:
        return plain, None
    reader = fit_reader(inputs.store, table, plain.models, seed=seed)
    with_tokens, bare = _read_by((reader, plain), pairs, texts, seed=seed)
    tried = TriedTokens.compare(free.profile.spec, with_tokens, bare)
    if tried.is_used:
        return reader, tried
    return plain, tried


def _with_words(
    options: FitOptions, inputs: FitInputs, plain: TextReader, pairs: Pairs, documents: Sequence[Document]
) -> tuple[TextReader, TriedWords | None]:
    """Return the reader with words of the store, if more is found by them than by more pairs for as many tokens.

    `documents` are those of the pairs.
    """
    if not reads_words(options, inputs):
        return plain, None
    profile = inputs.embedder.profile
    vocabulary = store_words(inputs.store, documents, profile, options.words, seed=options.seed)
    if not len(vocabulary):
        return plain, None
    reader = vocabulary.read_by(plain, inputs.embedder, progress=inputs.context.progress)
    cost = vocabulary.cost_in_pairs(profile, documents)
    texts = [document.text for document in documents]
    with_words, bare = _read_by((reader, plain), pairs, texts, seed=options.seed)
    tried = TriedWords.compare(len(vocabulary), cost, with_words, bare)
    if tried.is_used:
        return reader, tried
    return plain, tried


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
    with one_step("learn the words of the store"):
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
