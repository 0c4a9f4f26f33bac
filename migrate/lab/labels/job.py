"""Judge by labels: the translated store, the full re-embed to train on and the labels, once they are open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from migrate.audit.keys import id_keys
from migrate.audit.reference_proof import check_target, prove_reference, refuse_same_stores, spot_documents
from migrate.audit.verdict import sentences
from migrate.cost.spending import PlannedModel
from migrate.embedders.base import Embedder
from migrate.lab.labels.judge import DownstreamAudit, audit_downstream, check_dimensions
from migrate.lab.labels.options import LabelOptions
from migrate.selection.model_match import ASKED_AGAIN
from migrate.steps.base import Job, RunContext
from migrate.stores import open_store
from migrate.stores.base import Store


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelsJob(Job[DownstreamAudit]):
    """Models are trained on the vectors of a full re-embed, and judge those of a translated store; both are open.

    Attributes
    ----------
    labels
        Those of documents, by id.
    outside
        Ids of documents that do not belong among the labelled ones.
    margin_from
        Where the margin is from, such as the name of a file.
    """

    options: LabelOptions
    translated: Store
    full: Store
    embedder: Embedder
    labels: Mapping[str, str]
    outside: Sequence[str]
    margin_from: str

    def execute(self) -> DownstreamAudit:
        """Let the reference prove itself; then train and judge."""
        options = self.options
        # Whatever costs nothing is refused before the model is asked
        check_dimensions(self.translated, self.full)
        check_target(self.translated, self.embedder)
        refuse_same_stores(self.translated, self.full)
        keys = id_keys(self.translated), id_keys(self.full)
        proof = prove_reference(
            self.translated, self.full, self.embedder, keys, seed=options.seed, progress=self.context.progress
        )
        return audit_downstream(
            self.translated,
            self.full,
            self.labels,
            self.outside,
            margin=options.margin,
            margin_from=self.margin_from,
            doubts=sentences(proof.doubts, "doubt"),
            seed=options.seed,
            progress=self.context.progress,
        )


def labels_job(
    options: LabelOptions,
    translated: Store,
    target: Embedder,
    labels: Mapping[str, str],
    outside: Sequence[str],
    *,
    margin_from: str,
    context: RunContext,
) -> LabelsJob:
    """Open the full re-embed beside a translated store and its model. Nothing is embedded."""
    full = open_store(options.reference, verify=True)
    embedder = context.cap.meter(target, options.price)
    documents = partial(spot_documents, full)
    return LabelsJob(
        options=options,
        context=context,
        models=(PlannedModel(embedder, context.cap, documents=documents, again=ASKED_AGAIN),),
        translated=translated,
        full=full,
        embedder=embedder,
        labels=labels,
        outside=outside,
        margin_from=margin_from,
    )
