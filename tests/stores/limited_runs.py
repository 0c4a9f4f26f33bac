"""Runs commands from a file of JSON lines one after the other, in this process, which limits itself.

    python limited_runs.py COMMANDS LIMIT_BYTES LIMIT_SECONDS

Writes a JSON line of (exit code, stdout, stderr) for each. A command that crashes or hangs, within C too, ends it.
"""

import json
import resource
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import migrate.cli.fit
import migrate.cli.inspect  # noqa: F401 - see below
from migrate.cli.main import run
from migrate.stores.documents import langchain

# All that the commands import is imported above, where it does not count as theirs.

CPU_S = 1
"""What an endless pickle costs is a matter of the limit alone."""


def limit(memory, seconds):
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, mapped + memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def outcome(arguments):
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    langchain._SPARE_CPU_S = CPU_S
    limit(int(sys.argv[2]), int(sys.argv[3]))
    for line in Path(sys.argv[1]).read_text().splitlines():
        print(json.dumps(outcome(json.loads(line))), flush=True)
