"""Runs commands from a file of JSON lines one after the other, each in a process of its own that the kernel limits.

    python limited_runs.py COMMANDS LIMIT_BYTES LIMIT_SECONDS

Writes a JSON line of (exit code, stdout, stderr) for each. A crash is a negative code; so is a hang, within C too.
"""

import json
import os
import resource
import sys
import tempfile
from pathlib import Path

import migrate.cli.fit
import migrate.cli.inspect  # noqa: F401 - see below
from migrate.cli.main import run

# All that the commands import is imported above, once rather than in each process, where it would count as theirs.


def limited(arguments, memory, seconds):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, mapped + memory))
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = run(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return os.waitstatus_to_exitcode(status), *texts


if __name__ == "__main__":
    for line in Path(sys.argv[1]).read_text().splitlines():
        outcome = limited(json.loads(line), int(sys.argv[2]), int(sys.argv[3]))
        print(json.dumps(outcome), flush=True)
