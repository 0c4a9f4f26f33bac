"""Hostile documents through the command line: one line and exit code 4, in little memory and time, for each."""

import json
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
from hostile_pickles import HOSTILE, ODD

from migrate.stores import open_store

pytestmark = pytest.mark.slow

MEMORY = 512 << 20
SECONDS = 60
"""Of all commands together, on one core."""


def play(stores, folder):
    """The outcomes of `inspect` on each store, and of `fit` on every tenth, by name."""
    commands = [(name, ["inspect", str(store)]) for name, store in stores.items()]
    for name, store in list(stores.items())[::10]:
        commands.append((name, ["fit", str(store), "--target", "tfidf:8", "-o", str(folder / "out"), "-q"]))
    (folder / "commands").write_text("\n".join(json.dumps(command) for _, command in commands))
    script = Path(__file__).with_name("limited_runs.py")
    arguments = [sys.executable, script, folder / "commands", str(MEMORY), str(SECONDS)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == len(commands), f"{commands[len(lines)]} ended it with {done.returncode}: {done.stderr}"
    outcomes = {name: [] for name in stores}
    for (name, _), line in zip(commands, lines, strict=True):
        outcomes[name].append(json.loads(line))
    return outcomes


def save_index(path, count=1):
    index = faiss.IndexFlatL2(4)
    index.add(np.ones((count, 4), np.float32))
    faiss.write_index(index, str(path))


def assert_refused(outcomes, says):
    assert outcomes
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


@pytest.mark.parametrize("name", ODD)
def test_an_odd_pickle_is_read(name, tmp_path):
    content, value = ODD[name]
    save_index(tmp_path / "index.faiss")
    (tmp_path / "index.pkl").write_bytes(content)
    (document,) = open_store(tmp_path).documents()
    assert document.metadata == {"field": value}


DEEP = "[" * 200_000
DIGITS = "9" * 5_000
SPOILT = {"nested": DEEP + "]" * 200_000, "cut": DEEP, "digits": DIGITS, "half a character": '"\\ud800"'}


def docs_jsonl(folder, value):
    save_index(folder / "index.faiss")
    (folder / "docs.jsonl").write_text(f'{{"id": "a", "text": "t", "metadata": {{"field": {value}}}}}\n')


def llamaindex(folder, value, place="metadata"):
    save_index(folder / "default__vector_store.json")
    values = {"metadata": "{}", "row": '"a"'} | {place: value}
    node = f'{{"__data__": {{"id_": "a", "text": "t", "metadata": {values["metadata"]}}}}}'
    (folder / "docstore.json").write_text(f'{{"docstore/data": {{"a": {node}}}}}')
    rows = f'{{"nodes_dict": {{"0": {values["row"]}}}}}'
    index = {"index_store/data": {"i": {"__type__": "vector_store", "__data__": rows}}}
    (folder / "index_store.json").write_text(json.dumps(index))


def llamaindex_rows(folder, value):
    llamaindex(folder, value, "row")


def id_map(folder, value):
    llamaindex(folder, "{}")
    (folder / "id_map.json").write_text("{'faiss_id_to_node_id_map': {'0': " + value + "}}")


KINDS = {
    "docs.jsonl": docs_jsonl,
    "LlamaIndex": llamaindex,
    "LlamaIndex's rows": llamaindex_rows,
    "LlamaIndex's literals": id_map,
}


@pytest.fixture(scope="module")
def of_others(tmp_path_factory):
    folder = tmp_path_factory.mktemp("others")
    stores = {}
    for make in KINDS.values():
        for spoilt, value in SPOILT.items():
            stores[make.__name__, spoilt] = folder / f"{make.__name__}-{spoilt}"
            stores[make.__name__, spoilt].mkdir()
            make(stores[make.__name__, spoilt], value)
    return play(stores, folder)


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_json_is_refused(kind, spoilt, of_others):
    assert_refused(of_others[KINDS[kind].__name__, spoilt], ".json")
