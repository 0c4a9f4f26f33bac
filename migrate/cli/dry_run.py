"""`--dry-run`: what a command would read, embed, pay and write; nothing of it is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from migrate.cli.options import command_name
from migrate.cli.terminal import advise, show, show_json
from migrate.cost.spending import count_expected, estimate_of
from migrate.display import dollars

if TYPE_CHECKING:
    from migrate.cli.options import ModelOptions
    from migrate.cost.spending import PlannedModel
    from migrate.steps.base import Job


def models_for(model: ModelOptions, *, dry_run: bool) -> ModelOptions:
    """Return the options of models; those of a dry run make no cache where there is none."""
    path = model.cache_file
    # To open a cache is to make its file
    if dry_run and path is not None and not path.is_file():
        return replace(model, cache="none")
    return model


def stop_if_dry(
    dry_run: bool,
    *,
    reads: Sequence[object],
    writes: Sequence[object],
    job: Job[Any] | None = None,
    models: Sequence[PlannedModel] = (),
    embeds: Sequence[str] = (),
    as_json: bool,
) -> None:
    """Print what the command that is running would do, and end it with 0, where `--dry-run` asks for that.

    What it would pay for is that of `job`, or of `models`; `embeds` are further lines.
    """
    if not dry_run:
        return
    if job is not None:
        models = job.models
        estimate = job.estimate()
        max_cost = job.max_cost
    else:
        estimate = estimate_of(models)
        max_cost = None
    sentences = [*embeds]
    sentences += [model.sentence for model in estimate.models]
    sentences += _free_sentences(models)
    sentences += _beyond(estimate.usd, max_cost)
    if not sentences:
        sentences = ["to embed: nothing"]
    paths = {"reads": _names(reads), "writes": _names(writes)}
    if as_json:
        command = command_name(click.get_current_context())
        costs = {"embeds": sentences, "tokens": estimate.tokens, "usd": estimate.usd}
        show_json({**paths, "command": command, **costs}, kind="dry run")
    else:
        written = "; ".join(paths["writes"]) or "nothing but what is embedded, into the cache"
        show("\n".join([f"to read: {'; '.join(paths['reads'])}", *sentences, f"to write: {written}"]))
    advise("nothing was embedded, paid for or written; leave out --dry-run to do it")
    # Not a return: the command that is stopped has further lines to go, and click ends with 0 here
    raise click.exceptions.Exit


def _beyond(usd: float, max_cost: float | None) -> Iterator[str]:
    if max_cost is not None and usd > max_cost:
        yield f"that is more than --max-cost ({dollars(max_cost)}), so it has to be agreed to"


def _names(locations: Sequence[object]) -> list[str]:
    return [str(location) for location in locations if location is not None]


def _free_sentences(models: Sequence[PlannedModel]) -> Iterator[str]:
    """Say what models that cost no money would embed, those in the cache among it."""
    for model in models:
        if model.meter is None:
            count = count_expected(model)
            if not count:
                continue
            name = model.name or model.embedder.profile.spec
            yield f"to embed: up to {count:,} texts by {name}, which costs no money"
