"""`lead-migrate check`: the model of a store, held against its vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from migrate.cli import options
from migrate.cli.next_step import lead_on
from migrate.cli.options import ModelOptions, Outputs, ci_options, option
from migrate.cli.pages import open_page, refuse_open
from migrate.cli.pages import opens as open_option
from migrate.cli.steps import step_options
from migrate.cli.terminal import progress_bar, show, show_json
from migrate.steps.check import Check


@options.command("check", example="lead-migrate check my-store/ --model tfidf:32")
@step_options(Check)
@option("--html", type=options.PATH, metavar="FILE", help="File to write the finding to as a page for a browser.")
@open_option
@options.model_options
@ci_options
@options.force
@options.as_json
@options.quiet
def command(
    asked: Check,
    html: Path | None,
    opens: bool,
    model: ModelOptions,
    ci: Outputs,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Say whether the vectors of STORE are those that a model gives to its texts, or why not.

    Exits with 0 if so, with 1 if not. A manifest whose hash is that of the index answers at once. What fits instead,
    such as texts cut at another length, is printed as the next command.
    """
    from migrate.files import atomic_file, refuse_file, write_bytes
    from migrate.report.check import check_document, check_sections
    from migrate.report.page import report_page
    from migrate.report.suite import check_suite
    from migrate.report.terminal import report_text
    from migrate.stores import open_store
    from migrate.stores.file_store import folder_of

    store, spec = str(asked.store), str(asked.model)
    refuse_open(html, opens=opens)
    ci.refuse(*options.local_paths(store), force=force)
    if html is not None:
        refuse_file(html, *options.local_paths(store), force=force)
    opened = open_store(store)
    with progress_bar(quiet=quiet) as progress:
        embedder = model.load(spec, state=folder_of(opened))
        compatibility = replace(asked, store=opened, model=embedder, progress=progress).run()
    ci.leave(check_suite(compatibility), force=force)
    if html is not None:
        with atomic_file(html, force=force) as aside:
            write_bytes(aside, report_page(check_sections(compatibility)).encode())
    if as_json:
        show_json(check_document(compatibility))
    else:
        show(report_text(check_sections(compatibility)))
    open_page(html, opens=opens, quiet=quiet)
    lead_on(store, spec, opened, compatibility, quiet=quiet)
    return 0 if compatibility.compatible else 1
