"""Where a migration hurts: which queries lose, of what kind, how thresholds move, what became of the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from migrate.audit.arms import FULL, STAY, TRANSLATED, deciding_scores
from migrate.audit.calibration import Calibration, calibrate
from migrate.audit.ground import Ground
from migrate.audit.homes import home_documents
from migrate.audit.hubness import NEIGHBOURS, Hubness, hubness_of
from migrate.audit.regressions import Regression, find_regressions
from migrate.audit.slices import Slice, find_slices
from migrate.audit.spaces import Spaces, map_spaces
from migrate.search.runs import Run
from migrate.similarity import Similarity, compare_spaces
from migrate.vectors import Vectors

_SAMPLE = 2_000
_COMPARED = 1_000
_FEWEST = 50
"""Documents to compare spaces by: half of them fit a stitch."""


@dataclass(frozen=True, slots=True)
class Hurt:
    """What is behind the mean. What could not be had is empty or None: calibration needs the arm `stay`.

    `likeness` holds the space of each arm that has one of its own against that of the full re-embed.
    """

    regressions: tuple[Regression, ...] = ()
    slices: tuple[Slice, ...] = ()
    calibration: Calibration | None = None
    hubness: tuple[Hubness, ...] = ()
    spaces: Spaces | None = None
    likeness: Mapping[str, Similarity] = field(default_factory=dict)


def find_hurt(
    ground: Ground, runs: Mapping[str, Run], *, slice_fields: Sequence[str] = (), seed: int, resamples: int
) -> Hurt:
    """Look at the translated store from every side, held against the full re-embed and, where it is there, the source.

    Raises
    ------
    StoreError
        `confidence.npy` is damaged, or of another store.
    """
    homes = home_documents(ground, runs[FULL])
    scores = tuple(deciding_scores(runs[name], runs[FULL], ground.questions) for name in (TRANSLATED, FULL))
    ids, sampled = _sample(ground, seed)
    return Hurt(
        find_regressions(ground, runs),
        find_slices(ground, homes, (scores[0], scores[1]), fields=slice_fields, seed=seed, resamples=resamples),
        _calibration(ground, runs),
        tuple(
            hubness_of(name, vectors, ground.stores[name].info.metric)
            for name, vectors in sampled.items()
            if len(ids) > NEIGHBOURS
        ),
        map_spaces(ids, sampled[FULL], sampled[TRANSLATED]) if len(ids) > 1 else None,
        {
            name: compare_spaces(vectors[:_COMPARED], sampled[FULL][:_COMPARED], seed=seed)
            for name, vectors in sampled.items()
            if name != FULL and len(ids) >= _FEWEST
        },
    )


def _calibration(ground: Ground, runs: Mapping[str, Run]) -> Calibration | None:
    if STAY not in runs:
        return None
    metrics = ground.stores[STAY].info.metric, ground.stores[TRANSLATED].info.metric
    return calibrate(runs[STAY], runs[TRANSLATED], ground.questions, metrics, names=(STAY, TRANSLATED))


def _sample(ground: Ground, seed: int) -> tuple[tuple[str, ...], dict[str, Vectors]]:
    """Up to 2,000 ids that all stores have, and their vectors in each; chunks of other sizes have other ids."""
    names = [name for name in (STAY, TRANSLATED, FULL) if name in ground.stores]
    common = set.intersection(*(set(ground.keys[name]) for name in names))
    ids = [doc_id for doc_id in ground.keys[TRANSLATED] if doc_id in common]
    drawn = np.random.default_rng(seed).permutation(len(ids))[:_SAMPLE]
    chosen = tuple(ids[i] for i in drawn)
    return chosen, {name: _vectors(ground, name, chosen) for name in names}


def _vectors(ground: Ground, name: str, ids: tuple[str, ...]) -> Vectors:
    wanted = set(ids)
    row_of = {doc_id: row for row, doc_id in enumerate(ground.keys[name]) if doc_id in wanted}
    return ground.stores[name].take(np.array([row_of[doc_id] for doc_id in ids], dtype=np.int64)).vectors
