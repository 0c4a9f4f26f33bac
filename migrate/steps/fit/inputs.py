"""The inputs of a fit, opened, and checked before anything is embedded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from migrate.embedders import load_embedder
from migrate.embedders.abilities import needs_texts
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import runs_code, split_settings
from migrate.embedders.registry import find_model
from migrate.embedders.weights import has_packaged_model
from migrate.errors import StitchError, StoreError, UsageError
from migrate.manifest import ModelIdentity
from migrate.selection import QueryLog, choose_strategy
from migrate.steps.base import RunContext
from migrate.steps.fit.options import FitOptions
from migrate.steps.opening import log_of, model_at, source_model_of, stitch_at, store_of
from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Stitch
from migrate.stitch.fitted import DIRECTIONS, DOCUMENT, QUERY, FittedStitch, input_dim, require_direction
from migrate.stitch.linear import Adjoint, Ridge
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import AUTO, AUTO_CANDIDATES, QUERY_CANDIDATES
from migrate.stores.base import Store
from migrate.stores.file_store import check_files

FREE_VIEW = "packaged:all-MiniLM-L6-v2"
"""The free local model that is tried without being asked."""

FEWEST_VIEWED = 100
"""Pairs from which on it is tried: what it adds to fewer cannot be told from chance."""

NO_VIEW = "none"


@dataclass(frozen=True, slots=True, eq=False)
class FitInputs:
    """A store, the target model and what else a fit reads, with meters in the models.

    Attributes
    ----------
    log
        The queries that choose documents, and the source model where it is known.
    source_model
        What the manifest will say of the old space.
    views
        Further models that a stitch may read texts with; `named` says whether somebody asked for them.
    given
        The models without meters that the stitch keeps to read texts with: what it embeds later is paid for then.
    free
        The free local model whose token embeddings may stand in for those of a target that has none at hand.
    """

    context: RunContext
    store: Store
    embedder: Embedder
    log: QueryLog | None
    source_model: ModelIdentity | None
    prior: FittedStitch | None
    grown_from: FittedStitch | None
    views: Mapping[str, Embedder]
    named: bool
    unmetered_views: Mapping[str, Embedder]
    free: Embedder | None = None


def open_inputs(options: FitOptions, context: RunContext) -> FitInputs:
    """Open what a fit names, as it is by itself, and make sure that it goes together. Nothing is embedded."""
    store = store_of(options.store)
    old = None
    if options.source_model is not None:
        old = source_model_of(store, options.source_model)
    return inputs_of(options, store, model_at(options.target), old, _named_views(options.view), context)


def inputs_of(
    options: FitOptions,
    store: Store,
    target: Embedder,
    old: Embedder | None,
    named: Mapping[str, Embedder] | None,
    context: RunContext,
) -> FitInputs:
    """Open the rest of what a fit names, and make sure that it goes together. Nothing is embedded.

    `old` is the model of the store, None where nobody names it; `named` are the views that were named, None where
    nothing is said of them, so that a free one may be tried.
    """
    choose_strategy(options.strategy, has_log=options.query_log is not None)
    stitches = named_stitches(options.specs, options.direction)
    # Before anything is spent: true vectors beside those of another store would be paid for in vain
    check_files(store)
    require_texts(store, target)
    source_model = store.info.recorded_model
    metered_old = None
    if old is not None:
        source_model = old.identity
        metered_old = context.cap.meter(old)
    log = None
    if options.query_log is not None:
        log = QueryLog(log_of(options.query_log), metered_old)
    _check_views(options, store, named or {}, target=target.profile.spec)
    check_texts(store, stitches)
    prior = None
    if options.prior is not None:
        prior = stitch_at(options.prior)
        _check_prior(options, store, target, prior, source_model)
    earlier = None
    if options.grown_from is not None:
        earlier = stitch_at(options.grown_from)
        _check_grown(options, store, target, earlier)
    free = None
    # An empty mapping is `--view none`: no further model, not even a free one
    if named != {}:
        free = _free_model(options, store, target)
    views = named
    if views is None:
        views = _free_views(free, source_model)
    return FitInputs(
        context=context,
        store=store,
        embedder=context.cap.meter(target, options.price),
        log=log,
        source_model=source_model,
        prior=prior,
        grown_from=earlier,
        views={spec: context.cap.meter(view) for spec, view in views.items()},
        named=named is not None,
        unmetered_views=views,
        free=free,
    )


def require_texts(store: Store, embedder: Embedder | None = None) -> None:
    """Make sure that a store has texts to embed, or that the embedder does without.

    Raises StoreError: it has none, and they are needed; or it has no vectors either.
    """
    if store.info.has_texts or (embedder is not None and not needs_texts(embedder)):
        return
    if not store.info.count:
        raise StoreError(
            f"{store.info.location}: holds no vectors, so there is nothing to move; give a store that does"
        )
    instead = ""
    if embedder is not None:
        instead = ", or take vectors found by id: --target file:VECTORS.npz, without doc_texts"
    raise StoreError(
        f"{store.info.location}: the store has no texts to embed again; {store.info.way_to_texts}{instead}"
    )


def prior_map(prior: FittedStitch) -> AffineMap:
    """Return the linear map of a prior: of its fallback, where it reads texts."""
    stitch = prior.without_texts(source="--prior").stitch
    affine = stitch.nearest_affine(input_dim(prior.manifest))
    if affine is None:
        raise StitchError(f"the prior is {stitch.spec}, which has no linear map; fit it with --kind ridge")
    return affine


def reads_texts(specs: Sequence[str]) -> bool:
    """Return whether any stitch to choose among may read texts."""
    return not specs or AUTO in specs or any(new_stitch(spec).reads_texts for spec in specs)


def named_stitches(specs: Sequence[str], direction: str) -> list[Stitch]:
    """Return the stitches that are named, if there are such, and they are for the direction; raises a UsageError."""
    if direction not in DIRECTIONS:
        raise UsageError(f"unknown direction {direction!r}; choose one of {', '.join(DIRECTIONS)}")
    stitches = [new_stitch(spec) for spec in specs if spec != AUTO]
    for stitch in stitches:
        if direction == QUERY:
            # The texts that a stitch reads are documents
            is_unfit = stitch.reads_texts
            candidates = QUERY_CANDIDATES
        else:
            is_unfit = stitch.kind == Adjoint.kind
            candidates = AUTO_CANDIDATES
        if is_unfit:
            raise UsageError(
                f"the stitch {stitch.spec!r} does not map a {direction}; choose one such as {', '.join(candidates)}"
            )
    return stitches


def load_views(specs: Sequence[str], load: Callable[[str], Embedder]) -> dict[str, Embedder]:
    """Return the further models that were named, by their specs; none for `none`."""
    if NO_VIEW in specs and set(specs) != {NO_VIEW}:
        raise UsageError(f"--view {NO_VIEW} goes alone; leave it or the others out")
    if NO_VIEW in specs:
        return {}
    views = {}
    for spec in specs:
        bare, settings = split_settings(spec)
        if not_allowed := settings.keys() & {"dimensions", "document_prefix", "query_prefix"}:
            raise UsageError(
                f"--view {spec}: a stitch loads a further model as it is by itself; leave out "
                f"{' and '.join(sorted(not_allowed)).replace('_', '-')}"
            )
        views[bare] = load(spec)
    return views


def _named_views(views: Mapping[str, Embedder] | Sequence[str] | None) -> Mapping[str, Embedder] | None:
    """Return the views that were named, loaded; None where nothing is said of them."""
    if views is None or isinstance(views, Mapping):
        return views
    return load_views(views, load_embedder)


def _check_views(options: FitOptions, store: Store, views: Mapping[str, Embedder], *, target: str) -> None:
    """Make sure that further models can be asked again when a store is translated, and that somebody reads them."""
    for spec, view in views.items():
        if spec == target:
            raise UsageError(
                f"--view {spec} is the target itself: a translation that embeds every text with it is a full re-embed; "
                "use `reembed`, or leave it out"
            )
        if not view.profile.embeds_new_texts:
            raise UsageError(f"--view {spec} does not embed any text as it is; choose a local model that does")
        # A stitch may be anybody's, and whoever loads it has not agreed to run code
        if runs_code(spec):
            raise UsageError(
                f"--view {spec} names code to run, and a stitch loads its views by itself; choose another kind"
            )
    if views and (options.direction == QUERY or not reads_texts(options.specs)):
        raise UsageError("--view is for stitches that read texts, such as --kind ridge+text; leave it out")
    if views and not store.info.has_texts:
        raise StoreError(
            f"{store.info.location}: the store has no texts for --view to read; {store.info.way_to_texts}, or leave "
            "out --view"
        )


def check_texts(store: Store, stitches: Sequence[Stitch]) -> None:
    """Make sure that the stitches that are named have the texts that they read."""
    info = store.info
    for stitch in stitches:
        if stitch.reads_texts and not info.has_texts:
            raise StoreError(
                f"{info.location}: the store has no texts, which the {stitch.spec} stitch reads; {info.way_to_texts}, "
                f"or leave out --kind {stitch.spec}"
            )


def _check_prior(
    options: FitOptions, store: Store, embedder: Embedder, prior: FittedStitch, source_model: ModelIdentity | None
) -> None:
    """Make sure that a prior leads from the store's model to the target."""
    if options.direction == QUERY:
        raise UsageError("--prior is for stitches that map documents; leave it out")
    if set(options.specs) != {Ridge.kind}:
        raise UsageError("--prior is for the stitch ridge alone; leave --kind out, or give --kind ridge")
    manifest = prior.manifest
    target = embedder.identity
    require_direction(manifest, DOCUMENT, source="--prior")
    source_dim = input_dim(manifest)
    if source_dim != store.info.dim or prior.dim != target.dim:
        raise StitchError(
            f"the prior leads from {source_dim} to {prior.dim} dimensions, not from {store.info.dim} to {target.dim}; "
            "take a stitch of the same two models"
        )
    for model_of_prior, model in ((manifest.source_model, source_model), (manifest.model, target)):
        if model_of_prior is not None and model is not None and _differ(model_of_prior, model):
            raise StitchError(
                f"the prior is of {model_of_prior.spec} (revision {str(model_of_prior.revision)[:12]}), not of "
                f"{model.spec} ({str(model.revision)[:12]}); take a stitch of the same two models"
            )
    prior_map(prior)


