"""Breaks the code in small ways and counts the breaks that no test notices.

    pip install cosmic-ray
    python benchmarks/mutants.py [--each 40] [--seed 0] [--processes 2] [ROOM ...]

From each room in which a mistake could end in a wrong SAFE or in lost vectors, some of all mutants that Cosmic Ray
makes (another operator, number, comparison or keyword, a condition turned round, ...) are drawn at random; each is put
into a copy of the tree, and the room's tests run until one fails. Prints a Markdown table, and the change of each
mutant that survived. Left out are mutants that mean the same, as annotations are never evaluated here and a decorator
such as `cached_property` or `property` only saves work or fails at once, and those that any test would notice: an
operator of bits, which fails on all but whole numbers, and what does not compile.

Of `--each 30 --seed 0` these survive, and nothing wrong comes of them:

- again.py: strict=False where pairs are taken apart: pairs have two parts
- reference_proof.py: another default seed of prove_pool: whoever calls it gives one
- choosers.py: or where both vectors must have a number other than 0: zeros equal no other vector, and two of them say
  nothing
- choosers.py: > SAME for >= SAME: no cosine is 0.999 to the last bit
- choosers.py: five units in the last place for four: both are rounding
- jobs.py: 1,023 threads that wait for workers: more than there are workers
- shards.py: a first row that is 0 or less: no row is below 0
- switching.py: > FORGOTTEN for !=, < for <= of the tokens: of three goals it is the first by letters; the spare path
  adds a token, or none
- pool.py: >= for == of documents and count: a pool has no more documents than the store
- pool.py: an empty band takes the errors of another neighbour: of a covered band only the rest of one bin is left
- outside.py: more bins than need be are summed, or the grid has a point less: they add next to nothing
- outside.py: the count at another end of the grid: what it is multiplied by is 0 there
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import apply_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB

_LIBRARIES = (
    "faiss",
    "jsonschema",
    "pytest",
    "scipy.sparse",
    "scipy.stats",
    "sklearn.decomposition",
    "statsmodels.api",
)
"""Imported once: the processes that run tests are forked from one that has them."""

_LEFT_OUT = re.compile(r"core/(RemoveDecorator|ReplaceBinaryOperator_(BitOr_.*|.*_(Bit\w+|[LR]Shift)))")


@dataclass(frozen=True)
class Room:
    """Modules of the package that are broken, and the quickest tests, below `tests`, that are to notice it.

    The tests are named in the words of pytest.
    """

    modules: tuple[str, ...]
    tests: str


_ROOMS = {
    "verdict": Room(
        (
            "audit/bounds.py",
            "audit/bootstrap.py",
            "audit/verdict.py",
            "audit/rules.py",
            "audit/unjudged.py",
            "audit/query_groups.py",
        ),
        "audit/test_verdict.py audit/test_bounds.py audit/test_power.py"
        " audit/test_query_groups.py audit/test_statistics.py"
        " audit/test_pool.py::test_a_floor_widens_the_upper_bound_only_and_one_of_shares_the_lower"
        " audit/test_unjudged.py audit/test_audit.py"
        " -k 'not (seldom_called or by_a_pool or run_takes or audit_of or command or synthetic)'",
    ),
    "pool": Room(
        ("audit/pool.py", "audit/outside.py"),
        "audit/test_pool.py -k 'floor or tail or every_band or alone or share_that or grid or last_documents_took"
        " or chunks_of_the_first or first_step or deepens or bought or few_documents or deeper or as_deep or asked_for"
        " or (refused and not verdict)'",
    ),
    "proof of the reference": Room(
        ("audit/reference_proof.py", "check/already.py", "selection/model_match.py"),
        "selection/test_model_match.py check/test_already.py audit/test_reference_proof.py"
        " -k 'not (next_to_nothing or shorter_codes)'",
    ),
    "who may judge": Room(
        ("audit/held_out.py", "selection/choosers.py"),
        "audit/test_held_out.py audit/test_choosers.py"
        " -k 'not (version_before or built_for or held_out_judge or second_round)'",
    ),
    "shards": Room(
        ("work/shards.py", "work/outputs.py", "work/jobs.py", "work/remote.py"),
        "work/test_shards.py work/test_outputs.py work/test_remote.py -k 'not (stitch or url_of_no_kind)'",
    ),
    "switch": Room(
        ("stores/switching.py",),
        "stores/test_switch.py -k '(folder or half_switched or found_by or can_be or storage or model_of or"
        " metadata or other_ids or half_forgotten_is_neither or note_of)"
        " and not (folders-False or forgotten_by or several or function)'",
    ),
}


def main() -> int:
    """Run the mutants and print what survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(_ROOMS)}; all where none is named")
    parser.add_argument("--each", type=int, default=40, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, help="mutants that are tried at once")
    arguments = parser.parse_args()
    for name in set(arguments.rooms) - _ROOMS.keys():
        parser.error(f"{name!r} is no room; name some of {', '.join(_ROOMS)}")
    chosen = {name: room for name, room in _ROOMS.items() if name in arguments.rooms or not arguments.rooms}
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    multiprocessing.get_context("forkserver").set_forkserver_preload(["__main__", *_LIBRARIES])
    survivors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(arguments.processes):
            copies.put(_copied(Path(folder) / str(number)))
        print(
            "| room | mutants in all | tried | noticed | score | minutes |\n|---|---:|---:|---:|---:|---:|", flush=True
        )
        for name, room in chosen.items():
            survivors += _try_room(name, room, copies, arguments.each, arguments.seed)
    print("\n".join(["\nSurvivors\n", *survivors]))
    return 0


