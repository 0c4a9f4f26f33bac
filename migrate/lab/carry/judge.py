"""The judgement of carried directions and probes by the documents of the sample, none by what it was fitted on.

The cosine of a direction with labels is that between the difference of their means as carried and as it is in the new
space, each document's part of it by a map that was fitted without its fold; bounds by the Bayesian bootstrap (Rubin
1981). Without labels it is that between the direction as all pairs carry it and as a resample of them does (Efron
1979): how far the sample settles the map. What of a concept the old vectors do not show is not seen by it, so it is the
most that can be. The scores behind an AUC are by maps without the document's fold, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from migrate.lab.labels.probes import LinearProbe
from migrate.lab.labels.roc import Z_95, Bounded, Mask, Matrix, auc, auc_difference
from migrate.stitch.affine import AffineMap
from migrate.stitch.base import fold_rows
from migrate.vectors import Vectors

Kind = Literal["direction", "probe"]

FEWEST_OF_A_CLASS: Final = 5
"""Documents with a label, and without it, that an AUC needs."""

Scorer: TypeAlias = Callable[[Vectors], Matrix]
Teacher: TypeAlias = Callable[[Vectors, Mask], Scorer]
"""A function that learns to tell documents with a label from those without."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a direction or a probe.

    Attributes
    ----------
    array : the name of its array
    name : the same, with the row in brackets where the array has several
    cosine : of a direction, to the true one in the new space; without labels it is at most that
    judged_by : `labels`, or `decisions` for what the probe itself says in the old space; None where nothing judges
    before : AUC in the old space; 1 by definition where its own decisions judge
    after : AUC in the new space
    refit : AUC of what the labels of the sample alone teach in the new space
    behind : by how much `refit` is ahead of `after`
    refused : why it is not carried; None where it is
    """

    kind: Kind
    array: str
    name: str
    cosine: Bounded | None = None
    judged_by: str | None = None
    before: Bounded | None = None
    after: Bounded | None = None
    refit: Bounded | None = None
    behind: Bounded | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class PairedVectors:
    """Documents of the sample with both vectors, (n, p) and (n, q)."""

    ids: Sequence[str]
    old: Vectors
    new: Vectors

    def __len__(self) -> int:
        return len(self.ids)


Folds = Sequence[tuple[AffineMap, NDArray[np.int64]]]


class Judge:
    """Judges by documents of the sample, fold by fold."""

    def __init__(self, pairs: PairedVectors, labels: Mapping[str, str], seed: int) -> None:
        self._old = pairs.old
        self._new = pairs.new
        self._labels = np.array([labels.get(doc_id, "") for doc_id in pairs.ids], dtype=object)
        self._labelled = np.array([doc_id in labels for doc_id in pairs.ids])
        self._seed = seed
        everything = np.arange(len(pairs))
        self.folds = [(np.setdiff1d(everything, held_out), held_out) for held_out in fold_rows(len(pairs), seed=seed)]

    def direction(self, array: str, name: str, row: Matrix, maps: Sequence[AffineMap], folds: Folds) -> Judgement:
        """Judge a direction, (p,): `maps` are of all pairs and of resamples, `folds` of all but each fold."""
        judged = self._mask(name)
        if judged is None:
            cosine = _settled(row, maps)
        else:
            cosine = self._shifted(judged, folds)
        # Cosines of random directions in q dimensions spread by 1 / sqrt(q)
        chance = Z_95 / float(np.sqrt(self._new.shape[1]))
        refused = None
        if cosine.lower < chance:
            refused = f"its cosine may be {cosine.lower:.2f}, as that of a random direction"
        draft = Judgement("direction", array, name, cosine, refused=refused)
        if judged is None:
            return draft
        scores = self._scores(folds, lambda affine: row @ affine.matrix)
        return self._judged(replace(draft, judged_by="labels"), judged, self._old @ row, scores, _mean_difference)

    def _shifted(self, judged: tuple[Mask, Mask], folds: Folds) -> Bounded:
        """Return the cosine between the difference that a label makes to the mean as carried, and as it is."""
        used, positive = judged
        carried, true = np.empty((2, *self._new.shape))
        for affine, held_out in folds:
            old = self._old[held_out]
            new = self._new[held_out]
            # Centred fold by fold, as the map of each fold has an offset of its own
            carried[held_out] = (old - old.mean(axis=0)) @ affine.matrix
            true[held_out] = new - new.mean(axis=0)
        # The Bayesian bootstrap: weights in the place of draws, so that each label keeps some documents in all of them.
        # Normalised, exponential weights are those of Rubin; 20 of 400 lie beyond either bound
        weights = np.random.default_rng(self._seed).exponential(size=(400, len(true)))
        # The first row is the estimate, of the documents as they are
        weights[0] = 1
        with_label = weights * positive
        without = weights * (used & ~positive)
        balance = with_label / with_label.sum(axis=1)[:, None] - without / without.sum(axis=1)[:, None]
        return _bounds([_cosine(a, b) for a, b in zip(balance @ carried, balance @ true, strict=True)])

    def probe(self, array: str, name: str, row: Matrix, bias: float, folds: Folds) -> Judgement:
        """Judge a probe, (p,) and its intercept: `folds` are maps back, of all but each fold."""
        old_scores = self._old @ row + bias
        scores = self._scores(
            folds, lambda affine: affine.matrix @ row, lambda affine: bias + float(row @ affine.offset)
        )
        draft = Judgement("probe", array, name, judged_by="labels")
        judged = self._mask(name)
        if judged is None:
            decisions = old_scores > 0
            # A probe of something rare decides for hardly any document of a sample
            if min(decisions.sum(), (~decisions).sum()) < FEWEST_OF_A_CLASS:
                decisions = old_scores > np.median(old_scores)
            draft = replace(draft, judged_by="decisions")
            judged = (np.ones_like(decisions), decisions)
        return self._judged(draft, judged, old_scores, scores, _probe)

    def _mask(self, name: str) -> tuple[Mask, Mask] | None:
        """Mark the documents with labels, and those with this one; None where these are too few."""
        positive = self._labelled & (self._labels == name)
        fewest = min(positive.sum(), (self._labelled & ~positive).sum())
        if fewest < FEWEST_OF_A_CLASS:
            return None
        return self._labelled, positive

    def _scores(
        self,
        folds: Folds,
        weights: Callable[[AffineMap], Matrix],
        bias: Callable[[AffineMap], float] = lambda _: 0.0,
    ) -> Matrix:
        """Return the scores of all documents, each from the map of the other folds."""
        scores = np.empty(len(self._new))
        for affine, held_out in folds:
            scores[held_out] = self._new[held_out] @ weights(affine) + bias(affine)
        return scores

    def _judged(
        self, draft: Judgement, judged: tuple[Mask, Mask], old_scores: Matrix, scores: Matrix, teach: Teacher
    ) -> Judgement:
        used, positive = judged
        truth = positive[used]
        after = auc(scores[used], truth)
        refit = None
        behind = None
        refit_scores = self._refit(used, positive, teach)
        if refit_scores is not None:
            refit = auc(refit_scores[used], truth)
            behind = auc_difference(refit_scores[used], scores[used], truth)
        refused = draft.refused
        if refused is None and after.lower <= 0.5:
            refused = f"its AUC may be {after.lower:.2f}, as that of chance"
        if refused is None and behind is not None and behind.lower > 0:
            refused = f"what the labels of the sample teach has an AUC {behind.estimate:.2f} higher; train it again"
        return replace(
            draft,
            before=auc(old_scores[used], truth),
            after=after,
            refit=refit,
            behind=behind,
            refused=refused,
        )

    def _refit(self, used: Mask, positive: Mask, teach: Teacher) -> Matrix | None:
        """Return the scores of what labels of the other folds teach; None where a fold lacks one of the classes."""
        scores = np.empty(len(self._new))
        for fit, held_out in self.folds:
            rows = fit[used[fit]]
            # Nothing can be learned from one class
            if len(set(positive[rows])) < 2:
                return None
            scores[held_out] = teach(self._new[rows], positive[rows])(self._new[held_out])
        return scores


def _cosine(a: Matrix, b: Matrix) -> float:
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not scale:
        return 0.0
    return float(a @ b) / scale


def _settled(row: Matrix, maps: Sequence[AffineMap]) -> Bounded:
    """Return the cosine between the direction as all pairs carry it and as resamples of them do."""
    whole, *refits = [row @ affine.matrix for affine in maps]
    cosines = [_cosine(whole, refit) for refit in refits] or [1.0]
    return _bounds([float(np.mean(cosines)), *cosines])


def _bounds(values: Sequence[float]) -> Bounded:
    """Return the first value, between the quantiles of the others."""
    lower, upper = np.quantile(values[1:], (0.05, 0.95))
    # The estimate need not lie between the quantiles of its resamples
    return Bounded(values[0], min(float(lower), values[0]), max(float(upper), values[0]))


def _mean_difference(vectors: Vectors, positive: Mask) -> Scorer:
    mean = vectors.mean(axis=0)
    difference = vectors[positive].mean(axis=0) - vectors[~positive].mean(axis=0)
    return lambda judged: np.asarray((judged - mean) @ difference, dtype=np.float64)


def _probe(vectors: Vectors, positive: Mask) -> Scorer:
    return LinearProbe(vectors, positive.astype(np.int64)).scores
