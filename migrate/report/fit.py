"""The promise of a fit in words: from held-out documents of the sample, each figure with its uncertainty.

What a store without texts loses cannot be held out of it; that figure is of the project's own benchmark.
"""

from __future__ import annotations

from typing import Final

from migrate.cost.estimate import duration
from migrate.display import percent
from migrate.report.sections import Block, TextTable
from migrate.stitch.base import Stitch
from migrate.stitch.confidence import Confidence
from migrate.stitch.registry import find_kind
from migrate.stitch.select import (
    FEWEST_JUDGED,
    MORE,
    RANDOM,
    LearningCurve,
    Mixture,
    Selection,
    TriedTokens,
    TriedViews,
)
from migrate.stores.confidence import unreliable

_CHECK: Final = "`lead-migrate check STORE --model SPEC` tells, with SPEC the model that the store should be of"

WITHOUT_TEXTS: Final = {
    "vectors_alone": 0.733,
    "with_texts": 0.848,
    "with_texts_and_tokens": 0.907,
    "pairs": 1_000,
    "measured_by": "python benchmarks/retrieval.py DATA --seeds 0 --stitches vectors auto [--no-tokens]",
    "measured_on": "two collections (SciFact and NFCorpus) from five weak source models each",
}
"""Mean retention of nDCG@10 elsewhere, as that benchmark prints it: docs/benchmarks.md, What to expect."""


def without_texts_sentence() -> str:
    """Say what a store without texts loses; a target behind an API or in a file has no tokens to read."""
    elsewhere = WITHOUT_TEXTS
    return (
        "texts: the store has none, so nothing but the old vectors was read. What that costs here cannot be measured; "
        f"elsewhere, on {elsewhere['measured_on']}, stitches fitted on {elsewhere['pairs']:,} pairs retained "
        f"{elsewhere['vectors_alone']:.3f} of a full re-embed's nDCG@10 from the old vectors alone, "
        f"{elsewhere['with_texts']:.3f} with the texts, and {elsewhere['with_texts_and_tokens']:.3f} with the target's "
        "tokens too"
    )


def choice_sentence(selection: Selection) -> str:
    """Return the stitch that was taken, and why; one that was the only candidate has its held-out overlap@10 alone.

    Of documents too few, or a stitch no better than chance, the reason why there is none.
    """
    if not selection.is_told:
        return f"took {selection.chosen}; {_untold(selection)}"
    tried = {row.stitch: row.scores for row in selection.candidates if not row.is_control}
    best, choice = selection.best.scores, selection.choice
    sentence = f"took {selection.chosen}: held-out overlap {best.overlap_at_10:.3f} ± {best.overlap_half_width:.3f}"
    if (views := selection.tried) is not None and (views.is_used or views.is_target):
        sentence += f"; {_reads(views)}"
    if choice is None or len(tried) < 2:
        return sentence
    sentence += f", best of {len(tried)} in {choice.best_in} of {choice.splits} splits"
    rivals = [f"{spec} {tried[spec].overlap_at_10:.3f}{_but(selection, spec)}" for spec in choice.rivals]
    return f"{sentence}; not clearly better: {', '.join(rivals)}" if rivals else sentence


def _reads(views: TriedViews) -> str:
    """Say that every text is embedded by a local model, or that this would be a full re-embed."""
    specs = " and ".join(views.specs)
    if views.is_used:
        return f"translating embeds every text with {specs}, on this machine"
    return (
        f"not tried: {specs}, which is on this machine and gives the target's own vectors, so that "
        f"`reembed --target {specs}` is the whole move"
    )


def _but(selection: Selection, rival: str) -> str:
    """Return the reason why a rival with more overlap was not taken, in brackets."""
    rival_kind, chosen = find_kind(rival) or Stitch, find_kind(selection.chosen) or Stitch
    if chosen.reads_texts and not rival_kind.reads_texts:
        return " (reads no texts)"
    return " (costs more to use)" if rival_kind.cost > chosen.cost else ""


def fit_blocks(selection: Selection, *, bare: bool) -> list[Block]:
    """Return the candidates, and what to expect of the chosen one; `bare` is a fit of a store without texts."""
    sentences = fit_sentences(selection) + ([without_texts_sentence()] if bare else [])
    return [TextTable(candidates_rows(selection)), *sentences]


def fit_sentences(selection: Selection) -> list[str]:
    """Say what to expect of the chosen stitch, what texts and old vectors are worth, and what more pairs would buy."""
    if not selection.is_told:
        return [choice_sentence(selection), *doubts(selection)]
    best = selection.best.scores
    low, high = best.overlap_at_10 - best.overlap_half_width, best.overlap_at_10 + best.overlap_half_width
    sentences = [
        choice_sentence(selection),
        f"expect: of the 10 nearest neighbours that a full re-embed would find among the sample's documents, "
        f"{selection.chosen} finds {percent(best.overlap_at_10)} (95 % bounds: {_span(max(low, 0), min(high, 1))}); "
        "what that means for queries is for the audit to say",
    ]
    sentences += _worth(selection)
    sentences += [] if selection.tried is None or selection.tried.is_target else [_tried(selection.tried)]
    sentences += [] if selection.tokens is None else [_tokens(selection.tokens)]
    sentences += _curve(selection.curve) if selection.curve is not None else []
    sentences += _confidence(selection.confidence) if selection.confidence is not None else []
    return sentences + doubts(selection)


