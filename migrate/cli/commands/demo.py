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
@options.progress
@options.done_by("migrate.cli.demo:command")
def demo() -> None:
    """Move a store that ships with the package, offline, and judge the result.

    The move is from all-MiniLM-L6-v2 to all-mpnet-base-v2. The documents are docstrings of the standard library; the
    queries are summary lines, taken out of some of the documents. You need neither model, because the vectors of both
    ship with the package, and neither network nor key. The demo ends with a verdict; the exit code is 0 whatever the
    verdict is, because the demo worked.

    The folder of -o has the store (`source`), its queries and judgements (`beir`), the vectors of both models
    (`all-MiniLM-L6-v2.npz`, `all-mpnet-base-v2.npz`), and what `run` leaves.
    """
