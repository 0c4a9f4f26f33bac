"""Models that were trained on true vectors, tried on translated ones: a linear probe, kNN, an outside detector.

All are trained on the reference's vectors of one half of the labelled documents. The other half is judged by its true
and by its translated vectors, and what counts is the share of the former's right answers that the latter keep, every
label for the same (balanced accuracy). Documents whose true vectors the translated store holds judge nothing.

The detector finds documents from outside by the distance to the tenth nearest of those it was trained on (Sun, Ming,
Zhu & Li 2022). Its threshold lets 95 % of these pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import FEWEST_QUERIES, Bounds, Outcome
from migrate.audit.keys import Keys, id_keys
from migrate.errors import DatasetError, VectorError
from migrate.lab.labels.probes import LinearProbe, NearestNeighbours, OutsideDetector, divide, number_labels
from migrate.lab.labels.roc import Bounded, auc
from migrate.stores.base import Store
from migrate.stores.confidence import true_rows
from migrate.vectors import Progress, Vectors, check_vectors, no_progress

MOST = 10_000
"""Labelled documents, and documents from outside, that are read at most; drawn at random from more."""


PROBE, KNN, INSIDE, OUTSIDE = "linear probe", "kNN", "inside documents let pass", "outside documents found"


@dataclass(frozen=True, slots=True)
class KeptTask:
    """The part of a `task`, such as `linear probe`, that is kept on so many documents (`judged_on`).

    `true` and `translated` are shares of right answers by true and by translated vectors, of classifiers the mean over
    the labels, and `bounds` those of translated over true. A `doubt` is why nothing can be said, although there are
    figures. SAFE is where the lower bound is at least the margin, NOT SAFE where the upper one is below it.
    """

    task: str
    judged_on: int
    true: float
    translated: float
    bounds: Bounds
    doubt: str | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class DownstreamAudit:
    """The part of their right answers that trained models keep.

    The `tasks` are the probe, kNN, and the two sides of the detector where documents are from outside. `margin` is
    the share of right answers to keep, `labels` are those with enough documents to judge by, `majority` is the share of
    the judged documents with the most frequent label, and the documents `left_out` have true vectors. `outside_true`
    and `outside_translated` are AUC of the detector's distance. `doubts` say why the reference may be none.
    """

    tasks: tuple[KeptTask, ...]
    margin: float
    labels: int
    trained_on: int
    majority: float
    left_out: int
    outside_true: Bounded | None = None
    outside_translated: Bounded | None = None
    doubts: tuple[str, ...] = ()
    margin_from: str = ""

    @property
    def outcome(self) -> Outcome:
        """NOT SAFE where a task is, SAFE where all are and the reference is one, else INCONCLUSIVE."""
        outcomes = {task.outcome for task in self.tasks}
        if Outcome.NOT_SAFE in outcomes:
            return Outcome.NOT_SAFE
        if outcomes == {Outcome.SAFE} and not self.doubts:
            return Outcome.SAFE
        return Outcome.INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Documents that both stores have: row i of `true` and of `translated`, (n, q), is of `ids[i]`.

    `is_true` says which have their true vectors in the translated store too.
    """

    ids: Sequence[str]
    true: Vectors
    translated: Vectors
    is_true: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int64]) -> _Labelled:
        return _Labelled([self.ids[row] for row in rows], self.true[rows], self.translated[rows], self.is_true[rows])


def check_dimensions(store: Store, reference: Store) -> None:
    """Make sure that two stores have vectors of one dimension, or raise VectorError."""
    if store.info.dim != reference.info.dim:
        raise VectorError(
            f"{reference.info.location} has vectors of dimension {reference.info.dim}, and {store.info.location} "
            f"of {store.info.dim}; give a full re-embed as reference"
        )


def audit_downstream(
    store: Store,
    reference: Store,
    labels: Mapping[str, str],
    outside: Sequence[str] = (),
    *,
    margin: float = 0.95,
    margin_from: str = "",
    doubts: tuple[str, ...] = (),
    seed: int = 0,
    progress: Progress = no_progress,
) -> DownstreamAudit:
    """Train on the reference's vectors of labelled documents, and judge those of the translated store.

    `doubts` say why the reference may be none: it has not proven to be one here.
    """
    check_dimensions(store, reference)
    keys = (id_keys(store), id_keys(reference))
    rng = np.random.default_rng(seed)
    strange = set(outside)
    # One that is from outside as well would be trained on as inside
    labelled = _read(store, reference, keys, [i for i in labels if i not in strange], rng)
    progress("judge labels", 1, 3)
    _, numbers = number_labels([labels[doc_id] for doc_id in labelled.ids])
    train, test = divide(numbers, seed)
    judged = test[~labelled.is_true[test]]
    times = np.bincount(numbers[judged], minlength=numbers.max(initial=0) + 1)
    # A rarer label would weigh too much
    judged = judged[times[numbers[judged]] >= 5]
    _check_enough(len(judged), "labelled", len(test))
    rows = labelled.take(judged)
    right = numbers[judged]
    majority = (right == np.bincount(numbers[train]).argmax()).astype(np.float64)
    # Every label counts for the same, and the unseen document as much as any
    values = len(judged) / np.bincount(right)[right] / len(np.unique(right))
    weights = values / values.max()
    bootstrap = Bootstrap(seed=seed)
    tasks = []
    for name, fit in ((PROBE, LinearProbe), (KNN, NearestNeighbours)):
        predict = fit(labelled.true[train], numbers[train]).predict
        true, translated = (np.asarray(predict(vectors) == right) for vectors in (rows.true, rows.translated))
        is_guess = bootstrap.difference(weights * true, weights * majority).lower <= 0
        doubt = "by true vectors it is not shown to be better than a guess, so there is nothing to keep"
        tasks.append(_task(name, true, translated, margin, bootstrap, doubt if is_guess else None, weights=weights))
    progress("judge labels", 2, 3)
    detected: tuple[list[KeptTask], Bounded | None, Bounded | None] = ([], None, None)
    if strange:
        strangers = _read(store, reference, keys, list(strange), rng)
        detected = _detect(labelled.true[train], rows, strangers, margin, bootstrap)
    progress("judge labels", 3, 3)
    return DownstreamAudit(
        (*tasks, *detected[0]),
        margin,
        len(np.unique(right)),
        len(train),
        float(majority.mean()),
        int(labelled.is_true[test].sum()),
        *detected[1:],
        doubts,
        margin_from,
    )


