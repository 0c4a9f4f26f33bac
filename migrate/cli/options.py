"""Options that several commands share, spelled and explained once; the options of the fields of steps."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from migrate.cli import SUMMARIES
from migrate.cli.terminal import QUIET, complain
from migrate.errors import StoreError, UsageError
from migrate.files import atomic_file, json_text, output_errors, real_path, refuse_file, write_bytes
from migrate.locations import hide_secrets, place_of
from migrate.pace import LEAST
from migrate.removed import removed_option
from migrate.requests import run_request
from migrate.steps.base import (
    FORCE,
    FORCE_REPORTS,
    GENERAL,
    MARGIN,
    SEED,
)
from migrate.steps.base import option as described

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from click.types import OptionHelpExtra

    from migrate.embedders.base import Embedder
    from migrate.manifest import ModelIdentity
    from migrate.report.suite import Suite


Command = TypeVar("Command", bound=Callable[..., Any])


def _without_kind(location: str) -> str:
    """Return a location, unless it is one of a store; raises a UsageError before a folder gets that for its name."""
    from migrate.stores.registry import kind_names

    kind, colon, _ = location.partition(":")
    if colon and kind in kind_names() and not Path(location).exists():
        raise UsageError(f"{location}: a store is named where a file or folder of another kind is meant; name its path")
    return location


class _Path(click.Path):
    """A path of this machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the path as it was typed."""
        return super().convert(_without_kind(value) if isinstance(value, str) else value, param, ctx)


PATH = _Path(path_type=Path)


class _Place(click.types.StringParamType):
    """A location: a path, or a URI, of which no path is made: that would take a slash from `kind:http://host`."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the location as it was typed; a name that begins like an option is told from one by its folder."""
        if not value:
            self.fail("no path or URI is given", param, ctx)
        return self.read(f"./{value}" if str(value).startswith("-") else str(value))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete a path."""
        return PATH.shell_complete(ctx, param, incomplete)


class _Spec(click.types.StringParamType):
    """A model, whose prefixes may have blanks in them: in the environment there is one alone."""

    envvar_list_splitter = "\n"


STORE = _Place("store", hide_secrets)  # a password is taken out here, before anything could print it
STITCH = _Place("stitch", lambda location: place_of(_without_kind(location)))


def local_paths(*locations: Path | str | None) -> list[Path]:
    """Return the files and folders among what is read, which no output may replace."""
    from migrate.stores.registry import path_in

    return [path for location in locations if location is not None and (path := path_in(location)) is not None]


_WITH_SCHEME = re.compile(r"[A-Za-z][\w+-]+:")


def refuse_missing(*locations: object | None, target: object | None = None) -> None:
    """Refuse files and folders to be read of which two or more are missing, all in one line.

    A single one is refused where it is opened. Locations with a scheme and names of BEIR sets are not looked at, and of
    targets only `file:PATH` is. Raises StoreError: several are missing.
    """
    from migrate.datasets.download import BEIR_MD5
    from migrate.embedders.kinds import split_settings

    names = [str(location) for location in locations if location is not None]
    names += [split_settings(str(target))[0].removeprefix("file:")] if str(target).startswith("file:") else []
    paths = [name for name in names if not _WITH_SCHEME.match(name) and name not in BEIR_MD5]
    missing = [path for path in dict.fromkeys(paths) if not (os.path.lexists(path) or local_paths(path))]
    if len(missing) > 1:
        raise StoreError(f"no such files or folders: {', '.join(missing)}; check the paths")


class FiniteRange(click.FloatRange):
    """Numbers between bounds, of which NaN is none: it passes every comparison with them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


_NO_SECTION = "Options"


