"""What keeping a translated store up to date takes, beside translating it again; and syncs that are killed at random.

    python benchmarks/sync.py [--rows 200000] [--dim 384] [--kills 20] [--seed 0]

A flat FAISS store with a docs.jsonl is translated; then 0.5 % of its documents are new, 0.3 % have another text, 0.1 %
other metadata, and 0.2 % are gone. `sync` runs once, and every document is held against what it should be: the vector
that it had to the bit, or the true one. Then syncs of a twentieth of the rows are killed with SIGKILL at random moments
until there were so many kills; every store that comes out is compared with that of an undisturbed sync, file by file.
The model is a hash of the text, which costs nothing. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import faiss
import numpy as np
from survive import run_child
from victims import DIM, CountingEmbedder, digest, make_parts_small, make_stitch

import migrate
from migrate.embedders.cache import CachedEmbedder
from migrate.report.sync import synced_text
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Document, Vectors


def old_documents(rows: int) -> list[Document]:
    """Documents of 300 characters."""
    return [Document(f"doc-{row}", f"the text of document {row} " * 12, {"row": row}) for row in range(rows)]


def changed(documents: Sequence[Document], vectors: Vectors) -> tuple[list[Document], Vectors]:
    """The same after some time."""
    n_rows = len(documents)
    after = list(documents)
    for row in range(0, n_rows, 333):
        after[row] = Document(after[row].id, f"another text of {row} " * 12, after[row].metadata)
    for row in range(1, n_rows, 1_000):
        after[row] = Document(after[row].id, after[row].text, {"row": -1})
    kept = np.array([row for row in range(n_rows) if row % 500 != 2])
    more = n_rows // 200
    added = [Document(f"new-{number}", f"what is new, {number} " * 12, {"row": number}) for number in range(more)]
    new_vectors = np.random.default_rng(1).standard_normal((more, vectors.shape[1]), dtype=np.float32)
    return [*(after[row] for row in kept), *added], np.concatenate([vectors[kept], new_vectors])


def write_store(folder: Path, documents: Sequence[Document], vectors: Vectors) -> None:
    """As an app would keep it."""
    folder.mkdir(parents=True, exist_ok=True)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(folder / "index.faiss"))
    with (folder / "docs.jsonl").open("w") as file:
        file.writelines(
            json.dumps({"id": one.id, "text": one.text, "metadata": dict(one.metadata)}) + "\n" for one in documents
        )


def make_pair(folder: Path, rows: int, dim: int) -> float:
    """An old store that has changed, and the new one that has not; the seconds that its translation took."""
    documents = old_documents(rows)
    vectors = np.random.default_rng(0).standard_normal((rows, dim), dtype=np.float32)
    write_store(folder / "old", documents, vectors)
    make_stitch(folder / "old", folder / "stitch", dim=dim)
    started = time.perf_counter()
    migrate.translate(open_store(folder / "old"), load_stitch(folder / "stitch"), folder / "new")
    seconds = time.perf_counter() - started
    write_store(folder / "old", *changed(documents, vectors))
    return seconds


def sync(folder: Path) -> None:
    """Sync the pair; what it says goes to a file, as the process may be a child."""
    started = time.perf_counter()
    embedder = CachedEmbedder(CountingEmbedder(folder / "bill"), folder / "cache.sqlite")
    done = migrate.sync(open_store(folder / "old"), open_store(folder / "new"), target=embedder)
    facts = {"said": synced_text(done), "seconds": time.perf_counter() - started}
    (folder / "said.json").write_text(json.dumps(facts))


def differing(folder: Path, before: dict[str, bytes]) -> int:
    """How many documents of the new store are not as they should be."""
    old, new = open_store(folder / "old"), open_store(folder / "new", verify=True)
    found = dict(zip(*_columns(folder / "new"), strict=True))
    truth = CountingEmbedder(folder / "checked")
    wrong = 0
    for document, other in zip(old.documents(), new.documents(), strict=True):
        is_kept = document.id in before and document.text.startswith("the text")
        expected = before[document.id] if is_kept else truth.embed([document], "document")[0].tobytes()
        wrong += found[document.id] != expected or document != other
    return wrong


def _columns(folder: Path) -> tuple[list[str], list[bytes]]:
    whole = read_all(open_store(folder).scan())
    return list(whole.ids), [vector.tobytes() for vector in whole.vectors]


def survive(folder: Path, rows: int, kills: int, rng: random.Random) -> tuple[int, int, int]:
    """Kill syncs at random; how many got through, how many of these ended with the same files, texts paid for twice."""
    make_pair(folder / "calm", rows, DIM)
    shutil.copytree(folder / "calm", folder / "pair")
    started = time.perf_counter()
    run_child(partial(sync, folder / "calm"))
    whole_s, expected = time.perf_counter() - started, digest(folder / "calm/new")
    new, keep = folder / "pair/new", folder / "keep"
    shutil.copytree(new, keep)
    finished = identical = killed = 0
    once = (folder / "calm/bill").stat().st_size
    while killed < kills or not finished:
        through = run_child(partial(sync, folder / "pair"), rng.uniform(0, 1.2 * whole_s) if killed < kills else None)
        killed += not through
        if through:
            finished += 1
            identical += digest(new) == expected and not new.with_name(".new.work").exists()
            shutil.rmtree(new)
            shutil.copytree(keep, new)
    return finished, identical, max((folder / "pair/bill").stat().st_size - once, 0)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        translated_s = make_pair(folder, arguments.rows, arguments.dim)
        before = dict(zip(*_columns(folder / "new"), strict=True))
        run_child(partial(sync, folder))
        told = json.loads((folder / "said.json").read_text())
        print(told["said"].replace(f"{folder}/", ""))
        wrong = differing(folder, before)
        print(f"documents that are not as they should be: {wrong}")
        times = told["seconds"] / translated_s
        print(f"translate {translated_s:.1f} s; sync {told['seconds']:.1f} s, {times:.1f} times that")
    make_parts_small()
    with tempfile.TemporaryDirectory() as name:
        rng = random.Random(arguments.seed)
        finished, identical, twice = survive(Path(name), arguments.rows // 20, arguments.kills, rng)
    print(f"{arguments.kills} kills: {finished} syncs finished, {identical} identical; {twice} texts paid for twice")
    raise SystemExit(0 if not wrong and identical == finished else 1)


if __name__ == "__main__":
    main()
