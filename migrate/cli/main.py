"""The entry point: finds the command, and turns every error into one line and an exit code."""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from migrate.cli import SECTIONS, SUMMARIES
from migrate.cli.terminal import PROGRAM, Log, as_options, close_streams, complain, open_streams
from migrate.errors import DocumentQueriesError, LeadMigrateError, UsageError
from migrate.files import WORK_FOLDER
from migrate.threads import limit_threads
from migrate.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint

EXTRAS = {
    "collections": "",
    "embed": "lab",
    "compare": "lab",
    "carry": "lab",
    "labels": "lab",
    "private": "private",
    "live": "live",
}
"""Commands that come by entry points of `lead_migrate.commands`, as others may, and the extras that install them."""

_DECLARED_IN = {"rollback": "switch", "forget": "switch"}
"""Commands that stand in the module of another, under their own name."""


class _InterruptedRun(Exception):  # noqa: N818
    """A run that Ctrl-C or SIGTERM ended; the cause says which."""


class _LazyGroup(click.Group):
    """A group that imports a command's module when it is asked for, in the order of `SUMMARIES`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys([*SUMMARIES, *_entry_points()]))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their summaries, by section and all in the same columns; those of others come last."""
        added = [name for name in self.list_commands(ctx) if name not in SUMMARIES]
        width = max(map(len, self.list_commands(ctx)))
        for title, names in {**SECTIONS, "Other": added}.items():
            # Each section alone would have a first column of its own width
            rows = [(f"{n:<{width}}", SUMMARIES.get(n) or _load(n).get_short_help_str()) for n in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; of one that is mistyped, name the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if near := get_close_matches(args[0], self.list_commands(ctx), 1):
                raise click.UsageError(f"no command is called {args[0]!r}; the nearest is {near[0]!r}", ctx) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an interruption goes past click, which would print an empty line."""
        _read_settings(ctx)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _InterruptedRun from error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in SUMMARIES or cmd_name in _entry_points():
            return _load(cmd_name)
        return None


def _read_settings(ctx: click.Context) -> None:
    """Take the defaults of the file of settings around the current folder, and name variables that nothing reads.

    Such a variable may be a misspelled option.
    """
    from migrate.cli.configuration import find_configuration, read_defaults, unknown_variables
    from migrate.cli.options import PREFIX
    from migrate.cli.project.settings import CONFIGURATION

    if any(name.startswith(f"{PREFIX}_") for name in os.environ):
        for sentence in unknown_variables(os.environ, leaf_commands().values()):
            complain(sentence)
    path = ctx.params.get("config") or find_configuration(Path.cwd())
    if path is not None:
        ctx.meta[CONFIGURATION] = path
        ctx.default_map = read_defaults(path, leaf_commands())


def leaf_commands() -> dict[str, click.Command]:
    """Every command that does something, by its name as it is typed: `fit`, `private keygen`."""
    leaves: dict[str, click.Command] = {}
    for name in cli.list_commands(click.Context(cli)):
        command = _load(name)
        if isinstance(command, click.Group):
            leaves |= {f"{name} {leaf_name}": leaf for leaf_name, leaf in command.commands.items()}
        else:
            leaves[name] = command
    return leaves


@cache
def _entry_points() -> Mapping[str, EntryPoint]:
    from migrate.plugins import installed

    return installed("lead_migrate.commands")


def _load(name: str) -> click.Command:
    if name in SUMMARIES and name not in EXTRAS:
        module = importlib.import_module(f"migrate.cli.commands.{_DECLARED_IN.get(name, name)}")
        command: click.Command = getattr(module, name)
        return command
    from migrate.plugins import load_plugin, missing_extra

    if name not in _entry_points():
        package = "lead-migrate"
        if EXTRAS[name]:
            package += f"[{EXTRAS[name]}]"
        return _unavailable(name, f"not installed: pip install '{package}'")
    point = _entry_points()[name]
    try:
        command = load_plugin(point, click.Command)
    except UsageError as error:
        return _unavailable(name, str(error))
    if (extra := missing_extra(point)) is not None:
        # It is still loaded, so that its --help can be read
        command.short_help = f"lacks a package: pip install '{extra}'"
    return command


def _unavailable(name: str, reason: str) -> click.Command:
    """A command that is listed with the reason why it cannot run, and gives it whatever it is called with."""

    def refuse() -> NoReturn:
        raise UsageError(f"{name}: {reason}")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, anything, refuse, short_help=reason, add_help_option=False)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, SAFE or compatible, 1 NOT SAFE or not compatible, 2 usage, 3 INCONCLUSIVE, "
    "4 bad input, 5 input/output, 6 locked, 7 remote service, 70 bug, 130 and 143 interrupted.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="LEAD_MIGRATE_CONFIG",
    help="File of settings.  [default: the nearest lead-migrate.toml, or pyproject.toml with [tool.lead-migrate]]",
)
@click.option(
    "--work-folder",
    type=click.Path(file_okay=False, path_type=Path),
    envvar=WORK_FOLDER,
    help="Where databases are exported or copied for reading.  [default: the user's cache folder]",
)
@click.version_option(__version__, prog_name="lead-migrate")
def cli(config: Path | None, work_folder: Path | None) -> None:  # noqa: ARG001 - the group reads `config`
    """Move a vector store to another embedding model without re-embedding it all, and test whether it is safe."""
    if work_folder is not None:
        os.environ[WORK_FOLDER] = str(work_folder.absolute())  # workers are processes, and have it too


class _Terminated(KeyboardInterrupt):
    """SIGTERM, taken like Ctrl-C so that what is complete is kept and the rest removed."""


def _on_sigterm(_number: int, _frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Let an interruption count that came while Python could not raise it, as in a finalizer."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        number = signal.SIGTERM if issubclass(unraisable.exc_type, _Terminated) else signal.SIGINT
        signal.raise_signal(number)
    else:
        sys.__unraisablehook__(unraisable)


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> NoReturn:
    """Run the command line and exit; `program` is what the user typed to start it."""
    # First of all: a file that is opened before takes the number of a stream that is missing
    open_streams()
    signal.signal(signal.SIGTERM, _on_sigterm)
    sys.unraisablehook = _raise_again
    # Registered first and so done last: while Python takes itself apart, a signal would end it without our code
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    logging.lastResort = Log(logging.WARNING)
    limit_threads()  # here, as NumPy is not loaded yet, and as this process is ours
    try:
        code = run(arguments, program=program)
    except KeyboardInterrupt as error:  # a second one, while the first was told
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = _interrupted(error)

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        os._exit(code)

    # All has been said: whoever is impatient now ends the process at once, with its code and without a traceback
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    # Before Python does it at exit, where a full disk or a closed pipe would turn the exit code into 120
    close_streams()
    sys.exit(code)


def run(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Run the command line; returns the exit code. Commands return theirs, or None for 0."""
    try:
        # Not standalone: click would print and exit by itself, with codes that are outcomes here
        code = cli.main(arguments, prog_name=program, standalone_mode=False)
    # Without arguments, click has the whole help as the message of an error
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt, _InterruptedRun) as error:
        return _interrupted(error)
    except SystemExit as error:
        # click exits with 0 after shell completion, and when the reader of our output went away with 1, which means
        # NOT SAFE here
        return 5 if error.code else 0
    except Exception as error:
        # The last resort: a user sees one line, never a traceback
        code, message = _ending(error, program)
        _complain(message)
        if isinstance(error, DocumentQueriesError):
            # Below the error, where a reader looks for what to do: the same command with other queries
            for line in getattr(error, "__notes__", ()):
                complain(line)
        # The error has been told; that CI shows it too is an extra
        with suppress(Exception):
            _annotate(sys.argv[1:] if arguments is None else arguments, code, message)
        return code
    return code if isinstance(code, int) else 0


