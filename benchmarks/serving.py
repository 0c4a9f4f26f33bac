"""Measures what a translation does to the queries that its store answers meanwhile, with and without `--pace`.

    python benchmarks/serving.py [--kinds pgvector qdrant] [--to parquet own] [--paces 1 0.25] [--nice] [--rows 50000]
                                 [--rate 200] [--repeats 3] [--idle-s 10] [--most-s 60] [--lock FILE]

PostgreSQL is `pgserver`'s, with an HNSW index of pgvector; Qdrant is its engine `qdrant-edge-py` behind the HTTP of
tests/stores/qdrant_server.py, a process of Python, indexed before it serves. Both hold vectors of 384 dimensions with
texts. A process of its own asks for the ten nearest documents, `--rate` times a second by the clock: the latency of a
query counts from when it was due, whatever became of those before it. Beside it `lead-migrate translate` runs, into
Parquet or into a new store of the same server (`own`), and is ended after `--most-s`. `--nice` adds rows of
a client under `nice -n 19`, which tell its share of the processor from the load of the server.

The ways take turns, each after a rest in which nothing but the queries runs, and each row is of all its turns together:
rows that a whole translation moves a second (none where it was ended), p50 and p99 of the queries, and both divided by
those of the rests before. `rest` is a rest measured like a translation, and shows the noise. With `--lock` each rest
and the translation after it hold that file. Ctrl-C ends the turns, and those that were taken are printed.
"""

from __future__ import annotations

import argparse
import fcntl
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path

import numpy as np
from kills import Setting, start_postgres
from numpy.typing import NDArray

from migrate.manifest import Manifest
from migrate.selection import Pairs
from migrate.steps.fit.job import fit_pairs
from migrate.stores import open_store

ROOT = Path(__file__).resolve().parent.parent
DIM, LATENT, NEAREST, QUERIES = 384, 24, 10, 1_000
ASKERS = 8
"""Queries that are under way at once, at most."""

Vectors = NDArray[np.float32]
Latencies = NDArray[np.float64]
Ask = Callable[[int], object]


def clustered_vectors(rows: int, seed: int) -> Vectors:
    """Unit vectors that lie near a subspace, as those of texts do."""
    rng = np.random.default_rng(0)
    plane = rng.standard_normal((LATENT, DIM))
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((rows, LATENT)) @ plane + 0.5 * rng.standard_normal((rows, DIM))
    units: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return units


@contextmanager
def postgres(folder: Path, rows: int) -> Iterator[str]:
    """The location of a table of a server."""
    import psycopg

    setting = Setting("pgvector", folder)
    start_postgres(setting)
    try:
        give_memory(setting)
        with psycopg.connect(setting.place.partition(":")[2], autocommit=True) as connection:
            connection.execute("SET maintenance_work_mem = '512MB'")
            columns = f"id text PRIMARY KEY, content text, metadata jsonb, embedding vector({DIM})"
            connection.execute(f"CREATE TABLE docs ({columns})")
            with connection.cursor().copy("COPY docs FROM STDIN") as copy:
                for row, vector in enumerate(clustered_vectors(rows, 1)):
                    copy.write_row((f"doc-{row:08}", f"text {row}", "{}", json.dumps(vector.tolist())))
            connection.execute("CREATE INDEX ON docs USING hnsw (embedding vector_ip_ops)")
            connection.execute("VACUUM ANALYZE docs")
            connection.execute("CHECKPOINT")
        yield f"{setting.place}#docs"
    finally:
        for end in setting.ends:
            end()


