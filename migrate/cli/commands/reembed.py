"""`lead-migrate reembed`: a store with the new model, all of it or a share."""

from __future__ import annotations

from migrate.cli import options
from migrate.steps.reembed import Reembed


@options.command("reembed", example="lead-migrate reembed my-store --target tfidf:64 -o new-store")
@options.record(Reembed)
@options.agreed
@options.model_options
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.cli.reembed:command")
def reembed() -> None:
    """Embed every text of STORE with another model.

    Kind, ids, order, texts and metric stay the same. Texts in the embedding cache are not embedded again. If a run
    breaks off, the same command resumes it. Every vector is then the model's own, so `switch` accepts the new store
    without an audit.

    An output KIND:LOCATION is a store of that kind, such as faiss:FOLDER or pgvector:postgresql://HOST/DB#TABLE.

    With --rows only the documents in FILE are embedded, which `check --rows` wrote of a STORE of two models.

    With --share only a part is embedded, the documents that matter most, and a stitch translates the others. With
    --from-cache a translated STORE gets the true vectors in the cache and keeps its other vectors (`backfill` does the
    same).
    """