def _ending(error: Exception, program: str) -> tuple[int, str]:
    """Return the exit code and the line of an error."""
    if isinstance(error, click.ClickException):
        if isinstance(error, click.BadParameter):
            _name_origin(error)
        context = getattr(error, "ctx", None)
        command_path = context.command_path if context else program
        return 2, f"{' '.join(error.format_message().split()).rstrip('.')}; see {command_path} --help"
    if isinstance(error, LeadMigrateError):
        return error.exit_code, str(error)
    if isinstance(error, OSError | MemoryError):
        return 5, _refusal(error)
    library = ""
    if isinstance(error, ModuleNotFoundError):
        library, _, _ = (error.name or "").partition(".")
    if library not in ("", "migrate") and not _is_installed(library):
        # A light installation, made for checks by manifest, was asked for more
        needs = "is not installed, and this needs it: install lead-migrate with all that it requires"
        return UsageError.exit_code, f"{library} {needs}"
    if os.environ.get("LEAD_MIGRATE_DEBUG"):
        traceback.print_exception(error)
    return LeadMigrateError.exit_code, (
        f"{type(error).__name__}: {' '.join(str(error).split())}; this is a bug in lead-migrate. Please report it with "
        "the command and, from a run with LEAD_MIGRATE_DEBUG=1, the traceback"
    )


def _name_origin(error: click.BadParameter) -> None:
    """Let the line of a value that was not typed name the variable or the setting that it is from."""
    from migrate.cli.options import variable_of
    from migrate.cli.project.settings import CONFIGURATION

    context = error.ctx
    param = error.param
    if context is None or param is None:
        return
    source = context.get_parameter_source(str(param.name))
    if source is ParameterSource.ENVIRONMENT:
        error.param_hint = variable_of(param)
    elif source is ParameterSource.DEFAULT_MAP:
        error.param_hint = f"{param.opts[0].lstrip('-')} in {context.meta.get(CONFIGURATION)}"


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):  # of a finder that keeps a library out
        return False


def _annotate(words: Sequence[str], code: int, message: str) -> None:
    """Show in GitHub Actions what ended a command, under the name of its store."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    name = next(word for word in words if word in SUMMARIES)
    arguments = list(words[list(words).index(name) + 1 :])
    params = _load(name).make_context(name, arguments, resilient_parsing=True).params  # whatever is wrong with them
    from migrate.cli.outputs import show_to_github
    from migrate.report.suite import failed_suite

    show_to_github(failed_suite(name, str(params.get("store") or ""), code, as_options(message)))


def _refusal(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "out of memory; free some, use a smaller batch, or take a machine with more"
    about = ""
    if error.filename:
        about = f" ({error.filename})"
    return f"the system refused: {error.strerror or error}{about}; see what holds it, and run the same command again"


def _complain(message: str) -> None:
    complain(f"lead-migrate: {message}")


def _interrupted(error: BaseException) -> int:
    # Click turns what interrupted it into an Abort
    from migrate.cli.interruption import kept_of

    cause = error.__cause__ or error
    _complain(f"interrupted; {kept_of(cause)}")
    # As shells tell of a process that a signal ended: 128 and the number of SIGTERM or SIGINT
    if isinstance(cause, _Terminated):
        return 143
    return 130
