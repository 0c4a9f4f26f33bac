"""Warnings of texts that are longer than a model takes, which cuts them silently."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from migrate.audit.pool import DEPTHS
from migrate.cli.terminal import advise, warn
from migrate.cost.unread import count_unread, count_unread_of_store
from migrate.embedders.abilities import loaded_profile
from migrate.embedders.cache import is_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate.audit.query_set import QuerySet
    from migrate.cost.unread import Unread
    from migrate.embedders.base import Embedder
    from migrate.steps.fit.job import FitJob
    from migrate.stores.base import Store

DOCUMENTS, QUERIES = "documents of the store", "queries"

_REMEDIES = {DOCUMENTS: "`embed` cuts documents into chunks that fit", QUERIES: "shorten them"}


def warn_of_unread(unread: Unread | None, subject: str, remedy: str) -> None:
    """Say how much is never read, where anything is, and what helps."""
    if unread is not None and unread.over:
        warn(f"{unread.sentence(subject)}; {remedy}")


def warn_of_store(store: Store, embedder: Embedder, *, seed: int) -> Unread | None:
    """Count what a model will leave unread of a store's documents, say so, and return it."""
    unread = _unread_of_store(store, embedder, seed=seed)
    warn_of_unread(unread, DOCUMENTS, _REMEDIES[DOCUMENTS])
    return unread


def _unread_of_store(store: Store, embedder: Embedder, *, seed: int) -> Unread | None:
    if not store.info.has_texts:
        return None
    return count_unread_of_store(store, loaded_profile(embedder), seed=seed)


def count_unread_of_sample(job: FitJob) -> Unread | None:
    """Count the same for the sample of a fit, of which `warn_of_store` has warned; only for one at random."""
    target = loaded_profile(job.inputs.embedder)
    sample = job.sample
    is_random = sample is not None and sample.strategy == "random"
    if sample is None or not (is_random and job.inputs.store.info.has_texts and target.max_tokens is not None):
        return None
    return count_unread(sample.documents, target)


def with_unread(
    questions: QuerySet, store: Store, embedder: Embedder, *, seed: int, warned: Sequence[str] = (DOCUMENTS, QUERIES)
) -> QuerySet:
    """Return the questions, with a note for the report where a model leaves some of them, or of the store, unread.

    A warning of the subjects in `warned` is printed too. The translation and the full re-embed that it is compared with
    are both of what is read.
    """
    counted = {
        DOCUMENTS: _unread_of_store(store, embedder, seed=seed),
        QUERIES: count_unread(questions.queries, loaded_profile(embedder).for_queries()),
    }
    for subject in warned:
        warn_of_unread(counted[subject], subject, _REMEDIES[subject])
    notes = [counts.sentence(subject) for subject, counts in counted.items() if counts is not None and counts.over]
    return replace(questions, notes=(*questions.notes, *notes))


def offer_hold_out(query_set: QuerySet, store: Store, embedder: Embedder) -> None:
    """Say, before a pool is paid for, that its queries cannot judge what it is filled into, and what helps.

    Of a small store a pool takes nearly all; that is a full re-embed then, which needs no judge.
    """
    count = len(query_set.distinct)
    # Fewer are not worth being divided into those that choose and those that judge
    is_many = count >= 100
    # Half as many queries make bounds wider by the root of two
    if is_kept(embedder) and is_many and store.info.count > DEPTHS[0] * count:
        advise(
            f"these {count:,} queries choose what the pool embeds, so they will not judge a store that is filled "
            "in with it (`backfill`); to keep half of them for that, add --hold-out 50%: bounds get about 1.4 "
            "times as wide now",
        )
