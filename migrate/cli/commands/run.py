"""`lead-migrate run`: the whole path in one command."""

from __future__ import annotations

from migrate.cli import options
from migrate.pipeline import Run


@options.command(
    "run",
    example="lead-migrate run my-store --target tfidf:64 --judged my-beir -o migration",
)
@options.verdict_options(Run)
@options.done_by("migrate.cli.run:command")
def run() -> None:
    """Fit a stitch, translate STORE, and audit the result.

    All results are in one folder. The audit embeds a pool of documents, no more than the verdict needs; with
    --reference build, it embeds every document for comparison. If the store is so small that fit and audit would embed
    every document, there is nothing to judge: the store is embedded in full, as by `reembed`, and no queries are
    needed, unless --reference is given.

    If a run breaks off, the same command resumes it; after a finished run, it only prints the verdict again. With
    another --reference, other queries, another margin or price, it keeps the stitch and the translated store, and
    repeats the audit. If the store was embedded in full before, the translation is written beside that.

    The arm `stay` needs the source model: name it, unless the store's manifest does.
    """
