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
    ScoredStitch,
    Selection,
    TriedTokens,
    TriedViews,
    TriedWords,
)
from migrate.stores.confidence import unreliable

_CHECK: Final = "`lead-migrate check STORE --model SPEC` tells, with SPEC the model that the store should be of"

WITHOUT_TEXTS: Final = {
    "vectors_alone": 0.726,
    "with_texts": 0.846,
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
    best = selection.best.scores
    choice = selection.choice
    sentence = f"took {selection.chosen}: held-out overlap {best.overlap_at_10:.3f} ± {best.overlap_half_width:.3f}"
    if (views := selection.tried) is not None and (views.is_used or views.is_target):
        sentence += f"; {_reads(views)}"
    if choice is None or len(tried) < 2:
        return sentence
    if choice.best_in:
        sentence += f", the best of {len(tried)} candidates in {choice.best_in} of {choice.splits} held-out parts"
    else:
        # Of several that are level it was taken for another reason
        sentence += f", level with the best of {len(tried)} candidates over {choice.splits} held-out parts"
    rivals = [f"{spec} {tried[spec].overlap_at_10:.3f}{_but(selection, spec)}" for spec in choice.rivals]
    if not rivals:
        return sentence
    return f"{sentence}; not clearly better: {', '.join(rivals)}"


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
    rival_kind = find_kind(rival) or Stitch
    chosen_kind = find_kind(selection.chosen) or Stitch
    if chosen_kind.reads_texts and not rival_kind.reads_texts:
        return " (reads no texts)"
    if rival_kind.cost > chosen_kind.cost:
        return " (costs more to use)"
    return ""


def fit_blocks(selection: Selection, *, bare: bool) -> list[Block]:
    """Return the candidates, and what to expect of the chosen one; `bare` is a fit of a store without texts."""
    sentences = fit_sentences(selection)
    if bare:
        sentences.append(without_texts_sentence())
    return [TextTable(candidates_rows(selection)), *sentences]


def fit_sentences(selection: Selection) -> list[str]:
    """Say what to expect of the chosen stitch, what texts and old vectors are worth, and what more pairs would buy."""
    if not selection.is_told:
        return [choice_sentence(selection), *doubts(selection)]
    best = selection.best.scores
    # A width to either side may reach beyond what a share can be
    low = max(best.overlap_at_10 - best.overlap_half_width, 0)
    high = min(best.overlap_at_10 + best.overlap_half_width, 1)
    sentences = [
        choice_sentence(selection),
        f"expect: of the 10 nearest neighbours that a full re-embed would find among the sample's documents, "
        f"{selection.chosen} finds {percent(best.overlap_at_10)} (95 % bounds: {_span(low, high)}); "
        "only an audit can say what that means for queries",
    ]
    sentences += _worth(selection)
    if selection.tried is not None and not selection.tried.is_target:
        sentences.append(_tried(selection.tried))
    if selection.tokens is not None:
        sentences.append(_tokens(selection.tokens))
    if selection.vocabulary is not None:
        sentences.append(_vocabulary(selection.vocabulary))
    if selection.curve is not None:
        sentences.append(_curve(selection.curve))
    if selection.confidence is not None:
        sentences.append(_confidence(selection.confidence))
    return sentences + doubts(selection)


def _untold(selection: Selection) -> str:
    """Say why the held-out overlap tells nothing."""
    chance = ""
    if selection.random is not None:
        chance = percent(selection.random.scores.overlap_at_10)
    # The first ten of so few documents are most of them, whatever the vectors
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
    best = selection.best_map_of_vectors
    random = selection.random
    # The control has the vectors of other documents: what is no better tells nothing of these
    if not selection.is_too_small and best is not None and random is not None and selection.is_at_chance(best):
        sentences.append(
            f"the old vectors tell nothing of the new ones: {best.stitch} finds {percent(best.scores.overlap_at_10)}, "
            f"the control {RANDOM} {percent(random.scores.overlap_at_10)}. They may belong to other texts; {_CHECK}"
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
    time = "long"
    if views.minutes is not None:
        time = f"about {duration(views.minutes)} here"
    more = f"embedding {views.documents:,} documents with it takes {time}; to use it, name it by --view"
    return f"{against}. It is not used, since {more} {views.specs[0]}"


def _tokens(tokens: TriedTokens) -> str:
    """Say what the token embeddings of a free local model add to the texts, and whether they are read."""
    read = "not read"
    if tokens.is_used:
        read = "read"
    return (
        f"the texts are {read} by the token embeddings of {tokens.spec}, which is on "
        f"this machine and costs nothing: the texts alone find {percent(tokens.overlap_with)} with them, "
        f"{percent(tokens.overlap_without)} without"
    )


def _vocabulary(tried: TriedWords) -> str:
    """Say what words of the store add, and whether they are read."""
    read = "not read"
    if tried.is_used:
        read = "read"
    return (
        f"{tried.count:,} words of the store, embedded for the tokens of {tried.pairs:,.0f} documents, are {read}: the "
        f"texts alone find {percent(tried.overlap_with)} with them, {percent(tried.overlap_without)} with so many more "
        "documents instead"
    )


def _curve(curve: LearningCurve) -> str:
    steps = ", ".join(
        f"{percent(overlap)} from {pairs:,} pairs" for pairs, overlap in zip(curve.pairs, curve.overlap, strict=True)
    )
    if not curve.is_known:
        untold = f"what the next {MORE:,} pairs add is not known, as the last of these added nothing"
        return f"learning curve: {steps}; {untold}"
    span = f"95 % bounds: {_span(curve.low, curve.high)}"
    return f"learning curve: {steps}; the next {MORE:,} pairs should add {percent(curve.gain)} ({span})"


def _confidence(confidence: Confidence) -> str:
    if not confidence.is_usable:
        return f"{unreliable(confidence.spearman)}; --policy confidence will be refused"
    return (
        f"confidence: ranks held-out documents by their true cosine with Spearman {confidence.spearman:.2f}; the least "
        f"confident tenth has {percent(confidence.worst_share, 0)} of the squared error"
    )


def candidates_rows(selection: Selection) -> list[list[str]]:
    """Return the stitches as they were judged on held-out pairs; the chosen one is marked, controls stand last.

    Of documents too few there is no overlap.
    """
    head = ["  stitch", "cosine", "MSE", "R²", "overlap@10", "fit s"]
    rows = []
    for row in selection.candidates:
        overlap = "-"
        if not selection.is_too_small:
            overlap = f"{row.scores.overlap_at_10:.3f}"
        scores = row.scores
        rows.append(
            [
                _candidate_name(row, selection.chosen),
                f"{scores.cosine:.3f}",
                f"{scores.mse:.6f}",
                f"{scores.r2:.3f}",
                overlap,
                f"{row.fit_s:.2f}",
            ]
        )
    return [head, *rows]


def _candidate_name(row: ScoredStitch, chosen: str) -> str:
    if row.is_control:
        return f"  {row.stitch} (control)"
    if row.stitch == chosen:
        return f"* {row.stitch}"
    return f"  {row.stitch}"
