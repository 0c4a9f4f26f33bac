"""The next command, which runs as it is printed in the same folder: paths as they were typed, all quoted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from migrate.cli.configuration import read_migration
from migrate.cli.project.settings import CONFIGURATION, NOT_FOR, MigrationSettings
from migrate.cli.terminal import PROGRAM, advise, is_quiet
from migrate.embedders import find_model, load_embedder
from migrate.embedders.kinds import may_cost_money, runs_code, split_settings, split_spec
from migrate.errors import DocumentQueriesError
from migrate.files import cache_folder, free_path, read_file, real_path
from migrate.locations import MASK, mask_url, secrets_of
from migrate.report.characters import printable
from migrate.report.terminal import wrap
from migrate.stores import open_store
from migrate.stores.all_true import is_full_reembed, is_made_from_another
from migrate.stores.registry import absolute_location, find_exchange, path_in
from migrate.stores.switching import SwitchableStore, strangers_beside, successor_of, why_no_switch

if TYPE_CHECKING:
    from migrate.audit_report.records import Recommendation
    from migrate.manifest import ModelIdentity
    from migrate.stores.base import Store

JUDGED = "DIR"
TARGET = "SPEC"
OLD = "OLD"
STORE = "STORE"
KEYS = "KEYS"
STITCH = "STITCH"
_TO_FILL_IN = {
    JUDGED: (
        "DIR: your judged queries, a folder in BEIR format or the name of a BEIR set",
        "no judged queries? use --queries FILE or --queries synthetic instead of --judged",
    ),
    TARGET: ("SPEC: the model to move to, such as sentence-transformers:all-mpnet-base-v2",),
    OLD: ("OLD: the store that the new one was made from",),
    STORE: ("STORE: the store to move",),
    KEYS: ("KEYS: the keyring of `private keygen`",),
    STITCH: ("STITCH: a folder that `fit` wrote",),
}
"""What is the user's to fill in, and what to say of it."""

_MODEL = ("base_url", "cache")
"""Options of models, which the next command wants too."""

_PASSING = {"report", "as_json", "quiet", "json_progress", "verbose", "force", "restart"}
"""Parameters of what a command leaves behind, and of how it prints."""

_OF_QUERIES = {"judged", "queries", "split", "group_field"}
"""Parameters that say which queries judge, and what is known of them."""


def advise_next(
    command: str,
    *arguments: str | Path,
    also: Sequence[str] = (),
) -> None:
    """Print the next command: its words, and options as they were typed here: those of models, and `also`.

    Options that it does not have are left out.
    """
    context = click.get_current_context()
    root = context.find_root()
    names = {*_MODEL, *also}
    path = command.split()
    command_found: click.Command | None = root.command
    for name in path:
        if not isinstance(command_found, click.Group):
            command_found = None
            break
        command_found = command_found.get_command(root, name)
    if command_found is None:
        names = set()
    else:
        names &= {str(param.name) for param in command_found.params}
    _advise_words([*path, *map(_as_typed, arguments), *_typed(context, names)])


def _as_typed(word: str | Path) -> str:
    """Return a word as it can be typed: a path that begins like an option with its folder before it."""
    if isinstance(word, Path) and str(word).startswith("-"):
        return f"./{word}"
    return str(word)


def advise_store(word: str, store: Store, spec: str | None = None) -> None:
    """Print what comes next for a store as it is; `word` is its location, `spec` its model, as they were typed."""
    if not store.info.has_texts:
        advise(f"to give it texts: {printable(store.info.way_to_texts)}")
    elif not is_made_from_another(store):
        advise_next("assess", word, "--target", _target_of_file(word) or TARGET)
    elif not advise_switch(OLD, None, word):
        target = target_words(store.info.recorded_model, spec, beside=[word])
        advise_next("audit", word, "--reference", "pool", *judged_words(), *target)


def _migration() -> MigrationSettings | None:
    """Return what the settings file says of a migration; None without one."""
    path = click.get_current_context().meta.get(CONFIGURATION)
    if path is None:
        return None
    return read_migration(path)


def _target_of_file(word: str) -> str | None:
    """Return the model that a settings file moves this store to; None without one."""
    migration = _migration()
    if migration is None or migration.store != word:
        return None
    return migration.target


