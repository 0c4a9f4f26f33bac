"""The whole path, from a store and a target model to a translated store and a verdict. Start reading here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from migrate.audit.audit import Questions, audit_store
from migrate.audit.model import AuditReport
from migrate.audit.verdict import MARGIN
from migrate.embed import reembed_store
from migrate.embedders.base import Embedder
from migrate.files import atomic_file, write_json
from migrate.fit import AUTO, fit_stitch
from migrate.report.document import audit_document
from migrate.sample import SAMPLE_SIZE
from migrate.stitch.fitted import FittedStitch
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.translate import Translation, translate_store
from migrate.vectors import Progress, no_progress

STITCH, STORE, REFERENCE, REPORT = "stitch", "store", "reference", "report.json"
"""What `migrate` leaves in its folder."""


@dataclass(frozen=True, slots=True)
class Migration:
    """What came of the whole path."""

    stitch: FittedStitch
    translation: Translation
    report: AuditReport


def migrate(
    store: Store,
    embedder: Embedder,
    questions: Questions,
    folder: Path,
    *,
    source_embedder: Embedder | None = None,
    stitch: str = AUTO,
    size: int = SAMPLE_SIZE,
    margin: float = MARGIN,
    seed: int = 0,
    force: bool = False,
    progress: Progress = no_progress,
) -> Migration:
    """Fit a stitch on a sample, translate the store, embed it in full for comparison, and audit.

    Leaves `stitch`, `store`, `reference` and `report.json` in `folder`, each complete or absent.

    Raises
    ------
    LeadMigrateError
        As `fit_stitch`, `translate_store`, `reembed_store` and `audit_store`.
    """
    source_model = source_embedder.identity if source_embedder else None
    fitted = fit_stitch(
        store, embedder, stitch=stitch, size=size, source_model=source_model, seed=seed, progress=progress
    )
    fitted.save(folder / STITCH, force=force)
    translation = translate_store(store, fitted, folder / STORE, force=force, progress=progress)
    reembed_store(store, embedder, folder / REFERENCE, force=force, progress=progress)
    report = audit_store(
        open_store(folder / STORE),
        open_store(folder / REFERENCE),
        questions,
        embedder,
        source=store if source_embedder else None,
        source_embedder=source_embedder,
        margin=margin,
        seed=seed,
        progress=progress,
    )
    with atomic_file(folder / REPORT, force=force) as aside:
        write_json(aside, audit_document(report))
    return Migration(fitted, translation, report)
