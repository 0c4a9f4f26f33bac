"""`lead-migrate fit`: a sample, re-embedded, to a stitch."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrate.cli import options
from migrate.cli.next_step import advise_next, model_words, name_of, path_beside, typed_model
from migrate.cli.options import GeneralOptions, LearningOptions, ModelOptions, option
from migrate.cli.same import stop_if_same
from migrate.cli.spending import SpendingOptions, spending_options
from migrate.cli.terminal import advise, progress_bar, show, show_json
from migrate.cli.unread import warn_of_plan, warn_of_store
from migrate.files import free_path

if TYPE_CHECKING:
    from migrate.cost.chunks import Unread
    from migrate.stitch.fitted import Direction, FittedStitch


@options.command(
    "fit",
    "A small sample, re-embedded, to a stitch.",
    example="lead-migrate fit my-store --target openai:text-embedding-3-small -o my-stitch",
)
@click.argument("store", type=options.STORE)
@options.target
@options.stitch_output
@option(
    "--direction",
    type=click.Choice(["document", "query"]),
    default="document",
    help="What the stitch maps: the store's documents into the new space, or new queries into the old one.",
)
@option(
    "--prior",
    type=options.STITCH,
    metavar="STITCH",
    help="Stitch of the same two models from another corpus, to lean on where that helps: worth most with few pairs.",
)
@option(
    "--grown-from",
    type=options.STITCH,
    metavar="STITCH",
    help="Stitch fitted before STORE grew: its sample, which is in the cache, is taken again; --sample counts it.",
)
@options.learning_options
@options.view
@options.price
@spending_options
@options.model_options
@options.general_options(options.seed, options.force, options.as_json, options.quiet)
def command(
    store: str,
    target: str,
    output: Path | str,
    direction: Direction,
    prior: Path | str | None,
    grown_from: Path | str | None,
    learning: LearningOptions,
    views: tuple[str, ...],
    price: float | None,
    spending: SpendingOptions,
    model: ModelOptions,
    general: GeneralOptions,
) -> None:
    """Embed a sample of STORE with the target model, and learn the map from the old vectors to the new ones.

    Prints the candidates as they do on documents held out of the fit. The stitch keeps the embedded sample, so those
    documents get their true vectors.

    A store without texts can be fitted with a target of file:VECTORS.npz, whose vectors are found by id; the old
    vectors are then all that the stitch reads.

    With `--direction query` the map is learned the other way round, so that STORE as it is can be asked by the target
    model: by the arm `bridge` of an audit, or in an app by migrate.langchain.TranslatedEmbeddings.
    """
    from migrate.files import refuse_output
    from migrate.fit import FitOptions, plan_fit
    from migrate.manifest import MANIFEST_NAME
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store
    from migrate.stores.file_store import folder_of
    from migrate.work.remote import refuse_url

    quiet = general.quiet
    # refused before anything is spent
    if isinstance(output, Path):
        refuse_output(output, *options.local_paths(store, learning.query_log), force=general.force)
    else:
        refuse_url(output, MANIFEST_NAME, force=general.force)
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store, verify=True)
        paid = spending.open(quiet=quiet)
        embedder, old = model.load(target, seed=general.seed), None
        stop_if_same("fit", opened, embedder, as_json=general.as_json)
        if learning.source_model:
            old = model.for_source().load(learning.source_model, state=folder_of(opened))
        chosen = FitOptions(
            direction=direction,
            stitch=learning.stitches,
            size=learning.size,
            strategy=learning.strategy,
            query_log=learning.load_log(old),
            source_model=old.identity if old else None,
            views=options.load_views(views, model),
            prior=None if prior is None else load_stitch(prior),
            prefix=learning.prefix,
            grown_from=None if grown_from is None else load_stitch(grown_from),
            seed=general.seed,
        )
        plan = plan_fit(opened, embedder, chosen, price_usd_per_mtok=price)
        unread = {
            "store": warn_of_store(opened, embedder, seed=general.seed, quiet=quiet),
            "sample": warn_of_plan(plan, quiet=quiet),
        }
        for view in plan.views.values():
            warn_of_store(opened, view, seed=general.seed, quiet=quiet)
        if direction == "document" and opened.info.has_texts:
            full = opened.successor("full") or str(path_beside(opened, "full"))
            again = [store, "--target", target, *typed_model(), "-o", full]
            paid.weigh(plan, opened, "the fit", again, is_proven=False, seed=general.seed)
        paid.agree(plan, progress=progress)
        stop_if_same("fit", opened, plan.models[0].embedder, paid=paid, as_json=general.as_json)
        fitted = plan.run(cap_usd=paid.cap_usd, progress=progress)
        fitted.save(output, force=general.force)
    paid.finish()
    bare = direction == "document" and not opened.info.has_texts
    if general.as_json:
        show_json(_facts(fitted, output, direction, unread, bare=bare), kind="fit")
        return
    _show(fitted, output, opened.info.count, bare=bare)
    if learning.query_log is not None:
        show(options.log_sentence(fitted.manifest, by_vectors=old is not None))
    if direction == "query":
        bridge = shlex.join(["--source", store, "--bridge", str(output)])
        advise(f"an audit of a translated store sets this beside it with {bridge}", quiet=quiet)
        return
    beside = output if isinstance(output, Path) else Path("stitch")
    translated = opened.successor("translated") or free_path(beside.with_name(f"{name_of(opened)}-translated"))
    words = [store, output, "-o", translated, *model_words("--target", target)]
    advise_next("translate", *words, quiet=quiet)


def _facts(
    fitted: FittedStitch, output: Path | str, direction: Direction, unread: dict[str, Unread | None], *, bare: bool
) -> dict[str, Any]:
    from migrate.report.fit import WITHOUT_TEXTS

    use, confidence = fitted.fallback_use(), fitted.selection.confidence
    facts = {**fitted.selection.facts(), "stitch": str(output), "direction": direction}
    facts["fallback"] = None if use is None else asdict(use)
    facts["over_limit"] = {what: None if counted is None else counted.facts for what, counted in unread.items()}
    facts["without_texts"] = WITHOUT_TEXTS if bare else None
    if confidence is not None:
        facts["confidence"] = {**asdict(confidence), "usable": confidence.is_usable}
    return facts


def _show(fitted: FittedStitch, output: Path | str, count: int, *, bare: bool) -> None:
    from migrate.report.fit import fit_sentences, without_texts_sentence
    from migrate.report.terminal import candidates_table, wrap

    show(candidates_table(fitted.selection) + "\n")
    for sentence in [*fit_sentences(fitted.selection), *([without_texts_sentence()] if bare else [])]:
        show(wrap(sentence))
    pairs = fitted.manifest.counts["pairs"]
    spare = f" (and {fitted.fallback.stitch.spec}, should the texts be gone)" if fitted.fallback is not None else ""
    show(f"{output}: {fitted.stitch.spec}{spare}, fitted on {pairs:,} of {count:,} documents")
