"""The runs of an audit's stores beside those of a proven reference, and the rules by which they are judged."""

from __future__ import annotations

from dataclasses import dataclass

from migrate.audit.experiment import Experiment
from migrate.audit.measures import Scores
from migrate.audit.outside import Outside
from migrate.audit.reference_proof import ReferenceProof
from migrate.audit.retrieval import Runs
from migrate.audit.rules import Rules
from migrate.audit.scoring import deciding_scores
from migrate.search.runs import Rankings


@dataclass(frozen=True, eq=False)
class Evidence:
    """An experiment that has a reference, a full re-embed or a pool, and what its stores have answered.

    `proof` is how the reference was shown to be one, `outside` what lies around a pool, None where nothing does.
    """

    experiment: Experiment
    runs: Runs
    rules: Rules
    proof: ReferenceProof
    outside: Outside | None = None

    def scores(self, run: Rankings) -> Scores:
        """Return a run's scores by the measure that a verdict rests on, one for each distinct text, (c,)."""
        return deciding_scores(self.experiment, self.runs.full, run)
