"""From a store and a target model to a fitted stitch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from migrate.embedders.base import Embedder
from migrate.embedders.kinds import runs_code
from migrate.errors import StoreError, UsageError
from migrate.manifest import Manifest, ModelIdentity
from migrate.selection import SAMPLE_SIZE, Pairs, QueryLog, Sample, choose_strategy, draw_sample, embed_pairs
from migrate.selection.query_log import chosen_by, digests_of
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import (
    DIRECTION,
    DIRECTIONS,
    DOCUMENT,
    QUERY,
    Direction,
    FittedStitch,
    TrueVectors,
    fit_fallback,
    fit_norm,
)
from migrate.stitch.linear import Adjoint
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import AUTO, AUTO_CANDIDATES, QUERY_CANDIDATES, select_query_stitch, select_stitch
from migrate.stitch.text_reader import CORPUS_SIZE, TextReader
from migrate.stores.base import Store
from migrate.stores.file_store import verify_files
from migrate.threads import threads_for
from migrate.vectors import Progress, no_progress


def fit_stitch(
    store: Store,
    embedder: Embedder,
    *,
    direction: Direction = DOCUMENT,
    stitch: str | Sequence[str] = AUTO,
    size: int = SAMPLE_SIZE,
    strategy: str | None = None,
    query_log: QueryLog | None = None,
    source_model: ModelIdentity | None = None,
    views: Mapping[str, Embedder] | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Embed a sample of the store with the target model, judge the candidates on it, and fit the chosen one on all.

    `stitch` is a spec (`ridge`, `lowrank:64`), `auto` for all that apply, or several of these: held-out retrieval then
    chooses among them. `strategy` and `query_log` say which documents make the sample, as in `draw_sample`.
    `source_model` is recorded; by default it is what the store's manifest says. `views` are further models, by their
    specs, whose vectors a stitch that reads texts may use: a free local one where the target is paid for, say. A
    translation embeds every text with them.

    With the direction `query` the stitch is learned the other way round, from the new vectors of the sample to the old
    ones, so that the store as it is can answer queries of the target model: see `FittedStitch.map_queries`. Texts are
    embedded, but the stitch does not read them.

    A store without texts can be fitted with an embedder that does without, which a file of vectors by id does. The
    stitch then reads the old vectors alone; what that costs is nothing that such a store could tell.

    Raises
    ------
    StoreError
        The store has no texts, and the embedder or the stitch reads them; or it is not the one of its manifest.
    StitchError
        There are fewer than two documents.
    UsageError
        No such stitch, or none for that direction; or a strategy that `draw_sample` does not take.
    InputError, RemoteError
        As the embedders.
    """
    choose_strategy(strategy, has_log=query_log is not None)
    verify_files(store)
    require_texts(store, embedder)
    specs = (stitch,) if isinstance(stitch, str) else tuple(stitch)
    _check_choice(specs, direction)  # before anything is spent
    _check_views(views or {}, specs, direction)
    _check_texts(store, specs, views or {})
    if store.info.has_texts:
        embedder.fit(store.documents())
    sample = draw_sample(store, size, strategy=strategy, query_log=query_log, seed=seed, progress=progress)
    pairs = embed_pairs(store, embedder, sample, progress=progress)
    choosers = digests_of(query_log.looked_up) if query_log else frozenset()
    manifest = _manifest(store, embedder, sample, source_model, seed, direction, choosers)
    state = dict(embedder.state())
    if direction == QUERY:
        return fit_query_pairs(pairs, specs, manifest=manifest, state=state, seed=seed, progress=progress)
    reads = store.info.has_texts and _may_read_texts(specs)
    with threads_for(len(pairs.source)):
        reader = fit_reader(store, embedder, views, seed=seed) if reads else None
    return fit_pairs(
        pairs,
        specs,
        manifest=manifest,
        state=state,
        seed=seed,
        texts=[document.text for document in sample.documents],
        reader=reader,
        progress=progress,
    )


def _check_choice(specs: Sequence[str], direction: Direction) -> None:
    """Make sure that there are such stitches, and that they are for that direction."""
    if direction not in DIRECTIONS:
        raise UsageError(f"expected a direction among {', '.join(DIRECTIONS)}; found {direction!r}")
    for spec in _named(specs):
        stitch = new_stitch(spec)
        suits = not stitch.reads_texts if direction == QUERY else stitch.kind != Adjoint.kind
        if not suits:
            others = ", ".join(QUERY_CANDIDATES if direction == QUERY else AUTO_CANDIDATES)
            raise UsageError(f"expected a stitch that maps a {direction}, such as {others}; found {spec!r}")


