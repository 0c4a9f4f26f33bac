"""`lead-migrate run`: the whole path in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrate.cli import options
from migrate.cli.next_step import advise_next, asked_words, is_out_of_sight, model_words
from migrate.cli.options import CI, ModelOptions, Outlets, ci_options
from migrate.cli.spending import Asked, SpendingOptions, spending_options
from migrate.cli.terminal import advise, progress_bar, show
from migrate.cli.unread import warn_of_sample, with_unread
from migrate.cli.verdict import asked_paths, load_asked, load_model_of, show_finished, show_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate.vectors import Document


@options.command(
    "run",
    "The whole path in one command.",
    example="lead-migrate run my-store --target tfidf:64 --beir my-beir -o migration",
)
@click.argument("store", type=options.PATH)
@options.target
@options.beir
@options.queries
@options.split
@options.output
@options.stitch
@options.sample
@options.strategy
@options.query_log
@options.source_model
@options.margin
@options.price
@spending_options
@options.model_options
@options.seed
@options.force
@options.restart
@ci_options
@options.as_json
@options.quiet
def command(
    store: Path,
    target: str,
    beir: str | None,
    queries: str | None,
    split: str,
    output: Path,
    stitches: tuple[str, ...],
    size: int,
    strategy: str | None,
    query_log: Path | None,
    source_model: str | None,
    margin: float,
    price: float | None,
    spending: SpendingOptions,
    model: ModelOptions,
    seed: int,
    force: bool,
    restart: bool,
    ci: CI,
    as_json: bool,
    quiet: bool,
) -> int:
    """Fit, translate, embed in full for comparison, and audit; everything is left in one folder.

    The same command again goes on where a run broke off, and says the verdict again where it did not.

    The arm `stay` is there when the source model is named, or when the store's manifest says it.
    """
    from migrate.audit.query_set import PARENT_FIELD
    from migrate.cli.options import draws_quickly, expected_sample, load_log, log_queries, told_of_log
    from migrate.files import refuse_overlap
    from migrate.pipeline import finished_run, judging_questions, migrate, texts_left
    from migrate.report.terminal import candidates_table
    from migrate.stores import open_store

    asked, words = asked_paths(beir, queries), asked_words(beir, queries)
    refuse_overlap(output, store, *asked)
    ci.refuse(store, *asked, force=force)
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store, verify=True)
        known = opened.info.manifest
        recorded = known.model if known is not None else None
        stay = source_model is not None or (recorded is not None and not is_out_of_sight(recorded))
        old = load_model_of(opened, source_model, "--source-model", model.for_source()) if stay else None
        if old is None:
            advise("no --source-model: the audit cannot say whether staying would be better", quiet=quiet)
        questions = load_asked(
            beir, queries, opened, split=split, parent_field=PARENT_FIELD, seed=seed, progress=progress
        )
        paid = spending.watch(model.load(target, seed=seed), price=price, quiet=quiet)
        old = None if old is None else paid.also(old, "source model")
        questions = with_unread(questions, opened, paid.embedder, seed=seed, quiet=quiet)
        log = load_log(query_log, strategy, old)
        questions = judging_questions(questions, opened, log)  # told before anything is spent
        settings: dict[str, Any] = {
            "source_embedder": old,
            "stitch": stitches,
            "size": size,
            "strategy": strategy,
            "query_log": log,
            "price_usd_per_mtok": price,
            "margin": margin,
            "seed": seed,
        }
        finished = None if force or restart else finished_run(opened, paid.embedder, questions, output, **settings)
        if finished is not None:
            advise("this run has come to its end before; nothing is done again", quiet=quiet)
            code = show_finished(finished, ci, force=force, as_json=as_json)
            if code:
                _advise_frontier(store, output, target, words, source_model, quiet=quiet or as_json)
            return code

        def drawn() -> Sequence[Document]:
            return expected_sample(opened, size, strategy, log, seed)

        if opened.info.has_texts and draws_quickly(strategy, log):
            warn_of_sample(drawn, paid.embedder, quiet=quiet)
        paid.agree(
            lambda: texts_left(opened, drawn, output, restart=restart),
            queries=questions.queries,
            further=[Asked(old, queries=[*log_queries(log), *questions.queries])],
            progress=progress,
        )
        done = migrate(
            opened,
            paid.embedder,
            questions,
            output,
            **settings,
            force=force,
            restart=restart,
            progress=progress,
        )
    paid.finish()
    if not as_json:
        show(candidates_table(done.stitch.selection) + "\n")
        if query_log is not None:
            show(told_of_log(done.stitch.manifest, by_vectors=old is not None) + "\n")
    code = show_report(done.report, Outlets(None, None, ci), force=force, as_json=as_json)
    if code:
        _advise_frontier(store, output, target, words, source_model, quiet=quiet or as_json)
    return code


def _advise_frontier(
    store: Path, output: Path, target: str, asked: list[str | Path], source_model: str | None, *, quiet: bool
) -> None:
    """What re-embedding a part would keep, out of what the run has left."""
    from migrate.pipeline import REFERENCE, STITCH, STORE

    source = model_words("--source-model", source_model) or (["--source-model", source_model] if source_model else [])
    advise_next(
        "audit", output / STORE, "--reference", output / REFERENCE, *asked, "--source", store, *source,
        "--stitch", output / STITCH, *model_words("--target", target), "--frontier",
        also=("split", "query_log", "price", "margin", "seed"), quiet=quiet,
    )  # fmt: skip
