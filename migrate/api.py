"""Functions of `import migrate` for what is no step yet; each opens what it is given, and calls what does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import migrate.report.notebook  # noqa: F401 - how results look in a notebook
from migrate.audit.inputs import AuditOptions, AuditRequest, PoolReference
from migrate.audit.plan import plan_audit
from migrate.audit.query_set import QuerySet, by_field, load_query_set
from migrate.audit.report import AuditReport
from migrate.audit.verdict import MARGIN
from migrate.embedders.base import Embedder
from migrate.embedders.elsewhere import elsewhere
from migrate.errors import UsageError
from migrate.steps.base import MAX_COST_USD
from migrate.steps.opening import model_of, runner_at, store_of
from migrate.stores.base import Store
from migrate.vectors import Progress, no_progress
from migrate.work.runner import LOCAL, Runner

StoreLike: TypeAlias = Store | str | Path
"""A store, or where it is."""

ModelLike: TypeAlias = Embedder | str
"""A model, or its spec as in `migrate.embedders`."""

RunnerLike: TypeAlias = Runner | str
"""A runner, or its name as in `migrate.work.runner.runner_of`."""

BUILD, POOL = "build", "pool"


def audit(
    translated: StoreLike,
    reference: StoreLike = POOL,
    *,
    beir: str | Path | QuerySet | None = None,
    queries: str | Path | None = None,
    target: ModelLike | None = None,
    source: StoreLike | None = None,
    source_model: ModelLike | None = None,
    split: str = "test",
    group_field: str | None = None,
    save_reference: str | Path | None = None,
    margin: float = MARGIN,
    runner: RunnerLike = LOCAL,
    seed: int = 0,
    max_cost: float | None = MAX_COST_USD,
    progress: Progress = no_progress,
) -> AuditReport:
    """Judge a translated store against a full re-embed: SAFE, NOT SAFE or INCONCLUSIVE, with the numbers behind it.

    Parameters
    ----------
    translated
        What `translate` wrote, or its path.
    reference
        "pool" embeds no more texts with the target model than the verdict needs, "build" every one. Or a full re-embed
        of the same documents, or its path.
    beir
        Queries and judgements: a BEIR folder, the name of a BEIR set, or a `migrate.audit.query_set.QuerySet`.
    queries
        In the place of `beir`, queries that nobody has judged: a file with a query a line, or JSONL with `text`; or
        "synthetic", made from the store's documents. The verdict is provisional.
    target
        The target model or its spec; by default what the translated store says it was made for.
    source, source_model
        The store before the migration and its model, to tell whether staying would be better. The model is by default
        what the store says.
    split
        Of the judgements.
    group_field
        Metadata field of the queries that says which ones are not independent of each other; by default those are whose
        vectors are alike.
    save_reference
        With "build", a folder to keep the reference in; one that is there already is used.
    margin
        Share of the full re-embed's quality that has to be kept.
    runner
        Who embeds the reference, as in `translate`.
    seed
        Of the resamples, and of synthetic queries.
    max_cost
        As in `fit`.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    LeadMigrateError
        As `migrate.audit.plan.plan_audit`, which has further options and says beforehand what it will cost.

    Examples
    --------
    >>> import migrate
    >>> stitch = migrate.fit("my-store", "tfidf:24", stitch="ridge", sample=100)
    >>> _ = migrate.translate("my-store", stitch, "new-store")
    >>> report = migrate.audit("new-store", beir="my-beir", source="my-store")
    >>> report.verdict.outcome in set(migrate.Outcome)
    True
    """
    if save_reference is not None and reference != BUILD:
        raise UsageError('save_reference goes with reference="build"; leave it out')
    new = store_of(translated, verify=True)
    query_set = _questions(new, beir, queries, split, group_field, seed, progress)
    embedder = elsewhere(model_of(new, target, "target"), runner_at(runner))
    old = None if source is None else store_of(source, verify=True)
    request = AuditRequest(
        new,
        query_set,
        embedder,
        reference=_reference(reference),
        save_reference=None if save_reference is None else Path(save_reference),
        source=old,
        source_embedder=None if old is None else model_of(old, source_model, "source_model"),
        options=AuditOptions(two_stage=None, margin=margin, seed=seed),
    )
    return plan_audit(request).run_within(max_cost, progress=progress)


def _questions(
    store: Store,
    beir: str | Path | QuerySet | None,
    queries: str | Path | None,
    split: str,
    group_field: str | None,
    seed: int,
    progress: Progress,
) -> QuerySet:
    """The queries that judge a store."""
    if isinstance(beir, QuerySet) and queries is None:
        return beir if group_field is None else by_field(beir, group_field)
    judged = beir.name if isinstance(beir, QuerySet) else beir
    return load_query_set(store, judged, queries, split=split, group_field=group_field, seed=seed, progress=progress)


def _reference(reference: StoreLike) -> Store | PoolReference | None:
    """What an audit compares with; None for a reference that is built."""
    if reference == POOL:
        return PoolReference()
    return None if reference == BUILD else store_of(reference, verify=True)
