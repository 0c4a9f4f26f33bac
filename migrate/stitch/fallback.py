"""What a stitch that reads texts falls back to where a store has none: the best map of the old vectors alone."""

from __future__ import annotations

from dataclasses import dataclass

from migrate.stitch.base import Stitch
from migrate.stitch.kinds import KINDS, new_stitch
from migrate.stitch.pairing import Pairing
from migrate.stitch.select import Candidate, Selection, select_stitch


@dataclass(frozen=True)
class Fallback:
    """A fitted stitch that reads no texts, and how it was judged on the pairs of the one that it stands in for."""

    stitch: Stitch
    selection: Selection


@dataclass(frozen=True, slots=True)
class FallbackUse:
    """That `fallback` was used in place of `stitch`, and the overlap@10 of either on held-out pairs."""

    stitch: str
    fallback: str
    overlap_at_10: float
    fallback_overlap_at_10: float

    @property
    def sentence(self) -> str:
        """For a person."""
        return (
            f"the store has no texts, which {self.stitch} reads: {self.fallback} was used, which reads the old vectors "
            f"alone. Of the 10 true neighbours of held-out documents of the sample it finds "
            f"{self.fallback_overlap_at_10:.1%}, {self.stitch} {self.overlap_at_10:.1%}"
        )


def fit_fallback(pairs: Pairing, selection: Selection, *, seed: int = 0) -> Fallback:
    """Fit the best stitch of the old vectors alone: of the candidates of `selection`, or of all where it has none."""
    best = best_of_vectors(selection)
    bare = Pairing(pairs.source, pairs.target)
    judged = select_stitch(bare, specs=() if best is None else (best.stitch,), seed=seed)
    return Fallback(bare.fit(judged.stitch or new_stitch(judged.chosen)), judged)


def best_of_vectors(selection: Selection) -> Candidate | None:
    """The candidate with the best held-out overlap@10 out of those that read the old vectors alone."""
    plain = [row for row in selection.candidates if _reads_vectors_only(row)]
    return max(plain, key=lambda row: row.scores.overlap_at_10, default=None)


def _reads_vectors_only(row: Candidate) -> bool:
    kind = KINDS.get(row.stitch.partition(":")[0])
    return kind is not None and not kind.reads_texts and not row.is_control