def _named(specs: Sequence[str]) -> list[str]:
    return [spec for spec in specs if spec != AUTO]


def _may_read_texts(specs: Sequence[str]) -> bool:
    return not specs or AUTO in specs or any(new_stitch(spec).reads_texts for spec in specs)


def _check_views(views: Mapping[str, Embedder], specs: Sequence[str], direction: Direction) -> None:
    """Make sure that further models can be asked again when a store is translated, and that somebody reads them."""
    for spec, view in views.items():
        if not view.profile.embeds_new_texts:
            raise UsageError(f"expected a model that embeds any text for --view, found {spec!r}; choose a local one")
        if runs_code(spec):
            raise UsageError(
                f"expected a model that a stitch may load by itself for --view, found {spec!r}, which names code to "
                "run; choose another kind"
            )
    if views and (direction == QUERY or not _may_read_texts(specs)):
        raise UsageError("--view is for stitches that read texts, such as --stitch ridge+text; leave it out")


def _check_texts(store: Store, specs: Sequence[str], views: Mapping[str, Embedder]) -> None:
    """Make sure that stitches that were asked for by name have what they read."""
    if store.info.has_texts:
        return
    path, remedy = store.info.location, "put a docs.jsonl beside the index, or leave out"
    for spec in _named(specs):
        if new_stitch(spec).reads_texts:
            raise StoreError(f"{path}: the {spec} stitch reads texts, found a store without; {remedy} --stitch {spec}")
    if views:
        raise StoreError(f"{path}: expected texts for --view to be read with, found vectors only; {remedy} --view")


def fit_pairs(
    pairs: Pairs,
    specs: Sequence[str],
    *,
    manifest: Manifest,
    state: dict[str, bytes],
    seed: int,
    texts: Sequence[str] = (),
    reader: TextReader | None = None,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Choose among `specs` (none, or `auto`: all that apply) on held-out pairs, and fit the chosen one on all pairs.

    `texts` are those of the pairs; without a `reader` no stitch can read them. One that does gets a fallback that does
    not.
    """
    pairing = Pairing(pairs.source, pairs.target, None if reader is None else reader.read(texts))
    sample = TrueVectors(pairs.ids, pairs.target, pairs.copies)
    norm = fit_norm(pairs.target)
    with threads_for(len(pairing)):
        selection = select_stitch(pairing, specs=specs, seed=seed, progress=progress)
        fitted = pairing.fit(selection.stitch or new_stitch(selection.chosen))
        fallback = fit_fallback(pairing, selection, seed=seed) if fitted.reads_texts else None
    if fallback is None:
        return FittedStitch(fitted, norm, sample, selection, manifest, state)
    return FittedStitch(fitted, norm, sample, selection, manifest, state, reader, fallback)


def fit_reader(
    store: Store, embedder: Embedder, views: Mapping[str, Embedder] | None = None, *, seed: int = 0
) -> TextReader:
    """What text-aware stitches learn from the texts of the store, up to `CORPUS_SIZE` of them, and from the target."""
    rows = np.sort(np.random.default_rng(seed).permutation(store.info.count)[:CORPUS_SIZE])
    texts = [document.text for document in store.documents(rows)]
    return TextReader.fit(texts, embedder.token_table(), models=views, seed=seed)


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
    with threads_for(len(pairs.source)):
        selection = select_query_stitch(pairs.target, pairs.source, specs=specs, seed=seed, progress=progress)
        fitted = new_stitch(selection.chosen).fit(pairs.target, pairs.source)
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
        f"{store.info.location}: expected texts to embed again, found vectors only; put a docs.jsonl "
        f'({{"id", "text"}} a line) beside the index{instead}'
    )


def _manifest(
    store: Store,
    embedder: Embedder,
    sample: Sample,
    source_model: ModelIdentity | None,
    seed: int,
    direction: Direction,
    choosers: frozenset[str],
) -> Manifest:
    known = store.info.manifest
    return Manifest(
        kind="stitch",
        model=embedder.identity,
        source_model=source_model or (known.model if known else None),
        seed=seed,
        counts={"pairs": len(sample.rows), "documents": store.info.count},
        details={
            "fingerprint": store.snapshot().fingerprint,
            DIRECTION: direction,
            "sample": {"strategy": sample.strategy, "from query log": sample.from_log},
            "texts": store.info.has_texts,
            **chosen_by(choosers),
        },
    )
