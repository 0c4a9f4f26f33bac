"""From a plan to a stitch of all that is paid for, saved, so that neither a killed run nor the next one pays again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from migrate.embedders.base import Embedder
from migrate.errors import StitchError
from migrate.files import canonical_json, refuse_existing
from migrate.fit import fit_reader, require_texts
from migrate.manifest import MANIFEST_NAME
from migrate.reembed.plan import QUERY_LOG, Budget, Plan, choose_policy, plan_reembedding
from migrate.reembed.refit import extended, refit
from migrate.selection.query_log import MOST_QUERIES, choosers_of, chosen_by, digests_of
from migrate.stitch.fitted import DOCUMENT, FittedStitch, require_direction
from migrate.stitch.persistence import load_stitch
from migrate.stores.base import Store
from migrate.stores.file_store import verify_files
from migrate.vectors import Progress, Query, no_progress

DETAIL = "re-embedding"
"""Detail of a stitch's manifest: what was asked for, and what came of it."""


@dataclass(frozen=True, slots=True)
class Reembedding:
    """What is to be re-embedded.

    `log` are the queries of a query log, the most frequent first. The price, US dollars per million tokens, is by
    default that of the registry.
    """

    budget: Budget
    policy: str | None = None
    log: Sequence[Query] = ()
    price_usd_per_mtok: float | None = None
    seed: int = 0


def reembedded_stitch(
    store: Store,
    fitted: FittedStitch,
    embedder: Embedder,
    wanted: Reembedding,
    folder: Path,
    *,
    force: bool = False,
    announce_log: Callable[[Sequence[Query]], None] = lambda _: None,
    announce: Callable[[Plan], None] = lambda _: None,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Embed what the budget has room for, fit the stitch again on all pairs, and save it in `folder`.

    A stitch that the same call has left there before is taken as it is. `announce_log` is called with the queries of
    the log before they are embedded, which the policy needs for its plan; `announce` with the plan before a document
    is.

    Raises
    ------
    UsageError
        The budget or the policy cannot be followed; or `folder` holds something else, and `force` is not given.
    StitchError
        The stitch was fitted for another store or another model, or is one for queries.
    StoreError
        The store has no texts, or is not the one of its manifest.
    RemoteError, InputError
        As the embedder.
    """
    policy = choose_policy(wanted.policy, fitted, has_log=bool(wanted.log))
    verify_files(store)
    require_texts(store)
    _check_same(store, fitted, embedder)
    asked = _asked(store, fitted, embedder, wanted, policy)
    if not force and (earlier := _earlier(folder, asked)) is not None:
        return earlier
    refuse_existing(folder, force=force)
    if policy == QUERY_LOG:
        announce_log(wanted.log[:MOST_QUERIES])
    plan = plan_reembedding(
        store,
        fitted,
        embedder,
        wanted.budget,
        policy,
        wanted.log,
        price_usd_per_mtok=wanted.price_usd_per_mtok,
        seed=wanted.seed,
        progress=progress,
    )
    announce(plan)
    choosers = digests_of(wanted.log[:MOST_QUERIES])
    found = _carry_out(store, fitted, embedder, plan, asked, choosers, seed=wanted.seed, progress=progress)
    found.save(folder, force=force)
    return load_stitch(folder)


def _carry_out(
    store: Store,
    fitted: FittedStitch,
    embedder: Embedder,
    plan: Plan,
    asked: dict[str, Any],
    choosers: frozenset[str],
    *,
    seed: int,
    progress: Progress,
) -> FittedStitch:
    true = embedder.embed_documents(plan.sample.documents, progress=progress)
    known = extended(store, fitted.sample, plan.sample.documents, true)
    paid = plan.survey.paid.copy()
    paid[plan.sample.rows] = True
    counts = {"documents": len(plan.sample.rows), "from query log": plan.from_log, "tokens, about": plan.cost.tokens}
    return refit(
        store,
        fitted,
        known,
        np.flatnonzero(paid),
        reader=fitted.reader or fit_reader(store, embedder, seed=seed),
        details={DETAIL: {"asked": asked, **counts}, **chosen_by(choosers | choosers_of(fitted.manifest))},
        seed=seed,
        progress=progress,
    )


def _check_same(store: Store, fitted: FittedStitch, embedder: Embedder) -> None:
    require_direction(fitted.manifest, DOCUMENT, source=str(store.info.location))
    difference = store.snapshot().difference(fitted.manifest.details["fingerprint"])
    if difference is not None:
        raise StitchError(
            f"{store.info.location}: the stitch was fitted on another store ({difference}), whose documents it has "
            "true vectors of; fit one on this store to re-embed by"
        )
    expected, found = fitted.manifest.model, embedder.identity
    if expected is not None and expected != found:
        raise StitchError(
            f"expected the model that the stitch leads to, {expected.spec} ({expected.dim} dimensions, revision "
            f"{str(expected.revision)[:12]}), found {found.spec} ({found.dim}, {str(found.revision)[:12]}); name that "
            "model, or fit a stitch for this one"
        )


def _asked(store: Store, fitted: FittedStitch, embedder: Embedder, wanted: Reembedding, policy: str) -> dict[str, Any]:
    """All that the stitch depends on, as JSON holds it."""
    log = canonical_json([query.text for query in wanted.log[:MOST_QUERIES]])
    return {
        "budget": str(wanted.budget),
        "policy": policy,
        "price": wanted.price_usd_per_mtok,
        "seed": wanted.seed,
        "model": embedder.cache_scope("document"),
        "query log": _digest(log) if wanted.log else None,
        "stitch": fitted.digest(),
        "store": _digest(canonical_json(store.snapshot().as_json())),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _earlier(folder: Path, asked: dict[str, Any]) -> FittedStitch | None:
    """The stitch in `folder`, if the same call has left it there."""
    if not (folder / MANIFEST_NAME).is_file():
        return None
    found = load_stitch(folder)
    return found if found.manifest.details.get(DETAIL, {}).get("asked") == asked else None
