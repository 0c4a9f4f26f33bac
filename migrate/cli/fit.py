"""`lead-migrate fit`: a sample, re-embedded, to a stitch."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.next_step import advise_next, free_path, model_words
from migrate.cli.options import ModelOptions, option
from migrate.cli.spending import Asked, SpendingOptions, spending_options
from migrate.cli.terminal import advise, progress_bar, show, show_json
from migrate.cli.unread import warn_of_sample, warn_of_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate.stitch.fitted import Direction
    from migrate.vectors import Document


@options.command(
    "fit",
    "A small sample, re-embedded, to a stitch.",
    example="lead-migrate fit my-store --target openai:text-embedding-3-small -o my-stitch",
)
@click.argument("store", type=options.PATH)
@options.target
@options.output
@option(
    "--direction",
    type=click.Choice(["document", "query"]),
    default="document",
    help="What the stitch maps: the store's documents into the new space, or new queries into the old one.",
)
@options.stitch
@options.sample
@options.strategy
@options.query_log
@options.source_model
@options.view
@options.price
@spending_options
@options.model_options
@options.seed
@options.force
@options.as_json
@options.quiet
def command(
    store: Path,
    target: str,
    output: Path,
    direction: Direction,
    stitches: tuple[str, ...],
    size: int,
    strategy: str | None,
    query_log: Path | None,
    source_model: str | None,
    views: tuple[str, ...],
    price: float | None,
    spending: SpendingOptions,
    model: ModelOptions,
    seed: int,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Embed a sample of STORE with the target model, and learn the map from the old vectors to the new ones.

    Prints the candidates as they do on documents held out of the fit. The stitch keeps the embedded sample, so those
    documents get their true vectors.

    A store without texts can be fitted with a target of file:VECTORS.npz, whose vectors are found by id; the old
    vectors are then all that the stitch reads.

    With `--direction query` the map is learned the other way round, so that STORE as it is can be asked by the target
    model: by the arm `bridge` of an audit, or in an app by migrate.langchain.TranslatedEmbeddings.
    """
    from dataclasses import asdict, replace

    from migrate.cli.options import draws_quickly, expected_sample, load_log, log_queries, told_of_log
    from migrate.files import refuse_output
    from migrate.fit import fit_stitch
    from migrate.report.fit import WITHOUT_TEXTS, fit_sentences
    from migrate.report.terminal import candidates_table, wrap
    from migrate.stores import open_store
    from migrate.stores.file_store import folder_of

    refuse_output(output, store, *filter(None, [query_log]), force=force)  # told before anything is spent
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store, verify=True)
        paid = spending.watch(model.load(target, seed=seed), price=price, quiet=quiet)
        old = None
        if source_model:
            old = paid.also(model.for_source().load(source_model, state=folder_of(opened)), "source model")
        further = {spec: paid.also(model.for_source().load(spec), "view") for spec in views}
        log = load_log(query_log, strategy, old)

        def drawn() -> Sequence[Document]:
            return expected_sample(opened, size, strategy, log, seed)

        unread = {"store": warn_of_store(opened, paid.embedder, seed=seed, quiet=quiet), "sample": None}
        if opened.info.has_texts and draws_quickly(strategy, log):
            unread["sample"] = warn_of_sample(drawn, paid.embedder, quiet=quiet)
        for view in further.values():
            warn_of_store(opened, view, seed=seed, quiet=quiet)
        searched = Asked(old, queries=log_queries(log))
        paid.agree(drawn, further=[searched, *(Asked(view, drawn) for view in further.values())], progress=progress)
        fitted = fit_stitch(
            opened,
            paid.embedder,
            direction=direction,
            stitch=stitches,
            size=size,
            strategy=strategy,
            query_log=log,
            source_model=old.identity if old else None,
            views=further,
            seed=seed,
            progress=progress,
        )
        fitted.save(output, force=force)
    paid.finish()
    bare = direction == "document" and not opened.info.has_texts
    if as_json:
        use = fitted.fallback_use()
        facts = {**asdict(replace(fitted.selection, stitch=None)), "stitch": str(output), "direction": direction}
        facts["fallback"] = None if use is None else asdict(use)
        facts["over_limit"] = {what: None if counted is None else counted.facts for what, counted in unread.items()}
        facts["without_texts"] = asdict(WITHOUT_TEXTS) if bare else None
        confidence = fitted.selection.confidence
        if confidence is not None:
            facts["confidence"] = {**asdict(confidence), "usable": confidence.is_usable}
        show_json({**facts, "schema_version": 1, "kind": "fit"})
        return
    show(candidates_table(fitted.selection) + "\n")
    for sentence in [*fit_sentences(fitted.selection), *([WITHOUT_TEXTS.sentence] if bare else [])]:
        show(wrap(sentence))
    pairs = fitted.manifest.counts["pairs"]
    spare = f" (and {fitted.fallback.stitch.spec}, should the texts be gone)" if fitted.fallback is not None else ""
    show(f"{output}: {fitted.stitch.spec}{spare}, fitted on {pairs:,} of {opened.info.count:,} documents")
    if query_log is not None:
        show(told_of_log(fitted.manifest, by_vectors=old is not None))
    if direction == "query":
        bridge = shlex.join(["--source", str(store.absolute()), "--bridge", str(output.absolute())])
        advise(f"an audit of a translated store sets this beside it with {bridge}", quiet=quiet)
        return
    translated = free_path(output.with_name(f"{opened.info.location.stem}-translated"))
    words = [store, output, "-o", translated, *model_words("--target", target)]
    advise_next("translate", *words, quiet=quiet)
