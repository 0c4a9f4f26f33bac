"""Finds the cause of a disagreement: which documents agree, what explains the others, and how certain that is.

`find_moved_rows` looks for vectors that are in the row of another text, `describe_rows` says where in the store the
documents agree, and `try_hypotheses` embeds the others in different ways (prefix, pooling, length, text): a few of
them first, and all where these agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.check.comparison import Comparison, Mask, Share, agree, pairwise, spread
from migrate.check.model import Cause, Trial
from migrate.embedders import known_models
from migrate.embedders.base import Embedder
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, Vectors, unit_rows

_TEXTS = 256
_SEARCH: Final = "try other ways of embedding"


_MOST = 4

_FURTHER_PREFIXES: Final = (
    "search_document: ",
    "search_query: ",
    "title: none | text: ",
    "task: search result | query: ",
)
"""Of models that are not in the registry: nomic-embed-text, embeddinggemma."""

_PROBES: Final = 4
_NEARER: Final = 0.875
_CHANCE: Final = 1e-4
"""The largest probability that a way of embedding is nearer by chance alone; about 20 ways are tried."""

_SIGNIFICANT = 0.001
_NOT_SIGNIFICANT = 0.05
_MAJORITY = 0.5
_CLOSE = 0.5
"""The median text came 0.9 of the way from chance when a quarter was cut off, another layer's vector 0.2."""
_FEWEST_FOR_STRUCTURE = 8


