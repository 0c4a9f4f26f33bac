"""Judge by labels: the translated store, the full re-embed to train on, and the labels, as a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.audit.keys import id_keys
from migrate.audit.reference import prove_reference, spot_documents
from migrate.audit.verdict import sentences
from migrate.cost.spending import PlannedModel
from migrate.datasets.records import read_ids, read_labels
from migrate.errors import UsageError
from migrate.lab.labels.judge import audit_downstream, check_dimensions
from migrate.lab.labels.options import LabelOptions
from migrate.selection.matches import ASKED_AGAIN
from migrate.steps.base import PaidStep
from migrate.steps.opening import model_of, store_of

if TYPE_CHECKING:
    from migrate.embedders.base import Embedder
    from migrate.lab.labels.judge import DownstreamAudit
    from migrate.stores.base import Store

EMBEDDED_NOW = ("build", "pool")
"""References of `audit` that are no stores, and hold no vectors to train on."""


@dataclass(frozen=True, eq=False)
class JudgeLabels(LabelOptions, PaidStep["DownstreamAudit"]):
    """Train on the vectors of a full re-embed, and judge those of a translated store by labels of documents."""

    def check(self) -> None:
        """Make sure that there is a store to train on, and that the labels can be read."""
        if self.reference in EMBEDDED_NOW:
            raise UsageError(
                f"--labels needs a full re-embed to train on, and --reference is {self.reference}; give a store, such "
                "as `reembed` writes"
            )
        _ = self.labels_by_id
        _ = self.outside_ids

    @cached_property
    def translated(self) -> Store:
        """The store that is judged, opened."""
        return store_of(self.store, verify=True)

    @cached_property
    def full(self) -> Store:
        """The full re-embed, opened."""
        return store_of(self.reference, verify=True)

    @cached_property
    def embedder(self) -> Embedder:
        """The target model, which spends under the cap."""
        return self.cap.meter(model_of(self.translated, self.target, "target"), self.price)

    @cached_property
    def labels_by_id(self) -> Mapping[str, str]:
        """The labels of documents."""
        return read_labels(Path(self.labels)) if isinstance(self.labels, Path | str) else self.labels

    @cached_property
    def outside_ids(self) -> Sequence[str]:
        """The ids of documents that do not belong among the labelled ones."""
        outside = read_ids(Path(self.outside)) if isinstance(self.outside, Path | str) else self.outside
        return outside or ()

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the documents that prove the reference."""
        documents = partial(spot_documents, self.full)
        return (PlannedModel(self.embedder, self.cap, documents=documents, again=ASKED_AGAIN),)

    def execute(self) -> DownstreamAudit:
        """Let the reference prove itself; then train and judge."""
        store, reference = self.translated, self.full
        check_dimensions(store, reference)
        keys = id_keys(store), id_keys(reference)
        proof = prove_reference(store, reference, self.embedder, keys, seed=self.seed, progress=self.progress)
        return audit_downstream(
            store,
            reference,
            self.labels_by_id,
            self.outside_ids,
            margin=self.margin,
            margin_from=self.margin_from,
            doubts=sentences(proof.doubts, "doubt"),
            seed=self.seed,
            progress=self.progress,
        )
