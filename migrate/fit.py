"""From a store and a target model to a fitted stitch: planned, priced, and run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from migrate.cost.meter import SpendingCap
from migrate.cost.spending import SOURCE_MODEL, VIEW, PlannedModel, SpendingPlan
from migrate.cost.target import tally_of
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import runs_code, split_prefix
from migrate.embedders.prefix import PrefixEmbedder, first_of, whole_embedder
from migrate.embedders.registry import find_model
from migrate.embedders.weights import has_packaged_model
from migrate.errors import StitchError, StoreError, UsageError
from migrate.manifest import Manifest, ModelIdentity, StitchFacts
from migrate.selection import (
    SAMPLE_SIZE,
    Pairs,
    QueryLog,
    Sample,
    choose_strategy,
    draw_sample,
    embed_pairs,
    random_order,
)
from migrate.selection.choosers import choosers_of, choosers_of_source, digests_of
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import (
    DIRECTIONS,
    DOCUMENT,
    QUERY,
    Direction,
    FittedStitch,
    TrueVectors,
    fit_fallback,
    fit_norm,
    input_dim,
    require_direction,
)
from migrate.stitch.linear import Adjoint, affine_map
from migrate.stitch.prefix import PrefixCost
from migrate.stitch.prior import AffineMap
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import (
    AUTO,
    AUTO_CANDIDATES,
    QUERY_CANDIDATES,
    TriedViews,
    select_query_stitch,
    select_stitch,
)
from migrate.stitch.text_reader import CORPUS_SIZE, TextReader, view_of
from migrate.stores.base import Store
from migrate.stores.file_store import verify_files
from migrate.threads import threads_for
from migrate.vectors import Document, Progress, check_vectors, no_progress, unit_rows

FREE_VIEW = "packaged:all-MiniLM-L6-v2"
"""The free local model that is tried without being asked."""

_COMPARED, _SAME = 16, 0.99
"""Documents of the sample by which a view is held against the target, and the cosine from which on it is the same."""

FEWEST_VIEWED = 100
"""Pairs from which on it is tried: what it adds to fewer cannot be told from chance."""
_LOOKED_UP = 500
"""Documents beside the sample whose first tokens are looked up in the cache, to tell what they still cost."""


@dataclass(frozen=True, slots=True)
class FitOptions:
    """What is fitted, and on which documents.

    Attributes
    ----------
    direction
        `document` maps the store's vectors into the target's space; `query` is the other way round, from the new
        vectors of the sample to the old ones, so that the store as it is can answer queries of the target model: see
        `FittedStitch.map_queries`. Texts are embedded then, but the stitch does not read them.
    stitch
        A spec (`ridge`, `lowrank:64`), `auto` for all that apply, or several of these: held-out retrieval then chooses
        among them.
    size, strategy, query_log
        Which documents make the sample, as in `draw_sample`.
    source_model
        Recorded in the manifest; by default what the store's manifest says.
    views
        Further models, by their specs, whose vectors a stitch that reads texts may use. A translation embeds every text
        with them. By default, None, a free local model is tried where one is installed and the target may cost money:
        see `free_views`.
    prior
        A stitch of the same two models from another corpus, which the fit may lean on.
    prefix
        The target embeds the first `prefix` tokens of the sample too, and a stitch may lean on these. One that does
        is chosen where it should keep more than the same tokens spent on a larger sample; a translation then embeds
        the first tokens of every text. A view of `prefix:TOKENS:TARGET` is the same.
    grown_from
        The stitch that was fitted before the store grew: the documents of its sample, which are paid for, come first.
    seed
        Of the sample and of what is random in a fit.
    """

    direction: Direction = DOCUMENT
    stitch: str | Sequence[str] = AUTO
    size: int = SAMPLE_SIZE
    strategy: str | None = None
    query_log: QueryLog | None = None
    source_model: ModelIdentity | None = None
    views: Mapping[str, Embedder] | None = None
    prior: FittedStitch | None = None
    prefix: int | None = None
    grown_from: FittedStitch | None = None
    seed: int = 0

    @property
    def specs(self) -> tuple[str, ...]:
        """The stitches to choose among."""
        return (self.stitch,) if isinstance(self.stitch, str) else tuple(self.stitch)

    @property
    def searches_log(self) -> bool:
        """Whether drawing the sample embeds the queries of a log."""
        return self.query_log is not None and self.query_log.embedder is not None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FitPlan(SpendingPlan[FittedStitch]):
    """A fit that is still to be done; the target, the log's model and the views have meters in them.

    `base` is the target, given the first tokens of each document, where these are to be tried. `given` are the models
    without meters that the stitch keeps to read texts with: what it embeds later is paid for then.
    """

    store: Store
    embedder: Embedder
    options: FitOptions
    views: Mapping[str, Embedder]
    base: PrefixEmbedder | None = None
    given: Mapping[str, Embedder] = field(default_factory=dict)
    _samples: list[Sample] = field(default_factory=list, init=False, repr=False)

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target and the views, for the sample; the source model, for the query log."""
        log, views = self.options.query_log, self.views
        searched = [] if log is None or log.embedder is None else [(log.embedder, log.looked_up)]
        return (
            PlannedModel(self.embedder, self.cap, documents=self._target_texts),
            *(PlannedModel(model, self.cap, SOURCE_MODEL, queries=queries) for model, queries in searched),
            *(PlannedModel(view, self.cap, VIEW, documents=self.expected_documents) for view in views.values()),
        )

    def sample(self, *, progress: Progress = no_progress) -> Sample:
        """The documents to fit on, drawn once; drawing them by a log may ask the source model."""
        if not self._samples:
            options = self.options
            self._samples.append(
                draw_sample(
                    self.store,
                    options.size,
                    strategy=options.strategy,
                    query_log=options.query_log,
                    paid=() if options.grown_from is None else options.grown_from.sample.ids,
                    seed=options.seed,
                    progress=progress,
                )
            )
        return self._samples[0]

    def expected_documents(self) -> Sequence[Document]:
        """The documents of the sample, or as many others where drawing it would ask a model."""
        if self.options.searches_log and not self._samples:
            return draw_sample(self.store, self.options.size, seed=self.options.seed).documents
        return self.sample().documents

    def _target_texts(self) -> Iterator[Document]:
        """The sample, and its first tokens where these are tried."""
        documents = self.expected_documents()
        yield from documents
        if self.base is not None:
            yield from first_of(documents, self.embedder.profile.counter, self.base.tokens)

    def execute(self, progress: Progress) -> FittedStitch:
        """Embed the sample, judge the candidates on it, and fit the chosen one on all."""
        store, embedder, options = self.store, self.embedder, self.options
        _check_vectors(store, options.direction, progress)
        if store.info.has_texts:
            embedder.fit(store.documents())
        sample = self.sample(progress=progress)
        asked = digests_of(options.query_log.looked_up if options.query_log else ())
        pairs = embed_pairs(store, embedder.chosen_by(asked), sample, progress=progress)
        chosen_by = asked | choosers_of_source(store, embedder, pairs.source, pairs.target)
        manifest, state = _manifest(store, embedder, sample, options, chosen_by), dict(embedder.state())
        specs, seed = options.specs, options.seed
        if options.direction == QUERY:
            return fit_query_pairs(pairs, specs, manifest=manifest, state=state, seed=seed, progress=progress)
        reads = store.info.has_texts and _may_read_texts(specs)
        views, targets = dict(self.views), list[str]()
        if options.views is None:  # nobody asked for a view: one that is the target in disguise is none
            targets = [spec for spec, view in views.items() if gives_vectors(view, sample.documents, pairs)]
            views = {spec: view for spec, view in views.items() if spec not in targets}
        with threads_for(len(pairs.source)):
            reader = fit_reader(store, embedder, views, self.base, seed=seed) if reads else None
        fitted = fit_pairs(
            pairs,
            specs,
            manifest=manifest,
            state=state,
            seed=seed,
            texts=[document.text for document in sample.documents],
            reader=reader,
            prior=None if options.prior is None else _prior_map(options.prior),
            trial=None if options.views is not None else store.info.count,
            prefix=None if self.base is None else self._prefix_cost(self.base, sample),
            progress=progress,
        )
        if targets:
            found = fitted.selection
            overlap = found.best.scores.overlap_at_10
            tried = TriedViews(tuple(targets), 1.0, overlap, helps=False, documents=store.info.count, is_target=True)
            fitted = replace(fitted, selection=replace(found, tried=tried))
        return fitted if fitted.reader is None else replace(fitted, reader=fitted.reader.with_models(self.given))

    def _prefix_cost(self, base: PrefixEmbedder, sample: Sample) -> PrefixCost:
        """What the first tokens of the store cost, by those of the sample and by what others have in the cache."""
        tally = tally_of(self.embedder)
        cut = first_of(sample.documents, self.embedder.loaded_profile().counter, base.tokens)
        whole, first = tally.cost(sample.documents).tokens, tally.cost(cut).tokens
        order = np.random.default_rng(self.options.seed).permutation(self.store.info.count)
        outside = order[~np.isin(order, sample.rows)][:_LOOKED_UP]
        looked_up = list(self.store.documents(np.sort(outside)))
        unpaid = 1 - sum(base.known(looked_up, "document")) / max(len(looked_up), 1)
        count = self.store.info.count
        return PrefixCost(base.tokens, round(unpaid * count * first / max(whole, 1)), count)


