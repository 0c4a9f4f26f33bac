"""How much memory a LangChain folder takes: opening and translating it, beside the size of its pickle.

    python benchmarks/docstore_memory.py [--texts 200000] [--words 200] [--folder DIR]

The folder holds TEXTS texts of about WORDS words each, with two entries of metadata, and random vectors of dimension
DIM. Each step is in a process of its own. Printed is the peak of its resident memory (VmHWM), that of the guarded one
that loads the pickle for it (ru_maxrss), and how many times the size of the pickle both are together, though they have
their peaks at different times: all of it, and less what the process took before it opened the folder (interpreter and
libraries).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

DIM = 64
PART = 8_192
VOCABULARY = 50_000


def make_texts(count: int, words: int, rng: np.random.Generator) -> list[str]:
    """Texts of words whose frequencies fall as those of a language."""
    numbers = rng.zipf(1.2, size=(count, words)) % VOCABULARY
    return [" ".join(f"w{number}" for number in row) for row in numbers.tolist()]


def write_folder(folder: Path, count: int, words: int) -> None:
    """A folder as LangChain saves it."""
    from migrate.stores.create import create_store
    from migrate.vectors import Document

    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    writer = create_store(folder, format="langchain", dim=DIM, metric="ip")
    for start in range(0, count, PART):
        texts = make_texts(min(PART, count - start), words, rng)
        ids = [f"{start + row:036d}" for row in range(len(texts))]
        vectors = rng.standard_normal((len(ids), DIM), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        documents = [
            Document(doc_id, text, {"source": f"docs/{doc_id}.md", "page": 1})
            for doc_id, text in zip(ids, texts, strict=True)
        ]
        writer.append(documents, vectors)
    writer.finish()


def write_stitch(store: Path, folder: Path) -> None:
    """A ridge for the folder, fitted on 1,000 of its rows and a rotation of them."""
    from migrate.manifest import Manifest
    from migrate.selection import Pairs
    from migrate.steps.fit.job import fit_pairs
    from migrate.stores import open_store

    opened = open_store(store)
    batch = opened.get(np.arange(1_000))
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((DIM, DIM)))[0].astype(np.float32)
    manifest = Manifest("stitch", details={"fingerprint": opened.snapshot().fingerprint})
    pairs = Pairs(tuple(batch.ids), batch.vectors, batch.vectors @ rotation)
    fit_pairs(pairs, ["ridge"], manifest=manifest, state={}, seed=0).save(folder)


def peak_mb(name: str) -> float:
    """A line of /proc/self/status, in MB."""
    return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) / 1024


def inside(step: str, store: Path, stitch: Path, output: Path) -> None:
    """Do a step, and print its memory."""
    import scipy.linalg  # noqa: F401

    import migrate
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store
    from migrate.stores.child import end_server

    before = peak_mb("VmRSS")
    opened = open_store(store)
    if step == "translate":
        migrate.translate(opened, load_stitch(stitch), output)
    end_server()
    guarded = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps({"before": before, "peak": peak_mb("VmHWM"), "guarded": guarded}))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="where to put the folder (default: the temporary folder)")
    parser.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.inside[0], *map(Path, arguments.inside[1:]))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as aside:
        store, stitch, output = (Path(aside) / name for name in ("store", "stitch", "new"))
        write_folder(store, arguments.texts, arguments.words)
        write_stitch(store, stitch)
        pickle_mb = (store / "index.pkl").stat().st_size / (1 << 20)
        print(f"{arguments.texts:,} texts of {arguments.words} words: a pickle of {pickle_mb:.0f} MB")
        for step in ("open", "translate"):
            command = [sys.executable, __file__, "--inside", step, str(store), str(stitch), str(output)]
            facts = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            peak, before = facts["peak"] + facts["guarded"], facts["before"]
            print(
                f"{step}: peak {facts['peak']:.0f} MB and {facts['guarded']:.0f} MB guarded, {peak / pickle_mb:.1f} "
                f"times the pickle; less the {before:.0f} MB before the folder was opened, "
                f"{(peak - before) / pickle_mb:.1f} times"
            )


if __name__ == "__main__":
    main()