def _untold(selection: Selection) -> str:
    """Say why the held-out overlap tells nothing."""
    chance = "" if selection.random is None else percent(selection.random.scores.overlap_at_10)
    if selection.is_too_small:
        return (
            f"no figure of what it finds, as {selection.judged} documents are too few ({FEWEST_JUDGED} at least): "
            f"vectors of other documents, the control {RANDOM}, find {chance} of the 10 nearest neighbours too"
        )
    return (
        f"no figure of what it finds, as that is no more than vectors of other documents, the control {RANDOM}, find: "
        f"{chance} of the 10 nearest neighbours"
    )


def doubts(selection: Selection) -> list[str]:
    """Say why the old vectors may not be those of the texts, or not of one model."""
    sentences = []
    best, random = selection.best_map_of_vectors, selection.random
    if not selection.is_too_small and best is not None and random is not None and selection.is_at_chance(best):
        found, chance = (percent(row.scores.overlap_at_10) for row in (best, random))
        sentences.append(
            f"the old vectors tell nothing of the new ones: {best.stitch} finds {found}, the control {RANDOM} {chance}"
            f". They may belong to other texts; {_CHECK}"
        )
    elif selection.mixture is not None:
        sentences.append(_two_kinds(selection.mixture))
    return sentences


def _two_kinds(mixture: Mixture) -> str:
    share = percent(mixture.share, 0)
    if mixture.sign == "groups":
        return (
            f"the old vectors are of two kinds: {share} of them lie apart, and the new vectors of the same documents "
            f"do not, as where {share} of a store are of another model; {_CHECK}"
        )
    return (
        f"the old vectors are of two kinds: from {share} of them the new vectors are predicted no better than by "
        f"chance, from the others well, as where {share} belong to other texts or are of another model; {_CHECK}"
    )


def _span(low: float, high: float) -> str:
    return f"{100 * low:.1f}-{percent(high)}"


def _worth(selection: Selection) -> list[str]:
    """Compare the texts alone and the vectors alone, where both were tried."""
    alone = [row for row in selection.candidates if row.stitch == "text"]
    vectors = selection.best_of_vectors
    if not alone or vectors is None:
        return []
    return [
        f"the texts alone find {percent(alone[0].scores.overlap_at_10)}, the old vectors alone "
        f"{percent(vectors.scores.overlap_at_10)} ({vectors.stitch})"
    ]


def _tried(views: TriedViews) -> str:
    """Say what a free local model adds, and whether it is used."""
    specs = " and ".join(views.specs)
    sentence = (
        f"{specs}, free and on this machine, was tried too: {percent(views.overlap_with)} with its vectors of the texts"
    )
    against = f"{sentence}, {percent(views.overlap_without)} without"
    if views.is_used:
        return f"{against}. It is used: translating embeds the other texts with it, which takes time but no money"
    if not views.helps:
        return f"{against}. It is not used"
    time = "long" if views.minutes is None else f"about {duration(views.minutes)} here"
    more = f"embedding {views.documents:,} documents with it takes {time}; to use it, name it by --view"
    return f"{against}. It is not used, since {more} {views.specs[0]}"


def _tokens(tokens: TriedTokens) -> str:
    """Say what the token embeddings of a free local model add to the texts, and whether they are read."""
    return (
        f"the texts are {'' if tokens.is_used else 'not '}read by the token embeddings of {tokens.spec}, which is on "
        f"this machine and costs nothing: the texts alone find {percent(tokens.overlap_with)} with them, "
        f"{percent(tokens.overlap_without)} without"
    )


def _curve(curve: LearningCurve) -> list[str]:
    steps = ", ".join(
        f"{percent(overlap)} from {pairs:,} pairs" for pairs, overlap in zip(curve.pairs, curve.overlap, strict=True)
    )
    if not curve.is_known:
        untold = f"what the next {MORE:,} pairs add is not known, as the last of these added nothing"
        return [f"learning curve: {steps}; {untold}"]
    span = f"95 % bounds: {_span(curve.low, curve.high)}"
    return [f"learning curve: {steps}; the next {MORE:,} pairs should add {percent(curve.gain)} ({span})"]


def _confidence(confidence: Confidence) -> list[str]:
    if not confidence.is_usable:
        return [f"{unreliable(confidence.spearman)}; --policy confidence will be refused"]
    return [
        f"confidence: ranks held-out documents by their true cosine with Spearman {confidence.spearman:.2f}; the least "
        f"confident tenth has {percent(confidence.worst_share, 0)} of the squared error"
    ]


def candidates_rows(selection: Selection) -> list[list[str]]:
    """Return the stitches as they were judged on held-out pairs; the chosen one is marked, controls stand last.

    Of documents too few there is no overlap.
    """
    head = ["  stitch", "cosine", "MSE", "R²", "overlap@10", "fit s"]
    rows = [
        [
            f"{'*' if row.stitch == selection.chosen and not row.is_control else ' '} {row.stitch}"
            + (" (control)" if row.is_control else ""),
            f"{row.scores.cosine:.3f}",
            f"{row.scores.mse:.6f}",
            f"{row.scores.r2:.3f}",
            "-" if selection.is_too_small else f"{row.scores.overlap_at_10:.3f}",
            f"{row.fit_s:.2f}",
        ]
        for row in selection.candidates
    ]
    return [head, *rows]