class _Option(click.Option):
    """An option that knows its section of the help text, None for "Options".

    One that `is_seldom` needed is left out of the `--help` of a command with many options. The help text shows a word
    for a number, N or SHARE, without its bounds: the error about a value beyond them names both.
    """

    def __init__(
        self,
        *names: Any,
        section: str | None = None,
        is_seldom: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(*names, **settings)
        self.section = section
        self.is_seldom = is_seldom
        if self.metavar is None and isinstance(self.type, click.IntRange | click.FloatRange):
            self.metavar = "SHARE" if self.type.max == 1 else "N"

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Return what stands in brackets after the help text."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra

    def handle_parse_result(self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]) -> Any:
        """Read the value; a fault of a hidden option, which nobody types, is told of the variable or the file."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            origin = self.origin(ctx, self.consume_value(ctx, opts)[1]) if self.hidden else ""
            error.param_hint = origin or error.param_hint
            raise

    def origin(self, ctx: click.Context, source: ParameterSource | None) -> str:
        """Return the environment variable or the name in a file that the value is from; empty where it is neither."""
        if source is ParameterSource.ENVIRONMENT:
            return str(self.envvar)
        is_in_file = source is ParameterSource.DEFAULT_MAP
        return f"{self.opts[0].lstrip('-')} in {ctx.meta[CONFIGURATION]}" if is_in_file else ""


_FEW = 12
"""Options of a command that are all shown by `--help`."""

_EVERYTHING = "migrate.help_all"
"""Key of a context's `meta`: whether the help text shows all options."""


def _show_everything(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_EVERYTHING] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _help_all(*, hidden: bool) -> click.Option:
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=hidden,
        callback=_show_everything,
        help="Show the options that are seldom needed too, and exit.",
    )


