"""Chooses a stitch: each candidate is scored by the retrieval it gives on pairs it was not fitted on.

`select_stitch` chooses for documents, `select_query_stitch` for queries, and `learning_curve` estimates what more
pairs would gain.

A stitch for queries is scored differently, because it has to return the new model's answers from the old vectors: each
held-out document searches the old vectors of the sample with its mapped vector, and the result is compared with its
neighbours among the new vectors. Cosine, MSE and R² still compare with the old vectors, although the adjoint stitches
do not aim at these.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.affine import fit_spread
from migrate.stitch.base import FOLDS, Pairing, Stitch, StretchableStitch, check_pairs, cross_predict, fold_rows
from migrate.stitch.confidence import Confidence
from migrate.stitch.kernel_ridge import RidgeText, TextAlone
from migrate.stitch.linear import Adjoint, Identity, MeanVector, Procrustes, Ridge
from migrate.stitch.registry import find_kind, new_stitch
from migrate.stitch.scores import HeldOutScores, Neighbours, score_predictions, standard_error
from migrate.vectors import Progress, Vectors, no_progress, unit_rows

MORE = 1_000
"""Further pairs whose gain is estimated."""

_RESAMPLES = 1_000
"""Resamples of documents for the bounds of a gain."""

_PARTS = (0.25, 0.5)
"""Shares of the pairs that a learning curve fits on beside all of them: doublings, which a power law takes."""

_ROUNDING = 1e-6
"""Difference of a ratio from 1 that is rounding."""

_NOISE = 2.0
"""Standard errors behind the best up to which a candidate is judged on a second division into folds."""

_TEXTS_NOISE = 6.0
"""The same of one that reads texts, which add more for queries than for a sample's neighbours (4 kept 0.01 less)."""

_LEVEL = 0.25
"""Standard errors behind the best up to which the cheapest is taken: 1 gave up to 0.02 of overlap@10 away for nothing
but a cheaper product of matrices, and 0 would let rounding errors decide."""

_COMPLETE = 0.95
"""Merit of the best from which on the old vectors leave nothing for texts to add."""

_FEW_PAIRS = 300
"""Pairs up to which candidates are compared by cosines: the ten nearest of thirty documents say little of the ten
nearest of thousands (`benchmarks/small_samples.py`)."""

FEWEST_JUDGED = 40
"""Held-out documents from which on an overlap is told: ten neighbours are a quarter of all others then."""

AUTO = "auto"
"""The spec that means all candidates that suit the pairs."""

AUTO_CANDIDATES = ("identity", "procrustes", "ridge", "ridge+near", "ridge+text")
"""Stitches that `auto` chooses from, the cheaper to use first."""

RANDOM = "random"
"""The control that gives each document the true vector of another."""

_ABOVE_CHANCE = 3.0
"""Standard errors by which an overlap is to be above that of the control `random`."""

LARGEST_JUDGED = 2_000
"""Pairs that candidates are judged on: more show the differences no better, and the time grows with the cube."""

