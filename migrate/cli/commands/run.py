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

    Everything is left in one folder. The audit embeds a pool of documents, no more than the verdict needs; with
    --reference build, every document is embedded for comparison. Of a small store, of which fit and audit would embed
    every document, there is nothing to judge, and no queries are needed: it is embedded in full, as `reembed` does,
    unless --reference is named.

    The same command again goes on where a run broke off; a finished run only prints its verdict again. With another
    --reference, other queries, another margin or price it keeps the stitch and the translated store, and audits anew;
    a store that was embedded in full is translated beside that.

    The arm `stay` is there when the source model is named, or when the store's manifest says it.
    """
