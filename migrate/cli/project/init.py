"""`lead-migrate init`: looks into a store, asks for what it does not say, and writes the file of the migration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from migrate.cli.commands.init import InitOptions
from migrate.cli.configuration import NAME, find_configuration
from migrate.cli.next_step import advise_next, may_not_load, warn_of_place
from migrate.cli.project.settings import FILE
from migrate.cli.project.status import same_model
from migrate.cli.terminal import PROGRAM, advise, show
from migrate.datasets.download import BEIR_MD5
from migrate.embedders import special_options
from migrate.embedders.kinds import parse_spec, split_settings, with_settings
from migrate.errors import StoreError, UsageError
from migrate.files import atomic_file, refuse_overlap, write_bytes
from migrate.manifest import refuse_artefact
from migrate.report.characters import printable
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.registry import is_recognised, path_in, stores_in

_OPTIONS = """
# What `run` and `audit` have to keep of a full re-embed's quality, and by which arm:
# margin = 0.95
# plan = "translated"
"""


def command(request: InitOptions) -> None:
    """Write the file of a migration."""
    path = Path(FILE)
    _refuse_existing(path, force=request.force)
    if request.judged is not None and request.queries is not None:
        raise UsageError("--judged and --queries: a migration is judged by one of them; leave the other out")
    store = _open(request.store)
    answers = _asked(replace(request, source_model=request.source_model or _recorded_spec(store)), store)
    _check(answers, store)
    refuse_artefact(Path(answers.output))
    refuse_overlap(Path(answers.output), *filter(None, [path_in(answers.store)]))
    values = {
        "store": answers.store,
        "source-model": answers.source_model,
        "target": answers.target,
        "judged": answers.judged,
        "queries": answers.queries,
        "output": str(answers.output),
    }
    with atomic_file(path, force=request.force) as unfinished:
        write_bytes(unfinished, _toml(values).encode())
    show(f"{path} written: {_in_words(store)}")
    # With the file written, which keeps a store beside it from having a folder to itself
    warn_of_place(store, Path(answers.output))
    if not store.info.has_texts:
        advise(f"to give it texts: {printable(store.info.way_to_texts)}")
    if answers.source_model is None and store.info.recorded_model is None:
        advise("no source-model: the audit cannot say whether staying would be better, and `check` needs --model")
    advise_next("run")


def _refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write over a file, or beside the settings of a project, which one of the two would hide."""
    shared = Path(NAME)
    if shared.is_file() and find_configuration(Path.cwd()) == shared.absolute():
        raise UsageError(f"{shared}: this project has its settings in [tool.lead-migrate]; add the keys there")
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path}: this is there already; replace it with --force, or run `{PROGRAM} status`")
    above = find_configuration(Path.cwd().parent)
    if above is not None:
        advise(f"note: in this folder, {path} takes the place of {os.path.relpath(above)}")


def _open(location: str) -> Store:
    """Open the store; of a place with several, name them; of one, say what is wrong with that."""
    try:
        return open_store(location)
    except (StoreError, UsageError):
        path = path_in(location)
        several = [] if path is None or "#" in location else stores_in(path)
        # What a kind says of a folder that is its own tells more than the names of files in it
        if not several or (path is not None and is_recognised(path)):
            raise
    if len(several) == 1:
        return open_store(several[0])
    raise UsageError(f"{location}: there are several stores here; name one of {', '.join(several)}")


def _recorded_spec(store: Store) -> str | None:
    """Return the model that a store names, None where that is a file or code, which only the user can name."""
    model = store.info.recorded_model
    if model is None or may_not_load(model):
        return None
    return with_settings(model.spec, special_options(model))


def _asked(request: InitOptions, store: Store) -> InitOptions:
    """Return the request with what is missing, as the user answers; without a terminal that is refused."""
    has_queries = request.judged is not None or request.queries is not None
    if not sys.stdin.isatty():
        missing = []
        if request.target is None:
            missing.append("--target SPEC")
        if not has_queries:
            missing.append("--judged DIR or --queries FILE|synthetic")
        if missing:
            raise UsageError(f"there is no terminal to ask in; give {', and '.join(missing)}")
        return request
    click.echo(f"{_in_words(store)}", err=True)
    if request.source_model is None:
        answer = _prompt("Model that it was built with, or Enter if nobody knows", default="")
        request = replace(request, source_model=answer or None)
    if request.target is None:
        request = replace(request, target=_prompt("Model to move to, such as openai:text-embedding-3-small"))
    if not has_queries:
        answer = _prompt("Judged queries (a BEIR folder), or a file of queries, or synthetic", default="synthetic")
        if answer == "synthetic" or Path(answer).is_file():
            request = replace(request, queries=answer)
        else:
            request = replace(request, judged=answer)
    return request


def _prompt(text: str, default: str | None = None) -> str:
    answer: str = click.prompt(text, default=default, show_default=bool(default), err=True)
    return answer.strip()


def _check(answers: InitOptions, store: Store) -> None:
    """Refuse what the next command would refuse: a model of no kind, the store's own, queries that are not there."""
    for option, spec in (("--target", answers.target), ("--source-model", answers.source_model)):
        if spec is None:
            continue
        kind, file_name = parse_spec(split_settings(spec)[0])
        if kind == "file" and not Path(file_name).expanduser().is_file():
            raise UsageError(f"{option} {spec}: there is no such file; check the path")
    if store.info.recorded_model is not None and same_model(answers.target, store.info.recorded_model):
        raise UsageError(f"{answers.store}: this is of {answers.target} already; name another target")
    for option, name in (("--judged", answers.judged), ("--queries", answers.queries)):
        if name is None or name == "synthetic" or Path(name).exists():
            continue
        bare, _, _ = name.rpartition(":")
        is_set = option == "--judged" and (name in BEIR_MD5 or bare in BEIR_MD5 or (bare and Path(bare).is_dir()))
        if not is_set:
            raise UsageError(f"{option} {name}: there is no such file or folder; check the path")


def _toml(values: Mapping[str, str | None]) -> str:
    """Return the file; a JSON text is one of TOML too, but for a character that TOML wants escaped."""
    lines = ["# The migration that lead-migrate follows without arguments; paths are relative to this file."]
    for key, value in values.items():
        if value is not None:
            quoted = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.append(f"{key} = {quoted}")
    return "\n".join(lines) + "\n" + _OPTIONS


def _in_words(store: Store) -> str:
    info = store.info
    texts = "with texts" if info.has_texts else "without texts"
    model = "of a model that it does not name"
    if info.recorded_model is not None:
        model = f"of {info.recorded_model.spec}"
    location = printable(info.location)
    return f"{location}, {info.kind}, {info.count:,} vectors of {info.dim:,} dimensions {model}, {texts}"
