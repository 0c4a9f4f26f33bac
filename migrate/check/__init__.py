"""Checks whether a store's vectors come from a model: by its manifest, or by embedding a few of its texts again."""

from migrate.check.check import SAMPLE_SIZE, check_store
from migrate.check.model import Agreement, Cause, Compatibility, Example, Found, Observation, Trial
from migrate.check.retrieval import JudgedRetention, LargerSample, Repair, RetrievalCost
from migrate.check.stamp import Stamped, leave_finding, stamp_as_found, stamp_store

__all__ = [
    "SAMPLE_SIZE",
    "Agreement",
    "Cause",
    "Compatibility",
    "Example",
    "Found",
    "JudgedRetention",
    "LargerSample",
    "Observation",
    "Repair",
    "RetrievalCost",
    "Stamped",
    "Trial",
    "check_store",
    "leave_finding",
    "stamp_as_found",
    "stamp_store",
]