def find_moved_rows(
    store: Store, compared: Comparison, progress: Progress
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """At most 256 of the sampled texts, and the row of the store that holds the vector of each, -1 where none does.

    One pass over the store's vectors.
    """
    texts = spread(len(compared), _TEXTS)
    fresh = compared.fresh[texts]
    queries = unit_rows(fresh)
    best = np.full(len(queries), -np.inf, np.float32)
    rows = np.full(len(queries), -1, np.int64)
    first = 0
    for batch in store.scan():
        scores = queries @ unit_rows(batch.vectors).T
        places = scores.argmax(axis=1)
        nearest = scores[np.arange(len(queries)), places]
        better = nearest > best
        best[better], rows[better] = nearest[better], first + places[better]
        first += len(batch)
        progress("look in other rows", first, store.info.count)
    stored = store.get(np.maximum(rows, 0)).vectors
    rows[~agree(stored, fresh, compared.tolerance)] = -1
    return texts, rows


def describe_rows(rows: NDArray[np.int64], agreeing: NDArray[np.bool_]) -> str:
    """Runs of ascending rows, (n,), that agree or do not, if these are few.

    >>> describe_rows(np.array([0, 3, 7, 9]), np.array([True, True, False, False]))
    'rows 0 to 3 agree, 7 to 9 do not'
    """
    starts = np.flatnonzero(np.r_[True, agreeing[1:] != agreeing[:-1]])
    if len(starts) > _MOST:
        return "the rows that agree and those that do not lie scattered"
    ends = np.r_[starts[1:], len(rows)] - 1
    return "rows " + ", ".join(
        f"{_span(int(rows[start]), int(rows[end]))} {'agree' if agreeing[start] else 'do not'}"
        for start, end in zip(starts, ends, strict=True)
    )


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A way of embedding. `meaning` completes the sentence "the documents were embedded ...".

    `embedder` is what a spec and its options make that embeds so; None where none do.
    """

    cause: Cause
    meaning: str
    embed: Callable[[Sequence[Document]], Vectors]
    embedder: Embedder | None = None


def hypotheses(embedder: Embedder, documents: Sequence[Document], *, texts_may_differ: bool) -> Iterator[Hypothesis]:
    """Every other way of embedding that can matter to these documents, the most usual mistakes first.

    A prefix or another form of the text moves a vector a little, so where vectors are at chance, they are left out.
    """
    if texts_may_differ:
        yield from _prefixes(embedder)
        for meaning, change in _FORMS:
            if any(change(document) != document.text for document in documents):
                yield Hypothesis(Cause.TEXT_FORM, meaning, _changed(embedder, change))
    causes = {"pooling": Cause.POOLING, "length": Cause.LENGTH}
    longest = max(len(document.text) for document in documents)
    for variant in embedder.variants():
        if longest >= variant.fewest_characters:
            known = variant.embedder if variant.has_spec else None
            yield Hypothesis(causes[variant.kind], variant.meaning, variant.embedder.embed_documents, known)


def _prefixes(embedder: Embedder) -> Iterator[Hypothesis]:
    identity = embedder.identity
    document, query = identity.document_prefix, identity.query_prefix
    tried = {document}
    for prefix, cause, meaning in (
        ("", Cause.MISSING_PREFIX, f"without the prefix {document!r}"),
        (document + document, Cause.DOUBLED_PREFIX, f"with the prefix {document!r} twice"),
        (query, Cause.QUERY_PREFIX, f"with {query!r}, the prefix of queries"),
        *((usual, Cause.OTHER_PREFIX, f"with the prefix {usual!r}") for usual in _usual_prefixes()),
    ):
        prefixed = None if prefix in tried else embedder.with_prefixes(prefix, query)
        if prefixed is not None:
            yield Hypothesis(cause, meaning, prefixed.embed_documents, prefixed)
        tried.add(prefix)


def _usual_prefixes() -> list[str]:
    prefixes = [prefix for facts in known_models() for prefix in (facts.document_prefix, facts.query_prefix)]
    return list(dict.fromkeys([*filter(None, prefixes), *_FURTHER_PREFIXES]))


def _changed(embedder: Embedder, change: Callable[[Document], str]) -> Callable[[Sequence[Document]], Vectors]:
    return lambda documents: embedder.embed_documents([replace(doc, text=change(doc)) for doc in documents])


def _titled(separator: str) -> Callable[[Document], str]:
    def change(document: Document) -> str:
        title = document.metadata.get("title")
        return f"{title}{separator}{document.text}" if title else document.text

    return change


_FORMS: Final[tuple[tuple[str, Callable[[Document], str]], ...]] = (
    ("with line breaks replaced by spaces", lambda document: document.text.replace("\n", " ")),
    ("with white space squeezed", lambda document: " ".join(document.text.split())),
    ("with the title and a space before", _titled(" ")),
    ("with the title and a line break before", _titled("\n")),
    ("in lower case", lambda document: document.text.lower()),
)


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """A way of embedding that gives some of the stored vectors: `agreeing` says which, (n,); `fresh` has its own."""

    hypothesis: Hypothesis
    agreeing: Mask
    fresh: Vectors


@dataclass(frozen=True, slots=True)
class Tried:
    """All that was tried, and what explains most documents, if anything explains some."""

    trials: tuple[Trial, ...]
    best: Explanation | None


def try_hypotheses(compared: Comparison, embedder: Embedder, progress: Progress) -> Tried:
    """Try every way until one explains all the documents.

    Where the tolerance is loose, agreeing proves nothing: there a way counts only if it is nearer than the plain one.
    Where some documents agree, as short ones do that nothing was cut off, lengths are tried before all else.
    """
    trials: list[Trial] = []
    best: Explanation | None = None
    doubtful = np.arange(len(compared)) if compared.tolerance.loose else np.flatnonzero(~compared.agreeing)
    probes = doubtful[spread(len(doubtful), _PROBES)]
    ways = list(hypotheses(embedder, compared.documents, texts_may_differ=bool(compared.near[probes].any())))
    if compared.agreeing.any():
        ways.sort(key=lambda way: way.cause is not Cause.LENGTH)
    for number, hypothesis in enumerate(ways):
        progress(_SEARCH, number, len(ways))
        trial, explanation = _try(compared, hypothesis, probes)
        trials.append(trial)
        if explanation is not None and (best is None or explanation.agreeing.sum() > best.agreeing.sum()):
            best = explanation
        if best is not None and best.agreeing.all() and not compared.tolerance.loose:
            break
    return Tried(tuple(trials), best)


def _try(compared: Comparison, hypothesis: Hypothesis, probes: NDArray[np.int64]) -> tuple[Trial, Explanation | None]:
    _, cosines, agreeing = _judge(compared, hypothesis, probes)
    enough = agreeing.mean() >= _NEARER if compared.tolerance.loose else agreeing.any()
    if not enough:
        return _trial(hypothesis, cosines, agreeing), None
    fresh, cosines, agreeing = _judge(compared, hypothesis, np.arange(len(compared)))
    if compared.tolerance.loose and sign_test(int(agreeing.sum()), len(agreeing)) > _CHANCE:
        return _trial(hypothesis, cosines, agreeing), None
    return _trial(hypothesis, cosines, agreeing), Explanation(hypothesis, agreeing, fresh)


def sign_test(better: int, n: int) -> float:
    """How likely a fair coin falls one way `better` times of `n` or more often.

    >>> sign_test(3, 3)
    0.125
    """
    return sum(comb(n, number) for number in range(better, n + 1)) / (1 << n)


def _judge(
    compared: Comparison, hypothesis: Hypothesis, rows: NDArray[np.int64]
) -> tuple[Vectors, NDArray[np.float64], Mask]:
    """Vectors of some documents when embedded so, their cosines with the stored ones, and which of them agree."""
    stored = compared.stored[rows]
    fresh = hypothesis.embed([compared.documents[row] for row in rows])
    cosines = pairwise(stored, fresh)
    agreeing = cosines >= compared.tolerance.least(stored, fresh)
    if compared.tolerance.loose:
        agreeing &= cosines > compared.cosines[rows] + np.finfo(np.float32).eps
    return fresh, cosines, agreeing


def _trial(hypothesis: Hypothesis, cosines: NDArray[np.float64], agreeing: Mask) -> Trial:
    return Trial(hypothesis.cause, hypothesis.meaning, len(cosines), int(agreeing.sum()), float(np.median(cosines)))


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """The cause with its sentence; `taken_for` says of each document, (n,), what its vector seems to be.

    `best` is the way that explains the whole store, if one does.
    """

    cause: Cause
    sentence: str
    taken_for: tuple[str, ...]
    trials: tuple[Trial, ...]
    structure: float | None = None
    best: Explanation | None = None


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
        return Diagnosis(best.hypothesis.cause, sentence, labels, tried.trials, best=best)
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
    """What each document's vector seems to be; in a loose comparison, whichever is nearer."""
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
    unexplained = ~compared.agreeing & ~explained
    labels = _labels(compared, tried)
    if not compared.agreeing.any() and tried.best is not None:
        named = f"the documents were embedded {tried.best.hypothesis.meaning}"
        sentence = f"{named}: so, {explained.sum()} of {len(compared)} sampled ones agree, the others do not"
        return Diagnosis(tried.best.hypothesis.cause, sentence, labels, tried.trials)
    if tried.best is not None and explained.sum() >= unexplained.sum():
        cause, what = Cause.MIXED, f"was embedded {tried.best.hypothesis.meaning}"
    elif compared.near[unexplained].mean() > _MAJORITY and compared.closeness(unexplained) > _CLOSE:
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
    texts, elsewhere = find_moved_rows(store, compared, progress)
    moved = np.flatnonzero(elsewhere >= 0)
    if len(moved) > _MAJORITY * len(texts):
        first = texts[moved[0]]
        example = f"document {compared.documents[first].id!r} (row {compared.rows[first]}) in row {elsewhere[moved[0]]}"
        sentence = f"{len(moved)} of {len(texts)} texts have their vector in another row, such as that of {example}"
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
        finding = f"{chance}, {sure if by_chance <= _SIGNIFICANT else unsure} (rank correlation {structure:.2f})"
        cause, sentence = Cause.OTHER_MODEL, f"another model of the same dimension: {finding}"
    return Diagnosis(cause, sentence, labels, trials, structure)