QUERY_CANDIDATES = (
    Identity.kind,
    Procrustes.kind,
    Ridge.kind,
    f"{Adjoint.kind}:{Procrustes.kind}",
    Adjoint.kind,
)
"""Stitches that `auto` chooses from for queries, the simpler first: on equal scores the earlier wins."""


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Held-out overlap@10, `overlap[i]`, after fitting on `pairs[i]` pairs, always over the same documents.

    `gain` is what the next `MORE` pairs can be expected to add to the last of them, within `low` and `high` (95 %,
    a bootstrap over documents). They are not known where the last pairs added nothing in any resample.
    """

    pairs: tuple[int, ...]
    overlap: tuple[float, ...]
    gain: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """False where nothing shows what more pairs add."""
        return self.low < self.high


def learning_curve(
    stitch: Stitch,
    pairs: Pairing,
    shares: NDArray[np.float64],
    neighbours: Neighbours,
    *,
    n_pairs: int | None = None,
) -> LearningCurve | None:
    """Fit on a quarter and a half of the pairs too, and extrapolate; None for fewer than `FEWEST_JUDGED` pairs.

    `shares` is the overlap@10 of each query document of `neighbours`, from all pairs. Where the stitch will learn from
    `n_pairs`, more than these, the gain counts from there. Each doubling is assumed to gain less than the one before by
    the same factor as the last doubling, which is a power law in the number of pairs.
    """
    if len(pairs) < FEWEST_JUDGED:
        return None
    smaller = [cross_predict(stitch, pairs, share=share, with_variance=False).vectors for share in _PARTS]
    # A row a document, so that a resample keeps the three of each together: they vary alike
    steps = np.column_stack([*map(neighbours.overlap, smaller), shares])
    learned_from = (1 - 1 / FOLDS) * len(pairs)  # a fold is held out
    n_sample = n_pairs or len(pairs)
    current = float(np.log2(n_sample / len(pairs)))
    target = float(np.log2((n_sample + MORE) / len(pairs)))
    draws = np.random.default_rng(pairs.seed).integers(len(steps), size=(_RESAMPLES, len(steps)))
    means = [steps.mean(axis=0), *(steps[draw].mean(axis=0) for draw in draws)]
    gain, *gains = [_gain(overlap, target) - _gain(overlap, current) for overlap in means]
    low, high = np.percentile(gains, [2.5, 97.5]).tolist()
    return LearningCurve(
        pairs=tuple(round(share * learned_from) for share in (*_PARTS, 1)),
        overlap=tuple(means[0].tolist()),
        gain=gain,
        low=low,
        high=high,
    )


def _gain(overlap: Sequence[float] | NDArray[np.float64], doublings: float) -> float:
    """The gain of further doublings, extrapolated from the overlap at a quarter, a half and all of the pairs."""
    previous = overlap[1] - overlap[0]
    last = overlap[2] - overlap[1]
    if last <= 0:
        return 0.0
    ratio = 1.0
    if previous > 0:
        ratio = min(last / previous, 1.0)  # a doubling that gained more than the one before is noise
    steps = doublings
    if ratio <= 1 - _ROUNDING:
        steps = (1 - ratio**doublings) / (1 - ratio)  # the geometric series; 0 / 0 for a ratio of 1
    return float(min(last * ratio * steps, 1 - overlap[2]))


@dataclass(frozen=True, slots=True)
class ScoredStitch:
    """One row of the table that `fit` prints."""

    stitch: str
    scores: HeldOutScores
    fit_s: float = field(default=0.0, compare=False)
    is_control: bool = False


MOST_VIEWED = 20_000
"""Documents of a store up to which a free local model is used unasked: a quarter of an hour of two cores."""


@dataclass(frozen=True, slots=True)
class TriedViews:
    """The gain of free local models for a stitch: held-out overlap@10 with their views and without.

    `documents` is how many a translation would have to embed with them, which takes `minutes` where that was measured.
    One that `is_target` gives the target's own vectors, so that a translation with its views would be a full re-embed;
    it is not tried.
    """

    specs: tuple[str, ...]
    overlap_with: float
    overlap_without: float
    helps: bool
    documents: int
    is_target: bool = False
    minutes: float | None = field(default=None, compare=False)

    @classmethod
    def compare(cls, specs: tuple[str, ...], with_views: Selection, plain: Selection, *, documents: int) -> Self:
        """Set what was chosen with the views beside what was chosen without."""
        scores = with_views.best.scores
        bare = plain.best.scores
        helps = scores.overlap_at_10 - bare.overlap_at_10 > scores.overlap_error
        return cls(specs, scores.overlap_at_10, bare.overlap_at_10, helps, documents)

    @property
    def is_used(self) -> bool:
        """True if they are worth the time."""
        return self.helps and self.documents <= MOST_VIEWED


@dataclass(frozen=True, slots=True)
class TriedTokens:
    """The gain of the token embeddings of the model `spec` for a target without its own: overlap@10 of texts alone.

    Both are held-out; the tokens are read where the gain is above its standard error.
    """

    spec: str
    overlap_with: float
    overlap_without: float
    is_used: bool

    @classmethod
    def compare(cls, spec: str, with_tokens: Pairing, plain: Pairing) -> Self:
        """Judge a stitch of the texts alone on the same pairs, whose texts are read with these tokens and without."""
        plain = some_of(plain)
        neighbours = Neighbours(plain.target, seed=plain.seed)
        _, predicted = tune(TextAlone.kind, some_of(with_tokens))
        shares = neighbours.overlap(predicted)
        _, predicted = tune(TextAlone.kind, plain)
        bare = neighbours.overlap(predicted)
        is_used = bool((shares - bare).mean() > standard_error(shares - bare))
        return cls(spec, float(shares.mean()), float(bare.mean()), is_used)


@dataclass(frozen=True, slots=True)
class TriedWords:
    """The gain of `count` words of the store that the target has embedded: overlap@10 of texts alone.

    Both are held-out, after fits for as many tokens: with the words on fewer pairs, without them on all. `pairs` is how
    many documents have as many tokens as the words. The words are read where the gain is above its standard error.
    Of texts alone, as words tell more of what queries seek than of a sample's neighbours.
    """

    count: int
    pairs: float
    overlap_with: float
    overlap_without: float
    is_used: bool

    @classmethod
    def compare(cls, count: int, pairs: float, with_words: Pairing, plain: Pairing) -> Self:
        """Judge a stitch of the texts alone on the same pairs, whose texts are read with these words and without."""
        share = max(1 - pairs / len(plain), 0.0)
        plain = some_of(plain)
        neighbours = Neighbours(plain.target, seed=plain.seed)
        with_words = some_of(with_words)
        stitch, _ = tune(TextAlone.kind, with_words)
        shares = neighbours.overlap(cross_predict(stitch, with_words, share=share, with_variance=False).vectors)
        _, predicted = tune(TextAlone.kind, plain)
        bare = neighbours.overlap(predicted)
        is_used = bool((shares - bare).mean() > standard_error(shares - bare))
        return cls(count, pairs, float(shares.mean()), float(bare.mean()), is_used)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Two kinds of old vectors in a sample, such as those of two models: the smaller `share` (0-1) of documents.

    They show as `groups` in the old space of which the new one knows nothing, or as `errors` of two kinds.
    """

    share: float
    sign: Literal["groups", "errors"]


