"""`lead-migrate stamp`: writes beside a store which model it comes from."""

from __future__ import annotations

import click

from migrate.cli import options
from migrate.cli.check import documents, sample, spec
from migrate.cli.options import ModelOptions, option
from migrate.cli.terminal import progress_bar, show, show_json


@options.command(
    "stamp", "Write down which model a store is of.", example="lead-migrate stamp my-store/ --model tfidf:32"
)
@click.argument("store", type=options.STORE)
@spec
@sample
@option("--trust", is_flag=True, help="Take your word for it: write the manifest without embedding a sample.")
@options.model_options
@options.seed
@options.force
@options.as_json
@options.quiet
def command(
    store: str,
    spec: str,
    size: int | str | None,
    trust: bool,
    model: ModelOptions,
    seed: int,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write the manifest of STORE beside its index, so that later checks need no embedding.

    The store is checked first; exits with 1, and writes nothing, if it does not come from the model. Its own files
    stay as they are.
    """
    from migrate.check import stamp_store
    from migrate.report.check import check_text, stamp_document
    from migrate.stores import open_store
    from migrate.stores.file_store import folder_of

    opened = open_store(store)
    with progress_bar(quiet=quiet) as progress:
        done = stamp_store(
            opened,
            model.load(spec, state=folder_of(opened)),
            sample=documents(size, opened.info.count),
            trust=trust,
            force=force,
            seed=seed,
            progress=progress,
        )
    if as_json:
        show_json(stamp_document(done))
    elif done.checked is not None:
        show(check_text(done.checked) + "\n")
    if not as_json:
        show(f"stamped: {done.path}" if done.path else "not stamped: nothing was written")
    return 0 if done.path else 1
