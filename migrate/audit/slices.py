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
from migrate.audit_report.records import Slice
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
    # Smaller clusters say nothing of a topic
    count = min(8, len(sample) // 20)
    texts = experiment.stores[TRANSLATED].texts(sample)
    if count < 2 or not texts:
        return {}
    from sklearn.cluster import KMeans

    rows = full.rows(sample)
    vectors = full.store.get(np.array(list(rows.values()), dtype=np.int64)).vectors
    clustering = KMeans(count, n_init=2, max_iter=50, random_state=seed)
    clusters: NDArray[np.int32] = clustering.fit_predict(unit_rows(vectors))
    labels = _cluster_labels([texts[key] for key in rows], clusters, count)
    topics = {key: labels[cluster] for key, cluster in zip(rows, clusters, strict=True)}
    return {key: topics[key] for key in keys if key in topics}


def _cluster_labels(texts: Sequence[str], clusters: NDArray[np.int32], count: int) -> list[str]:
    """Return words that set clusters apart: TF-IDF of all texts of each (Grootendorst 2022, BERTopic, eq. 2)."""
    from sklearn.feature_extraction.text import CountVectorizer

    word_pattern = r"(?u)\b[^\W\d_]{3,}\b"
    counter = CountVectorizer(stop_words="english", max_features=20_000, token_pattern=word_pattern)
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # no words but numbers and stop words
        return [f"cluster {cluster + 1}" for cluster in range(count)]
    terms = counter.get_feature_names_out()
    times = np.stack([np.asarray(counts[clusters == cluster].sum(axis=0)).ravel() for cluster in range(count)])
    n_terms = np.maximum(times.sum(axis=1, keepdims=True), 1)
    per_cluster = times.sum() / count
    weights = times / n_terms * np.log1p(per_cluster / times.sum(axis=0))
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
    # A pool has true vectors of what was asked for alone, and shows no other topics
    if not experiment.in_pool:
        topics = topics_of(experiment, list(subjects.values()))
        if topics:
            labellings["topic"] = [topics.get(document) for document in documents]
    confidence = usable_confidence(translated.store)
    if confidence is not None:
        values = [_confidence_at(confidence, row) for row in rows]
        labellings["confidence"] = _quantile_labels(values, "{:.2f}")
    return labellings | {field: _metadata(translated.store, rows, field) for field in experiment.settings.slices}


def _confidence_at(confidence: NDArray[np.floating], row: int | None) -> float | None:
    if row is None:
        return None
    return float(confidence[row])


def _metadata(store: Store, rows: Sequence[int | None], field: str) -> Sequence[str | None]:
    """Return the field of each query's document; rare values together."""
    if not store.info.has_texts:
        return [None] * len(rows)
    used_rows = sorted({row for row in rows if row is not None})
    documents = store.documents(np.array(used_rows, dtype=np.int64))
    labels_by_row: dict[int | None, str] = {}
    for row, document in zip(used_rows, documents, strict=True):
        value = document.metadata.get(field)
        if value is not None:
            labels_by_row[row] = str(value)
    labels = [labels_by_row.get(row) for row in rows]
    common = {value for value, _ in Counter(filter(None, labels)).most_common(10)}
    common_or_none = {None, *common}
    return [label if label in common_or_none else "(others)" for label in labels]


def _quantile_labels(values: Sequence[float | None], form: str) -> Sequence[str | None]:
    """Return up to ten quantiles, each named by its ends; fewer where they would hold few queries."""
    numbers = np.array([value for value in values if value is not None], dtype=float)
    if not len(numbers):
        return [None] * len(values)
    # Kinds of fewer than 30 queries have bounds that tell nothing
    count = int(np.clip(len(numbers) // 30, 1, 10))
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, count + 1)[1:-1], method="lower"))
    positions = np.searchsorted(edges, numbers, side="left")
    names = {int(position): _range_name(numbers[positions == position], form) for position in np.unique(positions)}
    labels: list[str | None] = [None] * len(values)
    for query, value in enumerate(values):
        if value is not None:
            labels[query] = names[int(np.searchsorted(edges, value, side="left"))]
    return labels


def _range_name(numbers: NDArray[np.float64], form: str) -> str:
    """Return the ends of some numbers in words; one number where both would read the same."""
    low = form.format(numbers.min())
    high = form.format(numbers.max())
    if low == high:
        return low
    return f"{low} to {high}"


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
