"""From a comparison to a cause: which documents agree, what explains the others, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrate.check.comparison import Comparison, Mask
from migrate.check.elsewhere import rows_elsewhere
from migrate.check.model import Cause, Trial
from migrate.check.ranges import describe_rows
from migrate.check.shares import Share
from migrate.check.trials import Tried, try_hypotheses
from migrate.embedders.base import Embedder
from migrate.stores.base import Store
from migrate.vectors import Progress

_SIGNIFICANT = 0.001
_NOT_SIGNIFICANT = 0.05
_MAJORITY = 0.5
_CLOSE = 0.5
"""The median text came 0.9 of the way from chance when a quarter was cut off, another layer's vector 0.2."""
_FEWEST_FOR_STRUCTURE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """The cause with its sentence; `taken_for` says of each document, (n,), what its vector is taken for."""

    cause: Cause
    sentence: str
    taken_for: tuple[str, ...]
    trials: tuple[Trial, ...]
    structure: float | None = None


def diagnose(
    store: Store, embedder: Embedder, compared: Comparison, disagreeing: Share, seed: int, progress: Progress
) -> Diagnosis:
    """Find out why the documents do not all agree, or that they do."""
    tried = Tried((), None)
    if not compared.agreeing.all() or compared.tolerance.loose:
        tried = try_hypotheses(compared, embedder, progress)
    best, labels = tried.best, _labels(compared, tried)
    if best is not None and (best.agreeing.all() or compared.tolerance.loose):
        n = f"{int(best.agreeing.sum())} of {len(compared)}"
        sentence = f"the documents were embedded {best.hypothesis.meaning}: so, {n} sampled ones agree"
        return Diagnosis(best.hypothesis.cause, sentence, labels, tried.trials)
    if compared.agreeing.all():
        sentence = f"the model gives the stored vectors for {_all(compared)}"
        return Diagnosis(Cause.COMPATIBLE, sentence, labels, tried.trials)
    if not compared.agreeing.any() and best is None:
        return _nothing_agrees(store, compared, tried, seed, progress)
    return _a_part_agrees(compared, tried, disagreeing)


def _all(compared: Comparison) -> str:
    n = len(compared)
    return "the one document with a text" if n == 1 else f"all {n} sampled documents"


def _labels(compared: Comparison, tried: Tried) -> tuple[str, ...]:
    """What each document's vector is taken for: the surest, which in a loose comparison is what is nearer."""
    labels = np.where(compared.near, "near, not equal", "at chance").astype(object)
    labels[compared.agreeing] = "agrees"
    if tried.best is not None:
        named = tried.best.agreeing if compared.tolerance.loose else tried.best.agreeing & ~compared.agreeing
        labels[named] = f"embedded {tried.best.hypothesis.meaning}"
    return tuple(labels.tolist())


def _explained(compared: Comparison, tried: Tried) -> Mask:
    return np.zeros(len(compared), bool) if tried.best is None else tried.best.agreeing


def _a_part_agrees(compared: Comparison, tried: Tried, disagreeing: Share) -> Diagnosis:
    """Some documents agree, plainly or when embedded in another way: tell what the others are."""
    explained = _explained(compared, tried) & ~compared.agreeing
    rest = ~compared.agreeing & ~explained
    labels = _labels(compared, tried)
    if not compared.agreeing.any() and tried.best is not None:
        named = f"the documents were embedded {tried.best.hypothesis.meaning}"
        sentence = f"{named}: so, {explained.sum()} of {len(compared)} sampled ones agree, the others do not"
        return Diagnosis(tried.best.hypothesis.cause, sentence, labels, tried.trials)
    if tried.best is not None and explained.sum() >= rest.sum():
        cause, what = Cause.MIXED, f"was embedded {tried.best.hypothesis.meaning}"
    elif compared.near[rest].mean() > _MAJORITY and compared.closeness(rest) > _CLOSE:
        cause, what = Cause.STALE, "is near what its texts give now, but not equal: these were changed since"
    else:
        cause, what = Cause.MIXED, "is of another model"
    share = f"{(~compared.agreeing).sum()} of {len(compared)} sampled documents disagree ({_bounds(disagreeing)})"
    where = describe_rows(compared.rows, compared.agreeing)
    return Diagnosis(cause, f"a part of the store {what}; {share}; {where}", labels, tried.trials)


def _bounds(share: Share) -> str:
    if share.lower == share.upper:
        return f"{share.estimate:.0%} of the store: all were looked at"
    return f"{share.estimate:.0%}, 95 % bounds {share.lower:.0%} to {share.upper:.0%} of the store"


def _nothing_agrees(store: Store, compared: Comparison, tried: Tried, seed: int, progress: Progress) -> Diagnosis:
    labels, trials = _labels(compared, tried), tried.trials
    cosine = float(np.median(compared.cosines))
    if compared.near.mean() > _MAJORITY and compared.closeness(np.ones(len(compared), bool)) > _CLOSE:
        sentence = (
            f"no vector is the model's, but most are near it (median cosine {cosine:.3f}): every text was changed "
            "before it was embedded, or the model is a near relative: another revision, fine-tuned, of less precision"
        )
        return Diagnosis(Cause.NEAR, sentence, labels, trials)
    some, elsewhere = rows_elsewhere(store, compared, progress)
    moved = np.flatnonzero(elsewhere >= 0)
    if len(moved) > _MAJORITY * len(some):
        first = some[moved[0]]
        example = f"document {compared.documents[first].id!r} (row {compared.rows[first]}) in row {elsewhere[moved[0]]}"
        sentence = f"{len(moved)} of {len(some)} texts have their vector in another row, such as that of {example}"
        return Diagnosis(Cause.OUT_OF_STEP, sentence, labels, trials)
    chance = f"cosine {cosine:.3f}, where different texts have {compared.chance:.3f}"
    if len(compared) < _FEWEST_FOR_STRUCTURE:
        sentence = f"nothing in common with the model's vectors ({chance})"
        return Diagnosis(Cause.OTHER_MODEL, sentence, labels, trials)
    return _by_structure(compared, chance, labels, trials, seed)


def _by_structure(
    compared: Comparison, chance: str, labels: tuple[str, ...], trials: tuple[Trial, ...], seed: int
) -> Diagnosis:
    """Tell another model of the same texts from vectors of other texts, by who is whose neighbour."""
    structure, by_chance = compared.structure(seed)
    if compared.is_rotated:
        cause, sentence = Cause.ROTATED, "the vectors are the model's, all turned in the same way, as by a PCA or OPQ"
    elif by_chance >= _NOT_SIGNIFICANT:
        unlike = f"nor are the same texts neighbours (rank correlation {structure:.2f})"
        cause, sentence = Cause.OTHER_TEXTS, f"these are not vectors of these texts: {chance}, {unlike}"
    else:
        sure, unsure = "yet the same texts are neighbours", "and too few texts to tell whose neighbours they are"
        found = f"{chance}, {sure if by_chance <= _SIGNIFICANT else unsure} (rank correlation {structure:.2f})"
        cause, sentence = Cause.OTHER_MODEL, f"another model of the same dimension: {found}"
    return Diagnosis(cause, sentence, labels, trials, structure)
