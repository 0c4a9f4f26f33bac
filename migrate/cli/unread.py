"""Warnings of texts that are longer than a model takes, which cuts them silently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrate.cli.terminal import advise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from migrate.audit.query_set import QuerySet
    from migrate.cost.chunks import Unread
    from migrate.embedders.base import Embedder
    from migrate.steps.fit import Fit
    from migrate.stores.base import Store
    from migrate.vectors import Document


CHUNKS = "`embed` cuts documents into chunks that fit"


def warn_of_unread(unread: Unread | None, subject: str, remedy: str) -> None:
    """Say how much is never read, where anything is, and what helps."""
    if unread is not None and unread.over:
        advise(f"warning: {unread.sentence(subject)}; {remedy}")


def warn_of_store(store: Store, embedder: Embedder, *, seed: int) -> Unread | None:
    """Count what a model will leave unread of a store's documents, say so, and return it."""
    from migrate.cost.chunks import count_unread_of_store

    if not store.info.has_texts:
        return None
    unread = count_unread_of_store(store, embedder.loaded_profile(), seed=seed)
    warn_of_unread(unread, "documents of the store", CHUNKS)
    return unread


def warn_of_sample(draw: Callable[[], Sequence[Document]], embedder: Embedder) -> Unread | None:
    """Do as `warn_of_store` for the documents of a sample, which are not drawn for a model without a limit."""
    from migrate.cost.chunks import count_unread

    target = embedder.loaded_profile()
    unread = None if target.max_tokens is None else count_unread(draw(), target)
    warn_of_unread(unread, "documents of the sample", CHUNKS)
    return unread


def warn_of_fit(step: Fit) -> Unread | None:
    """Do as `warn_of_sample` for a fit whose sample is drawn at random, which is quick."""
    if step.query_log is not None or step.strategy not in (None, "random") or not step.inputs.store.info.has_texts:
        return None
    return warn_of_sample(step.expected_documents, step.inputs.embedder)


def with_unread(questions: QuerySet, store: Store, embedder: Embedder, *, seed: int, silent: bool = False) -> QuerySet:
    """Return the questions, with a note for the report where a model leaves some of them, or of the store, unread.

    It is said too, unless it is to be `silent`. The translation and the full re-embed that it is compared with are both
    of what is read.
    """
    from dataclasses import replace

    from migrate.cost.chunks import count_unread, count_unread_of_store

    profile = embedder.loaded_profile()
    counted = {
        "documents of the store": count_unread_of_store(store, profile, seed=seed) if store.info.has_texts else None,
        "queries": count_unread(questions.queries, profile.for_queries()),
    }
    if not silent:
        for subject, remedy in (("documents of the store", CHUNKS), ("queries", "shorten them")):
            warn_of_unread(counted[subject], subject, remedy)
    notes = [counts.sentence(subject) for subject, counts in counted.items() if counts is not None and counts.over]
    return replace(questions, notes=(*questions.notes, *notes))


def offer_hold_out(query_set: QuerySet, store: Store, embedder: Embedder) -> None:
    """Say, before a pool is paid for, that its queries cannot judge what it is filled into, and what helps.

    Of a small store a pool takes nearly all; that is a full re-embed then, which needs no judge.
    """
    from migrate.audit.pool import DEPTHS

    count = len(query_set.distinct)
    is_many = count >= 100  # worth being divided into those that choose and those that judge
    if embedder.keeps and is_many and store.info.count > DEPTHS[0] * count:
        advise(
            f"these {count:,} queries choose what the pool embeds, so they will not judge a store that is filled "
            "in with it (`backfill`); to keep half of them for that, add --hold-out 50%: bounds get about 1.4 "
            "times as wide now",
        )
