"""How similar embedding spaces are: functions of two arrays, and the comparison of stores of the same documents."""

from migrate.similarity.comparison import StoresComparison, compare_stores
from migrate.similarity.groups import Groups
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
    "Groups",
    "Similarity",
    "Stitching",
    "StoresComparison",
    "cka_distance",
    "compare_spaces",
    "compare_stores",
    "judge_stitching",
    "linear_cka",
    "local_geometry",
    "neighbour_jaccard",
    "rank_similarity",
    "relative_orientation",
]
