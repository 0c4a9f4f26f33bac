"""Hostile documents through the command line: one line and exit code 4, in little memory and time, for each."""

import json
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
from hostile_pickles import HOSTILE

MEMORY = 512 << 20
SECONDS = 30


def commands(store, folder):
    return ["inspect", str(store)], ["fit", str(store), "--target", "tfidf:8", "-o", str(folder / "out"), "-q"]


def play(stores, folder):
    """The outcomes of `inspect` and `fit` on each store, by name."""
    lines = [json.dumps(command) for store in stores.values() for command in commands(store, folder)]
    (folder / "commands").write_text("\n".join(lines))
    script = Path(__file__).with_name("limited_runs.py")
    arguments = [folder / "commands", str(MEMORY), str(SECONDS)]
    done = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=True, timeout=SECONDS * len(lines)
    )
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) == len(lines)
    return {name: outcomes[2 * place : 2 * place + 2] for place, name in enumerate(stores)}


def save_index(path, count=1):
    index = faiss.IndexFlatL2(4)
    index.add(np.ones((count, 4), np.float32))
    faiss.write_index(index, str(path))


def assert_refused(outcomes, says):
    for code, out, err in outcomes:
        assert (code, out) == (4, ""), err
        assert err.startswith("lead-migrate: ")
        assert err.count("\n") == 1
        assert len(err) < 1_000
        assert says in err


@pytest.fixture(scope="module")
def of_pickles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pickles")
    stores = {}
    for place, (name, (content, _)) in enumerate(HOSTILE.items()):
        stores[name] = folder / str(place)
        stores[name].mkdir()
        save_index(stores[name] / "index.faiss")
        (stores[name] / "index.pkl").write_bytes(content)
    return play(stores, folder)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused(name, of_pickles):
    assert_refused(of_pickles[name], HOSTILE[name][1])