def _copied(folder: Path) -> Path:
    """Return a copy of the files that git knows, ready to be tested."""
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=True).stdout.split(b"\0")
    for name in map(os.fsdecode, filter(None, listed)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(Path(name).read_bytes())
    subprocess.run(
        [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "egg_info"], cwd=folder, check=True
    )
    return folder


def _try_room(name: str, room: Room, copies: SimpleQueue[Path], each: int, seed: int) -> list[str]:
    """Try some mutants of a room, print its row, and return the changes that no test noticed."""
    started = time.monotonic()
    folder = copies.get()
    tests = [f"tests/{word}" if ".py" in word else word for word in shlex.split(room.tests)]
    has_passed, printed = _pass(folder, tests, timeout=1_800)
    copies.put(folder)
    if not has_passed:
        raise SystemExit(f"{name}: its tests fail without a mutant:\n{printed[-2000:]}")
    timeout = 60 + 4 * (time.monotonic() - started)  # a mutant that loops for ever is noticed
    count, drawn = _mutants(folder, room, each, seed)

    def attempt(mutant: Mutant) -> bool:
        folder = copies.get()
        path = folder / mutant.module
        original = path.read_text("utf-8")
        compiled = Path(cache_from_source(str(path)))
        try:
            path.write_text(mutant.code, "utf-8")
            compiled.unlink(missing_ok=True)  # it might be as large and as old as this one's
            is_noticed = not _pass(folder, tests, timeout)[0]
            print("noticed " if is_noticed else "survived", mutant.change, file=sys.stderr, flush=True)
            return is_noticed
        finally:
            path.write_text(original, "utf-8")
            compiled.unlink(missing_ok=True)
            copies.put(folder)

    with ThreadPoolExecutor(max(1, copies.qsize())) as pool:
        noticed = list(pool.map(attempt, drawn))
    score = sum(noticed) / len(drawn)
    minutes = (time.monotonic() - started) / 60
    print(f"| {name} | {count:,} | {len(drawn)} | {sum(noticed)} | {score:.0%} | {minutes:.0f} |", flush=True)
    return [mutant.change for mutant, is_noticed in zip(drawn, noticed, strict=True) if not is_noticed]


@dataclass(frozen=True)
class Mutant:
    """A module with one change: its text, and the change as a diff."""

    module: str
    code: str
    change: str


def _mutants(folder: Path, room: Room, each: int, seed: int) -> tuple[int, list[Mutant]]:
    """Return how many mutants the modules of a room have, and some of them, drawn at random."""
    with tempfile.TemporaryDirectory() as scratch:
        work = WorkDB(f"{scratch}/mutants.sqlite", WorkDB.Mode.create)
        init([folder / "migrate" / module for module in room.modules], work, {})
        mutations = [mutation for item in work.work_items for mutation in item.mutations]
        work.close()
    mutations = [mutation for mutation in mutations if not _LEFT_OUT.fullmatch(mutation.operator_name)]
    mutations.sort(key=lambda mutation: (str(mutation.module_path), mutation.operator_name, mutation.occurrence))
    mutants: list[Mutant] = []
    for mutation in random.Random(seed).sample(mutations, len(mutations)):
        if len(mutants) == each:
            break
        path = Path(mutation.module_path)
        before, after = apply_mutation(path, get_operator(mutation.operator_name)(), mutation.occurrence)
        path.write_text(before, "utf-8")
        module = str(path.relative_to(folder))
        with contextlib.suppress(SyntaxError):
            compile(after, module, "exec")
            mutants.append(Mutant(module, after, _change(module, before, after)))
    return len(mutations), mutants


def _change(module: str, before: str, after: str) -> str:
    """Return the first line that differs, as it was and as it is."""
    lines = zip(before.splitlines(), after.splitlines(), strict=False)
    number, old, new = next((number, old, new) for number, (old, new) in enumerate(lines, 1) if old != new)
    return f"- {module}:{number} `{old.strip()}` -> `{new.strip()}`"


def _pass(folder: Path, tests: list[str], timeout: float) -> tuple[bool, str]:
    """Return whether tests pass in a copy of the tree within some seconds, and what they print."""
    output = folder / "printed.txt"
    process = multiprocessing.get_context("forkserver").Process(target=_test, args=(folder, tests, output))
    process.start()
    process.join(timeout)
    with contextlib.suppress(ProcessLookupError):  # what it has started may have outlived it, or it is too slow
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return process.exitcode == 0, output.read_text("utf-8", "replace")


def _test(folder: Path, tests: list[str], output: Path) -> None:
    """Run tests in this process, by the code of a copy of the tree, and exit as pytest does."""
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(folder)
    os.environ.update(PYTHONPATH=str(folder), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    sys.path.insert(0, str(folder))
    import pytest

    sys.exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-p", "xdist", *tests])))


if __name__ == "__main__":
    sys.exit(main())
