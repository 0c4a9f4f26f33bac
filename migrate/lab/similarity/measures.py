"""Every measure of two spaces by name: its meaning, and whether more of it means more similar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from migrate.lab.similarity.spaces import Similarity
from migrate.lab.similarity.stitching import Stitching


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure for two spaces: of these, or of a stitch between them.

    Attributes
    ----------
    key, title, meaning : name in files, name for a person, and one sentence
    alike : whether more or less of it means that spaces are more alike; None where it means neither
    itself : the figure of a space with itself, by definition or at best; None where there is none
    at : attributes of a `Stitching` that lead to the figure; empty for the attribute `key` of a `Similarity`
    is_control : True if it is of a control, and so the same for all stitches
    """

    key: str
    title: str
    meaning: str
    alike: Literal["more", "less"] | None
    itself: float | None
    at: str = ""
    is_control: bool = False

    @property
    def directed(self) -> bool:
        """True if it differs from a to b and from b to a."""
        return bool(self.at)

    def figure(self, compared: Similarity | Stitching) -> float | None:
        """Return the figure of a stitch, or of both spaces; from a to b where it is directed."""
        value: Any = compared.forth if self.at and isinstance(compared, Similarity) else compared
        for name in (self.at or self.key).split("."):
            value = None if value is None else getattr(value, name)
        return None if value is None else float(value)


ABOVE_SELF = Measure(
    "penalty_above_self",
    "penalty above self",
    "Stitching penalty less that of the target stitched to itself: without what is lost for want of documents.",
    "less",
    0,
    "stitch.penalty",
)
"""The one that needs the target's own stitch: `figure` is what that of the target is subtracted from."""

MEASURES: tuple[Measure, ...] = (
    Measure("cka", "CKA", "1: alike up to rotation and scale; about 0: unlike. Unbiased.", "more", 1),
    Measure("cka_biased", "CKA, biased", "As mostly published: with many dimensions even a Gaussian is alike.",
            "more", 1),
    Measure("cka_distance", "arccos CKA", "The angle of CKA in radians, a distance.", "less", 0),
    Measure("jaccard", "Jaccard@10", "Share of both spaces' 10 nearest documents that are the same.", "more", 1),
    Measure("rank_similarity", "rank similarity@10", "Whether the shared ones are in the same order.", "more", 1),
    Measure("relative_orientation", "relative orientation", "Correlation of the cosines of all pairs.", "more", 1),
    Measure("local_geometry", "local geometry", "Do neighbours rebuild a document with like weights?", "more", 1),
    Measure("dimension_agreement", "dimension agreement", "Rank correlation of dimensions near documents.", "more", 1),
    Measure("r2", "R² of the stitch", "Share of the held-out variance that the stitch explains.", "more", 1,
            "stitch.r2"),
    Measure("mse", "MSE of the stitch", "Mean squared error on held-out documents.", "less", 0, "stitch.mse"),
    Measure("mae", "MAE of the stitch", "Mean absolute error on held-out documents.", "less", 0, "stitch.mae"),
    Measure("mae_explained", "MAE explained", "Share of the target mean's absolute error that the stitch takes away.",
            "more", 1, "mae_explained"),
    Measure("r2_mean", "R² of the mean", "Control: the target's mean for every document.", None, None, "mean.r2",
            is_control=True),
    Measure("r2_random", "R² of a Gaussian", "Control: random vectors with the target's mean and deviations.", None,
            None, "random.r2", is_control=True),
    Measure("penalty", "stitching penalty", "Share of the 10 true neighbours that stitched vectors miss.", "less", 0,
            "stitch.penalty"),
    ABOVE_SELF,
    Measure("r2_identity", "R² without a stitch", "The vectors as they are, if of one dimension.", "more", 1,
            "identity.r2", is_control=True),
    Measure("penalty_identity", "penalty without a stitch", "Neighbours that the vectors as they are miss.", "less", 0,
            "identity.penalty", is_control=True),
    Measure("bias_norm", "bias norm", "Euclidean norm of the stitch's offset.", None, None, "bias_norm"),
    Measure("mean_norm", "mean norm", "Norm of the target's mean: the offset of a stitch that knows no more.", None,
            None, "mean_norm", is_control=True),
    Measure("spread", "spread of the output", "Variance of what the stitch gives over the target's; 0: only a mean.",
            None, None, "stitch.spread"),
    Measure("effective_rank", "effective rank", "How many directions the stitch really uses.", None, None,
            "effective_rank"),
)  # fmt: skip
"""All of them, as they are shown."""