def plan_fit(
    store: Store,
    embedder: Embedder,
    options: FitOptions | None = None,
    *,
    price_usd_per_mtok: float | None = None,
    cap: SpendingCap | None = None,
) -> FitPlan:
    """Plan to embed a sample of the store with the target model, and to fit a stitch on it. Nothing is embedded.

    The sample that `estimate` counts is the one that is fitted on, unless drawing it asks the model of a query log.
    A store without texts can be fitted with an embedder that does without, which a file of vectors by id does. The
    stitch then reads the old vectors alone; what that costs is nothing that such a store could tell.

    `price_usd_per_mtok`, of the target, is by default the registry's; `cap` is shared with other plans.

    Raises
    ------
    StoreError
        The store has no texts, and the embedder or the stitch reads them; or it is not the one of its manifest.
    UsageError
        No such stitch, or none for that direction; a strategy that `draw_sample` does not take; or a target model that
        is given the first tokens of documents only.
    StitchError
        The prior is for other models.
    """
    options, cap = options or FitOptions(), cap or SpendingCap()
    options, tokens = _split_views(options, embedder)
    choose_strategy(options.strategy, has_log=options.query_log is not None)
    verify_files(store)
    require_texts(store, embedder)
    _check_whole(embedder)
    _check_choice(options.specs, options.direction)
    named = options.views or {}
    _check_views(named, options.specs, options.direction, target=embedder.profile.spec)
    _check_texts(store, options.specs, named)
    _check_prior(store, embedder, options)
    _check_grown(store, embedder, options)
    _check_prefix(store, options, tokens)
    chosen = free_views(store, embedder, options) if options.views is None else named
    views = {spec: cap.meter(view) for spec, view in chosen.items()}
    log = options.query_log
    if log is not None and log.embedder is not None:
        log = replace(log, embedder=cap.meter(log.embedder))
    metered, target = replace(options, query_log=log), cap.meter(embedder, price_usd_per_mtok)
    base, embedders = None, dict(chosen)
    if tokens is not None:
        base, bare = PrefixEmbedder(target, tokens), PrefixEmbedder(embedder, tokens)
        embedders[bare.profile.spec] = bare
    return FitPlan(store=store, embedder=target, options=metered, views=views, base=base, given=embedders, cap=cap)


