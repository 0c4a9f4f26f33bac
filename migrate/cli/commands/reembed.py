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
@options.quiet
@options.done_by("migrate.cli.reembed:command")
def reembed() -> None:
    """Embed every text of STORE with another model.

    Kind, ids, order, texts and metric stay the same. What the embedding cache has is not embedded again. The same
    command goes on where one broke off. Every vector is the model's own then, so that `switch` takes the new store
    without an audit.

    An output KIND:LOCATION is a store of that kind, such as faiss:FOLDER or pgvector:postgresql://HOST/DB#TABLE.

    With --share only a part is embedded, the documents that matter most, and a stitch translates the others. With
    --from-cache a translated STORE gets what the cache has; it keeps its other vectors (`backfill` is the same).
    """