def _check_grown(options: FitOptions, store: Store, embedder: Embedder, earlier: FittedStitch) -> None:
    """Make sure that the earlier stitch is for this store and target, and that there is room for new documents."""
    require_direction(earlier.manifest, DOCUMENT, source="--grown-from")
    model = earlier.manifest.model
    dim = input_dim(earlier.manifest)
    if dim != store.info.dim or (model is not None and _differ(model, embedder.identity)):
        leads_to = model.spec if model else "a nameless model"
        raise StitchError(
            f"--grown-from: the stitch leads from {dim} dimensions to {leads_to}, "
            f"not from {store.info.dim} to {embedder.identity.spec}; name the stitch of this store"
        )
    if options.sample <= len(earlier.sample.ids):
        raise UsageError(
            f"--sample {options.sample} leaves no room for new documents: the stitch of --grown-from has true vectors "
            f"of {len(earlier.sample.ids):,}, which count; raise --sample"
        )


def _differ(first: ModelIdentity, second: ModelIdentity) -> bool:
    """Return whether two models differ, as far as is known: a file of vectors does not name its model."""
    if first.spec.startswith("file:") or second.spec.startswith("file:"):
        return False
    # An API tells no revision, which is no difference then
    revisions = {model.revision for model in (first, second) if model.revision is not None}
    return len(revisions) > 1 or replace(first, revision=None) != replace(second, revision=None)


def _free_model(options: FitOptions, store: Store, embedder: Embedder) -> Embedder | None:
    """Return the free local model that a fit tries without being asked; None where it would be of no use.

    It is tried where the target may cost money, so that its own tokens are not at hand, where a stitch is chosen by
    `auto` and may read texts, and where there are `FEWEST_VIEWED` documents to judge it on.
    """
    if options.direction != DOCUMENT or not store.info.has_texts or AUTO not in options.specs:
        return None
    if embedder.profile.is_paid is False or min(options.sample, store.info.count) < FEWEST_VIEWED:
        return None
    # It comes with a package of its own, which need not be installed
    if not has_packaged_model():
        return None
    return load_embedder(FREE_VIEW)


def _free_views(free: Embedder | None, source: ModelIdentity | None) -> dict[str, Embedder]:
    """Return the free local model as a view, by its spec; none where the store was built with that very model."""
    if free is None:
        return {}
    if source is not None and find_model(source.spec.partition(":")[2]) == find_model(FREE_VIEW.partition(":")[2]):
        return {}
    return {FREE_VIEW: free}