def free_views(store: Store, embedder: Embedder, options: FitOptions) -> dict[str, Embedder]:
    """The free local model that a fit tries without being asked, by its spec; none where it would be of no use.

    That is where the target may cost money, so that its own tokens are not at hand, where a stitch is chosen by `auto`
    and may read texts, where there are `FEWEST_VIEWED` documents to judge it on, and where the store was not built
    with that very model.
    """
    if options.direction != DOCUMENT or not store.info.has_texts or AUTO not in options.specs:
        return {}
    if embedder.profile.is_paid is False or min(options.size, store.info.count) < FEWEST_VIEWED:
        return {}
    recorded = store.info.manifest
    source = options.source_model or (recorded.model if recorded else None)
    if source is not None and find_model(source.spec.partition(":")[2]) == find_model(FREE_VIEW.partition(":")[2]):
        return {}
    return {FREE_VIEW: load_embedder(FREE_VIEW)} if has_packaged_model() else {}


def gives_vectors(model: Embedder, documents: Sequence[Document], pairs: Pairs) -> bool:
    """Return whether a model gives the target's vectors of a sample, by a few of its documents: it is the target."""
    targets = dict(zip(pairs.ids, pairs.target, strict=True))
    some = [document for document in documents if document.id in targets][:_COMPARED]
    own, theirs = model.embed_documents(some), np.stack([targets[document.id] for document in some])
    if own.shape != theirs.shape:
        return False
    cosines = np.einsum("ij,ij->i", unit_rows(own), unit_rows(theirs))
    return bool(np.median(cosines) > _SAME)  # one of the two may cut long texts earlier


