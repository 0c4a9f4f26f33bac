"""A translated store served while it becomes true: quality, spending and latency over a replayed log, with kills.

    python benchmarks/live.py DATA [--documents 200000] [--queries 10000] [--kills 100] [--old]

DATA is as for `benchmarks/retrieval.py`. The store holds the documents of SciFact and NFCorpus and as many made-up ones
as are missing, each of them between two real ones in both spaces, with words of both, and as hard to translate as real
ones. It is translated by a stitch from 1,000 pairs, and served by two processes, while `lead-migrate live run` embeds
its documents; queries are drawn from both sets by Zipf's law and asked by 8 clients. The model answers over HTTP
with true vectors that are known, late by 40 ms and more, fails at 2 % of the requests, and at all of them for a while.
Servers and worker are killed at random moments; a client whose server is gone asks the other one.

Printed for each part of the log: nDCG@10 of the answers over that of a full re-embed, overlap@10 with it, the share of
the store that was embedded, and latency. The bare search of the translated store stands beside it. With `--old` the
servers ask the old store and the old model too; both models then have the vectors of queries in a table. At the end the
same queries are searched and served by one thread, for what serving takes beyond the searches. Exit code 1 if a query
failed, an answer was of two models, or a true vector was lost.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from retrieval import SETS, load_space, read_set

import migrate
from migrate.audit.measures import ndcg
from migrate.embed.corpus import embed_corpus
from migrate.embedders import Embedder, Role, load_embedder
from migrate.embedders.base import Keep, WrappedEmbedder, with_model
from migrate.embedders.cache import CachedEmbedder, are_cached
from migrate.live.options import LiveLimits
from migrate.live.searcher import LiveSearcher
from migrate.live.status import status_of
from migrate.manifest import ModelIdentity
from migrate.report.terminal import table
from migrate.search.runs import Rankings
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.faiss.search import open_search
from migrate.vectors import Document, Progress, Text, Vectors, no_progress, unit_rows

MODEL = "openai:minilm"
PAIRS = 1_000
KEPT = 10
SPREAD = 0.15
"""What a made-up document has of its own in either space: with it they are as hard to translate as real ones."""
PARTS = 10
SLOWEST_ANSWER_S = 60.0
CLOSE = 2e-4


@dataclass
class World:
    """Documents and queries of both sets, in the old space and the new one; queries are known by their place."""

    documents: list[Document]
    old: Vectors
    new: Vectors
    query_ids: list[str]
    query_texts: list[str]
    old_queries: Vectors
    new_queries: Vectors
    qrels: dict[str, dict[str, int]]
    log: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


def read_world(data: Path, space: str, documents: int, queries: int, seed: int) -> World:
    """Both sets as one, filled up with documents that lie between two real ones."""
    rng = np.random.default_rng(seed)
    nothing = np.empty((0, 0), np.float32)
    world = World([], nothing, nothing, [], [], nothing, nothing, {})
    parts: dict[str, list[Any]] = {"old": [], "new": [], "old_queries": [], "new_queries": []}
    for name in SETS:
        read = read_set(data, name, [], None)
        collection, old = read.collection, load_space(data, name, space, read.collection)
        world.documents += [Document(f"{name}:{one.id}", one.text) for one in collection.documents]
        ids = [f"{name}:{query_id}" for query_id in collection.query_ids]
        world.query_ids += ids
        world.query_texts += [query.text for query in collection.queries]
        world.qrels |= {
            f"{name}:{query_id}": {f"{name}:{doc_id}": grade for doc_id, grade in collection.qrels[query_id].items()}
            for query_id in collection.query_ids
        }
        for key, space_of in (("old", old), ("new", read.target)):
            parts[key].append(space_of.documents)
            parts[f"{key}_queries"].append(space_of.queries)
    joined = {key: unit_rows(np.concatenate(rows).astype(np.float32)) for key, rows in parts.items()}
    real, missing = len(world.documents), max(documents - len(world.documents), 0)
    one, other = rng.integers(real, size=(2, missing))
    share = rng.uniform(0.2, 0.8, (missing, 1)).astype(np.float32)
    for key in ("old", "new"):
        own = joined[key]
        spread = rng.standard_normal((missing, own.shape[1])).astype(np.float32) * (SPREAD / own.shape[1] ** 0.5)
        between = unit_rows(share * own[one] + (1 - share) * own[other] + spread)
        joined[key] = np.concatenate([own, between])
    words = [document.text.split() for document in world.documents]
    world.documents += [
        Document(f"made-up:{row}", f"{_between(words[one[row]], words[other[row]], float(share[row, 0]))} {row}")
        for row in range(missing)
    ]
    world.old, world.new = joined["old"], joined["new"]
    world.old_queries, world.new_queries = joined["old_queries"], joined["new_queries"]
    weights = 1 / np.arange(1, len(world.query_ids) + 1)
    order = rng.permutation(len(world.query_ids))
    world.log = order[rng.choice(len(order), size=queries, p=weights / weights.sum())]
    return world


def _between(one: Sequence[str], other: Sequence[str], share: float) -> str:
    """A text with the first words of one and the last of another, by that share."""
    return " ".join([*one[: round(share * len(one))], *other[round(share * len(other)) :]])


# The model, in a process of its own.


def serve_model(folder: str, port: Any, late_s: float, failing: float) -> None:
    """Answer OpenAI's protocol with the vectors of a file, late and sometimes not; note which texts were answered."""
    vectors = np.load(Path(folder, "new.npy"), mmap_mode="r")
    row_of = {text: row for row, text in enumerate(json.loads(Path(folder, "texts.json").read_text()))}
    noted = os.open(Path(folder, "embedded.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    started = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            texts = [texts] if isinstance(texts, str) else texts
            time.sleep(late_s + random.expovariate(1 / (late_s / 2)))
            is_out = 30 < time.monotonic() - started < 40 and failing
            if is_out or random.random() < failing:
                self.answer(500, {"error": {"message": "overloaded"}})
                return
            rows = [row_of.get(text, 0) for text in texts]  # the client asks for a word first
            os.write(noted, "".join(f"{row}\n" for row in rows).encode())
            items = [
                {"object": "embedding", "index": i, "embedding": base64.b64encode(vectors[row].tobytes()).decode()}
                for i, row in enumerate(rows)
            ]
            usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
            self.answer(200, {"object": "list", "data": items, "model": "minilm", "usage": usage})

        def answer(self, code: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    port.value = server.server_address[1]
    server.serve_forever()


def embedder_at(port: int, cache: Path | None) -> Embedder:
    """The model behind the port."""
    os.environ["OPENAI_API_KEY"] = "none"
    return load_embedder(MODEL, base_url=f"http://127.0.0.1:{port}/v1", cache=cache)


# The servers, in processes of their own.


class QueryTable(WrappedEmbedder):
    """A model whose vectors of queries are known; documents it embeds itself."""

    def __init__(self, embedder: Embedder, vector_of: Mapping[str, Vectors]) -> None:
        super().__init__(embedder)
        self.vector_of = vector_of

    def around(self, embedder: Embedder) -> QueryTable:
        """Another embedder with the same queries."""
        return QueryTable(embedder, self.vector_of)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Look queries up."""
        if role == "query":
            return np.stack([self.vector_of[text.text] for text in texts])
        return self.embedder.embed(texts, role, progress=progress)

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        """Embed documents as the embedder inside."""
        self.embedder.embed_each(texts, role, keep, progress=progress)


class OldQueries(Embedder):
    """The old model, which is asked for no document: its vectors of queries are in a table."""

    def __init__(self, identity: ModelIdentity, vector_of: Mapping[str, Vectors]) -> None:
        self._identity, self.vector_of = identity, vector_of

    @property
    def identity(self) -> ModelIdentity:
        """The model that the old store is of."""
        return self._identity

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Look queries up."""
        return np.stack([self.vector_of[text.text] for text in texts])


def both_stores(folder: Path, port: int) -> tuple[Embedder, dict[str, Any]]:
    """The new model, and the old store and its model as arguments of a searcher; queries are in a table."""
    texts, read = json.loads((folder / "query_texts.json").read_text()), np.load(folder / "queries.npz")
    new = embedder_at(port, folder / "cache.sqlite")
    new = with_model(new, lambda model: QueryTable(model, dict(zip(texts, read["new"], strict=True))))
    manifest = open_store(folder / "old").info.manifest
    assert manifest is not None and manifest.model is not None
    old = OldQueries(manifest.model, dict(zip(texts, read["old"], strict=True)))
    return new, {"old": folder / "old", "old_model": old}


def serve_store(folder: str, port: int, address: str, limits: LiveLimits, with_old: bool) -> None:
    """Answer (text or vector of a query) over a socket, and every tenth time say how long the bare search takes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    model, beside = embedder_at(port, Path(folder, "cache.sqlite")), dict[str, Any]()
    if with_old:
        model, beside = both_stores(Path(folder), port)
    searcher = LiveSearcher(Path(folder, "store"), model, limits=limits, **beside)
    listener = Listener(address, "AF_UNIX", backlog=64)

    def answer(connection: Connection) -> None:
        count = 0
        while True:
            try:
                question, vector = connection.recv()
            except (EOFError, OSError):
                return
            count += 1
            bare_s = np.nan
            try:
                if count % 10 == 0:
                    started = time.perf_counter()
                    searcher.generation.index.search(vector[None], max(limits.depth, KEPT))
                    bare_s = time.perf_counter() - started
                started = time.perf_counter()
                found = searcher.search(question if with_old else vector, KEPT)
                seconds = time.perf_counter() - started
                connection.send((found.ids, found.scores, found.untrue, seconds, bare_s, found.answered_by))
            except Exception as error:  # whatever it is, the query has failed
                connection.send(error)

    while True:
        threading.Thread(target=answer, args=(listener.accept(),), daemon=True).start()


@dataclass
class Answer:
    """The answer to one query of the log, and how many documents were embedded by then."""

    ids: tuple[str, ...]
    scores: Vectors
    untrue: int
    seconds: float
    bare_s: float
    answered_by: tuple[str, ...]
    embedded: int


class Fleet:
    """Two servers and a worker, which are killed and started anew."""

    def __init__(self, folder: Path, port: int, limits: LiveLimits, arguments: argparse.Namespace) -> None:
        self.folder, self.port, self.limits = folder, port, limits
        self.budget = f"{arguments.budget * arguments.workers_share:.1%}"
        self.worker_kills, self.with_old = arguments.worker_kills, arguments.old
        self.spawn = multiprocessing.get_context("spawn")
        self.servers: dict[int, Any] = {}
        self.worker: subprocess.Popen[bytes] | None = None
        self.kills = {"server": 0, "worker": 0}
        self.worker_ends: list[int] = []

    def address(self, number: int) -> str:
        """Where a server listens."""
        return str(self.folder / f"server{number}")

    def start_server(self, number: int) -> None:
        """Start one."""
        Path(self.address(number)).unlink(missing_ok=True)
        arguments = (str(self.folder), self.port, self.address(number), self.limits, self.with_old)
        self.servers[number] = self.spawn.Process(target=serve_store, args=arguments, daemon=True)
        self.servers[number].start()

    def start_worker(self) -> None:
        """Start the command."""
        command = [sys.executable, "-m", "migrate", "live", "run", str(self.folder / "store"), "--budget", self.budget]
        command += ["--from-queue", "--cache", str(self.folder / "cache.sqlite")]
        command += ["--base-url", f"http://127.0.0.1:{self.port}/v1", "--yes"]
        with (self.folder / "worker.log").open("ab") as log:
            self.worker = subprocess.Popen(command, stdout=log, stderr=log)

    def kill_one(self, number: int) -> None:
        """Kill a server or the worker, whose turn it is, and start it anew."""
        if int((number + 1) * self.worker_kills) > int(number * self.worker_kills):
            assert self.worker is not None
            if self.worker.poll() is None:
                self.kills["worker"] += 1
            else:
                self.worker_ends.append(self.worker.returncode)
            self.worker.kill()
            self.worker.wait()
            self.start_worker()
        else:
            which = self.kills["server"] % 2
            self.servers[which].kill()
            self.servers[which].join()
            self.kills["server"] += 1
            self.start_server(which)

    def stop(self) -> None:
        """End all of them."""
        for server in self.servers.values():
            server.kill()
        if self.worker is not None:
            self.worker.kill()
            self.worker.wait()


class Replay:
    """The clients: each takes the next query of the log, and asks another server if its own is gone."""

    def __init__(self, world: World, fleet: Fleet, embedded: Path, pause_s: float) -> None:
        self.world, self.fleet, self.embedded, self.pause_s = world, fleet, embedded, pause_s
        self.answers: list[Answer | None] = [None] * len(world.log)
        self.failed: list[str] = []
        self.asked_again = 0
        self._next = iter(range(len(world.log)))
        self._lock = threading.Lock()
        self.done = 0

    def run(self, clients: int) -> None:
        """Ask everything."""
        with ThreadPoolExecutor(clients) as pool:
            for future in [pool.submit(self._client, number) for number in range(clients)]:
                future.result()

    def _client(self, number: int) -> None:
        connections: dict[int, Connection] = {}
        while True:
            with self._lock:
                place = next(self._next, None)
            if place is None:
                return
            time.sleep(self.pause_s)
            query = self.world.log[place]
            answer = self._ask(connections, number, (self.world.query_texts[query], self.world.new_queries[query]))
            with self._lock:
                self.done += 1
                if isinstance(answer, tuple):
                    ids, scores, untrue, seconds, bare_s, answered_by = answer
                    embedded = unique_rows(self.embedded)
                    self.answers[place] = Answer(ids, scores, untrue, seconds, bare_s, answered_by, embedded)
                else:
                    self.failed.append(repr(answer))

    def _ask(self, connections: dict[int, Connection], number: int, query: tuple[str, Vectors]) -> Any:
        deadline, which = time.monotonic() + SLOWEST_ANSWER_S, number % 2
        error: Exception = TimeoutError()
        while time.monotonic() < deadline:
            try:
                if which not in connections:
                    connections[which] = Client(self.fleet.address(which), "AF_UNIX")
                connections[which].send(query)
                if not connections[which].poll(SLOWEST_ANSWER_S):
                    raise TimeoutError
                return connections[which].recv()
            except (OSError, EOFError) as gone:
                error = gone
                connections.pop(which, None)
                which = 1 - which
                with self._lock:
                    self.asked_again += 1
                time.sleep(0.05)
        return error


_sizes: dict[Path, tuple[int, set[int]]] = {}


def unique_rows(log: Path) -> int:
    """How many documents the model has embedded."""
    start, rows = _sizes.get(log, (0, set()))
    size = log.stat().st_size if log.exists() else 0
    if size > start:
        with log.open("rb") as file:
            file.seek(start)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        rows.update(map(int, whole.split()))
        _sizes[log] = (start + len(whole), rows)
    return len(rows)


# What is printed.


def answers_of(vectors: Vectors, world: World, queries: Vectors, depth: int, again: Vectors | None = None) -> Rankings:
    """The first ten of each query by `vectors`, (n, dim); by `again` of the first `depth`, where it is given."""
    rankings = {}
    for query_id, query, other in zip(world.query_ids, queries, world.new_queries, strict=True):
        scores = vectors @ query
        pool = np.argpartition(-scores, depth)[:depth]
        final = scores[pool] if again is None else again[pool] @ other
        rankings[query_id] = tuple(world.documents[row].id for row in pool[np.argsort(-final, kind="stable")][:KEPT])
    return Rankings(rankings)


def quality(world: World, run: Rankings) -> NDArray[np.float64]:
    """NDCG@10 of each query, by its place."""
    return ndcg(run, world.qrels, world.query_ids, KEPT)


def of_answers(world: World, places: Sequence[int], answers: Sequence[Answer | None]) -> NDArray[np.float64]:
    """NDCG@10 of each answer; 0 for a query that failed."""
    scores = []
    for place, answer in zip(places, answers, strict=True):
        query_id = world.query_ids[world.log[place]]
        run = Rankings({query_id: answer.ids if answer else ()})
        scores.append(float(ndcg(run, world.qrels, [query_id], KEPT)[0]))
    return np.array(scores)


def print_parts(title: str, world: World, answers: Sequence[Answer | None], full: Rankings) -> None:
    """A row for the first hour of a day of such queries, for each tenth of the log, and for the whole of it.

    Of fewer than ten queries some tenths are empty, and have no row; nor has a part of which every query failed. Where
    the full re-embed finds nothing, there is no share of it.
    """
    whole = quality(world, full)
    edges = [0, *(len(answers) * part // PARTS for part in range(1, PARTS + 1))]
    spans = [(0, max(len(answers) // 24, 1)), *pairwise(edges), (0, len(answers))]
    rows = []
    for start, stop in spans:
        part = [answer for answer in answers[start:stop] if answer]
        if not part:
            continue
        own = of_answers(world, range(start, stop), answers[start:stop]).mean()
        best = whole[world.log[start:stop]].mean()
        asked = (world.query_ids[place] for place in world.log[start:stop])
        shared = [
            len(set(full.rankings[query_id]).intersection(answer.ids if answer else ())) / KEPT
            for query_id, answer in zip(asked, answers[start:stop], strict=True)
        ]
        seconds = np.array([answer.seconds for answer in part]) * 1e3
        embedded = max(answer.embedded for answer in part)
        rows.append(
            [
                f"{start:,}-{stop:,}",
                f"{own / best:.3f}" if best else "-",
                f"{np.mean(shared):.3f}",
                f"{embedded:,}",
                f"{embedded / len(world.documents):.1%}",
                f"{np.mean([answer.untrue for answer in part]):.1f}",
                f"{np.median(seconds):.1f}",
                f"{np.percentile(seconds, 99):.0f}",
            ]
        )
    head = ["queries", "nDCG@10 of full", "overlap@10", "embedded", "of store", "untrue in pool", "median ms", "p99 ms"]
    print(f"\n{title}\n\n{table([head, *rows])}")


def print_bare_search(answers: Sequence[Answer | None]) -> None:
    """How long the index alone took; each server asks it for every tenth query of a client, so of few there is none."""
    bare = np.array([answer.bare_s for answer in answers if answer and not np.isnan(answer.bare_s)]) * 1e3
    if len(bare):
        print(f"\nbare search meanwhile: median {np.median(bare):.1f} ms, p99 {np.percentile(bare, 99):.0f} ms")
    print()


def mixed_answers(world: World, answers: Sequence[Answer | None], translated: Vectors) -> int:
    """Answers with a score that is neither that of a true vector nor of a translated one, by the new model's query.

    A translated one may be off by what translations are off at most: searchers estimate their errors.
    """
    row_of = {document.id: row for row, document in enumerate(world.documents)}
    count = 0
    for place, answer in enumerate(answers):
        if answer is None or answer.answered_by == ("old",):
            continue
        rows, query = [row_of[doc_id] for doc_id in answer.ids], world.new_queries[world.log[place]]
        near = np.stack([np.abs(vectors[rows] @ query - answer.scores) for vectors in (world.new, translated)])
        if (near.min(axis=0) > CLOSE).any():
            most = np.abs((translated - world.new) @ query).max()
            count += bool((near.min(axis=0) > most).any())
    return count


def lost_vectors(world: World, answers: Sequence[Answer | None], folder: Path, port: int) -> tuple[int, int]:
    """Documents that were served by their true vectors, and those of them that are not in the cache now."""
    row_of = {document.id: row for row, document in enumerate(world.documents)}
    served = set()
    for place, answer in enumerate(answers):
        if answer is not None:
            rows, query = [row_of[doc_id] for doc_id in answer.ids], world.new_queries[world.log[place]]
            exact = np.abs(world.new[rows] @ query - answer.scores) < CLOSE / 100
            served |= {row for row, is_exact in zip(rows, exact, strict=True) if is_exact}
    ordered = sorted(served)
    embedder = CachedEmbedder(embedder_at(port, None), folder / "cache.sqlite")
    known = are_cached(embedder, [world.documents[row] for row in ordered], "document")
    return len(served), sum(not cached for cached in known)


def print_overhead(folder: Path, port: int, world: World, depth: int) -> None:
    """What ranking again costs where no vector is missing: the same queries with and without."""
    model = embedder_at(port, folder / "cache.sqlite")
    queries = world.new_queries[np.unique(world.log)[:200]]
    with LiveSearcher(folder / "store", model, limits=all_true(depth)) as searcher:
        while any(searcher.search(query).untrue for query in queries):
            time.sleep(0.2)
        index = searcher.generation.index
        print_times(
            "no vector missing", depth, list(queries), lambda one: index.search(one[None], depth), searcher.search
        )


def print_overhead_of_both(folder: Path, port: int, world: World, depth: int) -> None:
    """What serving both stores costs beyond their two searches, one after the other, with and without true vectors."""
    asked = np.unique(world.log)[:200]
    texts = [world.query_texts[row] for row in asked]
    both = zip(world.new_queries[asked], world.old_queries[asked], strict=True)
    vectors_of = dict(zip(texts, both, strict=True))
    new, beside = both_stores(folder, port)
    without = with_model(new, lambda model: model)
    assert isinstance(without, CachedEmbedder)
    empty = CachedEmbedder(without.embedder, folder / "empty.sqlite")
    states = {
        "both stores, none embedded": (empty, LiveLimits(depth=depth, max_documents=0)),
        "both stores, no vector missing": (new, all_true(depth)),
    }
    for title, (model, limits) in states.items():
        with LiveSearcher(folder / "store", model, limits=limits, **beside) as searcher:
            while any(searcher.search(text).untrue for text in texts) and limits.max_documents:
                time.sleep(0.2)
            new_index, old_index = searcher.generation.index, open_search(open_store(beside["old"]))

            def search_both(text: str, indexes: Any = (new_index, old_index)) -> None:
                for index, vector in zip(indexes, vectors_of[text], strict=True):
                    index.search(vector[None], depth)

            print_times(title, depth, texts, search_both, searcher.search)


def all_true(depth: int) -> LiveLimits:
    """Limits by which all that a query finds is embedded while it waits."""
    return LiveLimits(depth=depth, max_documents=depth, max_ms=10_000)


def print_times(
    title: str, depth: int, queries: Sequence[Any], search: Callable[[Any], Any], serve: Callable[[Any], Any]
) -> None:
    """How long each query takes by the bare search and by a searcher, by the clock and of the processor."""
    clocks, processor = np.empty((2, 3 * len(queries))), np.empty((2, 3 * len(queries)))
    for number, query in enumerate([*queries, *queries, *queries]):
        for row, answer in enumerate((search, serve)):
            started, used = time.perf_counter(), time.process_time()
            answer(query)
            clocks[row, number] = time.perf_counter() - started
            processor[row, number] = time.process_time() - used
    (bare, live), spent = clocks * 1e3, np.median(processor, axis=1) * 1e3
    print(
        f"{title}, depth {depth}: bare search median {np.median(bare):.2f} ms, p99 {np.percentile(bare, 99):.2f}; live "
        f"{np.median(live):.2f}, {np.percentile(live, 99):.2f}; overhead at the median {np.median(live - bare):.2f} ms "
        f"({np.median(live / bare):.2f} times the bare search), {spent[1] - spent[0]:.2f} ms of processor time"
    )


def prepare(world: World, folder: Path, port: Any, stitch: str, arguments: argparse.Namespace) -> Any:
    """Write the old store, start the model, fit, translate; returns the process of the model."""
    np.save(folder / "new.npy", world.new)
    (folder / "texts.json").write_text(json.dumps([document.text for document in world.documents]))
    ids = np.array([document.id for document in world.documents])
    np.savez(folder / "old.npz", doc_ids=ids, docs=world.old)
    np.savez(folder / "queries.npz", old=world.old_queries, new=world.new_queries)
    (folder / "query_texts.json").write_text(json.dumps(world.query_texts))
    embed_corpus(lambda: world.documents, load_embedder(f"file:{folder / 'old.npz'}"), folder / "old")
    context = multiprocessing.get_context("spawn")
    model = context.Process(
        target=serve_model, args=(str(folder), port, arguments.late_ms / 1e3, arguments.failing), daemon=True
    )
    model.start()
    while not port.value:
        time.sleep(0.05)
    store = open_store(folder / "old")
    started = time.perf_counter()
    fitted = migrate.fit(store, embedder_at(port.value, folder / "cache.sqlite"), kind=stitch, sample=PAIRS)
    migrate.translate(store, fitted, folder / "store")
    print(f"fitted {fitted.stitch.spec} and translated in {time.perf_counter() - started:.0f} s")
    return model


def main() -> None:
    """Replay the log, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--worker-kills", type=float, default=0.5, help="the share of the kills that hits the worker")
    parser.add_argument("--space", default="mpnet", help="the old one")
    parser.add_argument("--stitch", default="auto")
    parser.add_argument("--depth", type=int, default=200)
    parser.add_argument("--max-documents", type=int, default=10, help="a query")
    parser.add_argument("--max-ms", type=float, default=500)
    parser.add_argument("--budget", type=float, default=0.1, help="the share of the store that may be embedded")
    parser.add_argument("--workers-share", type=float, default=0.1, help="of that, the worker's own")
    parser.add_argument("--pause-ms", type=float, default=0, help="between two queries of a client")
    parser.add_argument("--late-ms", type=float, default=40)
    parser.add_argument("--failing", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--old", action="store_true", help="ask the old store and its model beside the new one")
    arguments = parser.parse_args()
    if arguments.kills >= arguments.queries:
        parser.error("--kills: there is one kill between two queries at most")
    limits = LiveLimits(
        depth=arguments.depth,
        max_documents=arguments.max_documents,
        budget=round(arguments.budget * arguments.documents * (1 - arguments.workers_share)),
        max_ms=arguments.max_ms,
        refresh_s=2.0,
    )
    world = read_world(arguments.data, arguments.space, arguments.documents, arguments.queries, arguments.seed)
    port = multiprocessing.get_context("spawn").Value("i", 0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = prepare(world, folder, port, arguments.stitch, arguments)
        try:
            healthy = report(world, folder, port.value, limits, arguments)
        finally:
            model.kill()
    sys.exit(0 if healthy else 1)


def report(world: World, folder: Path, port: int, limits: LiveLimits, arguments: argparse.Namespace) -> bool:
    """Serve, kill, and print."""
    before = read_all(open_store(folder / "store").scan()).vectors
    full_run = answers_of(world.new, world, world.new_queries, limits.depth)
    full = quality(world, full_run)
    translated = quality(world, answers_of(before, world, world.new_queries, limits.depth))
    best = quality(world, answers_of(before, world, world.new_queries, limits.depth, world.new))
    weighted = full[world.log].mean()
    cosines, is_real = (
        (before * world.new).sum(axis=1),
        np.array([not one.id.startswith("made-up:") for one in world.documents]),
    )
    print(
        f"cosine of a translated vector and the true one: {cosines[is_real].mean():.3f} in the mean of "
        f"{is_real.sum():,} real documents, {cosines[~is_real].mean() if (~is_real).any() else np.nan:.3f} of "
        f"{(~is_real).sum():,} made-up ones"
    )
    print(
        f"{len(world.documents):,} documents, {len(world.log):,} queries ({len(np.unique(world.log))} different), "
        f"{arguments.clients} clients; nDCG@10 of the full re-embed {weighted:.4f}; of it the translated store keeps "
        f"{translated[world.log].mean() / weighted:.3f}, all true vectors of the first {limits.depth} would "
        f"{best[world.log].mean() / weighted:.3f}"
    )
    embedded = folder / "embedded.log"
    fleet = Fleet(folder, port, limits, arguments)
    for number in (0, 1):
        fleet.start_server(number)
    fleet.start_worker()
    while not all(Path(fleet.address(number)).exists() for number in (0, 1)):
        time.sleep(0.1)
    replay = Replay(world, fleet, embedded, arguments.pause_ms / 1e3)
    moments = sorted(random.Random(arguments.seed).sample(range(1, len(world.log)), arguments.kills))
    killer = threading.Thread(target=kill_at, args=(moments, replay, fleet))
    started = time.perf_counter()
    killer.start()
    replay.run(arguments.clients)
    seconds = time.perf_counter() - started
    killer.join()
    fleet.stop()
    answers = replay.answers
    print_parts("live", world, answers, full_run)
    print_bare_search(answers)
    for depth in dict.fromkeys((LiveLimits().depth, limits.depth)):
        print_overhead(folder, port, world, depth)
        if arguments.old:
            print_overhead_of_both(folder, port, world, depth)
    mixed = mixed_answers(world, answers, before)
    served, lost = lost_vectors(world, answers, folder, port)
    asked = embedded.read_bytes().count(b"\n")
    status = status_of(str(folder / "store"))
    print(
        f"\n{seconds:.0f} s; {fleet.kills['server']} kills of a server, {fleet.kills['worker']} of the worker; "
        f"{replay.asked_again} times a client asked again\n"
        f"failed queries {len(replay.failed)}; mixed-model answers {mixed}; lost true vectors {lost} of {served:,} "
        f"served; {asked:,} embeddings of {unique_rows(embedded):,} documents; {status.true or 0:,} true vectors"
    )
    print(f"the worker's verdict: {status.verdict}")
    for message in replay.failed[:3]:
        print(message)
    return not (replay.failed or mixed or lost)


def kill_at(moments: Sequence[int], replay: Replay, fleet: Fleet) -> None:
    """Kill one process whenever so many queries are answered."""
    for number, moment in enumerate(moments):
        while replay.done < moment:
            time.sleep(0.01)
            if replay.done >= len(replay.answers):
                return
        fleet.kill_one(number)


if __name__ == "__main__":
    main()
