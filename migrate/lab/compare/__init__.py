"""The comparison of stores of the same documents, by the measures of `migrate.similarity`."""

from migrate.lab.compare.comparison import StoresComparison, compare_stores
from migrate.lab.compare.groups import Groups

__all__ = ["Groups", "StoresComparison", "compare_stores"]
