"""Slices: retention by kind of query, as a migration that is safe on the whole may fail one kind.

Kinds are the length of the query, and the topic, confidence and metadata of the document that it is about. Topics are
clusters of true vectors, named by their words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from migrate.audit.evidence import Evidence
from migrate.audit.experiment import Experiment
from migrate.audit.measures import Scores
from migrate.audit.results import FULL, TRANSLATED
from migrate.audit.verdict import Finding
from migrate.audited.records import Slice
from migrate.stores.base import Store
from migrate.stores.confidence import usable_confidence
from migrate.vectors import unit_rows


def topics_of(experiment: Experiment, keys: Sequence[str]) -> Mapping[str, str]:
    """Return a topic for each wanted document: its cluster, by k-means, named by words; none without texts.

    The clusters are those of up to 2,000 vectors of the full re-embed, the wanted ones among them.
    """
    full = experiment.stores[FULL]
    seed = experiment.settings.seed
    documents = full.keys.documents
    unique = sorted(set(keys))
    drawn = np.random.default_rng([seed, 2]).permutation(documents.distinct)[:2_000]
    names = documents.take(documents.in_order()[drawn])
    sample = list(dict.fromkeys([*unique, *names]))[: max(2_000, len(unique))]
    count = min(8, len(sample) // 20)  # smaller clusters say nothing of a topic
    texts = experiment.stores[TRANSLATED].texts(sample)
    if count < 2 or not texts:
        return {}
    from sklearn.cluster import KMeans

    rows = full.rows(sample)
    vectors = full.store.get(np.array(list(rows.values()), dtype=np.int64)).vectors
    clustering = KMeans(count, n_init=2, max_iter=50, random_state=seed)
    part_of: NDArray[np.int32] = clustering.fit_predict(unit_rows(vectors))
    labels = _cluster_labels([texts[key] for key in rows], part_of, count)
    topics = {key: labels[cluster] for key, cluster in zip(rows, part_of, strict=True)}
    return {key: topics[key] for key in keys if key in topics}


def _cluster_labels(texts: Sequence[str], part_of: NDArray[np.int32], count: int) -> list[str]:
    """Return words that set clusters apart: TF-IDF of all texts of each (Grootendorst 2022, BERTopic, eq. 2)."""
    from sklearn.feature_extraction.text import CountVectorizer

    words = r"(?u)\b[^\W\d_]{3,}\b"
    counter = CountVectorizer(stop_words="english", max_features=20_000, token_pattern=words)
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # no words but numbers and stop words
        return [f"cluster {cluster + 1}" for cluster in range(count)]
    terms = counter.get_feature_names_out()
    together = np.stack([np.asarray(counts[part_of == cluster].sum(axis=0)).ravel() for cluster in range(count)])
    per_class = together.sum() / count
    weights = together / np.maximum(together.sum(axis=1, keepdims=True), 1) * np.log1p(per_class / together.sum(axis=0))
    best = np.argsort(-weights, axis=1, kind="stable")[:, :3]
    return [", ".join(terms[column] for column in row) for row in best]


def find_slices(evidence: Evidence, subjects: Mapping[str, str], arm: Scores, full: Scores) -> tuple[Slice, ...]:
    """Return queries by their length, by topic, by confidence and by metadata of the documents they are about.

    `subjects` are the documents that queries are about. Scores are those of the translated store and of the full
    re-embed, (c,) each, one for each distinct text. What is not known of the stores makes no slice, nor does a
    confidence that is not to be used.
    """
    bootstrap = evidence.rules.bootstrap()
    slices = []
    for by, labels in _labellings(evidence.experiment, subjects).items():
        for value, rows in _groups(labels).items():
            grouped = replace(bootstrap, grouping=bootstrap.grouping.at(rows))
            bounds = grouped.retention(arm[rows], full[rows])
            slices.append(Slice(by, value, len(rows), float(full[rows].mean()), float(arm[rows].mean()), bounds))
    return tuple(slices)


def unused_fields(slices: Sequence[Slice], fields: Sequence[str]) -> tuple[Finding, ...]:
    """Return a note for each metadata field that does not distinguish the queries."""
    times = Counter(cluster.by for cluster in slices)
    sentences = {
        0: "--slice: no document that the queries are about has {!r} in its metadata",
        1: "--slice: the documents that the queries are about have but one value of {!r}",
    }
    unused = [field for field in dict.fromkeys(fields) if times[field] in sentences]
    return tuple(Finding("note", sentences[times[field]].format(field)) for field in unused)


def _labellings(experiment: Experiment, subjects: Mapping[str, str]) -> dict[str, Sequence[str | None]]:
    """Return a label for each query, None where it has none, by what they tell."""
    translated = experiment.stores[TRANSLATED]
    queries = experiment.query_set.distinct
    documents = [subjects.get(query.id, "") for query in queries]
    row_of = translated.rows(list(subjects.values()))
    rows = [row_of.get(document) for document in documents]
    lengths = _quantile_labels([len(query.text.split()) for query in queries], "{:.0f}")
    labellings: dict[str, Sequence[str | None]] = {"words in the query": lengths}
    topics = {} if experiment.in_pool else topics_of(experiment, list(subjects.values()))
    if topics:
        labellings["topic"] = [topics.get(document) for document in documents]
    confidence = usable_confidence(translated.store)
    if confidence is not None:
        labellings["confidence"] = _quantile_labels(
            [None if row is None else float(confidence[row]) for row in rows], "{:.2f}"
        )
    return labellings | {field: _metadata(translated.store, rows, field) for field in experiment.settings.slices}


def _metadata(store: Store, rows: Sequence[int | None], field: str) -> Sequence[str | None]:
    """Return the field of each query's document; rare values together."""
    rows_used = sorted({row for row in rows if row is not None})
    documents = store.documents(np.array(rows_used, dtype=np.int64)) if store.info.has_texts else iter(())
    values = {row: document.metadata.get(field) for row, document in zip(rows_used, documents, strict=False)}
    labels = [None if row is None or values.get(row) is None else str(values[row]) for row in rows]
    common = {value for value, _ in Counter(filter(None, labels)).most_common(10)}
    return [label if label is None or label in common else "(others)" for label in labels]


