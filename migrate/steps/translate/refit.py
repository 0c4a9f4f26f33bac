"""The stitch, fitted again on every pair that was ever paid for: most of what re-embedding gains, it gains here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StitchError
from migrate.manifest import Manifest, creation_date
from migrate.selection import Pairs
from migrate.selection.sample import MOST_PAIRS, find_copies
from migrate.steps.fit.job import fit_pairs
from migrate.stitch.fitted import FittedStitch, TrueVectors
from migrate.stitch.text_reader import TextReader
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, Vectors, check_vectors, no_progress


def extended(store: Store, true_vectors: TrueVectors, documents: Sequence[Document], vectors: Vectors) -> TrueVectors:
    """Return the true vectors with those of further documents, (m, q), and of the copies of their texts."""
    # Copies get the true vector of their text without being paid for again
    copies = {doc_id: len(true_vectors.ids) + position for doc_id, position in find_copies(store, documents).items()}
    ids = [*true_vectors.ids, *(document.id for document in documents)]
    return TrueVectors(ids, np.concatenate([true_vectors.vectors, vectors]), {**copies, **true_vectors.copies})


def refit(
    store: Store,
    fitted: FittedStitch,
    true_vectors: TrueVectors,
    rows: NDArray[np.int64],
    *,
    reader: TextReader | None = None,
    details: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Fit a stitch again on `true_vectors`, of the documents in `rows`: all (n,) that were paid for, or copy one.

    A stitch that `auto` chose is chosen anew: with more pairs another kind may be the best. It uses no prior.
    The true vectors travel as they are; to scale them down, lest they outrank translated ones, only loses.

    `reader` turns texts into what a stitch reads of them, where the old one did not need one; `details` are added to
    the manifest.

    Raises VectorError: an old vector is zero or not finite. StitchError: a document in `rows` has no true vector.
    """
    reader = fitted.reader or reader
    pairs, texts = _pairs(store, true_vectors, rows, with_texts=reader is not None, seed=seed)
    fit_result = fit_pairs(
        pairs,
        _specs(fitted),
        manifest=_manifest(fitted, len(true_vectors.ids), details or {}),
        state=dict(fitted.state),
        seed=seed,
        texts=texts,
        reader=reader,
        progress=progress,
    )
    return replace(fit_result, sample=true_vectors)


def _pairs(
    store: Store, true_vectors: TrueVectors, rows: NDArray[np.int64], *, with_texts: bool, seed: int
) -> tuple[Pairs, Sequence[str]]:
    """Return up to `MOST_PAIRS` of the pairs, each text once, and their texts."""
    ids = store.get(rows).ids
    strange = next((doc_id for doc_id in ids if doc_id not in true_vectors.row_of), None)
    if strange is not None:
        raise StitchError(
            f"{store.info.location}: the stitch lacks the true vector of {strange!r}; fit it again for this store"
        )
    # A copy in the fitted pairs and its original in the held-out ones would be no test of the stitch
    is_original = np.array([doc_id not in true_vectors.copies for doc_id in ids], dtype=bool)
    pair_rows = np.sort(np.random.default_rng(seed).permutation(rows[is_original])[:MOST_PAIRS])
    batch = store.get(pair_rows)
    check_vectors(batch.ids, batch.vectors, source=store.info.location)
    target: Vectors = true_vectors.vectors[[true_vectors.row_of[doc_id] for doc_id in batch.ids]]
    texts: list[str] = []
    if with_texts:
        texts = [document.text for document in store.documents(pair_rows)]
    return Pairs(tuple(batch.ids), batch.vectors, target), texts


def _specs(fitted: FittedStitch) -> Sequence[str]:
    """Return the kind that the user asked for; none, for all that apply, where it was chosen among several."""
    judged = [row for row in fitted.selection.candidates if not row.is_control]
    # More than one was judged, so the choice was the program's; with more pairs another may be best
    if len(judged) > 1:
        return ()
    return [fitted.stitch.spec]


def _manifest(fitted: FittedStitch, n_pairs: int, details: Mapping[str, Any]) -> Manifest:
    old = fitted.manifest
    return replace(
        old,
        counts={**old.counts, "pairs": n_pairs},
        details={**old.details, **details},
        created=creation_date(),
    )
