"""Measures of the similarity of two embedding spaces: functions of two arrays of the same documents."""

from migrate.lab.similarity.spaces import Similarity, compare_spaces
from migrate.lab.similarity.stitching import Stitching, judge_stitching

__all__ = ["Similarity", "Stitching", "compare_spaces", "judge_stitching"]
