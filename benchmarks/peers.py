"""Other tools beside ours, on the same pairs between two published models: rebasis, isotrieve and EmbedFlow.

    python benchmarks/peers.py DATA --python PYTHON3.12 [--mpnet FOLDER]
        [--environment FOLDER] [--pairs 1000] [--seeds 0]

DATA and `--mpnet` are as for `benchmarks/models.py`. The peers are installed, in the versions below, into a virtual
environment of their own at FOLDER, by PYTHON3.12 (rebasis needs 3.12 or 3.13); one that is there is used as it is.
Each method of theirs gets the old and new vectors of the sample, as ours do, and maps the documents that are left;
rebasis is asked for every map that its `auto` chooses among and that needs no torch. Neither reads texts: `vectors` is
what ours does without, `auto` with them, and `together` asks the old model in its own space beside that.

EmbedFlow maps nothing: it asks the old index with the old model, and ranks the first 50 by vectors of the new model,
which it embeds as they are asked for. It is given all that it asks for at once, and how many documents these are is
printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from models import DIRECTIONS, token_tables
from retrieval import (
    AUTO,
    NOT_APPLICABLE,
    SETS,
    STAYING,
    TOGETHER,
    VECTORS,
    HeldOut,
    Result,
    print_cells,
    read_set,
    results,
)

from migrate.search.runs import Rankings
from migrate.vectors import unit_rows

PACKAGES = ("rebasis==0.1.0", "isotrieve==0.4.0", "embedflow==0.8.0")
OURS = (STAYING, "procrustes", "ridge", VECTORS, AUTO, TOGETHER)

# Run by the peers' own Python: reads the arrays `source`, `target` and `rest`, writes what each method maps `rest` to.
SCRIPT = """
import sys
import numpy as np
from isotrieve.mapping.linear import RidgeMapping
from rebasis.core.selection import CANDIDATE_METHODS, fit_candidates

arrays = np.load(sys.argv[1])
source, target, rest = (arrays[name] for name in ("source", "target", "rest"))
found = {}
methods = [method for method in CANDIDATE_METHODS if method not in ("identity", "residual_mlp")]
for candidate in fit_candidates(source, target, methods=methods):
    unit = rest / np.linalg.norm(rest, axis=1, keepdims=True)
    found["rebasis " + candidate.method] = np.asarray(candidate.adapter.apply(unit))
ridge = RidgeMapping(alpha="auto", seed=0)
ridge.fit(source, target)
found["isotrieve ridge"] = np.asarray(ridge.transform(rest))
np.savez(sys.argv[2], **found)
"""

# The same for EmbedFlow: its engine over both models' vectors, looked up by id; writes the ids that it answers with.
SERVED = """
import json, sys
import numpy as np
from pathlib import Path
from embedflow.cache import SQLiteVectorCache
from embedflow.config import CacheConfig, EmbedFlowConfig, ModelConfig, TelemetryConfig
from embedflow.indexes.faiss_backend import NumpyIndex
from embedflow.migration.state import DocumentStore
from embedflow.serving.engine import MigrationEngine

arrays, folder = np.load(sys.argv[1]), Path(sys.argv[1]).parent
ids, query_ids = arrays["ids"].tolist(), arrays["query_ids"].tolist()

class Model:
    def __init__(self, name):
        self.fingerprint, self.dimension = name, arrays[name].shape[1]
        self.rows = dict(zip(ids, arrays[name])) | dict(zip(query_ids, arrays[name + "_queries"]))
        self.asked = set()

    def encode_query(self, text):
        return self.rows[text]

    def encode_documents(self, texts, batch_size=None):
        self.asked.update(texts)
        return np.array([self.rows[text] for text in texts])

    def close(self):
        pass

