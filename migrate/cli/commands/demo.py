"""`lead-migrate demo`: the whole path on a store that comes with the package."""

from __future__ import annotations

import click

from migrate.cli import options


@options.command("demo", example="lead-migrate demo --from tfidf:256")
@options.option(
    "--hard", is_flag=True, help="Move the other way, to the smaller model, where staying is the better deal."
)
@options.option(
    "--from",
    "source_spec",
    envvar=f"{options.PREFIX}_FROM",
    metavar="SPEC",
    help="Embed the texts with another model first, and move from that to all-MiniLM-L6-v2.",
)
@options.option(
    "--output",
    "-o",
    type=options.PATH,
    help="Folder to keep everything in.  [default: only the page is kept, in the current folder]",
)
@options.option("--docs", type=click.IntRange(min=300), help="Documents to take.  [default: all]")
@options.option(
    "--sample",
    type=click.IntRange(min=2),
    help="Documents to embed again and learn from.  [default: 500, or a third of fewer than 1,500]",
)
@options.seed
@options.force
@options.verbose
@options.quiet
@options.done_by("migrate.cli.demo:command")
def demo() -> None:
    """Move a store that comes along, offline, and judge it.

    The move is from all-MiniLM-L6-v2 to all-mpnet-base-v2. Documents are docstrings of the standard library, queries
    the summary lines of some, taken out of the documents. Neither model is needed: the vectors of both come with the
    package. Works without network and without key. Ends with the verdict, whatever it is, and exit code 0: it is the
    demo that worked.

    The folder of -o has the store (`source`), its queries and judgements (`beir`), the vectors of both models
    (`all-MiniLM-L6-v2.npz`, `all-mpnet-base-v2.npz`), and what `run` leaves.
    """