def migration_of(word: str | None, target: str | None) -> MigrationSettings | None:
    """Return what a settings file says of the migration of a store; None where it is about another one.

    `word` and `target` are the store and its new model as they were typed, `target` None where that was not.
    """
    migration = _migration()
    if migration is None or migration.store is None or migration.store != word:
        return None
    if target not in (None, migration.target):
        return None
    return migration


def full_of_file(word: str | None, target: str | None) -> str | None:
    """Return where a settings file has the full re-embed of a store, as `migration_of`; None where that is taken."""
    migration = migration_of(word, target)
    if migration is None or migration.full is None or Path(migration.full).exists():
        return None
    return migration.full


def place_of_full(word: str, target: str, store: Store) -> str | Path:
    """Return where a full re-embed can go: beside a store on its server, as a settings file says, or beside the files.

    `word` and `target` are the store and its new model as they were typed.
    """
    return successor_of(store, "full") or full_of_file(word, target) or path_beside(store, "full")


def advise_switch(old: str, opened: Store | None, new: str) -> bool:
    """Print the switch from an old store to a new one of nothing but true vectors; False where that is not one.

    `opened` is the old store, None where only the user knows it. Nothing is printed where the new one was switched.
    """
    store = open_store(new)
    if not is_full_reembed(store):
        return False
    exchange = find_exchange(absolute_location(new))
    if exchange is not None and exchange.record() is not None:
        return True
    why = None
    if opened is not None:
        why = _why_still_switched(old) or why_no_switch(opened, store)
    if isinstance(store, SwitchableStore) and why is None:
        advise_next("switch", old, new)
    elif opened is not None:
        advise(f"no switch: {why or 'stores of this kind do not trade names'}")
        advise(f"let your programs open {new} and ask by its model")
        advise_next("inspect", new)
    return True


def _why_still_switched(old: str) -> str | None:
    """Return why nothing can be switched for an old store that was, and is neither rolled back nor forgotten yet."""
    exchange = find_exchange(absolute_location(old))
    if exchange is None or exchange.record() is None:
        return None
    word = shlex.quote(old)
    return f"{old} was switched before; run `rollback {word}` or `forget {word}` first"


@contextmanager
def advise_other_queries() -> Iterator[None]:
    """Print the same command with synthetic queries where too few of those that were typed are no documents."""
    try:
        yield
    except DocumentQueriesError as error:
        if not is_quiet():  # `main` prints it behind the line of the error
            error.add_note(next_line([*typed_again(but=_OF_QUERIES), "--queries=synthetic"]))
        raise


def advise_recommendation(recommendation: Recommendation) -> None:
    """Print how to do what a report recommends: what to know, lines of Python, the command last."""
    advise_paragraph(recommendation.remark)
    if recommendation.serving:
        advise("in Python, to serve it:")
        for line in recommendation.serving:
            advise(f"  {line}")
    if recommendation.command:
        _advise_words(recommendation.command)


def advise_paragraph(text: str) -> None:
    """Print to stderr what takes several lines, unless `--quiet` was given."""
    for line in wrap(text).splitlines():
        advise(line)


def _advise_words(arguments: Sequence[str]) -> None:
    advise(next_line(_filled_in(arguments)))


def _filled_in(words: Sequence[str]) -> list[str]:
    """Return the words of a command with what is to be filled in as a settings file says it."""
    filled = list(words)
    migration = _migration()
    if migration is None:
        return filled
    judges = migration.judged or migration.queries
    if JUDGED in filled and judges and words[0] not in NOT_FOR["judged"]:
        # The command takes them from the file
        index = filled.index(JUDGED)
        del filled[index - 1 : index + 1]
    if OLD in filled and migration.store is not None and not {migration.new, migration.full}.isdisjoint(filled):
        filled[filled.index(OLD)] = migration.store
    return filled


def next_line(arguments: Sequence[str]) -> str:
    """Return the line of the next command; what is to be filled in or set for it is printed."""
    root = click.get_current_context().find_root()
    program = root.info_name or PROGRAM
    options = _typed(root, {"config", "work_folder"})
    for word in arguments:
        for line in _TO_FILL_IN.get(word, ()):
            advise(line)
    if any(secrets_of(word) for word in arguments):
        advise(
            "passwords and keys are left out: add them, or set PGPASSWORD, CHROMA_API_KEY, MILVUS_TOKEN or "
            "QDRANT_API_KEY",
        )
    return f"next: {program} {command_line([*options, *arguments])}"