def _quantile_labels(values: Sequence[float | None], form: str) -> Sequence[str | None]:
    """Return up to ten parts of equally many, each named by its ends; fewer where they would hold few queries."""
    numbers = np.array([value for value in values if value is not None], dtype=float)
    if not len(numbers):
        return [None] * len(values)
    count = int(np.clip(len(numbers) // 30, 1, 10))
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, count + 1)[1:-1], method="lower"))
    names = _names(numbers, np.searchsorted(edges, numbers, side="left"), form)
    return [None if value is None else names[int(np.searchsorted(edges, value, side="left"))] for value in values]


def _names(numbers: NDArray[np.float64], part_of: NDArray[np.int64], form: str) -> dict[int, str]:
    ends = {
        int(cluster): (numbers[part_of == cluster].min(), numbers[part_of == cluster].max())
        for cluster in np.unique(part_of)
    }
    return {
        cluster: form.format(low)
        if form.format(low) == form.format(high)
        else f"{form.format(low)} to {form.format(high)}"
        for cluster, (low, high) in ends.items()
    }


def _groups(labels: Iterable[str | None]) -> dict[str, NDArray[np.int64]]:
    """Return the places of each label, in the order of the labels as numbers where they are numbers."""
    rows_of: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        if label is not None:
            rows_of.setdefault(label, []).append(row)
    return {label: np.array(rows_of[label], dtype=np.int64) for label in sorted(rows_of, key=_order)}


def _order(label: str) -> tuple[float, str]:
    first = label.split(" ")[0]
    try:
        return float(first), label
    except ValueError:
        return np.inf, label
