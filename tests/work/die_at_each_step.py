"""Lets runs die at each failpoint in turn, goes on, and prints as JSON how often that was, and what went wrong.

Run by `test_kills.py` in a process of its own: it forks, and pytest's process has threads.
"""

import json
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

# What the runs import, once for all of them.
import faiss  # noqa: F401
import numpy.ma  # noqa: F401
import scipy.sparse  # noqa: F401
from survive import run_child
from victims import digest, job_of, make_parts_small, prepare

from migrate.files import VARIABLE
from migrate.work.outputs import POINTS


def dying(job, output, point, visit):
    os.environ[VARIABLE] = f"{point}:{visit}"
    return job(output)


def wrong_after(point, output, job, expected, old):
    """What is not as it should be after a death at `point`, and after the run that goes on."""
    found = digest(output) if output.is_dir() else None
    if found not in (old, expected) and not (found is None and point == "aside"):
        yield f"{point}: {found} under the final name"
    if not run_child(partial(job, output)):
        yield f"{point}: did not get through"
    if digest(output) != expected:
        yield f"{point}: other bytes"
    if output.with_name(".output.work").exists():
        yield f"{point}: the work folder is still there"


def main(kind, rows):
    make_parts_small()
    deaths, wrong = {}, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output, expected_at = folder / "output", folder / "expected"
        run_child(partial(prepare, kind, folder, rows))
        job = job_of(kind, folder, rows, force=True)
        run_child(partial(job, expected_at))
        expected = digest(expected_at)
        for point in POINTS:
            visit = 1
            while True:
                shutil.rmtree(output, ignore_errors=True)
                output.mkdir()
                (output / "older").write_text("what --force replaces")
                old = digest(output)
                if run_child(partial(dying, job, output, point, visit)):
                    break
                wrong += wrong_after(point, output, job, expected, old)
                visit += 1
            deaths[point] = visit - 1
    print(json.dumps({"deaths": deaths, "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