@dataclass(frozen=True, slots=True)
class Selection:
    """The scored candidates and the chosen one, with its confidence and its learning curve.

    `tokens` says what those of a free model add to the texts, `vocabulary` what words of the store add. `judged` is how
    many documents the candidates were judged on; `mixture` says that their old vectors are of two kinds. `tuned` are
    stitches by their specs, tuned but not fitted: the chosen one, and the best of the old vectors alone; none where the
    selection was loaded from a file.
    """

    chosen: str
    candidates: tuple[ScoredStitch, ...]
    confidence: Confidence | None = None
    curve: LearningCurve | None = None
    tuned: Mapping[str, Stitch] = field(default_factory=dict, compare=False, repr=False)
    tried: TriedViews | None = None
    choice: Clarity | None = None
    tokens: TriedTokens | None = None
    vocabulary: TriedWords | None = None
    judged: int | None = None
    mixture: Mixture | None = None

    @property
    def is_told(self) -> bool:
        """True if the held-out overlap of the chosen stitch says something of it."""
        return not self.is_too_small and not self.is_at_chance(self.best)

    @property
    def is_too_small(self) -> bool:
        """True if the documents are too few to tell any overlap."""
        return self.judged is not None and self.judged < FEWEST_JUDGED

    @property
    def random(self) -> ScoredStitch | None:
        """The control that gives each document the true vector of another."""
        return next((row for row in self.candidates if row.stitch == RANDOM), None)

    def is_at_chance(self, row: ScoredStitch) -> bool:
        """Return whether the overlap of a candidate is not clearly above that of the control `random`."""
        if self.random is None:
            return False
        scores = row.scores
        chance = self.random.scores
        error = float(np.hypot(scores.overlap_error, chance.overlap_error))
        return scores.overlap_at_10 - chance.overlap_at_10 <= _ABOVE_CHANCE * error

    @property
    def best(self) -> ScoredStitch:
        """The row of the chosen one."""
        return next(row for row in self.candidates if row.stitch == self.chosen)

    @property
    def stitch(self) -> Stitch | None:
        """The chosen stitch, tuned but not fitted, where it is known."""
        return self.tuned.get(self.chosen)

    @property
    def best_of_vectors(self) -> ScoredStitch | None:
        """The candidate with the best held-out overlap@10 out of those that read the old vectors alone."""
        return max(self._of_vectors, key=lambda row: row.scores.overlap_at_10, default=None)

    @property
    def best_map_of_vectors(self) -> ScoredStitch | None:
        """The same of those that learn a map from the old vectors."""
        plain = [row for row in self._of_vectors if row.stitch not in (Identity.kind, MeanVector.kind)]
        return max(plain, key=lambda row: row.scores.overlap_at_10, default=None)

    @property
    def _of_vectors(self) -> list[ScoredStitch]:
        judged = [(row, find_kind(row.stitch)) for row in self.candidates if not row.is_control]
        return [row for row, kind in judged if kind is not None and not kind.reads_texts]

    def as_details(self) -> dict[str, Any]:
        """Return the facts that a file keeps of it."""
        content = asdict(replace(self, tuned={}))
        del content["tuned"]
        return content


