"""Whether a store's vectors come from a model: from its manifest, or by embedding a few of its texts again."""

from migrate.check.check import SAMPLE_SIZE, check_store
from migrate.check.found import leave_finding
from migrate.check.model import Cause, Compatibility, Example, Figures, Finding, Found, Trial
from migrate.check.stamp import Stamp, stamp_as_found, stamp_store

__all__ = [
    "SAMPLE_SIZE",
    "Cause",
    "Compatibility",
    "Example",
    "Figures",
    "Finding",
    "Found",
    "Stamp",
    "Trial",
    "check_store",
    "leave_finding",
    "stamp_as_found",
    "stamp_store",
]
