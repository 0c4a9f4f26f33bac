"""Calls and commands in processes of their own, which may die at a point.

A server that has imported what they need forks them: most of a short run is imports.
"""

import multiprocessing
import os
import resource
import runpy
import sys
import traceback

from dying import STATUS, die_at

IMPORTED = (
    "migrate.cli.main",
    "migrate.cli.translate",
    "migrate.databases",  # of which `dying` wraps the methods
    "migrate.steps.fit.job",
    "migrate.live.langchain",
    "migrate.live.worker",
    "migrate.pipeline.job",
    "migrate.steps.switch.job",
    "migrate.steps.sync.job",
    "apsw",
    "chromadb",
    "faiss",
    "lance_namespace_urllib3_client",  # most of what lancedb imports; lancedb itself starts a thread
    "langchain_community.vectorstores.faiss",
    "openai",
    "psycopg",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pytest",
    "qdrant_client",
    "s3fs",
    "scipy.sparse",
    "sklearn.decomposition",
)
DEADLINE_S = 200
"""A child that takes longer hangs; pytest's own limit, which comes later, would not say which it was."""
_CONTEXT = multiprocessing.get_context("forkserver")


def start_child(function, *arguments, point=None):
    """A process that calls a function of a module that can be imported, and where to receive what it returns."""
    _CONTEXT.set_forkserver_preload(list(IMPORTED))
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_send, args=(sender, dict(os.environ), point, function, arguments))
    process.start()
    sender.close()
    return process, receiver


def call_in_child(function, *arguments, point=None):
    """What a function of a module that can be imported returns; None where the process dies at the point."""
    process, receiver = start_child(function, *arguments, point=point)
    with receiver:
        try:
            if not receiver.poll(DEADLINE_S):
                process.kill()
                raise AssertionError(f"{function.__name__}{arguments} did not end within {DEADLINE_S} s")
            returned = receiver.recv()
        except EOFError:
            returned = None
    process.join(DEADLINE_S)
    assert process.exitcode == (0 if point is None else STATUS)
    return returned


def run_command(arguments, folder, point=None):
    """The exit code of `lead-migrate` in a folder, None where it dies at the point, and what it prints."""
    output = folder / "printed"
    output.unlink(missing_ok=True)
    code = call_in_child(type_command, arguments, folder, dict(os.environ), output, point=point)
    return code, output.read_text("utf-8")


def type_command(arguments, folder, environment, output, largest=None, errors=None):
    """Run `lead-migrate` in a folder; what it prints goes to a file, its errors to another if so named. Its exit code.

    It may write no file of more than `largest` bytes.
    """
    from migrate.cli.main import main

    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    _print_to(output, errors or output)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    try:
        main(arguments)
    except SystemExit as end:
        return end.code
    return 0


def start_command(arguments, folder, output, *, prelude="", environment=os.environ, errors=None):
    """Start `lead-migrate`, after some Python, as `type_command` runs it; the process, whose exit code is its own."""
    output.unlink(missing_ok=True)
    _CONTEXT.set_forkserver_preload(list(IMPORTED))
    given = (prelude, list(map(str, arguments)), folder, dict(environment), output, None, errors)
    process = _CONTEXT.Process(target=_command, args=given, daemon=True)
    process.start()
    return process


def _command(prelude, *given):
    exec(prelude, {})
    sys.exit(type_command(*given))


def run_script(path, arguments, output, errors):
    """Run a program in Python as if it were typed; what it prints goes to files. Whether it came to its end."""
    _print_to(output, errors)
    sys.argv[:] = [str(path), *arguments]
    sys.path.insert(0, str(path.parent))
    try:
        runpy.run_path(str(path), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return False
    return True


def _print_to(output, errors):
    for number, path in ((1, output), (2, errors)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, encoding="utf-8") for number in (1, 2))


def _send(sender, environment, point, function, arguments):
    os.environ.update(environment)
    if point is not None:
        die_at(point)
    sender.send(function(*arguments))
