"""`lead-migrate embed`: a corpus to a store."""

from __future__ import annotations

from dataclasses import replace

from migrate.cli import options
from migrate.cli.dry_run import DRY_RUN, models_for, stop_if_dry
from migrate.cli.next_step import TARGET, advise_next
from migrate.cli.options import ModelOptions
from migrate.cli.spending import Spending
from migrate.cli.steps import step_options
from migrate.cli.terminal import advise, progress_bar, show, show_json
from migrate.cli.unread import warn_of_unread
from migrate.files import command_ends
from migrate.lab.embed.step import Embed


@options.command(
    "embed",
    "Embed a corpus into a new store.",
    example="lead-migrate embed corpus.jsonl --model tfidf:256 -o my-store",
)
@step_options(Embed)
@options.model_options
@DRY_RUN
@options.as_json
@options.quiet
@command_ends()
def command(request: Embed, paid: Spending, model: ModelOptions, dry_run: bool, as_json: bool) -> None:
    """Embed CORPUS into a new store.

    A corpus is a BEIR folder, the name of a BEIR set, or a JSONL file of {"id", "text"}. Documents are cut into chunks
    that the model reads to their end. For the same chunks in another model's space, embed the `docs.jsonl` of the first
    store with --no-chunks.

    The model `layer:N:SPEC` is a layer of SPEC.
    """
    from migrate.cost.unread import count_unread
    from migrate.lab.embed.sizes import room

    request.check()
    model = models_for(model, dry_run=dry_run)
    with progress_bar() as progress:
        loaded = model.load(str(request.model), seed=request.seed, asks_again=False)
        step = replace(request, model=loaded, progress=progress)
        target, size = step.target, step.chunk
        if step.leaves_whole:
            advise("documents are left whole, as the file has vectors of whole ones")
        if size is not None:
            advise(
                f"chunks of up to {size.tokens:,} tokens that share up to {size.overlap:,}; tokens are "
                f"{target.counter.source}",
            )
        # Chunks of that size were counted when they were cut
        fits = size is not None and size.fits(target)
        unread = None if fits else count_unread(step.documents(), target, progress=progress)
        remedy = "leave out --no-chunks for chunks that fit" if size is None else f"--chunk-tokens {room(target)} fits"
        warn_of_unread(unread, "texts", remedy)
        stop_if_dry(dry_run, reads=[request.corpus], writes=[request.output], step=step, as_json=as_json)
        paid.agree(step, progress=progress)
        done = step.execute()
    paid.finish()
    if done.skipped:
        shown = ", ".join(done.skipped[:10]) + (" ..." if len(done.skipped) > 10 else "")
        advise(f"skipped {len(done.skipped):,} documents without text: {shown}")
    if as_json:
        content = {"store": str(done.path), "vectors": done.count, "dimension": done.dim, "skipped": list(done.skipped)}
        content |= {"chunks": step.chunks, "over_limit": None if unread is None else unread.figures}
        show_json(content, kind="embed")
    else:
        show(f"{done.path}: {done.count:,} vectors of dimension {done.dim}")
        advise_next("assess", done.path, "--target", TARGET)