def fit_stitch(store: Store, embedder: Embedder, *, progress: Progress = no_progress, **options: Any) -> FittedStitch:
    """Plan a fit with `FitOptions` of these names, and run it without a cap.

    Raises
    ------
    LeadMigrateError
        As `plan_fit`; as the embedders and `draw_sample`; a StitchError where there are fewer than two documents; a
        VectorError where a vector of the store is not finite, or zero and to be translated.
    """
    return plan_fit(store, embedder, FitOptions(**options)).run(progress=progress)


def _check_vectors(store: Store, direction: Direction, progress: Progress) -> None:
    """Make sure, before anything is paid for, that the store holds no vector that `translate` would refuse.

    One whose queries are mapped stays as it is: of its vectors some may be zero.
    """
    start = 0
    for batch in store.scan():
        progress("check the vectors", start, store.info.count)
        check_vectors(batch.ids, batch.vectors, source=store.info.location, allow_zero=direction == QUERY)
        start += len(batch)


def _split_views(options: FitOptions, embedder: Embedder) -> tuple[FitOptions, int | None]:
    """The options without views that are first tokens by the target, and how many tokens these are."""
    target = embedder.profile.spec
    named = options.views or {}
    lengths = {spec: tokens for spec in named for tokens, model in [split_prefix(spec)] if tokens and model == target}
    token_counts = {*lengths.values(), *([] if options.prefix is None else [options.prefix])}
    if len(token_counts) > 1:
        raise UsageError(f"expected one number of first tokens, found {sorted(token_counts)}; name one --prefix")
    views = None if options.views is None else {spec: view for spec, view in named.items() if spec not in lengths}
    tokens = token_counts.pop() if token_counts else None
    return replace(options, views=views, prefix=tokens), tokens


def _check_prefix(store: Store, options: FitOptions, tokens: int | None) -> None:
    """Make sure that first tokens can be had where a stitch reads them, and that one does where they are."""
    named = [spec for spec in _named(options.specs) if new_stitch(spec).reads_prefix]
    if tokens is None:
        if named:
            raise UsageError(
                f"the {named[0]} stitch reads the first tokens of texts; say how many, such as --prefix 24"
            )
        return
    if options.direction == QUERY or not (named or not options.specs or AUTO in options.specs):
        raise UsageError("--prefix is for stitches that read first tokens, such as --stitch prefix+text; leave it out")
    if not store.info.has_texts:
        raise StoreError(
            f"{store.info.location}: expected texts, whose first tokens --prefix embeds, found vectors only; "
            f"{store.info.way_to_texts}, or leave out --prefix"
        )


def _check_choice(specs: Sequence[str], direction: Direction) -> None:
    """Make sure that there are such stitches, and that they are for that direction."""
    if direction not in DIRECTIONS:
        raise UsageError(f"expected a direction among {', '.join(DIRECTIONS)}; found {direction!r}")
    for spec in _named(specs):
        stitch = new_stitch(spec)
        suits = not stitch.reads_texts if direction == QUERY else stitch.kind != Adjoint.kind
        if not suits:
            candidates = ", ".join(QUERY_CANDIDATES if direction == QUERY else AUTO_CANDIDATES)
            raise UsageError(f"expected a stitch that maps a {direction}, such as {candidates}; found {spec!r}")


def _named(specs: Sequence[str]) -> list[str]:
    return [spec for spec in specs if spec != AUTO]


def _may_read_texts(specs: Sequence[str]) -> bool:
    return not specs or AUTO in specs or any(new_stitch(spec).reads_texts for spec in specs)


def _check_views(views: Mapping[str, Embedder], specs: Sequence[str], direction: Direction, *, target: str) -> None:
    """Make sure that further models can be asked again when a store is translated, and that somebody reads them."""
    for spec, view in views.items():
        if spec == target:
            raise UsageError(
                f"--view {spec} is the target itself: a translation that embeds every text with it is a full re-embed; "
                "use `reembed`, or leave it out"
            )
        if not view.profile.embeds_new_texts:
            raise UsageError(f"expected a model that embeds any text for --view, found {spec!r}; choose a local one")
        if runs_code(spec):
            raise UsageError(
                f"expected a model that a stitch may load by itself for --view, found {spec!r}, which names code to "
                "run; choose another kind"
            )
    if views and (direction == QUERY or not _may_read_texts(specs)):
        raise UsageError("--view is for stitches that read texts, such as --stitch ridge+text; leave it out")


