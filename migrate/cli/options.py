"""Options that several commands share, spelled and explained once.

What the fitting commands share: the query log, and what came of it.

Where a finding goes besides the terminal: files, and what CI reads.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from migrate.audit.step import BEIR, GROUP_FIELD, HOLD_OUT, MARGIN, PARENT_FIELD, PLAN, SOURCE_MODEL, SPLIT
from migrate.audit.step import QUERIES as UNJUDGED
from migrate.cli.terminal import advise
from migrate.locations import hide_secrets, place_of
from migrate.steps.base import FORCE, GENERAL, PRICE, RESTART, SEED
from migrate.steps.translate import OUTPUT, QUERY_LOG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate.audit.query_set import QuerySet
    from migrate.embedders.base import Embedder
    from migrate.manifest import Manifest, ModelIdentity
    from migrate.report.suite import Suite
    from migrate.selection import QueryLog
    from migrate.stores.base import Store
    from migrate.vectors import Progress
    from migrate.work.runner import Runner


def log_sentence(stitch: Manifest, *, by_vectors: bool) -> str:
    """How much of a stitch's sample the log has chosen, and by what."""
    from_log, pairs = (stitch.stitch.sample or {})["from query log"], stitch.counts["pairs"]
    by = "old vectors and words" if by_vectors else "words only, as no source model was named"
    remark = "" if from_log == pairs else "; the others are random"
    return f"sample: {from_log:,} of {pairs:,} documents are near the top for the query log, by {by}{remark}"


