"""`lead-migrate assess`: the plans of a migration side by side, with what they cost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from migrate.cli import options
from migrate.cli.next_step import JUDGED, advise_next, model_words, path_beside
from migrate.cli.options import ModelOptions, Outputs
from migrate.cli.spending import cached_texts, warn_of_old_prices
from migrate.cli.steps import step_options
from migrate.cli.terminal import progress_bar, show, show_json
from migrate.cli.verdict import stop_if_same
from migrate.errors import UsageError
from migrate.steps.assess import Assess

if TYPE_CHECKING:
    from migrate.cost.plans import Plan
    from migrate.cost.quality import StitchQuality
    from migrate.stores.base import Store


@options.command(
    "assess",
    example="lead-migrate assess my-store --target openai:text-embedding-3-small",
)
@step_options(Assess)
@options.model_options
@options.report_options
@options.force_reports
@options.as_json
@options.quiet
def command(
    request: Assess,
    model: ModelOptions,
    outputs: Outputs,
    force: bool,
    as_json: bool,
) -> None:
    """Estimate what moving STORE to another model would cost.

    A full re-embed stands beside migrations of 1 to 50 %: tokens, money, time, room, and what is known of quality.
    Nothing is sent anywhere and no key is needed. Texts that are in the embedding cache count as paid for.

    The rate in SPEC,rate=N/UNIT may count texts of a local model here, and tokens: 1000000tok/min, or one of each with
    a comma between. Without it the limits of `--tier` hold.
    """
    from migrate.embedders.kinds import split_settings, with_settings
    from migrate.report.assess import assess_document, assess_sections
    from migrate.report.page import report_page
    from migrate.report.terminal import report_text

    request.check()
    store, target, stitch = str(request.store), str(request.target), cast("Path | str | None", request.stitch)
    read = (store, cast("Path | None", request.query_log), stitch, request.audit)
    _refuse_audits(outputs)
    outputs.refuse(*options.local_paths(*read), endings=(".json", ".html"), force=force)
    with progress_bar() as progress:
        # without the cache, which would be no measure of how fast the model is, and without its limit of requests
        bare, settings = split_settings(target)
        rate, model = settings.get("rate", model.rate), replace(model, rate=None)
        target = with_settings(bare, {**settings, "rate": None})  # it means more here
        embedder = replace(model, cache="none").load(target, seed=request.seed, asks_again=False)
        step = replace(
            request,
            target=embedder,
            rate=rate,
            is_own_server=model.base_url is not None,
            cached=cached_texts(model, target, embedder.profile),
            batch_size=settings.get("batch_size", model.batch_size),
            progress=progress,
        )
        opened = step.source
        stop_if_same("assess", opened, embedder, as_json=as_json)
        assessment = step.execute()
    warn_of_old_prices([assessment.target])
    document = assess_document(assessment)
    outputs.leave(document, lambda: report_page(assess_sections(assessment)), force=force)
    if as_json:
        show_json(document)
        return
    show(report_text(assess_sections(assessment)))
    arguments: list[str | Path] = [store, *(model_words("--target", target) or ["--target", target])]
    if stitch is not None and assessment.best is not None and step.quality is not None:
        _advise_plan(opened, arguments, stitch, step.quality, assessment.best)
    elif assessment.full_is_better:
        full = opened.successor("full") or path_beside(opened, "full")
        advise_next("reembed", *arguments, "-o", full)
    else:
        arguments += ["--judged", JUDGED, "-o", path_beside(opened, "moved")]
        advise_next("run", *arguments, also=("price",))


def _refuse_audits(outputs: Outputs) -> None:
    """Make sure that no report of an audit, which --report named in earlier versions, is replaced."""
    from migrate.reading import MalformedError, read_table

    for path in outputs.report:
        with suppress(OSError, MalformedError):
            if read_table(path).get("kind") == "audit":
                raise UsageError(
                    f"--report {path}: a report of an audit is there; --audit reads it; name another output"
                )


def _advise_plan(
    store: Store, arguments: list[str | Path], stitch: Path | str, quality: StitchQuality, best: Plan
) -> None:
    """Print the command that a plan begins with: another fit where the stitch reads other things than the plan does.

    `arguments` name store and target.
    """
    from migrate.cost.plans import FIRST_TOKENS, MIGRATE
    from migrate.selection.sample import RANDOM
    from migrate.steps.translate.choice import CONFIDENCE

    if best.kind in (FIRST_TOKENS, MIGRATE) and quality.leans != (best.kind == FIRST_TOKENS):
        if best.first_tokens:
            arguments += ["--first-tokens", str(best.first_tokens), "--kind", "prefix+text"]
        arguments += ["-o", path_beside(store, "stitch")]
        advise_next("fit", *arguments, also=("query_log", "price"))
        return
    new = ["-o", store.successor("new") or path_beside(store, "new")]
    if not (best.documents and best.known is not None and best.kind in (FIRST_TOKENS, MIGRATE)):
        advise_next("translate", arguments[0], stitch, *new)
        return
    policy = ["--policy", best.known.policy] if best.known.policy in (CONFIDENCE, RANDOM) else []
    share_words = ["--share", str(best.known.documents), "--stitch", stitch, *policy]
    advise_next("reembed", *arguments, *share_words, *new, also=("query_log", "price"))