def _check_whole(embedder: Embedder) -> None:
    """Make sure that the target model is given whole documents: a stitch leads to the space of these."""
    whole = whole_embedder(embedder)
    if whole is not embedder:
        raise UsageError(
            f"expected a model that is given whole documents to move to, found {embedder.profile.spec!r}; name "
            f"{whole.profile.spec}"
        )


def _check_texts(store: Store, specs: Sequence[str], views: Mapping[str, Embedder]) -> None:
    """Make sure that stitches that were asked for by name have what they read."""
    if store.info.has_texts:
        return
    path, remedy = store.info.location, f"{store.info.way_to_texts}, or leave out"
    for spec in _named(specs):
        if new_stitch(spec).reads_texts:
            raise StoreError(f"{path}: the {spec} stitch reads texts, found a store without; {remedy} --stitch {spec}")
    if views:
        raise StoreError(f"{path}: expected texts for --view to be read with, found vectors only; {remedy} --view")


def _check_prior(store: Store, embedder: Embedder, options: FitOptions) -> None:
    """Make sure that a prior leads from the store's model to the target."""
    if options.prior is None:
        return
    if options.direction == QUERY:
        raise UsageError("--prior is for stitches that map documents; leave it out")
    recorded = store.info.manifest
    source = options.source_model or (recorded.model if recorded else None)
    manifest, target = options.prior.manifest, embedder.identity
    require_direction(manifest, DOCUMENT, source="--prior")
    dims, expected = (input_dim(manifest), options.prior.dim), (store.info.dim, target.dim)
    if dims != expected:
        raise StitchError(
            f"expected a prior that leads from {expected[0]} to {expected[1]} dimensions, found one from {dims[0]} to "
            f"{dims[1]}; take a stitch of the same two models"
        )
    for model_of_prior, model in ((manifest.source_model, source), (manifest.model, target)):
        if model_of_prior is not None and model is not None and _differ(model_of_prior, model):
            raise StitchError(
                f"expected a prior of {model.spec} (revision {str(model.revision)[:12]}), found one of "
                f"{model_of_prior.spec} ({str(model_of_prior.revision)[:12]}); take a stitch of the same two models"
            )
    _prior_map(options.prior)


def _check_grown(store: Store, embedder: Embedder, options: FitOptions) -> None:
    """Make sure that the earlier stitch is for this store and target, and that there is room for new documents."""
    earlier = options.grown_from
    if earlier is None:
        return
    require_direction(earlier.manifest, DOCUMENT, source="--grown-from")
    model, dim = earlier.manifest.model, input_dim(earlier.manifest)
    if dim != store.info.dim or (model is not None and _differ(model, embedder.identity)):
        raise StitchError(
            f"--grown-from: expected a stitch from {store.info.dim} dimensions to {embedder.identity.spec}, found one "
            f"from {dim} to {model.spec if model else 'a model that is not named'}; name the stitch of this store"
        )
    if options.size <= len(earlier.sample.ids):
        raise UsageError(
            f"--sample {options.size}: expected more than the {len(earlier.sample.ids):,} documents that the stitch of "
            "--grown-from has true vectors of (they count), so that new ones come in; raise --sample"
        )


def _differ(first: ModelIdentity, second: ModelIdentity) -> bool:
    """Whether two models are different ones, as far as is known: a file of vectors does not name its model."""
    if first.spec.startswith("file:") or second.spec.startswith("file:"):
        return False
    revisions = {model.revision for model in (first, second) if model.revision is not None}
    return len(revisions) > 1 or replace(first, revision=None) != replace(second, revision=None)


