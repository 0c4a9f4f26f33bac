"""`lead-migrate inspect`: what is in a store, or in a stitch."""

from __future__ import annotations

from migrate.cli import options
from migrate.inspect import Inspect


@options.command("inspect", example="lead-migrate inspect my-store/")
@options.record(Inspect)
@options.as_json
@options.progress
@options.done_by("migrate.cli.inspect:command")
def inspect() -> None:
    """Show what STORE or STITCH contains.

    Of a store: format, index, vectors, metric, norms, texts, model, and anything odd; of a folder with several stores,
    or a database with several tables or collections, list them. Of STITCH, a folder or a URL that `fit` wrote to: what
    it maps and reads, and how it was judged.
    """
