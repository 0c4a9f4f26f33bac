"""Options that several commands share, spelled and explained once; the options of the fields of steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from migrate.cli import SUMMARIES
from migrate.cli.project.settings import CONFIGURATION, note_origin, prefer_typed
from migrate.cli.terminal import JSON_PROGRESS, QUIET
from migrate.errors import UsageError
from migrate.files import default_cache_path, real_path, refuse_file
from migrate.locations import hide_secrets, place_of
from migrate.pace import LEAST
from migrate.removed import removed_command, removed_option
from migrate.steps.base import (
    COST,
    FORCE,
    FORCE_REPORTS,
    GENERAL,
    LOWEST_MARGIN,
    MARGIN,
    SEED,
    fields_of,
)
from migrate.steps.base import option as described

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from click.types import OptionHelpExtra


Command = TypeVar("Command", bound=Callable[..., Any])

PREFIX = "LEAD_MIGRATE"
"""Beginning of the environment variables that options are read from, whatever their command."""


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
        if isinstance(value, str):
            value = _without_kind(value)
        return super().convert(value, param, ctx)


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
        if str(value).startswith("-"):
            return self.read(f"./{value}")
        return self.read(str(value))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete a path."""
        return PATH.shell_complete(ctx, param, incomplete)


class _Spec(click.types.StringParamType):
    """A model, whose prefixes may have blanks in them: in the environment there is one alone."""

    # Click would split a variable at its blanks
    envvar_list_splitter = "\n"


STORE = _Place("store", hide_secrets)  # a password is taken out here, before anything could print it
STITCH = _Place("stitch", lambda location: place_of(_without_kind(location)))


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
        allow_from_autoenv=False,
        hidden=hidden,
        callback=_show_everything,
        help="Also show the options that are seldom needed, and exit.",
    )


