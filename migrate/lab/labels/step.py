"""Judge by labels: the translated store, the full re-embed to train on, and the labels, as a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from migrate.audit.keys import id_keys
from migrate.audit.reference import check_target, prove_reference, refuse_same_stores, spot_documents
from migrate.audit.verdict import sentences
from migrate.cost.spending import PlannedModel
from migrate.lab.labels.judge import audit_downstream, check_dimensions
from migrate.selection.matches import ASKED_AGAIN
from migrate.steps.base import PaidStep

if TYPE_CHECKING:
    from migrate.embedders.base import Embedder
    from migrate.lab.labels.judge import DownstreamAudit
    from migrate.stores.base import Store


@dataclass(frozen=True, eq=False)
class JudgeLabels(PaidStep["DownstreamAudit"]):
    """Train on the vectors of a full re-embed, and judge those of a translated store by labels of documents.

    Both stores are open. `outside` are the ids of documents that do not belong among the labelled ones, and
    `margin_from` says where the margin is from, such as the name of a file.
    """

    translated: Store
    full: Store
    embedder: Embedder
    labels: Mapping[str, str]
    outside: Sequence[str]
    margin: float
    margin_from: str
    seed: int

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the documents that prove the reference."""
        documents = partial(spot_documents, self.full)
        return (PlannedModel(self.embedder, self.cap, documents=documents, again=ASKED_AGAIN),)

    def execute(self) -> DownstreamAudit:
        """Let the reference prove itself; then train and judge."""
        store, reference = self.translated, self.full
        check_dimensions(store, reference)
        check_target(store, self.embedder)
        refuse_same_stores(store, reference)
        keys = id_keys(store), id_keys(reference)
        proof = prove_reference(store, reference, self.embedder, keys, seed=self.seed, progress=self.progress)
        return audit_downstream(
            store,
            reference,
            self.labels,
            self.outside,
            margin=self.margin,
            margin_from=self.margin_from,
            doubts=sentences(proof.doubts, "doubt"),
            seed=self.seed,
            progress=self.progress,
        )
