"""The other half of `benchmarks/live.py --embedflow`: the same log through EmbedFlow, in an environment that has it.

    PYTHON benchmarks/live_embedflow.py FACTS

Started by `benchmarks/live.py`, which leaves the vectors of the old store, the queries and the log in a folder; FACTS
is JSON. The vectors of queries, which EmbedFlow embeds by both models, come from a table; documents are embedded by the
server that `benchmarks/live.py` has started, and are counted there.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import embedflow
import numpy as np
from embedflow.indexes import NumpyIndex
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


class Table:
    """A model whose query vectors are known; it embeds documents by asking the server, if it is given one."""

    def __init__(self, name: str, texts: list[str], vectors: Vectors, url: str | None = None) -> None:
        self.model_id = self.fingerprint = name
        self.dimension = vectors.shape[1]
        self.url = url
        self._vector_of = dict(zip(texts, vectors, strict=True))

    def encode_queries(self, texts: list[str]) -> Vectors:
        """From the table."""
        rows: Vectors = np.stack([self._vector_of[text] for text in texts])
        return rows

    def encode_query(self, text: str) -> Vectors:
        """From the table."""
        vector: Vectors = self._vector_of[text]
        return vector

    def encode_documents(self, texts: list[str], batch_size: int | None = None) -> Vectors:
        """From the server, which fails at times."""
        body = json.dumps({"model": "minilm", "input": list(texts)}).encode()
        for pause in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8):
            try:
                request = urllib.request.Request(f"{self.url}/embeddings", body, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request) as answer:
                    rows = json.loads(answer.read())["data"]
                return np.stack([np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in rows])
            except urllib.error.HTTPError:
                time.sleep(pause)
        raise RuntimeError("the model is out")

    def encode_document(self, text: str) -> Vectors:
        """From the server."""
        vector: Vectors = self.encode_documents([text])[0]
        return vector

    def metadata(self) -> dict[str, Any]:
        """What EmbedFlow notes."""
        return {"model": self.model_id, "dimension": self.dimension}

    def close(self) -> None:
        """Nothing is open."""


def main() -> None:
    """Replay the log, and leave an answer a line."""
    facts = json.loads(sys.argv[1])
    folder = Path(facts["folder"])
    read = np.load(folder / "queries.npz")
    texts = json.loads((folder / "query_texts.json").read_text())
    ids = [json.loads(line)["id"] for line in (folder / "documents.jsonl").open()]
    old = Table("old", texts, read["old"])
    new = Table("new", texts, read["new"], f"http://127.0.0.1:{facts['port']}/v1")
    index = NumpyIndex(np.load(folder / "old.npy"), ids, metric="cosine")
    log, start = read["log"], (folder / "embedded.log").stat().st_size
    seen: set[int] = set()
    lock, position = threading.Lock(), start

    def embedded() -> int:
        nonlocal position
        with lock, (folder / "embedded.log").open("rb") as file:
            file.seek(position)
            content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            position += len(whole)
            seen.update(map(int, whole.split()))
            return len(seen)

    session = embedflow.migrate(
        index=index,
        backend="faiss",
        old_model=old,
        new_model=new,
        documents=str(folder / "documents.jsonl"),
        cache_path=str(folder / "embedflow-cache"),
        state_path=str(folder / "embedflow-state.json"),
        candidate_depth=facts["depth"],
        max_sync_misses=facts["misses"],
    )
    with session, (folder / "embedflow.jsonl").open("w") as out, ThreadPoolExecutor(facts["clients"]) as clients:

        def ask(place: int) -> None:
            started = time.perf_counter()
            try:
                answer = session.search(texts[log[place]], 10)
            except Exception as error:
                print(f"EmbedFlow: {error!r}", file=sys.stderr)
                answer = {"results": [], "migration": {"source_candidates": 0, "target_vectors_available": 0}}
            seconds, facts_of = time.perf_counter() - started, answer["migration"]
            line = {
                "place": place,
                "ids": [one["id"] for one in answer["results"]],
                "untrue": facts_of["source_candidates"] - facts_of["target_vectors_available"],
                "seconds": seconds,
                "embedded": embedded(),
            }
            with lock:
                out.write(json.dumps(line) + "\n")

        list(clients.map(ask, range(len(log))))


if __name__ == "__main__":
    main()
