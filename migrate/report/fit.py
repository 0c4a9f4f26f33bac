"""What a fit promises, in words: from held-out documents of the sample, each figure with its uncertainty."""

from __future__ import annotations

from migrate.stitch.confidence import Confidence
from migrate.stitch.curve import MORE, LearningCurve
from migrate.stitch.kinds import KINDS
from migrate.stitch.select import Candidate, Selection

_Z = 1.96


def fit_sentences(selection: Selection) -> list[str]:
    """What to expect of the chosen stitch, what texts and old vectors are worth, and what more pairs would buy."""
    best = selection.best.scores
    low, high = best.overlap_at_10 - _Z * best.overlap_error, best.overlap_at_10 + _Z * best.overlap_error
    found = [
        f"expect: of the 10 nearest neighbours that a full re-embed would find among the sample's documents, "
        f"{selection.chosen} finds {best.overlap_at_10:.1%} (95 % bounds {max(low, 0):.1%} to {min(high, 1):.1%}); "
        "what that means for queries is for the audit to say"
    ]
    found += _worth(selection)
    found += _curve(selection.curve) if selection.curve is not None else []
    found += _confidence(selection.confidence) if selection.confidence is not None else []
    return found


def _worth(selection: Selection) -> list[str]:
    """The texts alone and the vectors alone, where both were tried."""
    alone = [row for row in selection.candidates if row.stitch == "text"]
    plain = [row for row in selection.candidates if _reads_vectors_only(row)]
    if not alone or not plain:
        return []
    vectors = max(plain, key=lambda row: row.scores.overlap_at_10)
    return [
        f"the texts alone find {alone[0].scores.overlap_at_10:.1%}, the old vectors alone "
        f"{vectors.scores.overlap_at_10:.1%} ({vectors.stitch})"
    ]


def _reads_vectors_only(row: Candidate) -> bool:
    kind = KINDS.get(row.stitch.partition(":")[0])
    return kind is not None and not kind.reads_texts and not row.is_control


def _curve(curve: LearningCurve) -> list[str]:
    steps = ", ".join(
        f"{overlap:.1%} from {pairs:,} pairs" for pairs, overlap in zip(curve.pairs, curve.overlap, strict=True)
    )
    span = f"95 % bounds {curve.low:.1%} to {curve.high:.1%}"
    return [f"learning curve: {steps}; the next {MORE:,} pairs should add {curve.gain:.1%} ({span})"]


def _confidence(confidence: Confidence) -> list[str]:
    return [
        f"confidence: ranks held-out documents by their true cosine with Spearman {confidence.spearman:.2f}; the least "
        f"confident tenth has {confidence.worst_share:.0%} of the squared error"
    ]
