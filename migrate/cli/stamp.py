"""`lead-migrate stamp`: the model of a store, recorded beside it."""

from __future__ import annotations

from migrate.check.check import sample_size
from migrate.check.stamp import manifest_place, read_finding, refuse_stamped, stamp_as_found, stamp_store
from migrate.cli.checked import lead_on
from migrate.cli.dry_run import stop_if_dry
from migrate.cli.inputs import load_model
from migrate.cli.next_step import advise_next, advise_store
from migrate.cli.options import ModelOptions
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import show_result
from migrate.embedders.kinds import with_settings
from migrate.report.check import stamp_document, stamp_text
from migrate.steps.stamp import Stamp
from migrate.stores import open_store


def command(request: Stamp, model: ModelOptions, dry_run: bool, as_json: bool) -> int:
    """Record which model the vectors of STORE come from."""
    request.check()
    store = str(request.store)
    spec = request.model
    opened = open_store(store)
    if dry_run:
        refuse_stamped(opened, force=request.force)
        embeds = []
        if spec is None:
            # Refused in a dry run too where no check has found a model
            read_finding(opened)
        elif not request.trust:
            count = min(sample_size(request.sample, opened), opened.info.count)
            if count:
                embeds.append(f"to embed: {count:,} texts by {spec}, to check that they are its own")
        stop_if_dry(dry_run, reads=[store], writes=[manifest_place(opened)], embeds=embeds, as_json=as_json)
    with progress_bar() as progress:
        if spec is None:
            done = stamp_as_found(opened, force=request.force)
        else:
            done = stamp_store(
                opened,
                load_model(model, str(spec), state=opened.folder),
                sample=sample_size(request.sample, opened),
                trust=request.trust,
                force=request.force,
                seed=request.seed,
                progress=progress,
            )
    show_result(stamp_document(done), lambda: stamp_text(done), as_json=as_json)
    if done.found is not None:
        typed_spec = with_settings(done.found.spec, done.found.options)
        advise_next("check", store, f"--model={typed_spec}")
    elif done.checked is not None and not done.path:
        lead_on(store, str(spec), opened, done.checked)
    elif done.path:
        advise_store(store, opened)
    return 0 if done.path else 1
