"""`lead-migrate translate`: a store through a stitch, with or without a budget of true vectors."""

from __future__ import annotations

from migrate.cli import options
from migrate.steps.translate import Translate


@options.command("translate", example="lead-migrate translate my-store my-stitch -o new-store")
@options.record(Translate)
@options.agreed
@options.model_options_beside_dimensions
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.cli.translate:command")
def translate() -> None:
    """Translate STORE by STITCH into a new store.

    Kind, ids, texts and metric stay the same. An output KIND:LOCATION is a store of that kind, such as faiss:FOLDER or
    pgvector:postgresql://HOST/DB#TABLE.

    With --dimensions instead of STITCH, vectors are cut to their first N dimensions: exact, free and without a fit for
    models that were trained for it.

    With --reembed, the documents that matter most get their true vectors, and the stitch learns from them. With --into,
    the new vectors go into a field of the same records, which is STORE?vector=FIELD.
    """