def _prior_map(prior: FittedStitch) -> AffineMap:
    """The linear map of a prior: of its fallback, where it reads texts."""
    stitch = prior.without_texts(source="--prior").stitch
    affine = affine_map(stitch, input_dim(prior.manifest))
    if affine is None:
        raise StitchError(f"expected a prior with a linear map, found {stitch.spec}; fit it with --stitch ridge")
    return affine


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
    prefix: PrefixCost | None = None,
    trial: int | None = None,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Choose among `specs` (none, or `auto`: all that apply) on held-out pairs, and fit the chosen one on all pairs.

    `texts` are those of the pairs; without a `reader` no stitch can read them. One that does gets a fallback that does
    not. Models of the reader that the chosen stitch does not use are left out of it. `prior` is what stitches may lean
    on, `prefix` what the first tokens cost that the reader may have. With `trial`, the number of documents of the
    store, further models are used only where they help beyond the error of what is measured, and where no more than
    `MOST_VIEWED` documents would have to be embedded with them.
    """
    read = None if reader is None else reader.read(texts)
    pairing = Pairing(pairs.source, pairs.target, read, seed).in_own_order()
    sample = TrueVectors(pairs.ids, pairs.target, pairs.copies)
    norm = fit_norm(pairs.target)
    with threads_for(len(pairing)):
        select = partial(select_stitch, specs=specs, prior=prior, prefix=prefix, progress=progress)
        selection = select(pairing)
        tried = [] if reader is None or trial is None else [spec for spec in reader.models if spec != reader.base]
        if tried and trial is not None:
            bare = pairing.without_views(map(view_of, tried))
            plain = select(bare)
            views = TriedViews.compare(tuple(tried), selection, plain, documents=trial)
            pairing, selection = (pairing, selection) if views.is_used else (bare, plain)
            selection = replace(selection, tried=views)
        fitted = pairing.fit(selection.stitch or new_stitch(selection.chosen))
        fallback = fit_fallback(pairing, selection, prior=prior) if fitted.reads_texts else None
    if fallback is None or reader is None:
        return FittedStitch(fitted, norm, sample, selection, manifest, state, prior=prior)
    return FittedStitch(fitted, norm, sample, selection, manifest, state, reader.for_stitch(fitted), fallback, prior)


def fit_reader(
    store: Store,
    embedder: Embedder,
    views: Mapping[str, Embedder] | None = None,
    base: PrefixEmbedder | None = None,
    *,
    seed: int = 0,
) -> TextReader:
    """What text-aware stitches learn from the texts of the store, up to `CORPUS_SIZE` of them, and from the target."""
    rows = random_order(store, seed)[:CORPUS_SIZE]
    texts = [document.text for document in store.documents(rows)]
    models, spec = dict(views or {}), None
    if base is not None:
        spec = base.profile.spec
        models[spec] = base
    return TextReader.fit(texts, embedder.token_table(), models=models, base=spec, seed=seed)


def fit_query_pairs(
    pairs: Pairs,
    specs: Sequence[str],
    *,
    manifest: Manifest,
    state: dict[str, bytes],
    seed: int,
    progress: Progress = no_progress,
) -> FittedStitch:
    """As `fit_pairs`, the other way round: from the new vectors of the sample to the old ones, without their texts."""
    pairing = Pairing(pairs.target, pairs.source, seed=seed).in_own_order()
    with threads_for(len(pairing)):
        selection = select_query_stitch(pairing, specs=specs, progress=progress)
        fitted = new_stitch(selection.chosen).fit(pairing.source, pairing.target)
    none = TrueVectors([], pairs.source[:0])  # what is true in the old space is in the store already
    return FittedStitch(fitted, fit_norm(pairs.source), none, selection, manifest, state)


def require_texts(store: Store, embedder: Embedder | None = None) -> None:
    """Make sure that a store has texts to embed, or that the embedder does without.

    Raises
    ------
    StoreError
        It has none, and they are needed.
    """
    if store.info.has_texts or (embedder is not None and not embedder.needs_texts):
        return
    instead = "" if embedder is None else ", or take vectors found by id: --target file:VECTORS.npz, without doc_texts"
    raise StoreError(
        f"{store.info.location}: expected texts to embed again, found vectors only; {store.info.way_to_texts}{instead}"
    )


def _manifest(
    store: Store, embedder: Embedder, sample: Sample, options: FitOptions, chosen_by: frozenset[str]
) -> Manifest:
    recorded = store.info.manifest
    earlier = choosers_of(*(other.manifest for other in (options.grown_from, options.prior) if other is not None))
    return Manifest(
        kind="stitch",
        model=embedder.identity,
        source_model=options.source_model or (recorded.model if recorded else None),
        seed=options.seed,
        counts={"pairs": len(sample.rows), "documents": store.info.count},
        details=StitchFacts(
            fingerprint=store.snapshot().fingerprint,
            direction=options.direction,
            sample={"strategy": sample.strategy, "from query log": sample.from_log},
            texts=store.info.has_texts,
            chosen_by=tuple(sorted(earlier | chosen_by)),
            prior=None if options.prior is None else options.prior.digest(),
        ).as_details(),
    )
