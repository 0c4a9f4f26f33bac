"""Finds the cause of a disagreement: which documents agree, what explains the others, and how certain that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from migrate.check.comparison import Reembedded, Share, spread
from migrate.check.model import Cause, Trial
from migrate.display import percent
from migrate.embedders.abilities import variants_of, with_prefixes
from migrate.embedders.base import Embedder
from migrate.search.runs import TopK
from migrate.selection.model_match import Mask, agree, matches
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, Vectors, unit_rows

_PROBES = 4
"""Documents that a way of embedding is tried on first."""

# Of four probes it takes all, which a way that is no better passes once in 16 times
_MOST_PROBES = 0.875
"""Share of these, 0-1, that have to be nearer in a loose comparison, where half are by chance."""

# With ten ways to try, one check in a thousand at most then finds a cause that is none
_BY_CHANCE = 1e-4
"""A chance below which a way that is nearer in a loose comparison is not so by luck."""

_SEARCHED = 256
"""Sampled texts whose vectors are looked for in all rows."""

_MOST_RUNS = 4
"""Runs of rows up to which they are listed."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A way of embedding. `meaning` completes the sentence "the documents were embedded ...".

    `has_spec` says whether a spec makes `embedder`.
    """

    cause: Cause
    meaning: str
    embedder: Embedder
    has_spec: bool = True


def hypotheses(embedder: Embedder, documents: Sequence[Document], *, texts_may_differ: bool) -> Iterator[Hypothesis]:
    """Yield every other way of embedding that can matter to these documents, the most usual mistakes first.

    A prefix moves a vector a little, so where vectors are at chance, prefixes are left out.
    """
    if texts_may_differ:
        yield from _prefixes(embedder)
    causes = {"pooling": Cause.POOLING, "length": Cause.LENGTH}
    longest = max(len(document.text) for document in documents)
    for variant in variants_of(embedder):
        if longest >= variant.fewest_characters:
            yield Hypothesis(causes[variant.kind], variant.meaning, variant.embedder, has_spec=variant.has_spec)


def _prefixes(embedder: Embedder) -> Iterator[Hypothesis]:
    """Yield the model without its prefix, and with it twice; nothing for a model without one."""
    prefix = embedder.identity.document_prefix
    query_prefix = embedder.identity.query_prefix
    if not prefix:
        return
    without = with_prefixes(embedder, "", query_prefix)
    if without is not None:
        yield Hypothesis(Cause.MISSING_PREFIX, f"without the prefix {prefix!r}", without)
    doubled = with_prefixes(embedder, prefix + prefix, query_prefix)
    if doubled is not None:
        yield Hypothesis(Cause.DOUBLED_PREFIX, f"with the prefix {prefix!r} twice", doubled)


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """A way of embedding that gives some of the stored vectors.

    `agreeing` says which, (n,); `vectors` are its own of all documents, (n, dim).
    """

    hypothesis: Hypothesis
    agreeing: Mask
    vectors: Vectors


def try_hypotheses(
    compared: Reembedded, embedder: Embedder, progress: Progress
) -> tuple[list[Trial], Explanation | None]:
    """Try every way until one explains all the documents; return all trials, and what explains most, if anything.

    Where the tolerance is loose, agreeing proves nothing: there a way counts only if it is nearer than the plain one.
    """
    trials: list[Trial] = []
    best: Explanation | None = None
    loose = compared.match.claim.tolerance.loose
    doubtful = np.flatnonzero(~compared.agreeing)
    least_share = 0.0
    # Through codes single documents agree or not by chance, whatever made them, so none is settled yet
    if loose:
        doubtful = np.arange(len(compared))
        least_share = _MOST_PROBES
    # Each way is tried on a few documents first, as most explain none of them
    probes = doubtful[spread(len(doubtful), _PROBES)]
    ways = list(hypotheses(embedder, compared.documents, texts_may_differ=bool(compared.near[probes].any())))
    if compared.agreeing.any():  # as short documents do, of which nothing was cut off
        ways.sort(key=lambda way: way.cause is not Cause.LENGTH)
    for number, way in enumerate(ways):
        progress("try other ways of embedding", number, len(ways))
        trial, explanation = _try(compared, way, probes)
        if trial.agreeing >= max(least_share * trial.tried, 1):
            trial, explanation = _try(compared, way, np.arange(len(compared)))
            # Several ways are tried, and none should be nearer by chance
            is_chance = loose and sign_test(trial.agreeing, trial.tried) > _BY_CHANCE
            if not is_chance and (best is None or trial.agreeing > best.agreeing.sum()):
                best = explanation
        trials.append(trial)
        # Nothing is left to explain, and each further way costs texts
        if best is not None and best.agreeing.all() and not loose:
            break
    return trials, best


def _try(compared: Reembedded, way: Hypothesis, rows: NDArray[np.int64]) -> tuple[Trial, Explanation]:
    """Embed some documents so, and hold them against the stored vectors."""
    match = matches(compared.match.claim.take(rows), way.embedder, len(rows))
    agreeing = match.right
    if compared.match.claim.tolerance.loose:
        # By more than rounding: a way that changes nothing, such as a prefix that is empty, is no nearer
        agreeing = agreeing & (match.cosines > compared.match.cosines[rows] + np.finfo(np.float32).eps)
    trial = Trial(way.cause, way.meaning, len(rows), int(agreeing.sum()), float(np.median(match.cosines)))
    return trial, Explanation(way, agreeing, match.vectors)


def sign_test(better: int, n: int) -> float:
    """Return how likely a fair coin falls one way `better` times of `n` or more often.

    >>> sign_test(3, 3)
    0.125
    """
    n_outcomes: int = 2**n
    return sum(comb(n, number) for number in range(better, n + 1)) / n_outcomes


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """The cause with its sentence; `taken_for` says of each document, (n,), what its vector seems to be.

    `best` is the way that explains the whole store, if one does.
    """

    cause: Cause
    sentence: str
    taken_for: tuple[str, ...]
    trials: tuple[Trial, ...]
    best: Explanation | None = None


def diagnose(
    store: Store, embedder: Embedder, compared: Reembedded, disagreeing: Share, progress: Progress
) -> Diagnosis:
    """Find out why the documents do not all agree, or that they do."""
    trials: list[Trial] = []
    best: Explanation | None = None
    if not compared.agreeing.all() or compared.match.claim.tolerance.loose:
        trials, best = try_hypotheses(compared, embedder, progress)
    loose = compared.match.claim.tolerance.loose
    explains_all = best is not None and (best.agreeing.all() or loose)
    if best is not None and (explains_all or not compared.agreeing.any()):
        cause = best.hypothesis.cause
        counted = f"{int(best.agreeing.sum())} of {len(compared)} sampled ones agree"
        sentence = f"the documents were embedded {best.hypothesis.meaning}: so, {counted}"
        if not explains_all:
            sentence += ", the others do not"
    elif compared.agreeing.all():
        cause = Cause.COMPATIBLE
        counted = f"all {len(compared)} sampled documents"
        if len(compared) == 1:
            counted = "the one document with a text"
        sentence = f"the model gives the stored vectors for {counted}"
    elif compared.agreeing.any():
        cause, sentence = _explain_part(compared, best, disagreeing)
    else:
        cause, sentence = _explain_nothing(store, compared, progress)
    taken_for = _taken_for(compared, best)
    if not explains_all:
        best = None
    return Diagnosis(cause, sentence, taken_for, tuple(trials), best)


def _taken_for(compared: Reembedded, best: Explanation | None) -> tuple[str, ...]:
    """Return what the vector of each document seems to be."""
    taken_for = np.where(compared.near, "near, not equal", "at chance").astype(object)
    taken_for[compared.agreeing] = "agrees"
    if best is not None:
        explained = best.agreeing
        # Else all agree, and the nearer way is the better explanation
        if not compared.match.claim.tolerance.loose:
            explained = explained & ~compared.agreeing
        taken_for[explained] = f"embedded {best.hypothesis.meaning}"
    return tuple(taken_for.tolist())


def _explain_part(compared: Reembedded, best: Explanation | None, disagreeing: Share) -> tuple[Cause, str]:
    """Tell what those documents are that do not agree, where others do."""
    unexplained = ~compared.agreeing
    if best is not None:
        unexplained = unexplained & ~best.agreeing
    n_disagreeing = int((~compared.agreeing).sum())
    if best is not None and 2 * unexplained.sum() <= n_disagreeing:
        meaning = f"was embedded {best.hypothesis.meaning}"
    elif compared.is_near(unexplained):
        meaning = "is near what its texts give now, but not equal: these were changed since"
    else:
        meaning = "is of another model"
    span = f"{100 * disagreeing.lower:.0f}-{percent(disagreeing.upper, 0)}"
    bounds = f"{percent(disagreeing.estimate, 0)} (95 % bounds: {span}) of the store"
    if disagreeing.lower == disagreeing.upper:
        bounds = f"{percent(disagreeing.estimate, 0)} of the store: all were looked at"
    share = f"{n_disagreeing} of {len(compared)} sampled documents disagree ({bounds})"
    return Cause.MIXED, f"a part of the store {meaning}; {share}; {describe_rows(compared.rows, compared.agreeing)}"


def describe_rows(rows: NDArray[np.int64], agreeing: Mask) -> str:
    """Describe the runs of ascending rows, (n,), that agree or do not, if these are few.

    >>> describe_rows(np.array([0, 3, 7, 9]), np.array([True, True, False, False]))
    'rows 0 to 3 agree, 7 to 9 do not'
    """
    starts = np.flatnonzero(np.r_[True, agreeing[1:] != agreeing[:-1]])
    if len(starts) > _MOST_RUNS:
        return "the rows that agree and those that do not lie scattered"
    runs = []
    for start, end in zip(starts, np.r_[starts[1:], len(rows)] - 1, strict=True):
        span = str(rows[start])
        if end > start:
            span = f"{rows[start]} to {rows[end]}"
        if agreeing[start]:
            runs.append(f"{span} agree")
        else:
            runs.append(f"{span} do not")
    return "rows " + ", ".join(runs)


def _explain_nothing(store: Store, compared: Reembedded, progress: Progress) -> tuple[Cause, str]:
    """Tell what vectors are of which none agrees."""
    cosine = float(np.median(compared.match.cosines))
    if compared.is_near(np.ones(len(compared), bool)):
        sentence = (
            f"no vector is the model's, but most are near it (median cosine {cosine:.3f}): every text was changed "
            "before it was embedded, or the model is a near relative: another revision, fine-tuned, of less precision"
        )
        return Cause.NEAR, sentence
    texts, elsewhere = find_moved_rows(store, compared, progress)
    moved = np.flatnonzero(elsewhere >= 0)
    if 2 * len(moved) > len(texts):
        first = texts[moved[0]]
        example = f"document {compared.documents[first].id!r} (row {compared.rows[first]}) in row {elsewhere[moved[0]]}"
        sentence = f"{len(moved)} of {len(texts)} texts have their vector in another row, such as that of {example}"
        return Cause.OUT_OF_STEP, sentence
    chance = f"cosine {cosine:.3f}, where different texts have {compared.chance():.3f}"
    return Cause.OTHER_MODEL, f"nothing in common with the model's vectors ({chance})"


def find_moved_rows(
    store: Store, compared: Reembedded, progress: Progress
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Look in all rows for the vectors of some sampled texts; return these and their rows, -1 for none."""
    # One pass over the store finds these, wherever they are: rows that are shifted, or sorted in another way
    texts = spread(len(compared), _SEARCHED)
    reembedded = compared.match.vectors[texts]
    names = [str(text) for text in texts]
    first = 0
    nearest = TopK(names, unit_rows(reembedded), metric="ip", depth=1)
    for batch in store.scan():
        nearest.add([str(row) for row in range(first, first + len(batch))], np.nan_to_num(unit_rows(batch.vectors)))
        first += len(batch)
        progress("look in other rows", first, store.info.count)
    nearest_runs = nearest.run()
    rows = np.array([int(nearest_runs.rankings[name][0]) for name in names])
    rows[~agree(store.get(rows).vectors, reembedded, compared.match.claim.tolerance)] = -1
    return texts, rows
