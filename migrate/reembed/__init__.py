"""Re-embedding under a budget: which documents get their true vectors, and a stitch that learns from all of them."""

from migrate.reembed.plan import POLICIES, Budget, Plan, plan_reembedding, require_confidence, why_unsure
from migrate.reembed.refit import refit
from migrate.reembed.stitch import Reembedding, reembedded_stitch

__all__ = [
    "POLICIES",
    "Budget",
    "Plan",
    "Reembedding",
    "plan_reembedding",
    "reembedded_stitch",
    "refit",
    "require_confidence",
    "why_unsure",
]
