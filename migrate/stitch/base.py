"""The `Stitch` interface (fit on pairs, transform vectors, save and restore arrays), and cross-validated predictions.

A `Pairing` holds the old and new vectors of the same texts. `cross_predict` cuts it into folds and predicts each fold
with a stitch that was fitted on the others.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StitchError
from migrate.stitch.affine import AffineMap
from migrate.stitch.reach import Reach
from migrate.stitch.text_features import Matrix, TextRows
from migrate.vectors import Vectors

Arrays = Mapping[str, NDArray[Any]]
"""Learned arrays by name, as they are saved."""


Split: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows of pairs to fit on, and rows to predict."""

FOLDS = 5

_FEWEST_PAIRS = 2
"""Pairs that a fit needs at least: one has no spread to learn from."""


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predicted vectors, (m, q), float32, raw, and the posterior `variance` of each, (m,), where the stitch knows one.

    `prior` is that variance before any pair was seen, where the stitch knows it.
    """

    vectors: Vectors
    variance: Vectors | None = None
    prior: Vectors | None = None


class Stitch(ABC):
    """A map from the source space to the target space.

    `__init__` only stores options, `fit` learns and returns self, `transform` never changes state. The output is
    the raw prediction; `FittedStitch` scales it to the norm of the target model's vectors.
    """

    kind: ClassVar[str]
    options: ClassVar[Sequence[str]] = ()
    """Specs with an option, for a person who looks for one: `KIND:OPTION`."""
    cost: ClassVar[int] = 100
    """Cost of use: the least decides between equally good stitches; reading texts costs more than arithmetic."""
    learned: ClassVar[Sequence[str]] = ()
    """Names of the arrays that `fit` learns, each an attribute with an underscore behind its name."""
    reads_texts: ClassVar[bool] = False
    """True if it needs the texts as well as the vectors; other stitches ignore them."""
    reach: Reach | None = None
    """The region that the sample covers, after `with_reach`."""

    @property
    def spec(self) -> str:
        """The spec that a user writes for this stitch: `kind` or `kind:OPTION`."""
        return self.kind

    @classmethod
    def from_option(cls, option: str | None) -> Self | None:
        """A stitch that is not fitted from what follows the colon in its spec; None where that means nothing."""
        return cls() if option is None else None

    @abstractmethod
    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Learn from pairs: row i of `source`, (n, p), of `texts`, (n), and of `target`, (n, q), are of one text."""

    @abstractmethod
    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """Map rows of the source space, (m, p), with their texts, (m), to rows of the target space, (m, q), float32."""

    def predict(self, vectors: Vectors, texts: TextRows | None = None) -> Prediction:
        """Transform, with the variance where the stitch knows one."""
        predicted = self.transform(vectors, texts)
        if self.reach is None:
            return Prediction(predicted)
        return Prediction(predicted, *self.reach.of(vectors))

    def with_reach(self, source: Vectors) -> Self:
        """Learn where the old vectors of the pairs lie, (n, p), so that `predict` knows a variance.

        A stitch with a variance of its own ignores it.
        """
        self.reach = Reach.fit(source)
        return self

    def cross_predict(
        self, pairs: Pairing, splits: Sequence[Split], *, with_variance: bool = True
    ) -> Iterator[Prediction]:
        """For each split, fit a copy on the first part of the pairs and predict the second.

        Without `with_variance` a stitch may skip the variance to save time.
        """
        if not self.reads_texts:
            # Cutting rows out of sparse views, for each fold, takes time, and nobody reads them here
            pairs = replace(pairs, texts=None)
        for fit_rows, held_out in splits:
            fitted_on = pairs.take(fit_rows)
            judged = pairs.take(held_out)
            fitted = copy.copy(self).fit(fitted_on.source, fitted_on.target, fitted_on.texts)
            if with_variance:
                fitted = fitted.with_reach(fitted_on.source)
            yield fitted.predict(judged.source, judged.texts)

    def tuned(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """An unfitted copy with the options that are chosen once for a sample, not in every fit to a part of it."""
        return copy.copy(self)

    @property
    def views(self) -> Collection[str]:
        """The views of the texts that the fitted stitch reads, by their names."""
        return ()

    def arrays(self) -> Arrays:
        """Return the arrays that `fit` learned: `learned`, unless a stitch says otherwise."""
        return {name: getattr(self, f"{name}_") for name in self.learned}

    def restore(self, arrays: Arrays) -> Self:
        """Restore what `arrays` returned; a KeyError names an array that is missing."""
        for name in self.learned:
            setattr(self, f"{name}_", arrays[name])
        return self

    def affine(self, dim: int) -> AffineMap | None:
        """Return the fitted map from `dim` dimensions as a matrix and an offset; None where it is no such map."""
        return None

    def nearest_affine(self, dim: int) -> AffineMap | None:
        """Return the affine map that is nearest to the fitted one; None where no such map is near."""
        return self.affine(dim)

    def kind_facts(self) -> dict[str, float]:
        """Numbers about the fit that are worth showing, such as the chosen λ."""
        return {}


class StretchableStitch(Stitch):
    """A stitch behind whose map a linear one can be put: selection gives its predictions the spread of true vectors."""

    spread: AffineMap | None = None
    """Map by which `Pairing.fit` and `cross_predict` stretch what it predicts; not used by `fit`."""

    @abstractmethod
    def stretch(self, spread: AffineMap) -> Self:
        """Put the map of `spread` behind that of the fitted stitch, into what was learned."""


def saved_arrays(stitch: Stitch) -> Arrays:
    """Return everything to save of a fitted stitch: its `arrays`, and those of its reach if it has one."""
    if stitch.reach is None:
        return stitch.arrays()
    return {**stitch.arrays(), **stitch.reach.arrays()}


def restore_saved(stitch: Stitch, arrays: Arrays) -> Stitch:
    """Restore what `saved_arrays` returned; KeyError, IndexError or ValueError if one is missing or does not fit."""
    restored = stitch.restore(arrays)
    restored.reach = Reach.restore(arrays)
    return restored


def check_pairs(source: Vectors, target: Vectors) -> None:
    """Make sure that there are at least two pairs, or raise StitchError."""
    if len(source) != len(target) or len(source) < _FEWEST_PAIRS:
        raise StitchError(
            f"a fit needs at least 2 pairs of vectors, and there are {len(source)} source and {len(target)} "
            "target vectors; take a larger sample"
        )


def centred(vectors: Vectors) -> tuple[Matrix, Matrix]:
    """Rows minus their mean in float64, and that mean: shapes (n, d) and (d,)."""
    rows = vectors.astype(np.float64)
    mean = rows.mean(axis=0)
    rows -= mean
    return rows, mean


@dataclass(frozen=True, eq=False)
class Pairing:
    """Pairs to fit and judge on: row i of `source`, (n, p), of `target`, (n, q), and of `texts` are of one text.

    `seed` draws the parts that they are divided into, and all else that is drawn of them.
    """

    source: Vectors
    target: Vectors
    texts: TextRows | None = None
    seed: int = 0

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: NDArray[np.int64]) -> Pairing:
        """The pairs in these rows."""
        texts = None if self.texts is None else self.texts.take(rows)
        return Pairing(self.source[rows], self.target[rows], texts, self.seed)

    def in_own_order(self) -> Pairing:
        """The pairs in an order that their vectors make, so that what is drawn from them is drawn in any order."""
        # Not the order of rows: another order of the same sample would give other folds, and another choice
        keys = [old.tobytes() + new.tobytes() for old, new in zip(self.source, self.target, strict=True)]
        return self.take(np.array(sorted(range(len(self)), key=keys.__getitem__), dtype=np.int64))

    def without_views(self, names: Iterable[str]) -> Pairing:
        """The pairs, whose texts are not seen in these views."""
        if self.texts is None:
            return self
        return replace(self, texts=self.texts.without(set(names)))

    def fit(self, stitch: Stitch) -> Stitch:
        """A copy of the stitch, fitted on all pairs and stretched by its `spread`."""
        fitted = copy.copy(stitch).fit(self.source, self.target, self.texts).with_reach(self.source)
        if isinstance(fitted, StretchableStitch) and fitted.spread is not None:
            return fitted.stretch(fitted.spread)
        return fitted


