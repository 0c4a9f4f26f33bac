"""How similar two embedding spaces are: functions of two arrays of the same documents."""

from migrate.similarity.neighbours import neighbour_jaccard, rank_similarity
from migrate.similarity.spaces import (
    Similarity,
    cka_distance,
    compare_spaces,
    linear_cka,
    local_geometry,
    relative_orientation,
)
from migrate.similarity.stitching import Stitching, judge_stitching

__all__ = [
    "Similarity",
    "Stitching",
    "cka_distance",
    "compare_spaces",
    "judge_stitching",
    "linear_cka",
    "local_geometry",
    "neighbour_jaccard",
    "rank_similarity",
    "relative_orientation",
]