texts = folder / "documents.jsonl"
texts.write_text("".join(json.dumps({"id": one, "text": one}) + "\\n" for one in ids))
configuration = EmbedFlowConfig(
    ModelConfig("source"), ModelConfig("target"), cache=CacheConfig(str(folder / "cache")),
    telemetry=TelemetryConfig(latency_log=str(folder / "latency.jsonl")), state_path=str(folder / "state.json"),
)
old, new = Model("source"), Model("target")
cache = SQLiteVectorCache(folder / "cache", new.fingerprint, new.dimension)
index = NumpyIndex.build(arrays["source"], ids)
engine = MigrationEngine(configuration, old, new, index, cache, DocumentStore(texts))
depth = configuration.migration.candidate_depth
answers = {
    query: [hit["id"] for hit in engine.search(query, 10, depth, depth)["results"]] for query in query_ids
}
engine.close()
Path(sys.argv[2]).write_text(json.dumps({"answers": answers, "embedded": len(new.asked), "depth": depth}))
"""


def make_environment(python: str, folder: Path) -> Path:
    """The Python of a virtual environment with the peers."""
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return interpreter


def judge_peers(interpreter: Path, held_out: HeldOut) -> dict[str, Result]:
    """What the methods of the peers do on what is left."""
    pairs, rest = held_out.pairing, held_out.rows[1]
    with tempfile.TemporaryDirectory() as folder:
        given, mapped = Path(folder) / "pairs.npz", Path(folder) / "mapped.npz"
        np.savez(given, source=pairs.source, target=pairs.target, rest=held_out.source.documents[rest])
        subprocess.run([interpreter, "-c", SCRIPT, given, mapped], check=True)
        with np.load(mapped) as arrays:
            vectors = {name: unit_rows(arrays[name].astype(np.float32)) for name in arrays}
    return {name: held_out.compare(rows, held_out.target.queries) for name, rows in vectors.items()}


def serve_peer(interpreter: Path, held_out: HeldOut) -> Result:
    """What EmbedFlow answers from what is left, once it has embedded all that it wants."""
    rest, source, target = held_out.rows[1], held_out.source, held_out.target
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "vectors.npz", Path(folder) / "answers.json"
        ids = np.array([held_out.collection.documents[row].id for row in rest])
        asked = [held_out.collection.query_ids.index(query) for query in held_out.asked]
        np.savez(
            given,
            ids=ids,
            query_ids=np.array([f"? {query}" for query in held_out.asked]),
            source=unit_rows(source.documents[rest]),
            target=unit_rows(target.documents[rest]),
            source_queries=unit_rows(source.queries[asked]),
            target_queries=unit_rows(target.queries[asked]),
        )
        subprocess.run([interpreter, "-c", SERVED, given, found], check=True, stdout=subprocess.DEVNULL)
        answered = json.loads(found.read_text())
    print(
        f"  EmbedFlow, first {answered['depth']}: {answered['embedded']:,} of {len(ids):,} documents embedded for "
        f"{len(asked):,} queries",
        flush=True,
    )
    rankings = {query.removeprefix("? "): tuple(ids) for query, ids in answered["answers"].items()}
    return held_out.compare_run(Rankings(rankings))


def main() -> None:
    """Print the table of theirs and ours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--python", default="python3.12", help="interpreter to make the environment with")
    parser.add_argument("--mpnet", type=Path, help="folder of all-mpnet-base-v2, for its token embeddings")
    parser.add_argument("--environment", type=Path, default=Path(tempfile.gettempdir()) / "lead-migrate-peers")
    parser.add_argument("--stitches", nargs="+", default=list(OURS))
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    interpreter = make_environment(arguments.python, arguments.environment)
    tokens = token_tables(arguments.mpnet, outputs=True)
    cells: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for name in SETS:
        for old, new in DIRECTIONS:
            read = read_set(arguments.data, name, [old], tokens[new], new)
            found = cells.setdefault((name, f"{old} -> {new}"), {})
            for seed in arguments.seeds:
                held_out = HeldOut(read.collection, read.sources[old], read.target, read.texts, arguments.pairs, seed)
                theirs = {**judge_peers(interpreter, held_out), "EmbedFlow": serve_peer(interpreter, held_out)}
                for column, result in [*results(held_out, arguments.stitches), *theirs.items()]:
                    found.setdefault(column, []).append(result)
            print(f"  {name} {old} -> {new}", file=sys.stderr, flush=True)
    columns = list(dict.fromkeys(column for found in cells.values() for column in found))
    for found in cells.values():  # not every map is there for unequal dimensions
        found.update({column: [NOT_APPLICABLE] for column in columns if column not in found})
    print_cells(cells, columns)
    print(f"\n{arguments.pairs:,} pairs, seeds {arguments.seeds}; {', '.join(PACKAGES)}")


if __name__ == "__main__":
    main()
