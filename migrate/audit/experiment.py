"""The queries of an audit and the stores that they are put to, opened, checked and embedded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from migrate.audit.bootstrap import Floor
from migrate.audit.keys import Keys, Names
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, STAY, TOGETHER, TRANSLATED, TWO_STAGE_DEPTHS, plan_word
from migrate.audit.rules import Rules, Settings
from migrate.search.runs import DEPTH
from migrate.stores.base import Store
from migrate.vectors import Progress, Vectors, no_progress


@dataclass(frozen=True, eq=False)
class Searchable:
    """A store that an arm searches, and what is asked of it.

    `keys` are the documents that its rows are judged as, `queries` the vectors of all queries in its space, (q, dim).
    `share` is how much of all documents, 0-1, the target model embeds to have it.
    """

    store: Store
    keys: Keys
    queries: Vectors
    share: float = 0.0

    def rows(self, documents: Iterable[str]) -> dict[str, int]:
        """Return the first row of each of some documents, in the order of the rows."""
        different = list(dict.fromkeys(documents))
        rows = self.keys.documents.rows_of(different)
        return {different[at]: int(rows[at]) for at in np.argsort(rows).tolist() if rows[at] >= 0}

    def texts(self, documents: Sequence[str]) -> dict[str, str]:
        """Return the texts of some documents; none where the store has none."""
        rows = self.rows(documents)
        if not self.store.info.has_texts or not rows:
            return {}
        order = np.array(list(rows.values()), dtype=np.int64)
        return dict(zip(rows, (document.text for document in self.store.documents(order)), strict=True))


def without_rows(store: Store) -> Searchable:
    """Return a store of which nothing is read yet."""
    nothing = Names(0)
    return Searchable(store, Keys(nothing, nothing), np.empty((0, store.info.dim), np.float32))


@dataclass(frozen=True, eq=False)
class Experiment:
    """The queries of an audit, and the stores that they are put to, by the name of the arm that searches each.

    `ranks_words` says that there are arms of words, `old_answers` that the source's model embeds new queries, as a file
    of vectors does not: what needs it could serve, and stands among the alternatives. `same_ids` says that the
    translated store and the full re-embed hold the same ids, not only chunks of the same documents.

    Where a pool stands for the full re-embed, that one's store is not there until the pool has grown; `pool_depth` is
    then how many of the translated store's first documents it has for every query, None where it came to be the whole
    store.
    """

    settings: Settings
    query_set: QuerySet
    stores: Mapping[str, Searchable]
    ranks_words: bool = False
    old_answers: bool = False
    same_ids: bool = False
    pool_depth: int | None = None
    progress: Progress = no_progress

    @property
    def in_pool(self) -> bool:
        """True where only a part of the full re-embed is there."""
        return self.pool_depth is not None

    @property
    def depth(self) -> int:
        """Documents to retrieve, so that enough are left when a query's own is dropped."""
        return DEPTH + self.query_set.exclude_self

    @property
    def n_documents(self) -> int:
        """The number of documents that are judged; one that was cut into chunks is there once."""
        return self.stores[TRANSLATED].keys.documents.distinct


def rules_of(experiment: Experiment, floor: Floor | None = None) -> Rules:
    """Return the rules by which rankings are judged; `floor` is that of a pool."""
    return Rules(experiment.query_set, experiment.settings, experiment.n_documents, floor)


def depths_asked(experiment: Experiment) -> list[int]:
    """Return the depths of two-stage arms, without those that would embed the whole store."""
    stages = experiment.settings.stages
    depths: Sequence[int] = TWO_STAGE_DEPTHS
    if stages is not None:
        depths = stages
    return [depth for depth in sorted(set(depths)) if depth < experiment.stores[TRANSLATED].store.info.count]


def depths_reached(experiment: Experiment) -> list[int]:
    """Return those that do not go beyond the pool."""
    most = experiment.pool_depth
    return [depth for depth in depths_asked(experiment) if most is None or depth <= most]


def reranks_together(experiment: Experiment) -> bool:
    """Return whether arms rank the first documents of both stores again: they are asked for, as they embed more."""
    settings = experiment.settings
    if settings.ranked_queries is not None and not plan_word(settings.plan).startswith(TOGETHER):
        return False
    return STAY in experiment.stores and bool(settings.stages)


def could_serve_both(experiment: Experiment) -> bool:
    """Return whether both stores could serve together, or the plan says that they do."""
    # Whoever plans for it says that the old model answers, whatever its file can do
    is_planned = plan_word(experiment.settings.plan).startswith(TOGETHER)
    return STAY in experiment.stores and (experiment.old_answers or is_planned)


def can_rerank(experiment: Experiment) -> bool:
    """Return whether the reference has texts to embed, under the ids that the translated store lists."""
    reference = experiment.stores[FULL].store
    return reference.info.has_texts and (experiment.in_pool or experiment.same_ids)