@dataclass(frozen=True, slots=True)
class Clarity:
    """The clarity of a choice: the chosen stitch is the best in `best_in` of `splits` held-out parts of the sample.

    `rivals` are the candidates that the noise of the estimate does not tell from the best.
    """

    best_in: int
    splits: int
    rivals: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Judged:
    """A candidate with its scores on held-out pairs, and the share of the true top 10 that each query finds.

    It is compared with others by `merits`, one a query: these shares, or of few pairs cosines. Up to `noise` standard
    errors behind the best it is judged on a second division into folds.
    """

    row: ScoredStitch
    stitch: Stitch
    shares: NDArray[np.float64]
    merits: NDArray[np.float64]
    noise: float


def applicable(pairs: Pairing) -> list[str]:
    """The specs `auto` may choose from for these pairs."""
    same_dim = pairs.source.shape[1] == pairs.target.shape[1]
    usable = [spec for spec in AUTO_CANDIDATES if same_dim or spec != Identity.kind]
    return [spec for spec in usable if pairs.texts is not None or not new_stitch(spec).reads_texts]


def candidates(specs: Sequence[str], automatic: Sequence[str]) -> list[str]:
    """The specs to choose from, each once: those that are named, and for `auto` or none at all those of `automatic`.

    >>> candidates(["mean", "auto", "mean"], ["procrustes", "ridge"])
    ['procrustes', 'ridge', 'mean']
    """
    named = specs
    if AUTO in specs or not specs:
        named = [*automatic, *specs]
    return [spec for spec in dict.fromkeys(named) if spec != AUTO]


def select_stitch(
    pairs: Pairing,
    *,
    specs: Sequence[str] = (),
    tuned: Mapping[str, Stitch] | None = None,
    progress: Progress = no_progress,
) -> Selection:
    """Cross-validate stitches and choose one.

    The candidates are `specs`, and all that apply for `auto` among them or where there are none. Each fold's
    predictions come from a stitch that has not seen the fold; put together they cover the sample, so that retrieval is
    judged over all n documents, and stretched to the spread of true vectors. The best overlap@10 wins, or the
    best cosine (`Neighbours.closeness`) where there are few pairs; candidates that are behind it by no more than noise
    are judged on a second division into folds, and the mean counts. Of these one that reads texts is preferred, and
    then, within a quarter of a standard error of the paired difference, the cheapest to use (after the
    one-standard-error rule of Breiman et al. 1984).

    Controls are listed in the table but chosen only if they are in `specs`: `mean`; `random`, which gives each document
    the true vector of another; and, where there are texts, `text`, which shows what the old vectors contribute.

    What `tuned` has of the candidates, on the same pairs, is not tuned again.

    Raises StitchError: fewer than two pairs, or no texts for a stitch that reads them. UsageError: a spec that is no
    stitch.
    """
    check_pairs(pairs.source, pairs.target)
    n_pairs = len(pairs)
    pairs = some_of(pairs)
    # The cheapest first: of those that noise does not tell apart the first is taken
    choices = sorted(candidates(specs, applicable(pairs)), key=lambda spec: (find_kind(spec) or Stitch).cost)
    neighbours = Neighbours(pairs.target, seed=pairs.seed)
    judged = []
    for done, spec in enumerate(choices):
        progress("fit candidates", done, len(choices))
        judged.append(_judge(spec, pairs, neighbours, tuned=(tuned or {}).get(spec)))
    chosen, choice = _choose(judged, pairs, neighbours)
    stitches = {judgement.row.stitch: judgement.stitch for judgement in judged}
    # The weights that `ridge+text` has found for the texts serve the control too, which need not search again
    rows = [candidate.row for candidate in judged] + _controls(choices, stitches.get(RidgeText.kind), pairs, neighbours)
    progress("fit candidates", len(choices), len(choices))
    curve = learning_curve(chosen.stitch, pairs, chosen.shares, neighbours, n_pairs=n_pairs)
    selection = Selection(
        chosen=chosen.row.stitch,
        candidates=tuple(rows),
        confidence=Confidence.fit(cross_predict(chosen.stitch, pairs), pairs.target),
        curve=curve,
        tuned=stitches,
        choice=choice,
        judged=len(pairs),
    )
    kept_specs = {row.stitch for row in (chosen.row, selection.best_of_vectors) if row is not None}
    return replace(selection, tuned={spec: stitch for spec, stitch in stitches.items() if spec in kept_specs})