class _Command(click.Command):
    """A command whose help text shows the options by section, all sections with the same columns."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; where it refuses what the same command has done before, end as that did."""
        from migrate.cli.asked import ended_before, request_of

        request = request_of(ctx)
        try:
            with run_request(request):
                code = super().invoke(ctx)
        except (UsageError, StoreError):
            # with --force it was not refused for what is there: it was to be done again, and could not be
            if ctx.params.get("force") or (code := ended_before(request)) is None:
                raise
            return code
        request.ends(code if isinstance(code, int) else 0)
        return code

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; name all that is missing, and what took the place of an option that is gone."""
        typed = list(args)  # click takes them out of `args`
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = ctx.command_path.removeprefix(ctx.find_root().command_path).strip()
            if (sentence := removed_option(error.option_name, name)) is not None:
                raise click.UsageError(sentence, ctx) from error
            raise
        except click.MissingParameter as error:
            missing = self._missing(ctx, typed)
            if len(missing) < 2:
                raise
            raise click.UsageError(f"Missing {', '.join(missing)}", ctx) from error

    def _missing(self, ctx: click.Context, typed: list[str]) -> list[str]:
        """Return the required arguments and options that neither these arguments nor the settings give."""
        read = self.make_context(ctx.info_name, typed, parent=ctx.parent, resilient_parsing=True)
        required = [param for param in self.params if param.required and read.params.get(str(param.name)) is None]
        return sorted(f"{param.param_type_name} {param.get_error_hint(ctx)}" for param in required)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with `--help-all` beside `--help`, which is told where it shows more."""
        *params, shows_help = super().get_params(ctx)
        return [*params, _help_all(hidden=not self._rare_options()), shows_help]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections in the order of their first options, the general one last, with `--help`."""
        left_out = [] if ctx.meta.get(_EVERYTHING) else self._rare_options()
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            section = param.section if isinstance(param, _Option) else GENERAL
            is_shown = isinstance(param, click.Option) and param not in left_out
            if is_shown and (record := param.get_help_record(ctx)):
                sections.setdefault(section or _NO_SECTION, []).append(record)
        sections[GENERAL] = sections.pop(GENERAL)
        longest = max(len(names) for rows in sections.values() for names, _ in rows)
        width = min(longest, 30)  # what click gives the first column at most
        for title, rows in sections.items():
            with formatter.section(title if len(sections) > 1 else _NO_SECTION):
                formatter.write_dl([(names.ljust(width), text) for names, text in rows])

    def _rare_options(self) -> list[click.Parameter]:
        """Return the options that `--help` leaves out: of many, those that nobody needs on the first day."""
        shown = [param for param in self.params if isinstance(param, click.Option) and not param.hidden]
        seldom: list[click.Parameter] = [param for param in shown if isinstance(param, _Option) and param.is_seldom]
        return seldom if len(shown) > _FEW else []


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """Return a click option that shows its default and is read from LEAD_MIGRATE_<OPTION> too.

    `section` is the title that it stands under in the help text.
    """
    flag = next(name for name in names if name.startswith("--"))
    variable = "LEAD_MIGRATE_" + flag.split("/")[0].lstrip("-").replace("-", "_").upper()
    settings.setdefault("show_default", settings.get("default") is not None)
    return click.option(*names, cls=_Option, envvar=variable, **settings)


def usd(value: object) -> float:
    """Read US dollars from 0 on, with or without the sign."""
    try:
        amount = float(str(value).strip().removeprefix("$").replace(",", ""))
    except ValueError:
        amount = math.nan
    if not (amount >= 0 and math.isfinite(amount)):
        raise click.BadParameter(f"{value!r} is not an amount of dollars; give one such as $50")
    return amount


def _pace(value: object) -> float:
    """Read a share of the time, which a rate is not."""
    try:
        share = float(str(value))
    except ValueError:
        share = math.nan
    if not LEAST <= share <= 1:
        raise click.BadParameter(f"{value!r} is not a share of the time, from {LEAST} to 1; give one such as 0.25")
    return share


def _sample(value: Any) -> int | str:
    """Read a number of documents, or `all`."""
    return "all" if value == "all" else int(click.IntRange(min=1).convert(value, None, None))


_KINDS: dict[str, Any] = {
    "store": STORE,
    "stitch": STITCH,
    "path": PATH,
    "text": str,
    "spec": _Spec(),
    "number": click.IntRange(min=0),
    "count": click.IntRange(min=1),
    "requests": click.IntRange(1, 256),
    "pairs": click.IntRange(min=2),
    "tokens": click.IntRange(1, 10**8),
    "sample": _sample,
    "share": FiniteRange(0, 1, min_open=True),
    "pace": _pace,
    "seed": click.IntRange(0, 2**32 - 1),
    "price": FiniteRange(0, 1_000_000),
    "usd": usd,
    "minutes": FiniteRange(0),
}
"""How the words of a command line are read, by the kinds that fields name."""


def declared(name: str, metadata: Mapping[str, Any], default: Any = MISSING) -> Callable[[Command], Command]:
    """Return the argument or the option of a field of a step, by the field's name, metadata and default."""
    settings = dict(metadata)
    kind, text, flags, choices = (settings.pop(key, None) for key in ("kind", "help", "flags", "choices"))
    if settings.pop("is_argument", False):
        return click.argument(name, type=_KINDS[kind], **settings)
    if kind or choices:
        settings["type"] = click.Choice(choices) if choices else _KINDS[kind]
        settings = {"required": True, **settings} if default is MISSING else {**settings, "default": default}
    else:
        settings |= {"is_flag": True} if default is not None else {"is_flag": True, "default": None}
    return option(*(flags or (f"--{name.replace('_', '-')}",)), name, help=text, **settings)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option_group(kind: type[Any], argument: str, *added: Decorator, section: str | None = None) -> Decorator:
    """Add options to a command, which gets them as one `argument`: a dataclass of `kind` with a field for each.

    The options are those of the fields, unless they are `added`. Those that name no section of the help text stand in
    `section`.
    """
    added = added or tuple(declared(field.name, field.metadata, field.default) for field in fields(kind))

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        names: list[str] = []

        @wraps(command)
        def with_group(**arguments: Any) -> Any:
            values = {name: arguments.pop(name) for name in names}
            return command(**{argument: kind(**values)}, **arguments)

        wrapped: Callable[..., Any] = with_group
        for decorate in reversed(added):
            wrapped = decorate(wrapped)
            newest: _Option = wrapped.__click_params__[-1]  # type: ignore[attr-defined]
            newest.section = newest.section or section
            names.append(str(newest.name))
        return wrapped

    return add


