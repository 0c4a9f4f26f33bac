"""Arms that could not be had, and what each of them needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from migrate.audit.arms import BM25, BRIDGE, HYBRID, STAY
from migrate.audit.two_stage import WITHOUT_TWO_STAGE

TWO_STAGE, REEMBEDDED = "two-stage", "translated + k%"

_NO_TEXTS = "needs texts, and the translated store has none"


def missing_arms(found: Collection[str], *, has_texts: bool, asked_two_stage: bool) -> Mapping[str, str]:
    """What each arm that is not among `found` needs."""
    needs = {
        STAY: "needs the store before the migration and its model: --source STORE, --source-model SPEC",
        BRIDGE: "needs a stitch for queries, of `fit --direction query`: --bridge STITCH, with --source STORE",
        HYBRID: "left out with BM25" if has_texts else _NO_TEXTS,
        BM25: "left out by --no-bm25" if has_texts else _NO_TEXTS,
        TWO_STAGE: WITHOUT_TWO_STAGE if asked_two_stage else "left out by --two-stage none",
        REEMBEDDED: "needs budgets to try: --frontier, with --source STORE and the --stitch fitted on it",
    }
    names = tuple(found)
    return {name: need for name, need in needs.items() if not any(one.startswith(_stem(name)) for one in names)}


def _stem(name: str) -> str:
    return name.removesuffix("k%")