class _Command(click.Command):
    """A command whose help text shows the options by section, all sections with the same columns."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; where it refuses what the same command has done before, end as that did."""
        from migrate.cli.asked import run_once  # with all kinds of stores, which no help text needs

        prefer_typed(ctx)
        note_origin(ctx)
        return run_once(ctx, super().invoke)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; name all that is missing, and what took the place of an option that is gone."""
        typed = list(args)  # click takes them out of `args`
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if (sentence := removed_option(error.option_name, command_name(ctx))) is not None:
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
        if isinstance(shows_help, click.Option):
            shows_help.allow_from_autoenv = False  # no variable asks for help
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
        # Taken out and put back, which moves it to the end
        sections[GENERAL] = sections.pop(GENERAL)
        longest = max(len(names) for rows in sections.values() for names, _ in rows)
        # What click gives the first column at most
        width = min(longest, 30)
        for title, rows in sections.items():
            with formatter.section(title if len(sections) > 1 else _NO_SECTION):
                formatter.write_dl([(names.ljust(width), text) for names, text in rows])

    def _rare_options(self) -> list[click.Parameter]:
        """Return the options that `--help` leaves out: of many, those that nobody needs on the first day."""
        shown = [param for param in self.params if isinstance(param, click.Option) and not param.hidden]
        seldom: list[click.Parameter] = [param for param in shown if isinstance(param, _Option) and param.is_seldom]
        if len(shown) <= _FEW:
            return []
        return seldom


def command_name(context: click.Context) -> str:
    """Return the name of a command as it is typed, such as `live run`."""
    return context.command_path.removeprefix(context.find_root().command_path).strip()


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """Return a click option that shows its default; `section` is the title that it stands under in the help text."""
    settings.setdefault("show_default", settings.get("default") is not None)
    return click.option(*names, cls=_Option, allow_from_autoenv="envvar" not in settings, **settings)


def variable_of(option: click.Parameter) -> str:
    """Return the environment variable that an option is read from too."""
    return str(option.envvar or f"{PREFIX}_{str(option.name).upper()}")


def usd(value: object) -> float:
    """Read US dollars from 0 on, with or without the sign."""
    try:
        amount = float(str(value).strip().removeprefix("$").replace(",", ""))
    except ValueError:
        amount = math.nan
    # Asked in this way NaN fails too, which is not below 0 either
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
    if value == "all":
        return "all"
    return int(click.IntRange(min=1).convert(value, None, None))


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
    # The largest seed that scikit-learn takes
    "seed": click.IntRange(0, 2**32 - 1),
    "price": FiniteRange(0, 1_000_000),
    "usd": usd,
    "minutes": FiniteRange(0),
}
"""How the words of a command line are read, by the kinds that fields name."""


def declared(
    name: str, metadata: Mapping[str, Any], default: Any = MISSING, *, section: str | None = None
) -> Callable[[Command], Command]:
    """Return the argument or the option of a field of a step, by the field's name, metadata and default.

    An option whose metadata name no section of the help text stands in `section`.
    """
    settings = dict(metadata)
    kind, text, flags, choices = (settings.pop(key, None) for key in ("kind", "help", "flags", "choices"))
    if settings.pop("is_argument", False):
        return click.argument(name, type=_KINDS[kind], **settings)
    if kind or choices:
        settings["type"] = click.Choice(choices) if choices else _KINDS[kind]
        if default is MISSING:
            settings.setdefault("required", True)
        else:
            settings["default"] = default
    else:
        settings["is_flag"] = True
        # Click would take one that was not typed for False
        if default is None:
            settings["default"] = None
    settings.setdefault("section", section)
    return option(*(flags or (f"--{name.replace('_', '-')}",)), name, help=text, **settings)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def record(
    kind: type[Any],
    *names: str,
    argument: str = "request",
    section: str | None = None,
    flags: Mapping[str, Sequence[str]] = MappingProxyType({}),
    **settings: Any,
) -> Decorator:
    """Add options to a command, which gets them as one `argument`: a dataclass of `kind`, often a step.

    They are those of its fields, or of those in `names` where there are any; `settings` are fields that the command
    sets itself. Options that name no section of the help text stand in `section`. `flags` are those of fields whose
    own the command has another use for.
    """
    typed = [it for it in fields_of(kind) if "kind" in it.metadata and it.name not in settings]
    typed = [it for it in typed if not names or it.name in names]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_record(**arguments: Any) -> Any:
            values = {it.name: arguments.pop(it.name) for it in typed}
            return command(**{argument: kind(**values, **settings)}, **arguments)

        wrapped: Callable[..., Any] = with_record
        # Decorators are applied from the inside, and click lists their options from the outside
        for it in reversed(typed):
            metadata = dict(it.metadata)
            if it.name in flags:
                metadata["flags"] = flags[it.name]
            wrapped = declared(it.name, metadata, it.default, section=section)(wrapped)
        return wrapped

    return add


def done_by(reference: str) -> Decorator:
    """Let a command that is declared here be done by a function elsewhere, named as `package.module:function`.

    Its module has its imports at its top, and is imported when the command runs; `--help` reads the declaration alone.
    """

    def replace_declaration(declaration: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(declaration)
        def work(**arguments: Any) -> Any:
            # Imported now and not above, as `--help` has to be fast and a light installation to work
            return resolve_name(reference)(**arguments)

        return work

    return replace_declaration


def command(name: str, summary: str = "", *, example: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a click command with an example at the end of its help, and a summary, by default that of `SUMMARIES`."""
    return click.command(
        name,
        cls=_Command,
        short_help=summary or SUMMARIES.get(name),
        epilog=f"\b\nExample:\n  {example}",
        context_settings={"auto_envvar_prefix": PREFIX},
    )


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; of one that is gone, say what took its place."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if (sentence := removed_command(f"{command_name(ctx)} {args[0]}")) is not None:
                raise click.UsageError(sentence, ctx) from error
            raise


seed = declared("seed", SEED, 0)
force = declared("force", FORCE)
force_reports = declared("force", FORCE_REPORTS)
force_lists = declared("force", described("Replace the files of --report and --rows if they exist.", section=GENERAL))
quiet = option(
    "--quiet",
    "-q",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, value: context.meta.update({QUIET: value}),
    help="Show no progress and no advice.",
    section=GENERAL,
)
json_progress = option(
    "--json-progress",
    is_flag=True,
    expose_value=False,
    envvar=f"{PREFIX}_JSON_PROGRESS",
    callback=lambda context, _, value: context.meta.update({JSON_PROGRESS: value}),
    help="Show progress as JSON lines on stderr, for programs; also with --quiet.",
    section=GENERAL,
    is_seldom=True,
)


def progress(command: Command) -> Command:
    """Add the options of a command that shows progress: `--quiet` and `--json-progress`."""
    return quiet(json_progress(command))


