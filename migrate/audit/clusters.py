"""Topics of the documents, to tell queries apart by: clusters of true vectors, named by their own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from migrate.audit.arms import FULL, TRANSLATED
from migrate.audit.ground import Ground
from migrate.audit.homes import rows_of, texts_of
from migrate.vectors import unit_rows

CLUSTERS = 8
_SAMPLE = 2_000
_WORDS = 3
_WORD = r"(?u)\b[^\W\d_]{3,}\b"
_VOCABULARY = 20_000
_FEWEST = 20
"""Documents to a cluster, at least: smaller ones say nothing of a topic."""


def topics_of(ground: Ground, wanted: Sequence[str], *, seed: int = 0) -> Mapping[str, str]:
    """A topic for each wanted document: its cluster, by k-means, named by words; none without texts.

    The clusters are those of up to 2,000 vectors of the full re-embed, the wanted ones among them.
    """
    names = sorted(set(ground.keys[FULL].values()))
    drawn = np.random.default_rng(seed).permutation(len(names))[:_SAMPLE]
    sample = list(dict.fromkeys([*sorted(set(wanted)), *(names[i] for i in drawn)]))[: max(_SAMPLE, len(set(wanted)))]
    count = min(CLUSTERS, len(sample) // _FEWEST)
    rows = rows_of(ground.keys[FULL], sample)
    texts = texts_of(ground.stores[TRANSLATED], rows_of(ground.keys[TRANSLATED], sample))
    if count < 2 or not texts:
        return {}
    place = {key: i for i, key in enumerate(rows)}
    vectors = ground.stores[FULL].take(np.array(list(rows.values()), dtype=np.int64)).vectors
    part_of = _clusters(vectors, count, seed)
    called = _names([texts[key] for key in rows], part_of, count)
    return {key: called[part_of[place[key]]] for key in wanted if key in place}


def _clusters(vectors: NDArray[np.float32], count: int, seed: int) -> NDArray[np.int32]:
    from sklearn.cluster import KMeans

    found: NDArray[np.int32] = KMeans(count, n_init=2, max_iter=50, random_state=seed).fit_predict(unit_rows(vectors))
    return found


def _names(texts: Sequence[str], part_of: NDArray[np.int32], count: int) -> list[str]:
    """The words that set a cluster apart: TF-IDF of its texts taken together (Grootendorst 2022, BERTopic, eq. 2)."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(stop_words="english", max_features=_VOCABULARY, token_pattern=_WORD)
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # no words but numbers and stop words
        return [f"cluster {part + 1}" for part in range(count)]
    words = counter.get_feature_names_out()
    together = np.stack([np.asarray(counts[part_of == part].sum(axis=0)).ravel() for part in range(count)])
    per_class = together.sum() / count
    weights = together / np.maximum(together.sum(axis=1, keepdims=True), 1) * np.log1p(per_class / together.sum(axis=0))
    best = np.argsort(-weights, axis=1, kind="stable")[:, :_WORDS]
    return [", ".join(words[column] for column in row) for row in best]