def give_memory(setting: Setting) -> None:
    """Let a server of PostgreSQL hold the tables in memory, as one that serves them is set up to: start it again."""
    import psycopg
    from pgserver import pg_ctl  # type: ignore[attr-defined]
    from pgserver.postgres_server import get_server

    with psycopg.connect(setting.place.partition(":")[2], autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET shared_buffers = '1GB'")
    server = get_server(f"{setting.folder}/data", cleanup_mode="delete")
    pg_ctl(["-w", "-m", "fast", "restart"], pgdata=server.pgdata, user=server.system_user, timeout=60)


@contextmanager
def qdrant(folder: Path, rows: int) -> Iterator[str]:
    """The location of a collection of a server."""
    from qdrant_client import QdrantClient, models

    command = [sys.executable, __file__, "--serve", str(folder / "qdrant")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        client = QdrantClient(url=url, timeout=600, check_compatibility=False)
        client.create_collection("docs", models.VectorParams(size=DIM, distance=models.Distance.DOT))
        vectors = clustered_vectors(rows, 1)
        for first in range(0, rows, 500):
            points = [
                models.PointStruct(id=row, vector=vectors[row].tolist(), payload={"text": f"text {row}"})
                for row in range(first, min(first + 500, rows))
            ]
            client.upsert("docs", points)
        client.update_collection("docs", optimizers_config=models.OptimizersConfigDiff())
        yield f"qdrant:{url}#docs"
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


SERVERS = {"pgvector": postgres, "qdrant": qdrant}


def serve(folder: Path) -> None:
    """Serve collections of Qdrant until the input ends, and print where."""
    sys.path.insert(0, str(ROOT / "tests" / "stores"))
    folder.mkdir()
    with import_module("qdrant_server").serving(folder) as url:
        print(url, flush=True)
        sys.stdin.read()


def asker(location: str) -> Ask:
    """A connection of its own, by which the query of a number is asked."""
    kind, _, place = location.partition(":")
    place, _, name = place.partition("#")
    queries = clustered_vectors(QUERIES, 2)
    if kind == "pgvector":
        import psycopg

        connection = psycopg.connect(place, autocommit=True)
        question = f"SELECT id FROM {name} ORDER BY embedding <#> %s::vector LIMIT {NEAREST}"
        texts = [json.dumps(query.tolist()) for query in queries]
        return lambda number: connection.execute(question, [texts[number % QUERIES]]).fetchall()
    server = http.client.HTTPConnection(place.rpartition("/")[2])
    bodies = [json.dumps({"searches": [{"query": query.tolist(), "limit": NEAREST}]}).encode() for query in queries]

    def ask(number: int) -> bytes:
        server.request("POST", f"/collections/{name}/points/query/batch", bodies[number % QUERIES])
        with server.getresponse() as response:
            if response.status != 200:
                raise SystemExit(f"the server says {response.status}")
            return response.read()

    return ask


def ask_on(location: str, rate: float) -> None:
    """Ask by the clock until the input ends, and print a line once that has begun.

    At the end, print when each query was due, and its latency, in seconds.
    """
    numbers, is_over, answered = count(), threading.Event(), list[tuple[float, float]]()
    asks = [asker(location) for _ in range(ASKERS)]
    start = time.monotonic() + 0.5

    def ask_by_turns(ask: Ask) -> None:
        while not is_over.is_set():
            number = next(numbers)
            due = start + number / rate
            time.sleep(max(due - time.monotonic(), 0))
            ask(number)
            answered.append((due, time.monotonic() - due))

    threads = [threading.Thread(target=ask_by_turns, args=[ask]) for ask in asks]
    for thread in threads:
        thread.start()
    print(flush=True)
    sys.stdin.read()
    is_over.set()
    for thread in threads:
        thread.join()
    print(json.dumps(answered))


@dataclass(frozen=True)
class Way:
    """A way to translate: where to (None is a rest), at which pace, by a client under `nice` or not."""

    to: str | None
    pace: float | None = None
    is_nice: bool = False

    @property
    def label(self) -> str:
        """Its name in the table."""
        if self.to is None:
            return f"{'rest':10}{'':>6}{'':>6}"
        return f"{self.to:10}{self.pace or '-':>6}{'nice' if self.is_nice else '':>6}"


@dataclass
class Turns:
    """Latencies of queries in the turns of a way, and in the rests before; and the rows that each moved a second."""

    rests: list[Latencies] = field(default_factory=list)
    runs: list[Latencies] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def columns(self) -> str:
        """The columns of the table."""
        rest, busy = 1_000 * np.concatenate(self.rests), 1_000 * np.concatenate(self.runs)
        p50, p99 = np.percentile(busy, [50, 99])
        ratios = np.array([p50, p99]) / np.percentile(rest, [50, 99])
        each = [
            np.percentile(run, 99) / np.percentile(before, 99)
            for before, run in zip(self.rests, self.runs, strict=True)
        ]
        rate = f"{np.mean(self.rates):>9,.0f}" if self.rates else f"{'-':>9}"
        return (
            f"{rate}{len(busy):>9,}{p50:>9.2f}{p99:>9.2f}{ratios[0]:>9.2f}{ratios[1]:>9.2f}"
            f"   {min(each):.2f}-{max(each):.2f}"
        )


class Trial:
    """The translations of one store, beside the queries that it answers."""

    def __init__(self, location: str, folder: Path, options: argparse.Namespace) -> None:
        self.location, self.folder, self.options = location, folder, options
        self.stitch, self.work = folder / "stitch", folder / "work"
        old = clustered_vectors(2_000, 3)
        turn = np.linalg.qr(np.random.default_rng(4).standard_normal((DIM, DIM)))[0].astype(np.float32)
        pairs = Pairs(tuple(f"pair-{row}" for row in range(len(old))), old, old @ turn)
        manifest = Manifest("stitch", details={"fingerprint": open_store(location).snapshot().fingerprint})
        fit_pairs(pairs, ["ridge"], manifest=manifest, state={}, seed=0).save(self.stitch)

    def run(self, ways: list[Way]) -> None:
        """Take all turns, and print the table."""
        turns = {way: Turns() for way in ways}
        with suppress(KeyboardInterrupt):
            for way in ways * self.options.repeats:
                with self._calm():
                    self._take_turn(way, turns[way])
        kind = self.location.partition(":")[0]
        for way, taken in turns.items():
            if not taken.runs:
                continue
            print(f"{kind:10}{way.label}{taken.columns()}", flush=True)

    @contextmanager
    def _calm(self) -> Iterator[None]:
        """Hold the lock, where there is one."""
        if self.options.lock is None:
            yield
            return
        with self.options.lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        time.sleep(1)  # or whoever waits for it never gets it

    def _take_turn(self, way: Way, turns: Turns) -> None:
        command = [sys.executable, __file__, "--ask", self.location, "--rate", str(self.options.rate)]
        asking = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert asking.stdout is not None
        asking.stdout.readline()
        time.sleep(2)
        begin = time.monotonic()
        time.sleep(self.options.idle_s)
        middle = time.monotonic()
        seconds = self._translate(way)
        end = time.monotonic()
        answered = np.array(json.loads(asking.communicate()[0]))
        due, latencies = answered.T
        turns.rests.append(latencies[(due >= begin) & (due < middle)])
        turns.runs.append(latencies[(due >= middle) & (due < end)])
        turns.rates += [] if seconds is None else [self.options.rows / seconds]
        self._tidy()

    def _translate(self, way: Way) -> float | None:
        """Translate in a way, or rest; return the seconds of a translation that came to its end."""
        if way.to is None:
            time.sleep(self.options.idle_s)
            return None
        place = self.location.partition("#")[0]
        output = f"parquet:{self.folder / 'new'}" if way.to == "parquet" else f"{place}#docs_new"
        program = ["nice", "-n", "19"] if way.is_nice else []
        program += [sys.executable, "-m", "migrate", "translate", self.location, str(self.stitch), "-o", output]
        program += ["--any-store", "--quiet", *([] if way.pace is None else ["--pace", str(way.pace)])]
        folders = dict.fromkeys(("LEAD_MIGRATE_WORK_FOLDER", "XDG_STATE_HOME", "XDG_CACHE_HOME"), str(self.work))
        begin = time.monotonic()
        process = subprocess.Popen(
            program,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **folders},
            start_new_session=True,
        )
        try:
            printed = process.communicate(timeout=self.options.most_s)[0]
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate()
        if process.returncode != 0:
            raise SystemExit(printed)
        return time.monotonic() - begin

    def _tidy(self) -> None:
        """Remove the new store, or what is there of it, and what was exported."""
        for path in (self.work, self.folder / "new", self.folder / ".new.work"):
            shutil.rmtree(path, ignore_errors=True)
        kind, _, place = self.location.partition(":")
        place = place.partition("#")[0]
        if kind == "pgvector":
            import psycopg

            with psycopg.connect(place, autocommit=True) as connection:
                made = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^docs_new'"
                for (table,) in connection.execute(made).fetchall():
                    connection.execute(f'DROP TABLE "{table}"')
                connection.execute("CHECKPOINT")
        else:
            from qdrant_client import QdrantClient

            client = QdrantClient(url=place, check_compatibility=False)
            for collection in client.get_collections().collections:
                if collection.name != "docs":
                    client.delete_collection(collection.name)


def main() -> None:
    """Measure each kind, or be one of the processes that this takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=SERVERS, default=[*SERVERS])
    parser.add_argument("--to", nargs="+", choices=("parquet", "own"), default=["parquet", "own"])
    parser.add_argument("--paces", nargs="+", type=float, default=[1, 0.25, 0.1], help="1 is for none")
    parser.add_argument("--nice", action="store_true")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--idle-s", type=float, default=10)
    parser.add_argument("--most-s", type=float, default=60)
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    if options.ask is not None:
        ask_on(options.ask, options.rate)
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a shell has it ignored
    niceness = (False, True) if options.nice else (False,)
    ways = [
        Way(to, None if pace == 1 else pace, is_nice)
        for to in options.to
        for pace in options.paces
        for is_nice in niceness
    ]
    print(f"{options.rows:,} x {DIM}, {options.rate:g} queries a second\n")
    print(f"{'kind':10}{'to':10}{'pace':>6}{'':>6}{'rows/s':>9}{'queries':>9}{'p50 ms':>9}{'p99 ms':>9}{'p50 x':>9}"
          f"{'p99 x':>9}   each turn")  # fmt: skip
    for kind in options.kinds:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            location = stack.enter_context(SERVERS[kind](folder, options.rows))
            Trial(location, folder, options).run([Way(None), *ways])


if __name__ == "__main__":
    main()
