"""`lead-migrate assess`: what moving a store would cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.audit import read_prefixes
from migrate.cli.next_step import advise_next, model_words, path_beside, store_word
from migrate.cli.options import GeneralOptions, ModelOptions, option, option_group
from migrate.cli.pages import open_page, refuse_open
from migrate.cli.pages import opens as open_option
from migrate.cli.spending import cached_texts, usd
from migrate.cli.terminal import progress_bar, show, show_json

if TYPE_CHECKING:
    from migrate.cost.rates import Rate
    from migrate.cost.target import Target
    from migrate.reembed import Budget
    from migrate.stores.base import Store


_RATE_OPTIONS = (
    option(
        "--tier",
        type=click.Choice(["free", "1", "2", "3", "4", "5"]),
        default="1",
        help="OpenAI's usage tier of the account.",
    ),
    option("--calibrate", is_flag=True, help="Embed 64 documents with a local model, and time them."),
)
_QUALITY_OPTIONS = (
    option("--stitch", type=options.PATH, help="Stitch fitted on STORE: says what is known of its quality."),
    option("--report", type=options.PATH, help="JSON report of an audit with --frontier: says which plans are SAFE."),
)


@dataclass(frozen=True, slots=True)
class RateOptions:
    """How fast the model embeds, where `--rate` does not say."""

    tier: str
    calibrate: bool


@dataclass(frozen=True, slots=True)
class QualityOptions:
    """What was measured before of what a migration keeps."""

    stitch: Path | None
    report: Path | None


def budget_of(value: object) -> Budget:
    """A budget in dollars, with or without the sign, or in tokens.

    Raises
    ------
    click.BadParameter
        It is neither.
    """
    from migrate.reembed import Budget

    text = str(value).strip().replace(",", "")
    if not text.endswith("tok"):
        return Budget(usd(text), "usd")
    if not text.removesuffix("tok").isdigit() or not int(text.removesuffix("tok")):
        raise click.BadParameter(f"expected dollars such as $50, or tokens such as 300000tok, found {value!r}")
    return Budget(int(text.removesuffix("tok")), "tokens")


@options.command(
    "assess",
    "What moving a store would cost; spends nothing.",
    example="lead-migrate assess my-store --target openai:text-embedding-3-small",
)
@click.argument("store", type=options.STORE)
@options.target
@options.query_log
@option(
    "--budget",
    type=budget_of,
    metavar="USD|TOKENS",
    help="Dollars or tokens to spend, such as $50 or 300000tok: says what they buy, and with --stitch what to expect.",
)
@option("--prefix", metavar="24,64", help="Also count fits that lean on so many first tokens of all texts.")
@option_group(RateOptions, "speed", *_RATE_OPTIONS, section="Speed")
@option_group(QualityOptions, "quality", *_QUALITY_OPTIONS, section="Quality")
@option("--html", type=options.PATH, metavar="FILE", help="File to write the assessment to as an HTML page.")
@open_option
@options.price
@options.model_options
@options.general_options(options.seed, options.force, options.as_json, options.quiet)
def command(
    store: str,
    target: str,
    query_log: Path | None,
    budget: Budget | None,
    prefix: str | None,
    speed: RateOptions,
    quality: QualityOptions,
    html: Path | None,
    opens: bool,
    price: float | None,
    model: ModelOptions,
    general: GeneralOptions,
) -> None:
    """Set a full re-embed of STORE beside migrations of 1 to 50 %: tokens, money, time, room, and what is known.

    Nothing is sent anywhere and no key is needed. Texts that are in the embedding cache count as paid for.

    Here `--rate` may count texts of a local model, and tokens: 1000000tok/min, or one of each with a comma between.
    Without it the limits of `--tier` hold.
    """
    from migrate.cost import assess_store
    from migrate.cost.plans import FIRST_TOKENS, read_frontier, read_stitch_quality
    from migrate.cost.target import find_target
    from migrate.datasets.records import read_query_log
    from migrate.files import atomic_file, refuse_file, write_bytes
    from migrate.report.assess import assess_document, assess_page, assess_text
    from migrate.stores import open_store

    refuse_open(html, opens=opens)
    if html is not None:
        refuse_file(html, *options.local_paths(store, query_log, quality.stitch, quality.report), force=general.force)
    tokens = read_prefixes(prefix)
    facts = find_target(target, price_usd_per_mtok=price, prefix=model.document_prefix, dimensions=model.dimensions)
    with progress_bar(quiet=general.quiet) as progress:
        opened = open_store(store)
        known = None if quality.stitch is None else read_stitch_quality(quality.stitch, opened, facts.spec)
        assessment = assess_store(
            opened,
            facts,
            rate=_rate(speed, facts, opened, model, seed=general.seed),
            queries=() if query_log is None else read_query_log(query_log),
            measured=[] if quality.report is None else read_frontier(quality.report, opened.info.count),
            quality=known,
            first_tokens=tokens,
            cached=cached_texts(model, facts),
            budget_usd=budget.amount if budget is not None and budget.unit == "usd" else None,
            budget_tokens=int(budget.amount) if budget is not None and budget.unit == "tokens" else None,
            texts_per_request=model.batch_size,
            progress=progress,
        )
    if html is not None:
        with atomic_file(html, force=general.force) as aside:
            write_bytes(aside, assess_page(assessment).encode())
    open_page(html, opens=opens, quiet=general.quiet)
    if general.as_json:
        show_json(assess_document(assessment))
        return
    show(assess_text(assessment))
    model_option = model_words("--target", target)
    if quality.stitch is not None and budget is not None and assessment.best is not None:
        words: list[str | Path] = [store_word(store), quality.stitch, "-o"]
        words.append(opened.successor("new") or path_beside(opened, "new"))
        if assessment.best.kind != FIRST_TOKENS:
            words += ["--reembed", str(budget), *model_option]
        advise_next("translate", *words, also=("query_log", "price"), quiet=general.quiet)
        return
    stitch_path = path_beside(opened, "stitch")
    words = [store_word(store), "-o", stitch_path, *(model_option or ["--target", target])]
    advise_next("fit", *words, also=("query_log", "price"), but="rate", quiet=general.quiet)  # a rate means more here


def _rate(speed: RateOptions, target: Target, store: Store, model: ModelOptions, *, seed: int) -> Rate | None:
    """What was given, what was measured now, or what the provider allows; None where nobody knows."""
    import os

    from migrate.cost.rates import CALIBRATION_TEXTS, Rate, measure_rate, tier_rate
    from migrate.errors import UsageError
    from migrate.selection import draw_sample

    rate = model.rate
    if speed.calibrate and (target.is_api or rate is not None):
        instead = "an API, and nothing is spent here" if target.is_api else "--rate beside it"
        raise UsageError(f"--calibrate: expected a local model to time, found {instead}; leave it out, or give --rate")
    own_server = model.base_url or os.environ.get("OPENAI_BASE_URL")
    limits = tier_rate(speed.tier) if target.is_api and not own_server else None
    if rate is not None:
        return Rate.parse(rate).completed(limits)
    if speed.calibrate:
        embedder = _uncached(model).load(target.spec, seed=seed, asks_again=False)
        embedder.fit(store.documents())
        return measure_rate(embedder, draw_sample(store, CALIBRATION_TEXTS, seed=seed).documents)
    return limits


def _uncached(model: ModelOptions) -> ModelOptions:
    """The options without the cache: what is in it would be no measure of the model."""
    from dataclasses import replace

    return replace(model, no_cache=True)
