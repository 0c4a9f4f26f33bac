"""From a store and a target model to a fitted stitch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from migrate.embedders.base import Embedder
from migrate.errors import StoreError
from migrate.manifest import Manifest, ModelIdentity
from migrate.sample import SAMPLE_SIZE, Pairs, QueryLog, Sample, choose_strategy, draw_sample, embed_pairs
from migrate.stitch.fitted import FittedStitch, TrueVectors, fit_norm
from migrate.stitch.kinds import new_stitch
from migrate.stitch.pairing import Pairing
from migrate.stitch.select import select_stitch
from migrate.stitch.text_reader import CORPUS_SIZE, TextReader
from migrate.stores.base import Store
from migrate.vectors import Progress, no_progress

AUTO = "auto"


def fit_stitch(
    store: Store,
    embedder: Embedder,
    *,
    stitch: str = AUTO,
    size: int = SAMPLE_SIZE,
    strategy: str | None = None,
    query_log: QueryLog | None = None,
    source_model: ModelIdentity | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Embed a sample of the store with the target model, judge the candidates on it, and fit the chosen one on all.

    `stitch` is a spec (`ridge`, `lowrank:64`), or `auto` to choose by held-out retrieval. `strategy` and
    `query_log` say which documents make the sample, as in `draw_sample`. `source_model` is recorded; by default it is
    what the store's manifest says.

    Raises
    ------
    StoreError
        The store has no texts to embed.
    StitchError
        There are fewer than two documents.
    UsageError
        No such stitch; or a strategy that `draw_sample` does not take.
    InputError, RemoteError
        As the embedders.
    """
    choose_strategy(strategy, has_log=query_log is not None)
    require_texts(store)
    if stitch != AUTO:
        new_stitch(stitch)  # a wrong name is told before anything is spent
    embedder.fit(store.documents())
    sample = draw_sample(store, size, strategy=strategy, query_log=query_log, seed=seed, progress=progress)
    pairs = embed_pairs(store, embedder, sample, progress=progress)
    reader = fit_reader(store, embedder, seed=seed) if stitch == AUTO or new_stitch(stitch).reads_texts else None
    return fit_pairs(
        pairs,
        () if stitch == AUTO else [stitch],
        manifest=_manifest(store, embedder, sample, source_model, seed),
        state=embedder_state(embedder),
        seed=seed,
        texts=[document.text for document in sample.documents],
        reader=reader,
        progress=progress,
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
    progress: Progress = no_progress,
) -> FittedStitch:
    """Choose among `specs` (none: all that apply) on held-out pairs, and fit the chosen one on all pairs.

    `texts` are those of the pairs; without a `reader` no stitch can read them.
    """
    pairing = Pairing(pairs.source, pairs.target, None if reader is None else reader.read(texts))
    selection = select_stitch(pairing, specs=specs, seed=seed, progress=progress)
    fitted = pairing.fit(selection.stitch or new_stitch(selection.chosen))
    sample = TrueVectors(pairs.ids, pairs.target, pairs.copies)
    kept = reader if fitted.reads_texts else None
    return FittedStitch(fitted, fit_norm(pairs.target), sample, selection, manifest, state, kept)


def fit_reader(store: Store, embedder: Embedder, *, seed: int = 0) -> TextReader:
    """What text-aware stitches learn from the texts of the store, up to `CORPUS_SIZE` of them, and from the target."""
    rows = np.sort(np.random.default_rng(seed).permutation(store.info.count)[:CORPUS_SIZE])
    texts = [document.text for document in store.documents(rows)]
    return TextReader.fit(texts, embedder.token_table(), seed=seed)


def require_texts(store: Store) -> None:
    """Make sure that a store has texts to embed.

    Raises
    ------
    StoreError
        It has none.
    """
    if not store.info.has_texts:
        raise StoreError(
            f"{store.info.path}: expected texts to embed again, found vectors only; put a docs.jsonl "
            '({"id", "text"} a line) beside the index'
        )


def embedder_state(embedder: Embedder) -> dict[str, bytes]:
    """The files that `load_embedder` needs to embed the same way later; empty for most models."""
    with tempfile.TemporaryDirectory() as folder:
        embedder.save_state(Path(folder))
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _manifest(
    store: Store, embedder: Embedder, sample: Sample, source_model: ModelIdentity | None, seed: int
) -> Manifest:
    known = store.info.manifest
    return Manifest(
        kind="stitch",
        model=embedder.identity,
        source_model=source_model or (known.model if known else None),
        seed=seed,
        counts={"pairs": len(sample.rows), "documents": store.info.count},
        details={
            "fingerprint": asdict(store.fingerprint()),
            "sample": {"strategy": sample.strategy, "from query log": sample.from_log},
        },
    )