def command(name: str, summary: str = "", *, example: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a click command with an example at the end of its help, and a summary, by default that of `SUMMARIES`."""
    short = summary or SUMMARIES.get(name)
    return click.command(name, cls=_Command, short_help=short, epilog=f"\b\nExample:\n  {example}")


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
        return list(self.commands)


seed = declared("seed", SEED, 0)
force = declared("force", FORCE)
force_reports = declared("force", FORCE_REPORTS)
quiet = option(
    "--quiet",
    "-q",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, value: context.meta.update({QUIET: value}),
    help="Show no progress and no advice.",
    section=GENERAL,
)
verbose = option(
    "--verbose", "-v", is_flag=True, help="Show every arm, slice and note too, after the verdict.", section=GENERAL
)
as_json = option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.", section=GENERAL)
output = option("--output", "-o", type=PATH, required=True, help="Folder to write.")
stitch_output = option(
    "--output", "-o", type=STITCH, required=True, help="Folder to write, or a URL such as s3://BUCKET/FOLDER."
)
margin = declared("margin", MARGIN, 0.95)
accept_margin = option(
    "--accept-margin",
    type=FiniteRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Repeat the value to confirm a --margin below 0.5.",
    is_seldom=True,
)


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

        typed = _source_of("accept_margin") is ParameterSource.COMMANDLINE
        if self.margin < LOWEST_MARGIN and not (typed and self.accept_margin == self.margin):
            origin = f" (from {self.origin})" if self.origin else ""
            raise UsageError(
                f"--margin {self.margin:g}{origin}: a store that loses {1 - self.margin:.0%} of the quality would be "
                f"SAFE; if you want that, type --accept-margin {self.margin:g} on the command line too"
            )

    @property
    def origin(self) -> str:
        """The environment variable or file that the margin is from; empty if it was typed."""
        source = _source_of("margin")
        if source is ParameterSource.ENVIRONMENT:
            return "LEAD_MIGRATE_MARGIN"
        context = click.get_current_context()
        return str(context.meta.get(CONFIGURATION, "")) if source is ParameterSource.DEFAULT_MAP else ""


def _source_of(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


def _in_spec(context: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return a setting of models from the environment or a file; on the command line it belongs into a SPEC.

    Raises
    ------
    UsageError
        It was typed.
    """
    if context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
        setting = f"{str(param.name).replace('_', '-')}={value}"
        raise click.UsageError(f"--{setting} goes into the SPEC of its model: SPEC,{setting}", context)
    return value


def _setting(kind: str) -> Any:
    return field(default=None, metadata=described("", kind, hidden=True, callback=_in_spec))


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The way to reach models, and settings from the environment or a file, which a SPEC may overrule.

    The last three are for the target only.
    """

    base_url: str | None = field(
        default=None, metadata=described("Server to use for openai: models.", "text", metavar="URL", is_seldom=True)
    )
    cache: str | None = field(
        default=None,
        metadata=described(
            "Embedding cache file, or `none` for no cache.  [default: in the user's cache folder]",
            "text",
            metavar="FILE|none",
            is_seldom=True,
        ),
    )
    device: str | None = _setting("text")
    batch_size: int | None = _setting("count")
    concurrency: int | None = _setting("requests")
    rate: str | None = _setting("text")
    dimensions: int | None = _setting("count")
    document_prefix: str | None = _setting("text")
    query_prefix: str | None = _setting("text")

    def load(
        self,
        spec: str,
        *,
        recorded: ModelIdentity | None = None,
        state: Path | None = None,
        seed: int = 0,
        asks_again: bool = True,
    ) -> Embedder:
        """Return the embedder of a spec, with these options, and what a manifest has `recorded` of it.

        A command that `asks_again` for the same texts pays for them once even without the cache: what it embeds is
        stored in a file until it ends.
        """
        from migrate.embedders import load_embedder, recorded_options
        from migrate.embedders.cache import CachedEmbedder

        settings = {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}
        if recorded is not None:
            settings = {**recorded_options(recorded), **settings}
        cache = self.cache_file
        embedder = load_embedder(spec, base_url=self.base_url, **settings, state=state, cache=cache, seed=seed)
        temporary_cache = _file_aside() if asks_again and cache is None and embedder.cacheable else None
        return embedder if temporary_cache is None else CachedEmbedder(embedder, temporary_cache, keeps=False)

    def for_source(self) -> ModelOptions:
        """Return the options without those that belong to the target model alone."""
        return replace(self, dimensions=None, document_prefix=None, query_prefix=None)

    @property
    def cache_file(self) -> Path | None:
        """The file of the embedding cache, or None for none."""
        from migrate.embedders.cache import default_cache_path

        if self.cache == "none":
            return None
        return Path(self.cache) if self.cache else default_cache_path()


SETTINGS = ("device", "batch_size", "concurrency", "rate", "dimensions", "document_prefix", "query_prefix")
"""Fields of `ModelOptions` that a SPEC may say."""


def _file_aside() -> Path | None:
    """Return a file that goes away with the command that is running, one for all its models; None outside of one."""
    from tempfile import TemporaryDirectory

    context = click.get_current_context(silent=True)
    if context is None:
        return None
    key = f"{__name__}.aside"
    if key not in context.meta:
        context.meta[key] = Path(context.with_resource(TemporaryDirectory(prefix="lead-migrate-")))
    folder: Path = context.meta[key]
    return folder / "embeddings.sqlite"


model_options = option_group(ModelOptions, "model", section="Models")
"""Adds the options of `ModelOptions`."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files that a result is written to besides the terminal, each in the kind that its ending says."""

    report: Sequence[Path] = field(
        default=(),
        metadata=described(
            "File to write the result to, of the kind that its ending says: .json, .html (a page) or .xml (JUnit, "
            "of a verdict or a check); can be repeated.",
            "path",
            metavar="FILE",
            multiple=True,
        ),
    )

    def first(self, ending: str) -> Path | None:
        """Return the first file with an ending; None where there is none."""
        return next((path for path in self.report if path.suffix == ending), None)

    def refuse(self, *inputs: Path, endings: Sequence[str] = (".json", ".html", ".xml"), force: bool) -> None:
        """Make sure, before anything is spent, that the files can be written, and are none of the inputs."""
        if len(set(map(real_path, self.report))) < len(self.report):
            raise UsageError("--report: a file is named twice; leave one of them out")
        for path in self.report:
            if path.suffix not in endings:
                raise UsageError(
                    f"--report {path}: the ending chooses the kind of report; end it in {' or '.join(endings)}"
                )
            refuse_file(path, *inputs, force=force)

    def leave(
        self, document: Mapping[str, Any], page: Callable[[], str], suite: Suite | None = None, *, force: bool
    ) -> None:
        """Write the files. GitHub Actions is shown the suite too."""
        from migrate.report.suite import junit_xml

        if suite is not None:
            show_to_github(suite)
        for path in self.report:
            if path.suffix == ".json":
                payload = json_text(document).encode()
            elif path.suffix == ".html":
                payload = page().encode()
            else:
                payload = b"" if suite is None else junit_xml(suite)
            with atomic_file(path, force=force) as unfinished:
                write_bytes(unfinished, payload)


def show_to_github(suite: Suite) -> None:
    """Annotate the run of GitHub Actions, where this is one, and summarize it on its page.

    Annotations go to stderr, where GitHub reads them too, and no JSON is spoilt.
    """
    from migrate.report.characters import for_markup
    from migrate.report.suite import annotation_lines

    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for line in annotation_lines(suite):
        complain(line)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with output_errors(Path(summary)), Path(summary).open("a", encoding="utf-8") as file:
            file.write(for_markup(suite.markdown) + "\n")


report_options = option_group(Outputs, "outputs", section="Reports")
"""Adds the options of `Outputs`."""
