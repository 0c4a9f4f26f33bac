"""Re-embedding under a budget: which documents get their true vectors, and a stitch that learns from all of them."""

from migrate.reembed.plan import POLICIES, Budget, Plan, plan_reembedding, require_confidence, why_unsure
from migrate.reembed.refit import refit
from migrate.reembed.stitch import Announce, Reembedding, RefitPlan, plan_refit, reembedded_stitch
from migrate.reembed.translation import TranslatePlan, plan_translate

__all__ = [
    "POLICIES",
    "Announce",
    "Budget",
    "Plan",
    "Reembedding",
    "RefitPlan",
    "TranslatePlan",
    "plan_reembedding",
    "plan_refit",
    "plan_translate",
    "reembedded_stitch",
    "refit",
    "require_confidence",
    "why_unsure",
]
