"""`lead-migrate embed`: a corpus to a store."""

from __future__ import annotations

from migrate.cli import options
from migrate.lab.embed.step import Embed


@options.command(
    "embed",
    "Embed a corpus into a new store.",
    example="lead-migrate embed corpus.jsonl --model tfidf:256 -o my-store",
)
@options.record(Embed)
@options.agreed
@options.model_options
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.lab.embed.action:command")
def command() -> None:
    """Embed CORPUS into a new store.

    A corpus is a BEIR folder, the name of a BEIR set, or a JSONL file of {"id", "text"}. Documents are cut into chunks
    that the model reads to their end. For the same chunks in another model's space, embed the `docs.jsonl` of the first
    store with --no-chunks.

    The model `layer:N:SPEC` is a layer of SPEC.
    """
