"""Lets runs die after each step on the disk in turn, and go on; prints as JSON how often, and what went wrong.

    python die_at_each_step.py KIND:ROWS:STRIDE ...

Run by `test_kills.py` in a process of its own: it forks, and pytest's process has threads.
"""

import json
import shutil
import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[2] / name) for name in ("benchmarks", "tests/faults"))

# What the runs import, once for all of them.
import faiss  # noqa: F401
import numpy.ma  # noqa: F401
import scipy.sparse  # noqa: F401
from dying import die_at_step
from survive import run_child
from victims import digest, job_of, make_parts_small, prepare


def dying(job, output, step):
    die_at_step(step)
    return job(output)


def wrong_after(step, output, job, expected, old):
    """What is not as it should be after a death, and after the run that goes on."""
    if digest(output) not in (old, expected):
        yield f"{step}: half an output under the final name"
    if not run_child(partial(job, output)):
        yield f"{step}: did not get through"
    if digest(output) != expected:
        yield f"{step}: other bytes"
    if output.with_name(".output.work").exists():
        yield f"{step}: the work folder is still there"


def die_and_go_on(kind, rows, stride):
    """How often runs of a kind died, and what went wrong."""
    deaths, wrong = 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output, expected_at = folder / "output", folder / "expected"
        run_child(partial(prepare, kind, folder, rows))
        job = job_of(kind, folder, rows, force=True)
        run_child(partial(job, expected_at))
        expected = digest(expected_at)
        for step in count(1, stride):
            shutil.rmtree(output, ignore_errors=True)
            output.mkdir()
            (output / "older").write_text("what --force replaces")
            old = digest(output)
            if run_child(partial(dying, job, output, step)):
                break
            wrong += wrong_after(step, output, job, expected, old)
            deaths += 1
    return {"deaths": deaths, "wrong": wrong}


def main(given):
    make_parts_small()
    asked = [words.split(":") for words in given]
    print(json.dumps({kind: die_and_go_on(kind, int(rows), int(stride)) for kind, rows, stride in asked}))


if __name__ == "__main__":
    main(sys.argv[1:])