def _controls(
    choices: Sequence[str], reader: Stitch | None, pairs: Pairing, neighbours: Neighbours
) -> list[ScoredStitch]:
    """Judge the controls that are not among the choices; `reader` may have tuned the one that reads texts alone."""
    controls: dict[str, Stitch | None] = {}
    if pairs.texts is not None:
        controls[TextAlone.kind] = reader.texts_alone() if isinstance(reader, RidgeText) else None
    controls[MeanVector.kind] = None
    rows = [
        _judge(spec, pairs, neighbours, tuned=stitch, is_control=True).row
        for spec, stitch in controls.items()
        if spec not in choices
    ]
    exchanged = _exchanged(pairs)
    random = score_predictions(exchanged, pairs.target, neighbours.overlap(exchanged))
    return [*rows, ScoredStitch(RANDOM, random, is_control=True)]


def some_of(pairs: Pairing) -> Pairing:
    """Draw as many of the pairs as candidates are judged on."""
    if len(pairs) <= LARGEST_JUDGED:
        return pairs
    return pairs.take(np.sort(np.random.default_rng(pairs.seed).permutation(len(pairs))[:LARGEST_JUDGED]))


def tune(spec: str, pairs: Pairing, *, tuned: Stitch | None = None) -> tuple[Stitch, Vectors]:
    """An unfitted stitch with all that is chosen for these pairs, and its predictions for held-out ones, (n, q).

    `tuned` is one whose options are chosen already.
    """
    stitch = tuned or new_stitch(spec).tuned(pairs.source, pairs.target, pairs.texts)
    if isinstance(stitch, StretchableStitch):
        stitch.spread = None  # what an earlier round has found; it is found anew
    vectors = cross_predict(stitch, pairs, with_variance=False).vectors
    if isinstance(stitch, StretchableStitch):
        stitch.spread = fit_spread(vectors, pairs.target)
        vectors = stitch.spread.of(vectors).astype(np.float32)
    return stitch, vectors


def _judge(
    spec: str,
    pairs: Pairing,
    neighbours: Neighbours,
    *,
    tuned: Stitch | None = None,
    is_control: bool = False,
) -> _Judged:
    started = time.perf_counter()
    stitch, vectors = tune(spec, pairs, tuned=tuned)
    elapsed = time.perf_counter() - started
    shares = neighbours.overlap(vectors)
    scores = score_predictions(vectors, pairs.target, shares, neighbours.sphere)
    row = ScoredStitch(spec, scores, elapsed, is_control)
    merits = shares
    noise = _NOISE
    if len(pairs) <= _FEW_PAIRS:
        merits = neighbours.closeness(vectors)
    elif stitch.reads_texts:
        noise = _TEXTS_NOISE
    return _Judged(row, stitch, shares, merits, noise)


def _choose(judged: Sequence[_Judged], pairs: Pairing, neighbours: Neighbours) -> tuple[_Judged, Clarity]:
    """The best candidate; those that noise does not tell from it are compared on two divisions into folds."""
    # On one division a difference of 0.003 decided for procrustes, which kept up to 0.12 less nDCG@10
    contenders = _near_the_best(judged)
    merits_by_division = {pairs.seed: {candidate.row.stitch: candidate.merits for candidate in judged}}
    if len(contenders) > 1:
        divided_again = replace(pairs, seed=pairs.seed + 1)
        predicted = {
            candidate.row.stitch: cross_predict(candidate.stitch, divided_again, with_variance=False).vectors
            for candidate in contenders
        }
        if len(pairs) <= _FEW_PAIRS:
            merits = {stitch: neighbours.closeness(vectors) for stitch, vectors in predicted.items()}
        else:
            merits = {stitch: neighbours.overlap(vectors) for stitch, vectors in predicted.items()}
        merits_by_division[divided_again.seed] = merits
    judged_again = []
    for candidate in contenders:
        mean = np.mean([division[candidate.row.stitch] for division in merits_by_division.values()], axis=0)
        judged_again.append(replace(candidate, merits=mean))
    chosen = _pick(judged_again).row.stitch
    wins = []
    for fold_seed, division in merits_by_division.items():
        for rows in fold_rows(len(pairs), seed=fold_seed):
            is_held_out = np.isin(neighbours.query_rows, rows)
            if is_held_out.any():  # of more than 1,000 pairs some parts ask nothing
                means = {stitch: values[is_held_out].mean() for stitch, values in division.items()}
                wins.append(bool(means[chosen] >= max(means.values())))
    rivals = tuple(candidate.row.stitch for candidate in contenders if candidate.row.stitch != chosen)
    best = next(candidate for candidate in judged if candidate.row.stitch == chosen)
    return best, Clarity(sum(wins), len(wins), rivals)