def command_line(arguments: Sequence[str]) -> str:
    """Return arguments as they are typed in a shell, without the URL of a server that has a secret in it.

    What is to be set in its place is printed.
    """
    shown = [word for word in arguments if not (word.startswith("--base-url=") and MASK in word)]
    if len(shown) < len(arguments):
        advise("the URL of the server has a password or a key in it, and is left out: set OPENAI_BASE_URL to it")
    return printable(shlex.join(shown))


def typed_model() -> tuple[str, ...]:
    """The options of models as they were typed here."""
    return tuple(_typed(click.get_current_context(), {*_MODEL}))


def judged_words() -> tuple[str, ...]:
    """The judged queries, as they were typed here, or else to be filled in."""
    return tuple(_typed(click.get_current_context(), {"judged"})) or ("--judged", JUDGED)


def typed_again(*, but: Set[str] = frozenset()) -> list[str]:
    """The words of the command that is running, without what it leaves behind, how it prints, and the options `but`."""
    context = click.get_current_context()
    params = [param for param in context.command.params if param.name not in _PASSING | but]
    arguments = [str(context.params[str(param.name)]) for param in params if isinstance(param, click.Argument)]
    return [str(context.info_name), *arguments, *_typed(context, {str(param.name) for param in params})]


def _typed(context: click.Context, names: Set[str]) -> Iterator[str]:
    """The options of this command by these names; what stands in the environment is there for the next one too."""
    typed = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
    for option in context.command.params:
        # A hidden one is a setting of models, which no command line takes
        if not isinstance(option, click.Option) or option.name not in names or option.hidden:
            continue
        source = context.get_parameter_source(str(option.name))
        if source not in typed:
            continue
        flag = next(flag for flag in option.opts if flag.startswith("--"))
        value = context.params[str(option.name)]
        if option.name == "base_url" and (masked := mask_url(value)) != value:
            # A file of settings has the key still, and the next command reads it too
            if source is ParameterSource.COMMANDLINE:
                yield f"{flag}={masked}"
        elif isinstance(value, bool):
            if value:
                yield flag
        elif isinstance(value, tuple):
            yield from (f"{flag}={item}" for item in value)
        else:
            yield f"{flag}={value}"


def advise_worker(word: str, options: Sequence[str] | None = None) -> None:
    """Print the worker that gives a store its true vectors, by the options that an earlier one had.

    Nothing is printed where no worker takes its model.
    """
    model = open_store(word).info.recorded_model
    if model is None or may_not_load(model) or not load_embedder(model.spec).cacheable:
        return
    provider, name = split_spec(model.spec)
    if provider == "openai" and find_model(name, provider) is None:
        advise("a model on a server of your own: set OPENAI_BASE_URL, for these lines too")
    flags: Sequence[str | Path] = model_words("--target", model.spec) if options is None else options
    arguments: list[str | Path] = [word, *flags]
    is_limited = any(str(flag).startswith(("--yes", "--budget=")) for flag in flags)
    # Without a budget, a worker that may cost money does not start unless that was agreed to
    if may_cost_money(model.spec) and not is_limited:
        arguments.append("--yes")
    advise_next("live run", *arguments)


def model_words(flag: str, spec: str | None) -> list[str | Path]:
    """The option that names a model that no artefact is enough for: a file, a folder, code, or one with settings."""
    if spec is None:
        return []
    bare, settings = split_settings(spec)
    if settings or runs_code(spec):
        return [flag, spec]
    provider, name = split_spec(bare)
    if provider in ("file", "sentence-transformers") and name and Path(name).expanduser().exists():
        return [flag, spec]
    return []


def target_words(
    model: ModelIdentity | None, spec: str | None = None, *, beside: Sequence[Path | str] = ()
) -> list[str | Path]:
    """The `--target` of a model that its store names, and `spec` if it was typed.

    A file that is not in the current folder is looked for `beside` these locations and where `note_file` has seen it,
    and else to fill in.
    """
    if not spec and model is not None:
        spec = model.spec
    flags = model_words("--target", spec)
    if flags or model is None or not is_out_of_sight(model):
        return flags
    folders = [path.parent for location in beside if (path := path_in(str(location))) is not None]
    for path in (*(folder / str(file_of(model)) for folder in folders), _noted_file(model)):
        # It may have been moved or deleted since it was noted
        if path is not None and path.is_file():
            return ["--target", f"file:{path}"]
    advise(f"file:PATH: where {file_of(model)} is, which is not in this folder")
    return ["--target", "file:PATH"]


