"""`lead-migrate stamp`: writes beside a store which model it comes from."""

from __future__ import annotations

import click

from migrate.cli import options
from migrate.cli.check import documents, sample
from migrate.cli.next_step import advise_next, advise_store, lead_on
from migrate.cli.options import ModelOptions, option
from migrate.cli.terminal import progress_bar, show, show_json


@options.command(
    "stamp", "Write down which model a store is of.", example="lead-migrate stamp my-store/ --model tfidf:32"
)
@click.argument("store", type=options.STORE)
@option("--model", "spec", metavar="SPEC", help="Model that the store comes from.")
@option("--as-found", is_flag=True, help="Take the model that the last check of the store has found; embed nothing.")
@sample
@option("--trust", is_flag=True, help="Take your word for it: write the manifest without embedding a sample.")
@options.model_options
@options.seed
@options.force
@options.as_json
@options.quiet
def command(
    store: str,
    spec: str | None,
    as_found: bool,
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
    from migrate.check import stamp_as_found, stamp_store
    from migrate.errors import UsageError
    from migrate.report.check import flags_of, stamp_document, stamp_text
    from migrate.stores import open_store
    from migrate.stores.file_store import folder_of

    if as_found and (spec is not None or size is not None or trust):
        raise UsageError("--as-found takes what the last check has found; leave --model, --sample and --trust out")
    if as_found:
        done = stamp_as_found(open_store(store), force=force)
        show_json(stamp_document(done)) if as_json else show(stamp_text(done))
        if done.found is not None:
            words = [f"--model={done.found.spec}", *flags_of(done.found.options)]
            advise_next("check", store, *words, names_model=False, quiet=quiet)
        return 0
    if spec is None:
        raise UsageError("which model the store is of is missing; name it with --model, or take --as-found")
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
    else:
        show(stamp_text(done))
    if done.checked is not None and not done.path:
        lead_on(store, spec, opened, done.checked, quiet=quiet)
    elif done.path:
        advise_store(store, opened, quiet=quiet)
    return 0 if done.path else 1
