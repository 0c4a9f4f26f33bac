"""Calls and commands in processes of their own, which may die at a point.

A server that has imported what they need forks them: most of a short run is imports.
"""

import multiprocessing
import os
import sys

from migrate.files import VARIABLE

STORES = (
    "migrate.switch",
    "migrate.sync",
    "migrate.embedders.cache",
    "faiss",
    "chromadb",
    "pyarrow",
    "psycopg",
    "apsw",
)
COMMANDS = ("migrate.cli.main", "migrate.pipeline", "faiss", "scipy.sparse", "sentence_transformers")
LEXICAL = ("migrate.cli.main", "migrate.pipeline", "faiss", "openai", "sklearn.decomposition")
"""What commands need whose models are tfidf, or behind an API."""

_CONTEXT = multiprocessing.get_context("forkserver")


def call_in_child(function, *arguments, point=None, imports=STORES):
    """What a function of a module that can be imported returns; None where the process dies at the point.

    The server is started once, and what it has imported then is what there is.
    """
    _CONTEXT.set_forkserver_preload(list(imports))
    environment = {**os.environ, **({} if point is None else {VARIABLE: point})}
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_send, args=(sender, environment, function, arguments))
    process.start()
    sender.close()
    try:
        returned = receiver.recv()
    except EOFError:
        returned = None
    process.join()
    assert process.exitcode == (0 if point is None else 137)
    return returned


def type_command(arguments, folder, environment, output):
    """Run `lead-migrate` in a folder; what it prints goes to a file. Its exit code."""
    from migrate.cli.main import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, encoding="utf-8") for number in (1, 2))
    try:
        main(arguments)
    except SystemExit as end:
        return end.code
    return 0


def start_command(arguments, folder, output, *, prelude="", environment=os.environ, imports=LEXICAL):
    """Start `lead-migrate`, after some Python, as `type_command` runs it; the process, whose exit code is its own."""
    _CONTEXT.set_forkserver_preload(list(imports))
    given = (prelude, list(map(str, arguments)), folder, dict(environment), output)
    process = _CONTEXT.Process(target=_command, args=given, daemon=True)
    process.start()
    return process


def _command(prelude, *given):
    exec(prelude, {})
    sys.exit(type_command(*given))


def _send(sender, environment, function, arguments):
    os.environ.update(environment)
    sender.send(function(*arguments))
