"""`lead-migrate assess`: what moving a store would cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.audit.step import tokens_of
from migrate.cli import options
from migrate.cli.next_step import JUDGED, advise_next, model_words, path_beside
from migrate.cli.options import GeneralOptions, ModelOptions, option, option_group, usd
from migrate.cli.pages import open_page, refuse_open
from migrate.cli.pages import opens as open_option
from migrate.cli.same import stop_if_same
from migrate.cli.spending import cached_texts
from migrate.cli.terminal import progress_bar, show, show_json

if TYPE_CHECKING:
    from migrate.cost.plans import Plan
    from migrate.cost.quality import StitchQuality
    from migrate.cost.rates import Rate
    from migrate.cost.target import Target
    from migrate.steps.translate.choice import Budget
    from migrate.stores.base import Store


_RATE_OPTIONS = (
    option(
        "--tier",
        type=click.Choice(["free", "1", "2", "3", "4", "5"]),
        default="1",
        help="OpenAI's usage tier of the account.",
    ),
    option(
        "--calibrate/--no-calibrate",
        default=None,
        help="Embed 32 documents with a local model and time them; by default where it is on this machine.",
    ),
)
_QUALITY_OPTIONS = (
    option("--stitch", type=options.STITCH, help="Stitch fitted on STORE: says what is known of its quality."),
    option("--report", type=options.PATH, help="JSON report of an audit with --frontier: says which plans are SAFE."),
)


@dataclass(frozen=True, slots=True)
class RateOptions:
    """How fast the model embeds, where `--rate` does not say."""

    tier: str
    calibrate: bool | None


@dataclass(frozen=True, slots=True)
class QualityOptions:
    """What was measured before of what a migration keeps."""

    stitch: Path | str | None
    report: Path | None


def budget_of(value: object) -> Budget:
    """A budget in dollars, with or without the sign, or in tokens.

    Raises
    ------
    click.BadParameter
        It is neither.
    """
    from migrate.steps.translate.choice import Budget

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
@option(
    "--keep",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="0-1",
    help="Look for the cheapest plan to keep so much: of overlap@10 with --stitch, of retention with --report.",
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
    keep: float | None,
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
    from migrate.cost.quality import read_frontier, read_stay, stitch_quality
    from migrate.cost.target import find_target
    from migrate.datasets.records import read_query_log
    from migrate.files import atomic_file, refuse_file, write_bytes
    from migrate.report.assess import assess_document, assess_page, assess_text
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store

    refuse_open(html, opens=opens)
    _check_keep(keep, budget, quality)
    if html is not None:
        refuse_file(html, *options.local_paths(store, query_log, quality.stitch, quality.report), force=general.force)
    tokens = tokens_of(prefix)
    facts = find_target(target, price_usd_per_mtok=price, prefix=model.document_prefix, dimensions=model.dimensions)
    with progress_bar(quiet=general.quiet) as progress:
        opened = open_store(store)
        named = replace(model, rate=None, no_cache=True).load(target, asks_again=False)
        stop_if_same("assess", opened, named, as_json=general.as_json)
        fitted = None if quality.stitch is None else load_stitch(quality.stitch)
        known = None if fitted is None else stitch_quality(fitted, opened, facts.spec, source=str(quality.stitch))
        assessment = assess_store(
            opened,
            facts,
            rate=_rate(speed, facts, opened, model, seed=general.seed),
            queries=() if query_log is None else read_query_log(query_log),
            measured=[] if quality.report is None else read_frontier(quality.report, opened.info.count),
            quality=known,
            first_tokens=tokens,
            keep=keep,
            stay=None if quality.report is None else read_stay(quality.report),
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
    place = _Place(opened, store, [*(model_words("--target", target) or ["--target", target])])
    if quality.stitch is not None and assessment.best is not None and known is not None:
        _advise_plan(place, quality.stitch, known, assessment.best, quiet=general.quiet)
        return
    if assessment.full_is_better:
        full = opened.successor("full") or path_beside(opened, "full")
        advise_next("reembed", place.word, *place.model, "-o", full, but="rate", quiet=general.quiet)
        return
    words: list[str | Path] = [place.word, *place.model, "--beir", JUDGED, "-o", path_beside(opened, "moved")]
    advise_next("run", *words, also=("query_log", "price"), but="rate", quiet=general.quiet)  # a rate means more here


@dataclass(frozen=True, slots=True)
class _Place:
    """A store, and how store and target are named on the command line."""

    store: Store
    word: str
    model: list[str | Path]


def _advise_plan(place: _Place, stitch: Path | str, quality: StitchQuality, best: Plan, *, quiet: bool) -> None:
    """The command that a plan begins with: another fit where the stitch reads other things than the plan does."""
    from migrate.cost.plans import FIRST_TOKENS, MIGRATE
    from migrate.steps.translate.choice import CONFIDENCE, RANDOM

    if best.kind in (FIRST_TOKENS, MIGRATE) and quality.leans != (best.kind == FIRST_TOKENS):
        first = ["--prefix", str(best.first_tokens), "--stitch", "prefix+text"] if best.first_tokens else []
        words: list[str | Path] = [place.word, *place.model, *first, "-o", path_beside(place.store, "stitch")]
        advise_next("fit", *words, also=("query_log", "price"), but="rate", quiet=quiet)
        return
    output = ["-o", place.store.successor("new") or path_beside(place.store, "new")]
    if not (best.documents and best.known is not None and best.kind in (FIRST_TOKENS, MIGRATE)):
        advise_next("translate", place.word, stitch, *output, quiet=quiet)
        return
    policy = ["--policy", best.known.policy] if best.known.policy in (CONFIDENCE, RANDOM) else []
    part = ["--share", str(best.known.documents), "--stitch", stitch, *policy]
    advise_next("reembed", place.word, *place.model, *part, *output, also=("query_log", "price"), quiet=quiet)


def _check_keep(keep: float | None, budget: Budget | None, quality: QualityOptions) -> None:
    """Make sure that something is known of what plans keep, and that one thing is looked for."""
    from migrate.errors import UsageError

    if keep is not None and quality.stitch is None and quality.report is None:
        raise UsageError(
            "--keep: expected something that says what plans keep, found neither --stitch nor --report; fit a stitch "
            "first, and name it with --stitch"
        )
    if keep is not None and budget is not None:
        raise UsageError("--keep and --budget ask for the cheapest plan and for the best one; leave one of them out")


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
    at_hand = target.is_local and target.counter.exact  # its tokenizer is here, and so is the model
    if at_hand if speed.calibrate is None else speed.calibrate:
        embedder = _uncached(model).load(target.spec, seed=seed, asks_again=False)
        embedder.fit(store.documents())
        return measure_rate(embedder, draw_sample(store, CALIBRATION_TEXTS, seed=seed).documents)
    return limits


def _uncached(model: ModelOptions) -> ModelOptions:
    """The options without the cache: what is in it would be no measure of the model."""
    return replace(model, no_cache=True)
