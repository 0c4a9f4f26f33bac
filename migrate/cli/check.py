"""`lead-migrate check`: whether a store's vectors come from a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from migrate.cli import options
from migrate.cli.next_step import lead_on
from migrate.cli.options import CI, ModelOptions, ci_options, option
from migrate.cli.pages import open_page, refuse_open
from migrate.cli.pages import opens as open_option
from migrate.cli.terminal import progress_bar, show, show_json

_ALL = "all"


def _sample_size(value: Any) -> int | str:
    """A number of documents, or `all`."""
    return _ALL if value == _ALL else int(click.IntRange(min=1).convert(value, None, None))


sample = option(
    "--sample",
    "size",
    type=_sample_size,
    metavar="N|all",
    help="Documents to embed again, whatever a manifest says.  [default: 32, where no manifest answers]",
)


@options.command(
    "check", "Whether a store comes from a model.", example="lead-migrate check my-store/ --model tfidf:32"
)
@click.argument("store", type=options.STORE)
@option("--model", "spec", required=True, metavar="SPEC", help="Model that the store should come from.")
@sample
@option("--full", is_flag=True, help="Embed the sample even where a manifest answers.")
@option("--html", type=options.PATH, metavar="FILE", help="File to write the finding to as a page for a browser.")
@open_option
@options.model_options
@options.seed
@ci_options
@options.force
@options.as_json
@options.quiet
def command(
    store: str,
    spec: str,
    size: int | str | None,
    full: bool,
    html: Path | None,
    opens: bool,
    model: ModelOptions,
    seed: int,
    ci: CI,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Say whether the vectors of STORE are those that a model gives to its texts, or why not.

    Exits with 0 if so, with 1 if not. A manifest whose hash is that of the index answers at once. What fits instead,
    such as texts cut at another length, is printed as the next command.
    """
    from migrate.check import check_store
    from migrate.files import atomic_file, refuse_file, write_bytes
    from migrate.report.check import check_document, check_page, check_text
    from migrate.report.suite import check_suite
    from migrate.stores import open_store
    from migrate.stores.file_store import folder_of

    refuse_open(html, opens=opens)
    ci.refuse(*options.local_paths(store), force=force)
    if html is not None:
        refuse_file(html, *options.local_paths(store), force=force)
    opened = open_store(store)
    with progress_bar(quiet=quiet) as progress:
        compatibility = check_store(
            opened,
            model.load(spec, state=folder_of(opened)),
            sample=documents(size, opened.info.count),
            manifest="trust" if size is None and not full else "compare",
            seed=seed,
            progress=progress,
        )
    ci.leave(check_suite(compatibility), force=force)
    if html is not None:
        with atomic_file(html, force=force) as aside:
            write_bytes(aside, check_page(compatibility).encode())
    if as_json:
        show_json(check_document(compatibility))
    else:
        show(check_text(compatibility))
    open_page(html, opens=opens, quiet=quiet)
    lead_on(store, spec, opened, compatibility, quiet=quiet)
    return 0 if compatibility.compatible else 1


def documents(size: int | str | None, count: int) -> int:
    """How many documents to embed of `count`."""
    from migrate.check import SAMPLE_SIZE

    if size is None:
        return SAMPLE_SIZE
    return count if isinstance(size, str) else size
