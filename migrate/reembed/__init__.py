"""Re-embedding under a budget: which documents get their true vectors, and a stitch that learns from all of them."""

from migrate.reembed.budget import Budget
from migrate.reembed.plan import Plan, plan_reembedding
from migrate.reembed.policies import POLICIES, require_confidence, why_unsure
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