def _task(
    task: str,
    true: NDArray[np.bool_],
    translated: NDArray[np.bool_],
    margin: float,
    bootstrap: Bootstrap,
    doubt: str | None = None,
    *,
    weights: NDArray[np.float64] | None = None,
) -> KeptTask:
    """Return what is kept; the answers say which documents are answered rightly by either vectors.

    `weights` are those of the documents, (n,), from 0 to 1; None where all count for the same.
    """
    if weights is None:
        weights = np.ones(len(true))
    by_true = weights * true
    by_translated = weights * translated
    bounds = bootstrap.retention(by_translated, by_true)
    if doubt is not None:
        outcome = Outcome.INCONCLUSIVE
    elif bounds.upper < margin:
        outcome = Outcome.NOT_SAFE
    elif bounds.lower >= margin:
        outcome = Outcome.SAFE
    else:
        outcome = Outcome.INCONCLUSIVE
    full = float(by_true.sum() / weights.sum())
    retained = float(by_translated.sum() / weights.sum())
    return KeptTask(task, len(true), full, retained, bounds, doubt, outcome)


def _detect(
    train: Vectors, inside: _Labelled, outside_docs: _Labelled, margin: float, bootstrap: Bootstrap
) -> tuple[list[KeptTask], Bounded, Bounded]:
    """Return what a detector keeps on either side, and the AUC of its distances by true and by translated vectors."""
    outside = outside_docs.take(np.flatnonzero(~outside_docs.is_true))
    _check_enough(len(outside.ids), "outside", len(outside_docs.ids))
    detector = OutsideDetector(train)
    near_by_true = detector.distances(inside.true)
    near_by_translated = detector.distances(inside.translated)
    far_by_true = detector.distances(outside.true)
    far_by_translated = detector.distances(outside.translated)
    is_outside = np.arange(len(inside.ids) + len(outside.ids)) >= len(inside.ids)
    true = auc(np.concatenate([near_by_true, far_by_true]), is_outside)
    translated = auc(np.concatenate([near_by_translated, far_by_translated]), is_outside)
    threshold = detector.threshold
    share_found = float((far_by_true > threshold).mean())
    doubt = None
    # A tenth is twice its false alarms
    if true.lower <= 0.5 or share_found < 0.1:
        doubt = f"by true vectors it finds {share_found:.1%} of them, so there is nothing to keep"
    tasks = [
        _task(INSIDE, near_by_true <= threshold, near_by_translated <= threshold, margin, bootstrap),
        _task(OUTSIDE, far_by_true > threshold, far_by_translated > threshold, margin, bootstrap, doubt),
    ]
    return tasks, true, translated


def _check_enough(count: int, kind: str, read: int) -> None:
    if count < FEWEST_QUERIES:
        raise DatasetError(
            f"too few {kind} documents to judge by: {count} of {read} have translated vectors, and "
            f"{FEWEST_QUERIES} are needed; give more"
        )


def _read(
    translated: Store, reference: Store, keys: tuple[Keys, Keys], ids: Sequence[str], rng: np.random.Generator
) -> _Labelled:
    """Return up to 10,000 of these documents, of those that both stores have, in an order that is always the same."""
    shared = np.array(sorted(set.intersection(*(store_keys.ids.present(ids) for store_keys in keys))), dtype=object)
    if not len(shared):
        none = np.empty((0, translated.info.dim), np.float32)
        return _Labelled([], none, none, np.empty(0, bool))
    chosen = sorted(rng.permutation(shared)[:MOST])
    translated_rows, reference_rows = (store_keys.ids.rows_of(chosen) for store_keys in keys)
    vectors = []
    for store, store_rows in ((reference, reference_rows), (translated, translated_rows)):
        batch = store.get(store_rows)
        check_vectors(batch.ids, batch.vectors, source=store.info.location)
        vectors.append(batch.vectors.copy())
    return _Labelled(chosen, vectors[0], vectors[1], true_rows(translated)[translated_rows])