def note_file(model: ModelIdentity, spec: str) -> None:
    """Note in the user's cache folder where the file of a model lies, as its artefacts keep the name alone."""
    if file_of(model) is None:
        return
    path = Path(split_settings(spec)[0].removeprefix("file:")).expanduser().absolute()
    note = _file_note(model)
    with suppress(OSError):  # without a cache it is to be filled in
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(str(path), encoding="utf-8")


def _noted_file(model: ModelIdentity) -> Path | None:
    """Return where the file of a model was, as seen from the current folder; None where it is not known."""
    with suppress(OSError, UnicodeDecodeError):
        path = Path(read_file(_file_note(model)).decode())
        if path.is_relative_to(Path.cwd()):
            return path.relative_to(Path.cwd())
        return path
    return None


def _file_note(model: ModelIdentity) -> Path:
    # By the hash of the file: two files of one name are two models
    return cache_folder() / "files" / f"{model.revision}.txt"


def is_out_of_sight(model: ModelIdentity | None) -> bool:
    """Return True for a file of vectors that is not in the current folder, where its name alone would find it."""
    if model is None:
        return False
    name = file_of(model)
    return name is not None and not Path(name).is_file()


def file_of(model: ModelIdentity) -> str | None:
    """The file of vectors that a model is, as its artefacts name it; None for any other model."""
    kind, name = split_spec(model.spec)
    if kind != "file":
        return None
    return name


def may_not_load(model: ModelIdentity) -> bool:
    """Return True if a model may be a file or folder that is not here; artefacts remember its name alone."""
    provider, name = split_spec(model.spec)
    is_folder = provider == "sentence-transformers" and "/" not in name and find_model(name) is None
    return is_out_of_sight(model) or runs_code(model.spec) or (is_folder and not Path(name).is_dir())


def name_of(store: Store) -> str:
    """A name for what is made of a store: that of its file or folder without an ending, or what a URI has instead."""
    location = store.info.location
    path = path_in(location)
    if path is None:
        return _as_file_name(store.info.name)
    name = path.absolute().stem
    # The name of a folder may have a # too
    if "#" in location and path != Path(location):
        _, _, after_path = location.rpartition("#")
        table, _, _ = after_path.partition("?")
        name = "-".join(filter(None, (name, _as_file_name(table))))
    return name


def _as_file_name(name: str) -> str:
    # A dash at its start would make an option of it
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


def warn_of_place(store: Store, output: Path) -> bool:
    """Say before anything is embedded that an output inside the store's own folder cannot take its place.

    Return whether an output beside that folder could.
    """
    path = path_in(store.info.location)
    if path is None or not isinstance(store, SwitchableStore):
        return False
    folder = path
    if path.is_file():
        folder = path.parent
    if real_path(folder) not in real_path(output).parents:
        return False
    strangers = strangers_beside(store)
    note = f"note: {output} lies in the folder of the old store"
    if strangers:
        # Wherever the output is, a switch would take these along with the old store
        named = printable(", ".join(strangers[:3]))
        own_folder = free_path(folder / f"{name_of(store)}-store")
        advise(
            f"{note}, beside other files ({named}), so `switch` cannot exchange the two; if you want to switch later, "
            f"first move the store into a folder of its own, such as {own_folder}, and name it there"
        )
        return False
    advise(
        f"{note}, so `switch` cannot exchange the two; an output beside that folder can be switched, such as "
        f"-o {path_beside(store, 'new')}",
    )
    return True


def path_beside(store: Store, ending: str) -> Path:
    """A free path beside a store, or in the current folder where the store is not in one, with a name after it.

    It is beside the folder of a file that has one to itself: `switch` lets whole folders trade places.
    """
    path = path_in(store.info.location)
    name = f"{name_of(store)}-{ending}"
    if path is None:
        return free_path(Path(name))
    if path.is_file() and not strangers_beside(store):
        folder = path.parent
        # `.` and `..` have no name whose parent would be the folder above
        if folder.name in ("", ".."):
            return free_path(folder / ".." / name)
        return free_path(folder.parent / name)
    if path.name in ("", ".."):
        path = path.absolute()
    return free_path(path.with_name(name))