Command = TypeVar("Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


class Location(click.types.StringParamType):
    """Where a store is: a path, or a URI. No path is made of it, which would take a slash from `kind:http://host`.

    A password in it is taken out here, before anything could print it.
    """

    name = "store"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The location as it was typed, without a password."""
        if not value:
            self.fail("expected a path or a URI, found nothing", param, ctx)
        return hide_secrets(str(value))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete a path."""
        return [CompletionItem(incomplete, type="file")]


STORE = Location()


class Place(click.types.StringParamType):
    """Where a stitch is: a path, or a URL such as `s3://BUCKET/FOLDER`, which no path is made of."""

    name = "stitch"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path or the URL."""
        return place_of(value) if value else self.fail("expected a path or a URL, found nothing", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Files and folders."""
        return PATH.shell_complete(ctx, param, incomplete)


STITCH = Place()


def local_paths(*locations: Path | str | None) -> list[Path]:
    """The files and folders among what is read, which no output may replace."""
    from migrate.stores.registry import path_in

    return [path for location in locations if location is not None and (path := path_in(location)) is not None]


class FiniteRange(click.FloatRange):
    """Numbers between bounds, of which NaN is none: it passes every comparison with them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"expected a number, found {value!r}", param, ctx)
        return number


LEARNING, QUERIES, MODELS, REPORTS = "Sample and stitch", "Queries", "Models", "Reports"
"""Titles of the sections of a help text that several commands share."""

_NO_SECTION = "Options"


class _Option(click.Option):
    """An option that knows its section of the help text; one of None stands under "Options"."""

    def __init__(self, *names: Any, section: str | None = None, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.section = section


class _Command(click.Command):
    """A command whose help text shows the options by section, all sections with the same columns."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections in the order of their first options, the general one last, with `--help`."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            section = param.section if isinstance(param, _Option) else GENERAL
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                sections.setdefault(section or _NO_SECTION, []).append(record)
        sections[GENERAL] = sections.pop(GENERAL)
        longest = max(len(names) for rows in sections.values() for names, _ in rows)
        width = min(longest, 30)  # what click gives the first column at most
        for title, rows in sections.items():
            with formatter.section(title if len(sections) > 1 else _NO_SECTION):
                formatter.write_dl([(names.ljust(width), text) for names, text in rows])


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """A click option that shows its default and is read from LEAD_MIGRATE_<OPTION> too.

    `section` is the title that it stands under in the help text.
    """
    flag = next(name for name in names if name.startswith("--"))
    variable = "LEAD_MIGRATE_" + flag.split("/")[0].lstrip("-").replace("-", "_").upper()
    settings.setdefault("show_default", settings.get("default") is not None)
    return click.option(*names, cls=_Option, envvar=variable, **settings)


def usd(value: object) -> float:
    """US dollars from 0 on, with or without the sign.

    Raises
    ------
    click.BadParameter
        They are none.
    """
    try:
        amount = float(str(value).strip().removeprefix("$").replace(",", ""))
    except ValueError:
        amount = math.nan
    if not (amount >= 0 and math.isfinite(amount)):
        raise click.BadParameter(f"expected dollars such as $50, found {value!r}")
    return amount


def plan_name(name: str) -> str:
    """Return the name of a plan, if there can be one; whether the audit has it is known after it.

    Raises
    ------
    click.BadParameter
        There can be none.
    """
    if not re.fullmatch(r"translated|bridge|(two-stage-|prefix:)[1-9]\d{0,8}", name):
        raise click.BadParameter(f"expected translated, two-stage-20, bridge or prefix:24, found {name!r}")
    return name


_KINDS: dict[str, Any] = {
    "store": STORE,
    "stitch": STITCH,
    "path": PATH,
    "text": str,
    "count": click.IntRange(min=1),
    "seed": click.IntRange(0, 2**32 - 1),
    "price": FiniteRange(0, 1_000_000, min_open=True),
    "usd": usd,
    "share": FiniteRange(0, 1, min_open=True),
    "pool depth": click.IntRange(min=10),
    "plan": plan_name,
}
"""How the words of a command line are read, by the kinds that fields name."""


def declared(name: str, metadata: Mapping[str, Any], default: Any = MISSING) -> Callable[[Command], Command]:
    """Return the argument or the option of a field of a step, by the field's name, metadata and default."""
    settings = dict(metadata)
    kind, text, flags, choices = (settings.pop(key, None) for key in ("kind", "help", "flags", "choices"))
    if settings.pop("is_argument", False):
        return click.argument(name, type=_KINDS[kind])
    if kind or choices:
        settings["type"] = click.Choice(choices) if choices else _KINDS[kind]
        settings |= {"required": True} if default is MISSING else {"default": default}
    else:
        settings["is_flag"] = True
    return option(*(flags or (f"--{name.replace('_', '-')}",)), name, help=text, **settings)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option_group(kind: type[Any], argument: str, *added: Decorator, section: str | None = None) -> Decorator:
    """Add options to a command, which gets them as one `argument`: a dataclass of `kind` with a field for each.

    Those that name no section of the help text stand in `section`.
    """
    names = [field.name for field in fields(kind)]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_group(**arguments: Any) -> Any:
            values = {name: arguments.pop(name) for name in names if name in arguments}
            return command(**{argument: kind(**values)}, **arguments)

        wrapped: Callable[..., Any] = with_group
        for decorate in reversed(added):
            wrapped = decorate(wrapped)
            newest: _Option = wrapped.__click_params__[-1]  # type: ignore[attr-defined]
            newest.section = newest.section or section
        return wrapped

    return add


def command(name: str, summary: str, *, example: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command with a summary for the list of commands, and an example at the end of its help."""
    return click.command(name, cls=_Command, short_help=summary, epilog=f"\b\nExample:\n  {example}")


seed = declared("seed", SEED, 0)
force = declared("force", FORCE)
restart = declared("restart", RESTART)
quiet = option("--quiet", "-q", is_flag=True, help="Show no progress and no advice.", section=GENERAL)
verbose = option(
    "--verbose", "-v", is_flag=True, help="Show every arm, slice and note too, after the verdict.", section=GENERAL
)
as_json = option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.", section=GENERAL)
output = option("--output", "-o", type=PATH, required=True, help="Folder to write.")
stitch_output = option(
    "--output", "-o", type=STITCH, required=True, help="Folder to write, or a URL such as s3://BUCKET/FOLDER."
)
store_output = declared("output", OUTPUT)
margin = declared("margin", MARGIN, 0.95)
accept_margin = option(
    "--accept-margin",
    type=FiniteRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Says that a --margin below 0.5 is meant: the same number again, typed.",
)


plan = declared("plan", PLAN, "translated")
target = option("--target", required=True, metavar="SPEC", help="Model to move to, such as openai:NAME.")
source_model = declared("source_model", {**SOURCE_MODEL, "section": None}, None)
stitch = option(
    "--stitch",
    "stitches",
    multiple=True,
    default=["auto"],
    metavar="KIND",
    help="auto, or one of identity, mean, procrustes, ols, ridge, lowrank, lowrank:RANK, kernel, mlp:1 to mlp:7; "
    "ridge+text, kernel+text and text read the documents too, prefix and prefix+text what --prefix embeds; for queries "
    "adjoint. Repeated: the best of these.",
)
view = option(
    "--view",
    "views",
    multiple=True,
    metavar="SPEC",
    help="Further model that the stitch may read the texts with; can be repeated. Where none is named and the target "
    "may cost money, a free local model is tried if one is installed; `none` is for not trying.",
    section=LEARNING,
)
sample = option(
    "--sample",
    "size",
    type=click.IntRange(min=2),
    default=1_000,
    help="Documents to embed again and learn from.",
)
strategy = option(
    "--strategy",
    type=click.Choice(["random", "diverse", "query-log"]),
    help="Which documents those are.  [default: query-log where there is one, else random]",
)
query_log = declared("query_log", {**QUERY_LOG, "section": None}, None)
price = declared("price", PRICE, None)


CONFIGURATION = "migrate.configuration"
"""Under this name click's context has the path of the file that options were read from, where there is one."""


@dataclass(frozen=True, slots=True)
class MarginOptions:
    """The retention that is to be kept, and the word that a low one is meant.

    Raises
    ------
    UsageError
        It is low, and the word was not typed.
    """

    margin: float
    accept_margin: float | None

    def __post_init__(self) -> None:
        from migrate.audit.verdict import LOWEST_MARGIN
        from migrate.errors import UsageError

        typed = _source_of("accept_margin") is ParameterSource.COMMANDLINE
        if self.margin < LOWEST_MARGIN and not (typed and self.accept_margin == self.margin):
            origin = f" (from {self.origin})" if self.origin else ""
            raise UsageError(
                f"--margin {self.margin:g}{origin}: a store that loses {1 - self.margin:.0%} of the quality would be "
                f"SAFE; if that is meant, type --accept-margin {self.margin:g} on the command line too"
            )

    @property
    def origin(self) -> str:
        """Where the margin is from, if nobody typed it: an environment variable or a file; else empty."""
        source = _source_of("margin")
        if source is ParameterSource.ENVIRONMENT:
            return "LEAD_MIGRATE_MARGIN"
        context = click.get_current_context()
        return str(context.meta.get(CONFIGURATION, "")) if source is ParameterSource.DEFAULT_MAP else ""


def _source_of(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


margin_options = option_group(MarginOptions, "asked", margin, accept_margin)
"""Adds the options of `MarginOptions`."""


@dataclass(frozen=True, slots=True)
class LearningOptions:
    """What is fitted, and on which documents."""

    stitches: tuple[str, ...]
    size: int
    strategy: str | None
    query_log: Path | None
    source_model: str | None
    prefix: int | None

    def load_log(self, embedder: Embedder | None) -> QueryLog | None:
        """The query log, searched by `embedder` where the source model is at hand.

        Raises
        ------
        UsageError
            The strategy needs a log, or would not read this one.
        DatasetError, OutputError
            As `read_query_log`.
        """
        from migrate.datasets.records import read_query_log
        from migrate.selection import QueryLog, choose_strategy

        choose_strategy(self.strategy, has_log=self.query_log is not None)
        return None if self.query_log is None else QueryLog(read_query_log(self.query_log), embedder)


prefix = option(
    "--prefix",
    type=click.IntRange(1, 10**8),
    metavar="N",
    help="Also embed the first N tokens of each text, and lean on these where that keeps more than the same tokens "
    "spent on a larger sample.",
)
learning_options = option_group(
    LearningOptions, "learning", stitch, sample, strategy, query_log, source_model, prefix, section=LEARNING
)
"""Adds the options of `LearningOptions`."""


@dataclass(frozen=True, slots=True)
class GeneralOptions:
    """What most commands take; those that a command does not take are as they are here."""

    seed: int = 0
    force: bool = False
    restart: bool = False
    as_json: bool = False
    verbose: bool = False
    quiet: bool = False


def general_options(*added: Decorator) -> Decorator:
    """Add some options of `GeneralOptions`; the command gets one argument `general`."""
    return option_group(GeneralOptions, "general", *added)


beir = declared("beir", BEIR, None)
SYNTHETIC = "synthetic"
"""What --queries takes in the place of a file."""

queries = declared("queries", UNJUDGED, None)
split = declared("split", SPLIT, "test")
hold_out = declared("hold_out", HOLD_OUT, None)
group_field = declared("group_field", GROUP_FIELD, None)


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The queries that judge: judged ones, or others.

    Raises
    ------
    UsageError
        Both are named.
    """

    beir: str | None
    queries: str | None
    split: str
    hold_out: str | None
    group_field: str | None

    def __post_init__(self) -> None:
        from migrate.errors import UsageError

        self._share()

        if self.beir is not None and self.queries is not None:
            raise UsageError("--beir and --queries exclude each other; leave one out")

    @property
    def are_named(self) -> bool:
        """Whether there are any."""
        return self.beir is not None or self.queries is not None

    def require(self, *, by_pool: bool) -> None:
        """Make sure that there are any.

        Raises
        ------
        UsageError
            None are named; or some are held out, and no pool is chosen by the others.
        """
        from migrate.errors import UsageError

        if not self.are_named:
            raise UsageError(
                "no queries are named: give judged ones with --beir DIR or any with --queries FILE, or have them made "
                "with --queries synthetic"
            )
        if self.hold_out is not None and not by_pool:
            raise UsageError(
                "--hold-out goes with --reference pool, as nothing is chosen for other references; leave it out"
            )

    @property
    def location(self) -> str | None:
        """Where the queries are; None for synthetic ones."""
        return self.beir if self.queries is None else None if self.queries == SYNTHETIC else self.queries

    @property
    def words(self) -> list[str | Path]:
        """The option that names the same queries from any folder."""
        flag, named = ("--beir", str(self.beir)) if self.queries is None else ("--queries", self.queries)
        return [flag, Path(named) if named != SYNTHETIC and Path(named).exists() else named]

    def load(self, store: Store, *, parent_field: str, seed: int, progress: Progress) -> QuerySet:
        """The queries; raises as `load_query_set`."""
        from migrate.audit.query_set import hold_out, load_query_set

        query_set = load_query_set(
            store,
            self.beir,
            self.queries,
            split=self.split,
            parent_field=parent_field,
            group_field=self.group_field,
            seed=seed,
            progress=progress,
        )
        share = self._share()
        return query_set if share is None else hold_out(query_set, share)

    def _share(self) -> float | None:
        """Return what part of the queries, 0-1, is held out; None where none is."""
        from migrate.audit.query_set import share_of

        return None if self.hold_out is None else share_of(self.hold_out)

    def offer_hold_out(
        self, query_set: QuerySet, store: Store, embedder: Embedder, *, by_pool: bool, quiet: bool
    ) -> None:
        """Say, before a pool is paid for, that its queries cannot judge what it is filled into, and what helps.

        Of a small store a pool takes nearly all; that is a full re-embed then, which needs no judge.
        """
        from migrate.audit.pool import DEPTHS
        from migrate.cli.terminal import advise

        count = len(query_set.distinct)
        is_worth = count >= MANY_QUERIES and store.info.count > DEPTHS[0] * count
        if by_pool and embedder.keeps and self.hold_out is None and is_worth:
            advise(
                f"these {count:,} queries choose what the pool embeds, so they will not judge a store that is filled "
                "in with it (`backfill`); to keep half of them for that, add --hold-out 50%: bounds get about 1.4 "
                "times as wide now",
                quiet=quiet,
            )


MANY_QUERIES = 100
"""So many queries are worth being divided into those that choose and those that judge."""

query_options = option_group(QueryOptions, "judged", beir, queries, split, hold_out, group_field, section=QUERIES)
"""Adds the options of `QueryOptions`."""

parent_field = declared("parent_field", PARENT_FIELD, "parent_id")

_MODEL_OPTIONS = (
    option("--base-url", metavar="URL", help="Server to use for openai: models."),
    option("--device", default="auto", help="Where sentence-transformers: models run: auto, cpu, cuda, mps."),
    option("--batch-size", type=click.IntRange(min=1), help="Texts per batch of the model.  [default: the model's]"),
    option("--concurrency", type=click.IntRange(1, 256), default=8, help="Requests in flight at once, for openai:."),
    option("--rate", metavar="N/UNIT", help="Most requests to openai:, as 3000/min, 50/s, 100/h.  [default: server's]"),
    option("--dimensions", type=click.IntRange(min=1), help="Shorter vectors, for openai: models that offer them."),
    option("--document-prefix", metavar="TEXT", help="Put before documents.  [default: the registry's]"),
    option("--query-prefix", metavar="TEXT", help="Put before queries.  [default: the registry's]"),
    option("--cache", type=PATH, help="Embedding cache file.  [default: in the user's cache folder]"),
    option("--no-cache", is_flag=True, help="Neither read the cache nor keep embeddings in it."),
)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How models are reached. What belongs to one model alone, such as a prefix, is for the target only."""

    base_url: str | None
    device: str
    batch_size: int | None
    concurrency: int
    rate: str | None
    dimensions: int | None
    document_prefix: str | None
    query_prefix: str | None
    cache: Path | None
    no_cache: bool

    def load(self, spec: str, *, state: Path | None = None, seed: int = 0, asks_again: bool = True) -> Embedder:
        """The embedder of a spec, with these options.

        A command that `asks_again` for the same texts pays for them once even without the cache: what it embeds is
        kept aside until it ends.
        """
        from migrate.embedders import load_embedder
        from migrate.embedders.cache import CachedEmbedder

        embedder = load_embedder(
            spec,
            base_url=self.base_url,
            device=self.device,
            batch_size=self.batch_size,
            concurrency=self.concurrency,
            rate=self.rate,
            dimensions=self.dimensions,
            document_prefix=self.document_prefix,
            query_prefix=self.query_prefix,
            state=state,
            cache=self.cache_file,
            seed=seed,
        )
        aside = _file_aside() if asks_again and self.no_cache and embedder.cacheable else None
        return embedder if aside is None else CachedEmbedder(embedder, aside, keeps=False)

    def for_source(self) -> ModelOptions:
        """The options without those that belong to the target model alone."""
        return replace(self, dimensions=None, document_prefix=None, query_prefix=None)

    def as_recorded(self, model: ModelIdentity) -> ModelOptions:
        """The options, completed by what a manifest remembers of the model: prefixes, shorter vectors."""
        from migrate.embedders import recorded_options

        recorded = recorded_options(model)
        prefix, query_prefix = recorded.get("document_prefix"), recorded.get("query_prefix")
        return replace(
            self,
            dimensions=self.dimensions or recorded.get("dimensions"),
            document_prefix=prefix if self.document_prefix is None else self.document_prefix,
            query_prefix=query_prefix if self.query_prefix is None else self.query_prefix,
        )

    @property
    def cache_file(self) -> Path | None:
        """Where embeddings are kept, or None for nowhere."""
        from migrate.embedders.cache import default_cache_path

        return None if self.no_cache else self.cache or default_cache_path()


def _file_aside() -> Path | None:
    """A file that goes away with the command that is running; the same one for all its models. None outside of one."""
    from tempfile import TemporaryDirectory

    context = click.get_current_context(silent=True)
    if context is None:
        return None
    key = f"{__name__}.aside"
    if key not in context.meta:
        context.meta[key] = Path(context.with_resource(TemporaryDirectory(prefix="lead-migrate-")))
    folder: Path = context.meta[key]
    return folder / "embeddings.sqlite"


model_options = option_group(ModelOptions, "model", *_MODEL_OPTIONS, section=MODELS)
"""Adds the options of `ModelOptions`."""

NO_VIEW = "none"


def load_views(specs: Sequence[str], model: ModelOptions) -> dict[str, Embedder] | None:
    """The models of `--view`; None where nothing is said, so that a free one may be tried.

    Raises
    ------
    UsageError
        `none` beside the name of a model.
    """
    from migrate.errors import UsageError

    if NO_VIEW not in specs:
        return {spec: model.for_source().load(spec) for spec in specs} or None
    if set(specs) != {NO_VIEW}:
        raise UsageError(f"expected --view {NO_VIEW} alone, found {len(specs)} of them; leave {NO_VIEW} out")
    return {}


MACHINES = "Machines"
_RUNNER_OPTIONS = (
    option(
        "--runner",
        metavar="local|dask:ADDRESS|dask:local:N",
        help="Who does the work: processes of this machine, the workers of a Dask cluster (the address of its "
        "scheduler, or its file), or N of Dask's own here.  [default: local]",
    ),
    option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Processes of the local runner, at most.  [default: one a core to translate texts, one to embed]",
    ),
    option(
        "--shards",
        metavar="LOCATION",
        help="Where workers leave finished shards, such as s3://BUCKET/FOLDER, until they are in the output.  "
        "[default: they come over the network]",
    ),
)


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """Who does the work."""

    runner: str | None
    workers: int | None
    shards: str | None

    def open(self) -> Runner:
        """The runner; raises as `migrate.work.runner.runner_of`."""
        from migrate.work.runner import runner_of

        return runner_of(self.runner, workers=self.workers, shards=self.shards)


runner_options = option_group(RunnerOptions, "running", *_RUNNER_OPTIONS, section=MACHINES)
"""Adds the options of `RunnerOptions`."""

_SUMMARY = "GITHUB_STEP_SUMMARY"
_REPORT = option("--report", type=PATH, metavar="FILE", help="File to write the JSON report to.", section=REPORTS)
_HTML = option(
    "--html", type=PATH, metavar="FILE", help="File to write the report to as a page for a browser.", section=REPORTS
)


@dataclass(frozen=True, slots=True)
class CI:
    """Where a finding goes besides the terminal."""

    junit: Path | None
    github: bool

    def refuse(self, *inputs: Path, force: bool) -> None:
        """Make sure, before anything is spent, that the JUnit file can be written.

        Raises
        ------
        UsageError, OutputError
            It is there already, or is one of the inputs, or its folder may not be written to.
        """
        _refuse([self.junit], inputs, force=force)

    def leave(self, suite: Suite, *, force: bool) -> None:
        """Write what was asked for. Annotations go to stderr, where GitHub reads them too, and no JSON is spoilt."""
        from migrate.files import atomic_file, write_bytes
        from migrate.report.characters import for_markup
        from migrate.report.suite import annotation_lines, junit_xml

        if self.junit is not None:
            with atomic_file(self.junit, force=force) as aside:
                write_bytes(aside, junit_xml(suite))
        if self.github:
            for line in annotation_lines(suite):
                advise(line, quiet=False)
            _summarize(for_markup(suite.markdown))


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a report goes besides the terminal: JSON, a page, and what CI reads."""

    report: Path | None
    html: Path | None
    ci: CI

    def refuse(self, *inputs: Path, force: bool) -> None:
        """Make sure, before anything is spent, that the files can be written.

        Raises
        ------
        UsageError, OutputError
            One is there already, or is one of the inputs, or its folder may not be written to.
        """
        _refuse([self.report, self.html], inputs, force=force)
        self.ci.refuse(*inputs, force=force)


def _refuse(outputs: Sequence[Path | None], inputs: Sequence[Path], *, force: bool) -> None:
    from migrate.files import refuse_file

    for path in filter(None, outputs):
        refuse_file(path, *inputs, force=force)


def _summarize(markdown: str) -> None:
    from migrate.files import output_errors

    path = os.environ.get(_SUMMARY)
    if path:
        with output_errors(Path(path)), Path(path).open("a", encoding="utf-8") as file:
            file.write(markdown + "\n")


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `Outputs`; the command gets one argument `outputs`."""

    @wraps(command)
    def with_outputs(ci: CI, **arguments: Any) -> Any:
        return command(outputs=Outputs(arguments.pop("report"), arguments.pop("html"), ci), **arguments)

    return _REPORT(_HTML(ci_options(with_outputs)))


def ci_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `CI`; the command gets one argument `ci`."""

    @wraps(command)
    def with_ci(**arguments: Any) -> Any:
        return command(ci=CI(arguments.pop("junit"), arguments.pop("github")), **arguments)

    wrapped: Callable[..., Any] = with_ci
    for add in (
        option(
            "--github",
            is_flag=True,
            help="Annotate the run of GitHub Actions, and summarize it on its page.",
            section=REPORTS,
        ),
        option(
            "--junit", type=PATH, metavar="FILE", help="File to write the finding to as JUnit XML.", section=REPORTS
        ),
    ):
        wrapped = add(wrapped)
    return wrapped