def fold_rows(n: int, *, seed: int = 0) -> list[NDArray[np.int64]]:
    """Split 0..n-1 at random into `FOLDS` sorted parts of nearly equal size (fewer where n is smaller)."""
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(rows) for rows in np.array_split(order, min(FOLDS, n))]


def cross_predict(stitch: Stitch, pairs: Pairing, *, share: float = 1.0, with_variance: bool = True) -> Prediction:
    """Predictions for every pair from copies of a stitch fitted without its fold, on a `share` of the other pairs.

    They are stretched by the stitch's `spread`, if it has one.
    """
    if len(pairs) == _FEWEST_PAIRS:  # each fold leaves one pair to fit on, which predicts its own target
        return Prediction(pairs.target[::-1].copy())
    vectors = np.empty_like(pairs.target)
    # NaN marks what no fold has filled: a stitch may know one of the two, or neither
    variance = np.full(len(pairs), np.nan, dtype=np.float32)
    prior = np.full(len(pairs), np.nan, dtype=np.float32)
    splits = []
    for held_out in fold_rows(len(pairs), seed=pairs.seed):
        remaining = np.setdiff1d(np.arange(len(pairs)), held_out)
        if share < 1:
            drawn = np.random.default_rng(pairs.seed).permutation(remaining)
            count = max(round(share * len(remaining)), _FEWEST_PAIRS)
            remaining = np.sort(drawn[:count])
        splits.append((remaining, held_out))
    predictions = stitch.cross_predict(pairs, splits, with_variance=with_variance)
    for (_, rows), prediction in zip(splits, predictions, strict=True):
        vectors[rows] = prediction.vectors
        for values, fold_values in ((variance, prediction.variance), (prior, prediction.prior)):
            if fold_values is not None:
                values[rows] = fold_values
    if isinstance(stitch, StretchableStitch) and stitch.spread is not None:
        # As `Pairing.fit` will stretch what the whole stitch predicts
        vectors = stitch.spread.of(vectors).astype(np.float32)
    complete = [None if np.isnan(values).any() else values for values in (variance, prior)]
    return Prediction(vectors, *complete)