verbose = option(
    "--verbose", "-v", is_flag=True, help="Also show every arm, slice and note, after the verdict.", section=GENERAL
)
as_json = option(
    "--json",
    "as_json",
    is_flag=True,
    envvar=f"{PREFIX}_JSON",
    help="Print one JSON document instead of text.",
    section=GENERAL,
)
output = option("--output", "-o", type=PATH, required=True, help="Folder to write.")
stitch_output = option(
    "--output", "-o", type=STITCH, required=True, help="Folder to write, or a URL such as s3://BUCKET/FOLDER."
)
_ACCEPT_MARGIN = described("Repeat the value to confirm a --margin below 0.5.", "share", is_seldom=True)
accept_margin = declared("accept_margin", _ACCEPT_MARGIN, None)
dry_run = option(
    "--dry-run",
    is_flag=True,
    help="Say what would be read, embedded, paid and written; embed and write nothing.",
    section=GENERAL,
)
agreed = option("--yes", is_flag=True, help="Agree to the cost in advance, even beyond --max-cost.", section=COST)


@dataclass(frozen=True, slots=True)
class MarginOptions:
    """The retention that is to be kept, and the word that a low one is meant.

    Raises
    ------
    UsageError
        It is low, and the word was not typed.
    """

    margin: float = field(default=0.95, metadata=MARGIN)
    accept_margin: float | None = field(default=None, metadata=_ACCEPT_MARGIN)

    def __post_init__(self) -> None:
        # On the command line alone: in a file, the confirmation would stand beside the margin for good
        typed = source_of("accept_margin") is ParameterSource.COMMANDLINE
        if self.margin < LOWEST_MARGIN and not (typed and self.accept_margin == self.margin):
            origin = f" (from {self.origin})" if self.origin else ""
            raise UsageError(
                f"--margin {self.margin:g}{origin}: a store that loses {1 - self.margin:.0%} of the quality would be "
                f"SAFE; if you want that, type --accept-margin {self.margin:g} on the command line too"
            )

    @property
    def origin(self) -> str:
        """The environment variable or file that the margin is from; empty if it was typed."""
        source = source_of("margin")
        if source is ParameterSource.ENVIRONMENT:
            return f"{PREFIX}_MARGIN"
        if source is ParameterSource.DEFAULT_MAP:
            return str(click.get_current_context().meta.get(CONFIGURATION, ""))
        return ""


def source_of(name: str) -> ParameterSource | None:
    """Return where a parameter of the command that is running has its value from."""
    return click.get_current_context().get_parameter_source(name)


def _setting(kind: str) -> Any:
    """Return the field of a setting of models from the environment or a file; on the command line a SPEC has it."""

    def read(context: click.Context, param: click.Parameter, value: str | None) -> Any:
        source = context.get_parameter_source(str(param.name))
        if source is ParameterSource.COMMANDLINE:
            setting = f"{str(param.name).replace('_', '-')}={value}"
            raise click.UsageError(f"--{setting} goes into the SPEC of its model: SPEC,{setting}", context)
        if value is None:
            return None
        return click.types.convert_type(_KINDS[kind]).convert(value, param, context)

    return field(default=None, metadata=described("", "text", hidden=True, callback=read))


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

    def for_source(self) -> ModelOptions:
        """Return the options without those that belong to the target model alone."""
        return replace(self, dimensions=None, document_prefix=None, query_prefix=None)

    @property
    def cache_file(self) -> Path | None:
        """The file of the embedding cache, or None for none."""
        if self.cache == "none":
            return None
        if self.cache:
            return Path(self.cache)
        return default_cache_path()


SETTINGS = ("device", "batch_size", "concurrency", "rate", "dimensions", "document_prefix", "query_prefix")
"""Fields of `ModelOptions` that a SPEC may say."""


model_options = record(ModelOptions, argument="model", section="Models")
"""Adds the options of `ModelOptions`."""

model_options_beside_dimensions = record(
    ModelOptions, argument="model", section="Models", flags={"dimensions": ("--target-dimensions",)}
)
"""Adds them to a command that has a `--dimensions` of its own; the setting keeps its name where it is not typed."""


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


report_options = record(Outputs, argument="outputs", section="Reports")
"""Adds the options of `Outputs`."""


def verdict_options(step: type[Any]) -> Decorator:
    """Add all options of a command that ends in a verdict: those of its step, and those that such commands share."""
    shared = (record(step), agreed, accept_margin, model_options, report_options, dry_run, as_json, verbose, progress)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        # From the inside, so that the help has them in this order
        for decorator in reversed(shared):
            command = decorator(command)
        return command

    return add
