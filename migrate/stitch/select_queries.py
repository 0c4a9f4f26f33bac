"""Which stitch for queries: judged by the answers of the new model that the old store would give.

What a stitch for documents aims at are new vectors; what one for queries is for are the new model's answers out of the
old vectors. So a held-out document asks with its mapped vector among the old vectors of the sample, and what it finds
is held against its neighbours among the new ones. Cosine, MSE and R² are against the old vectors as ever, though the
adjoint stitches do not aim at these.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from migrate.stitch.adjoint import Adjoint
from migrate.stitch.base import check_pairs
from migrate.stitch.kinds import new_stitch
from migrate.stitch.linear import Identity, Mean, Procrustes, Ridge
from migrate.stitch.pairing import Pairing, cross_predict
from migrate.stitch.scores import Neighbours, score_predictions
from migrate.stitch.select import Candidate, Selection, candidates
from migrate.vectors import Progress, Vectors, no_progress, unit_rows

QUERY_CANDIDATES = (
    Identity.kind,
    Procrustes.kind,
    Ridge.kind,
    f"{Adjoint.kind}:{Procrustes.kind}",
    Adjoint.kind,
)
"""What `auto` chooses from for queries, the simpler first: of two that score the same, the earlier is taken."""


def select_query_stitch(
    source: Vectors,
    target: Vectors,
    *,
    specs: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = no_progress,
) -> Selection:
    """Cross-validate stitches from new vectors, (n, p), to old ones, (n, q), and choose by overlap@10.

    As `select_stitch`, with the controls `mean` and `random`, but for what is overlapped; see above.

    Raises
    ------
    StitchError
        Fewer than two pairs.
    UsageError
        A spec that is no stitch.
    """
    check_pairs(source, target)
    same_dim = source.shape[1] == target.shape[1]
    wanted = candidates(specs, [spec for spec in QUERY_CANDIDATES if same_dim or spec != Identity.kind])
    controls = [spec for spec in (Mean.kind,) if spec not in wanted]
    judge = _Judge(source, target, seed)
    table = []
    for done, spec in enumerate(wanted):
        progress("fit candidates", done, len(wanted))
        table.append(judge.stitch(spec))
    chosen = max(table, key=lambda row: row.scores.overlap_at_10).stitch
    table += [judge.stitch(spec, is_control=True) for spec in controls]
    return Selection(chosen, (*table, judge.random()))


class _Judge:
    """Scores what maps the new vectors of the sample among its old ones."""

    def __init__(self, source: Vectors, target: Vectors, seed: int) -> None:
        self.source, self.target, self.seed = source, target, seed
        self._neighbours = Neighbours(unit_rows(source), seed=seed)
        self._documents = unit_rows(target)

    def stitch(self, spec: str, *, is_control: bool = False) -> Candidate:
        """A stitch, by predictions of pairs that it was not fitted on."""
        started = time.perf_counter()
        mapped = cross_predict(new_stitch(spec), Pairing(self.source, self.target), seed=self.seed, with_variance=False)
        return self._candidate(spec, mapped.vectors, time.perf_counter() - started, is_control=is_control)

    def random(self) -> Candidate:
        """The control that asks with the old vector of another document."""
        shift = np.random.default_rng(self.seed).permutation(len(self.target))
        mapped = np.empty_like(self.target)
        mapped[shift] = self.target[np.roll(shift, 1)]  # one cycle: nobody keeps the own vector
        return self._candidate("random", mapped, 0.0, is_control=True)

    def _candidate(self, spec: str, mapped: Vectors, fit_s: float, *, is_control: bool) -> Candidate:
        overlap = float(self._neighbours.overlap(self._documents, unit_rows(mapped)).mean())
        scores = replace(score_predictions(mapped, self.target, seed=self.seed), overlap_at_10=overlap)
        return Candidate(spec, scores, fit_s, is_control)
