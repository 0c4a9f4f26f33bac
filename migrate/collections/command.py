"""`lead-migrate collections`: many collections of one place, by one stitch."""

from __future__ import annotations

import click

from migrate.audit.step import Audit
from migrate.cli import options
from migrate.collections.options import CollectionsOptions

_reports = options.option(
    "--reports", type=options.PATH, metavar="FOLDER", help="Folder of the reports of `collections audit`."
)

_store = click.argument("store", type=options.STORE)


@click.group("collections", cls=options.OrderedGroup, short_help="Move many collections of one place by one stitch.")
def command() -> None:
    """Move many collections of one place, such as all of a Chroma folder, by one stitch.

    A location with a `*`, in quotes, means all collections whose names match: 'chroma:FOLDER#*'. They share one sample,
    one fit, one estimate and one cap. Each is then translated, judged and switched separately. If a command is killed,
    the same command resumes it; finished work is not repeated.
    """


@command.add_command
@options.command("inspect", "List the collections.", example="lead-migrate collections inspect 'chroma:vector_db#*'")
@_store
@options.as_json
@options.done_by("migrate.collections.action:inspect")
def inspect() -> None:
    """List the collections that match STORE, and say which of them a migration leaves out, and why."""


@command.add_command
@options.command(
    "fit",
    "Learn one map on a sample of all.",
    example="lead-migrate collections fit 'chroma:vector_db#*' --target openai:text-embedding-3-small -o stitches",
)
@options.output
@options.record(CollectionsOptions)
@options.agreed
@options.model_options
@options.force
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.collections.action:fit")
def fit() -> None:
    """Learn one map from the vectors of all collections that match STORE.

    Collections of fewer than 100 documents are embedded in full, because no audit could find so few SAFE; the sample
    takes some documents from each of the others. The output has a stitch for each collection, with the same map and the
    collection's own true vectors.
    """


@command.add_command
@options.command(
    "translate",
    "Translate each collection.",
    example="lead-migrate collections translate 'chroma:vector_db#*' stitches -o translated",
)
@_store
@click.argument("stitches", type=options.PATH)
@options.option(
    "--output", "-o", type=options.STORE, required=True, help="Folder to write, or KIND:PLACE with a * for the name."
)
@options.force
@options.as_json
@options.progress
@options.done_by("migrate.collections.action:translate")
def translate() -> None:
    """Translate each of the collections into a store of its own, by the output of `collections fit`.

    The stores lie in the folder OUTPUT under the names of the collections, or, on a server, where a * in OUTPUT stands
    for what it is in STORE. Each appears when it is complete.
    """


@command.add_command
@options.command(
    "audit",
    "Judge each translated collection.",
    example="lead-migrate collections audit translated --source 'chroma:vector_db#*' --queries queries.txt -o reports",
)
@options.option(
    "--output", "-o", type=options.PATH, required=True, help="Folder of the reports: a page for each, and the table."
)
@options.record(
    Audit, "store", "source", "reference", "target", "source_model", "judged", "queries", "margin", "price", "seed",
    "force", "max_cost",
)  # fmt: skip
@options.agreed
@options.model_options
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.collections.action:audit")
def audit() -> None:
    """Judge each of the collections in STORE, the output of `collections translate`.

    --source has the old collections, with a *. Of judged queries, each counts for the collections that have a relevant
    document; other queries are asked of all. The exit code is the worst: 0 if all are SAFE.
    """


@command.add_command
@options.command(
    "switch",
    "Put the new collections in the place of the old ones.",
    example="lead-migrate collections switch 'chroma:vector_db#*' translated --reports reports",
)
@click.argument("old", type=options.STORE)
@click.argument("new", type=options.STORE)
@_reports
@options.option("--unproven", is_flag=True, help="Switch without a proof that the new ones are SAFE.")
@options.as_json
@options.done_by("migrate.collections.action:switch")
def switch() -> None:
    """Let the collections in NEW, the output of `collections translate`, answer for those of OLD.

    Collections of a server, and indexes in a folder, are switched one by one; of a database in a folder, all are put
    into one new folder, with those that are not moved as they are, and the two folders trade places. `rollback` undoes
    it.
    """