def _near_the_best(judged: Sequence[_Judged]) -> list[_Judged]:
    """The best candidate, and those that are behind it by no more than noise."""
    best = _best(judged)
    return [candidate for candidate in judged if _is_near(candidate, best, candidate.noise)]


def _pick(near: Sequence[_Judged]) -> _Judged:
    """Pick the cheapest of those that read texts, unless these can add nothing, else of all near the best."""
    readers = [candidate for candidate in _near_the_best(near) if candidate.stitch.reads_texts]
    group = near
    if readers and _best(near).merits.mean() < _COMPLETE:
        group = readers
    return next(candidate for candidate in group if _is_near(candidate, _best(group), _LEVEL))


def _best(judged: Sequence[_Judged]) -> _Judged:
    return max(judged, key=lambda candidate: (candidate.merits.mean(), -candidate.row.scores.mse))


def _is_near(candidate: _Judged, best: _Judged, errors: float) -> bool:
    behind = best.merits - candidate.merits
    return bool(behind.mean() <= errors * standard_error(behind))


def _exchanged(pairs: Pairing) -> Vectors:
    """Return the true vectors in one cycle at random, in which no document keeps its own."""
    # One cycle: a random order would leave some documents their own vectors, and the control would not be at chance
    shift = np.random.default_rng(pairs.seed).permutation(len(pairs))
    exchanged = np.empty_like(pairs.target)
    exchanged[shift] = pairs.target[np.roll(shift, 1)]
    return exchanged


def select_query_stitch(pairs: Pairing, *, specs: Sequence[str] = (), progress: Progress = no_progress) -> Selection:
    """Cross-validate stitches from new vectors, (n, p), to old ones, (n, q), and choose by overlap@10.

    As `select_stitch`, with the controls `mean` and `random`, but the overlap is that of the module docstring.

    Raises StitchError: fewer than two pairs. UsageError: a spec that is no stitch.
    """
    check_pairs(pairs.source, pairs.target)
    same_dim = pairs.source.shape[1] == pairs.target.shape[1]
    choices = candidates(specs, [spec for spec in QUERY_CANDIDATES if same_dim or spec != Identity.kind])
    controls = [spec for spec in (MeanVector.kind,) if spec not in choices]
    new, old = (Neighbours(side, seed=pairs.seed) for side in (pairs.source, pairs.target))
    documents = unit_rows(pairs.target)

    def score(spec: str, mapped: Vectors, *, fit_s: float = 0.0, is_control: bool = False) -> ScoredStitch:
        # New answers from old vectors are what such a stitch is for; nearness to the old vectors does not measure that
        overlap = float(new.overlap(documents, unit_rows(mapped)).mean())
        scores = replace(score_predictions(mapped, pairs.target, old.overlap(mapped)), overlap_at_10=overlap)
        return ScoredStitch(spec, scores, fit_s, is_control)

    table: list[ScoredStitch] = []
    for done, spec in enumerate([*choices, *controls]):
        progress("fit candidates", min(done, len(choices)), len(choices))
        started = time.perf_counter()
        mapped = cross_predict(new_stitch(spec), pairs, with_variance=False).vectors
        table.append(score(spec, mapped, fit_s=time.perf_counter() - started, is_control=spec in controls))
    chosen = max(table[: len(choices)], key=lambda row: row.scores.overlap_at_10).stitch
    return Selection(chosen, (*table, score(RANDOM, _exchanged(pairs), is_control=True)), judged=len(pairs))
