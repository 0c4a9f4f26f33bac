"""Re-embedding under a budget: which documents get their true vectors, and a stitch that learns from all of them."""

from migrate.reembed.choice import POLICIES, Budget, Choice, choose_documents, require_confidence, why_unsure
from migrate.reembed.refit import refit
from migrate.reembed.stitch import Announce, Reembedding, RefitPlan, plan_refit, reembedded_stitch
from migrate.reembed.translation import TranslatePlan, plan_translate

__all__ = [
    "POLICIES",
    "Announce",
    "Budget",
    "Choice",
    "Reembedding",
    "RefitPlan",
    "TranslatePlan",
    "choose_documents",
    "plan_refit",
    "plan_translate",
    "reembedded_stitch",
    "refit",
    "require_confidence",
    "why_unsure",
]
