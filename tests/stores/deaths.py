"""Calls in processes of their own, which may die at a point.

A server that has imported what they need forks them: most of a short run is imports.
"""

import multiprocessing
import os

from migrate.files import VARIABLE

_CONTEXT = multiprocessing.get_context("forkserver")
_IMPORTED = ["migrate.switch", "migrate.sync", "migrate.translate", "migrate.embedders.cache", "faiss", "chromadb",
             "pyarrow", "psycopg", "apsw", "scipy.sparse"]  # fmt: skip


def call_in_child(function, *arguments, point=None):
    """What a function of a module that can be imported returns; None where the process dies at the point."""
    _CONTEXT.set_forkserver_preload(_IMPORTED)
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


def _send(sender, environment, function, arguments):
    os.environ.update(environment)
    sender.send(function(*arguments))
