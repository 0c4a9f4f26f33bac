"""`lead-migrate embed`: a corpus to a store."""

from __future__ import annotations

from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import load_model
from migrate.cli.next_step import TARGET, advise_next
from migrate.cli.options import ModelOptions
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.unread import warn_of_unread
from migrate.cost.unread import count_unread
from migrate.files import command_ends
from migrate.lab.embed.job import embed_job
from migrate.lab.embed.sizes import room
from migrate.lab.embed.step import Embed
from migrate.steps.base import RunContext


@command_ends()
def command(request: Embed, yes: bool, model: ModelOptions, dry_run: bool, as_json: bool) -> None:
    """Embed CORPUS into a new store."""
    paid = Spending(request.max_cost, is_agreed=yes)
    request.check()
    model = models_for(model, dry_run=dry_run)
    with progress_bar() as progress:
        loaded = load_model(model, str(request.model), seed=request.seed, asks_again=False)
        job = embed_job(request, loaded, RunContext(progress=progress))
        target = job.target
        size = job.size
        if job.leaves_whole:
            advise("documents are left whole, as the file has vectors of whole ones")
        if size is not None:
            advise(
                f"chunks of up to {size.tokens:,} tokens that share up to {size.overlap:,}; tokens are "
                f"{target.counter.source}",
            )
        unread = None
        # Chunks that fit were counted when they were cut
        if size is None or not size.fits(target):
            unread = count_unread(job.documents(), target, progress=progress)
        remedy = "leave out --no-chunks for chunks that fit"
        if size is not None:
            remedy = f"--chunk-tokens {room(target)} fits"
        warn_of_unread(unread, "texts", remedy)
        stop_if_dry(dry_run, reads=[request.corpus], writes=[request.output], job=job, as_json=as_json)
        paid.agree(job, progress=progress)
        done = job.execute()
    paid.finish()
    if done.skipped:
        shown = ", ".join(done.skipped[:10])
        if len(done.skipped) > 10:
            shown += " ..."
        advise(f"skipped {len(done.skipped):,} documents without text: {shown}")
    if as_json:
        content = {"store": str(done.path), "vectors": done.count, "dimension": done.dim, "skipped": list(done.skipped)}
        content |= {"chunks": job.chunks, "over_limit": unread and unread.figures}
        show_json(content, kind="embed")
    else:
        show(f"{done.path}: {done.count:,} vectors of dimension {done.dim}")
        advise_next("assess", done.path, "--target", TARGET)
