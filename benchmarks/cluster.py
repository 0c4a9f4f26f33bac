"""What a Dask cluster is worth, what is left of it when its processes are killed, and what it takes of memory.

    python benchmarks/cluster.py speed [--rows 100000 ...] [--texts 4096]
    python benchmarks/cluster.py kills [--kills 50] [--rows 20000] [--shards none|folder|s3] [--seed 0]
    python benchmarks/cluster.py memory [--rows 1000000 10000000 100000000]
    python benchmarks/cluster.py commit [--rows 2000000]
    python benchmarks/cluster.py bucket [--rows 200000]

`speed` has two workers, which are running already, translate a store and embed a corpus, and two processes on their
own that do one half each, at the same time; ratios are above 1 where the cluster takes less. All processes that are
timed have imported what they need, and each side ends with complete stores. `--texts 0` leaves the
embedding out. `kills` kills a worker, the scheduler or the coordinator, whichever comes up, at a random moment of a
translation, starts again what is missing, and compares every file in the end; with `s3` shards go through moto's server
(pip install 'moto[server]' s3fs). `memory` writes stores whose made-up vectors go elsewhere, in shards of 8,192, and
prints the most memory that coordinator and scheduler had. `commit` translates a flat and an IVF index, and
prints the memory that it takes, beside the size of the vectors. `bucket` translates Parquet on S3 to Parquet on S3, by
a stitch of it that reads texts, with one worker and with two, and counts what goes through the coordinator's sockets;
moto's server takes a part of the same cores, as the seconds of each show. Ends with exit code 1 where an output
differs.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import victims
from dask_processes import Processes, kill, processes
from s3_server import s3_server
from victims import digest, make_parts_small, make_stitch, make_store, prepare

import migrate
from migrate.cluster import DaskRunner
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.embedders.elsewhere import elsewhere
from migrate.selection.sample import SAMPLE_SIZE
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.vectors import Document
from migrate.work.jobs import Configuration, StoreJob, Task, Work, shard_maker
from migrate.work.outputs import write_store
from migrate.work.runner import LocalRunner, Runner
from migrate.work.shards import Block, Shard, shards_of
from migrate.work.writer import NoParts, StoreWriter

_VICTIMS = ("worker", "scheduler", "coordinator")


def translate(folder: Path, output: Path, runner: Runner) -> None:
    """The translation that is timed, and killed."""
    migrate.translate(open_store(folder / "source"), load_stitch(folder / "stitch"), output, runner=runner)


def forked(job: Callable[[], object]) -> int:
    """Start a job in a process of its own, and return its id; what it says of an error is left out."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not os.environ.get("CLUSTER_DEBUG"):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            job()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def ended(child: int) -> bool:
    """Whether a process got through to its end."""
    return os.waitpid(child, 0)[1] == 0


_WORDS = (
    "vector", "store", "index", "query", "model", "text", "term", "rank", "score", "batch", "token", "layer", "space",
    "norm", "cosine", "sample",
)  # fmt: skip


def passages(count: int) -> Iterator[Document]:
    """Documents of a hundred and fifty words, as chunks of a corpus are."""
    rng = np.random.default_rng(0)
    for row in range(count):
        words = " ".join(_WORDS[word] for word in rng.integers(len(_WORDS), size=150))
        yield Document(f"passage-{row}", f"{words} {row}", {"row": row})


def prepare_passages(folder: Path, rows: int) -> None:
    """A store of 384 dimensions with texts, and two stitches to 768: `stitch` reads them, `linear` does not."""
    victims.DIM, victims.TARGET_DIM, victims.documents = 384, 768, passages
    make_store("texts", folder / "source", rows)
    make_stitch(folder / "source", folder / "stitch", reads_texts=True, dim=384, rows=SAMPLE_SIZE)
    make_stitch(folder / "source", folder / "linear", dim=384, rows=SAMPLE_SIZE)


def embed_passages(rows: int, output: Path, runner: Runner) -> None:
    """The embedding that is timed, by a real model."""
    model = load_embedder("packaged:all-MiniLM-L6-v2", device="cpu")
    embed_corpus(lambda: passages(rows), elsewhere(model, runner), output)


@dataclass(frozen=True)
class Took:
    """What a run took: seconds on the clock, and of all processors together."""

    wall_s: float
    cpu_s: float


def compare_speed(rows: int, texts: int) -> None:
    """Print the seconds of a cluster and of two processes on their own, and the ratio."""
    import distributed  # noqa: F401 - for those that are forked

    with tempfile.TemporaryDirectory() as name, processes(Path(name)) as started:
        folder = Path(name)
        runner = DaskRunner(str(started.file))
        for half in ("whole", "first", "second"):
            (folder / half).mkdir()
            ended(forked(partial(prepare_passages, folder / half, rows if half == "whole" else rows // 2)))
        jobs: dict[str, tuple[Callable[[Path], None], Callable[[Path], None], list[Callable[[Path], None]]]] = {
            f"translate {rows:,}": (
                lambda output: translate(folder / "whole", output, runner),
                lambda output: translate(folder / "whole", output, runner),
                [partial(_translate_alone, folder / half) for half in ("first", "second")],
            ),
            f"embed {texts:,}": (
                lambda output: embed_passages(64, output, runner),
                lambda output: embed_passages(texts, output, runner),
                [partial(_embed_alone, texts // 2) for _ in range(2)],
            ),
        }
        if not texts:
            jobs.popitem()
        ended(forked(partial(_wait_for_workers, runner, len(started.workers))))  # a fork takes no threads along
        for work, (warm_up, by_cluster, by_halves) in jobs.items():
            _measure([warm_up], folder / "warm", started)  # workers that are running have imported what they need
            together = _measure([by_cluster], folder / "together", started)
            apart = _measure(by_halves, folder / "apart", started)
            print(
                f"{work:20} {apart.wall_s:10.1f} {apart.cpu_s:8.1f} {together.wall_s:9.1f} {together.cpu_s:8.1f} "
                f"{apart.wall_s / together.wall_s:10.2f} {apart.cpu_s / together.cpu_s:8.2f}",
                flush=True,
            )


def _wait_for_workers(runner: DaskRunner, count: int) -> None:
    with runner.cluster() as cluster:
        while cluster.threads() < count:
            time.sleep(0.1)


def _translate_alone(folder: Path, output: Path) -> None:
    translate(folder, output, LocalRunner(1))


def _embed_alone(rows: int, output: Path) -> None:
    embed_passages(rows, output, LocalRunner(1))


def _measure(jobs: Sequence[Callable[[Path], None]], output: Path, started: Processes) -> Took:
    begun, cpu_s = time.perf_counter(), _cpu_s(started)
    children = [forked(partial(job, output.with_name(f"{output.name}-{n}"))) for n, job in enumerate(jobs)]
    got_through = [ended(child) for child in children]
    took = Took(time.perf_counter() - begun, _cpu_s(started) - cpu_s)
    if not all(got_through):
        raise SystemExit("a run failed by itself")
    for n in range(len(jobs)):
        shutil.rmtree(output.with_name(f"{output.name}-{n}"))
    return took


def _cpu_s(started: Processes) -> float:
    """What the processes of the cluster, and all that have ended, have used so far."""
    scheduler_s = 0.0 if started.scheduler is None else _process_s(started.scheduler.pid)
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return scheduler_s + _workers_s(started) + own.ru_utime + own.ru_stime


def _workers_s(started: Processes) -> float:
    return sum(_process_s(worker.pid) for worker in started.workers)


def _process_s(process: int | str) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Trials:
    """A cluster that is killed again and again while it translates."""

    folder: Path
    started: Processes
    runner: DaskRunner
    rng: random.Random

    def run(self, kills: int) -> tuple[Counter[str], int, int]:
        """How often each was killed, how many kills left unfinished work, and how many outputs are identical."""
        expected, output = self.folder / "expected", self.folder / "output"
        state = self.folder / ".output.work" / "work.json"
        ended(forked(partial(translate, self.folder, expected, LocalRunner(1))))
        job = partial(translate, self.folder, output, self.runner)
        begun = time.perf_counter()
        for _ in range(2):  # the first one has the workers import what they need
            begun = time.perf_counter()
            if not ended(forked(job)) or digest(output) != digest(expected):
                raise SystemExit("a run that nobody disturbed failed")
            shutil.rmtree(output)
        whole_s = time.perf_counter() - begun
        killed, midway, identical = Counter[str](), 0, 0
        for _ in range(kills):
            victim = self.rng.choice(_VICTIMS)
            child = forked(job)
            time.sleep(self.rng.uniform(0, whole_s))
            self._kill(victim, child)
            got_through = ended(child)
            midway += state.exists()
            killed[victim] += 1
            self._repair()
            while not got_through:
                got_through = ended(forked(job)) or (output.exists() and not state.exists())
            identical += digest(output) == digest(expected) and not state.exists()
            shutil.rmtree(output)
            print(f"{killed.total()} of {kills}, {identical} identical", file=sys.stderr)
        return killed, midway, identical

    def _kill(self, victim: str, coordinator: int) -> None:
        if victim == "coordinator":
            os.kill(coordinator, signal.SIGKILL)
        elif victim == "worker":
            kill(self.rng.choice(self.started.workers))
        elif self.started.scheduler is not None:
            kill(self.started.scheduler)

    def _repair(self) -> None:
        scheduler = self.started.scheduler
        if scheduler is None or scheduler.poll() is not None:
            self.started.kill_all()
            self.started.start_scheduler()
        self.started.workers = [worker for worker in self.started.workers if worker.poll() is None]
        while len(self.started.workers) < 2:
            self.started.start_worker()


def count_kills(kills: int, rows: int, shards: str, seed: int) -> bool:
    """Print a line, and say whether everything is identical."""
    make_parts_small()
    with tempfile.TemporaryDirectory() as name, contextmanager(_place)(shards, Path(name)) as location:
        folder = Path(name)
        ended(forked(partial(prepare, "flat", folder, rows)))
        with processes(folder) as started:
            runner = DaskRunner(str(started.file), location)
            killed, midway, identical = Trials(folder, started, runner, random.Random(seed)).run(kills)
    print("shards    worker  scheduler  coordinator  with work left  identical")
    counts = "".join(f"{killed[victim]:{width}}" for victim, width in zip(_VICTIMS, (8, 11, 13), strict=True))
    print(f"{shards:8}{counts}{midway:16}{identical:7} of {kills}")
    return identical == kills


def _place(shards: str, folder: Path) -> Iterator[str | None]:
    if shards == "s3":
        with s3_server(folder):
            yield "s3://shards/run"
    else:
        yield str(folder / "shards") if shards == "folder" else None


_SOURCE, _PARTS = "parquet:s3://shards/source", 8


class CountedSocket(socket.socket):
    """A socket whose bytes are counted, those of all together."""

    count = 0

    def recv(self, *arguments: Any) -> bytes:
        """Receive, and count."""
        received = super().recv(*arguments)
        CountedSocket.count += len(received)
        return received

    def recv_into(self, *arguments: Any) -> int:
        """Receive, and count."""
        received = super().recv_into(*arguments)
        CountedSocket.count += received
        return received

    def send(self, *arguments: Any) -> int:
        """Send, and count."""
        sent = super().send(*arguments)
        CountedSocket.count += sent
        return sent


def compare_workers(rows: int) -> None:
    """Print the seconds of a translation on object storage by one worker and by two, and the coordinator's bytes."""
    print("                       of 1  coordinator  of the        of it    CPU s of the    of the     of the")
    print("workers    wall s  worker          MiB  vectors  the stitch     coordinator   workers  S3 server")
    with tempfile.TemporaryDirectory() as name, s3_server(Path(name)) as variables:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        if not ended(forked(partial(_prepare_bucket, folder, rows))):
            raise SystemExit("the store could not be made")
        alone_s, vectors = 0.0, 4 * 768 * rows
        stitch = sum(path.stat().st_size for path in (folder / "on bucket").iterdir())
        for workers in (1, 2):
            (folder / str(workers)).mkdir()
            apart = {"XDG_CACHE_HOME": str(folder / f"cache of {workers}")}  # workers are on other machines as a rule
            with processes(folder / str(workers), workers, with_this() | variables | apart) as started:
                runner = DaskRunner(str(started.file))
                ended(forked(partial(_wait_for_workers, runner, workers)))
                _on_bucket(folder, f"warm-{workers}", runner)  # workers import what they need
                before = _workers_s(started), _server_s()
                wall_s, own_s, moved = _on_bucket(folder, f"new-{workers}", runner)
                workers_s, server_s = _workers_s(started) - before[0], _server_s() - before[1]
            alone_s = alone_s or wall_s
            print(
                f"{workers:7} {wall_s:9.1f} {alone_s / wall_s:7.2f} {moved / (1 << 20):12.1f} {moved / vectors:8.1%} "
                f"{stitch / (1 << 20):11.1f} {own_s:15.1f} {workers_s:9.1f} {server_s:10.1f}",
                flush=True,
            )


def _server_s() -> float:
    """Seconds of a core that the S3 server of this process has taken."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    servers = [child for child in children if b"moto.server" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return sum(map(_process_s, servers))


def _prepare_bucket(folder: Path, rows: int) -> None:
    prepare_passages(folder, rows)
    write_parquet(folder / "source", _SOURCE.removeprefix("parquet:"), rows)
    make_stitch(_SOURCE, folder / "on bucket", reads_texts=True, dim=384, rows=SAMPLE_SIZE)


def write_parquet(source: Path, place: str, rows: int) -> None:
    """Write a store as Parquet files, to a folder or to object storage."""
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    store, size = open_store(source), -(-rows // _PARTS)
    system, root = fsspec.url_to_fs(place)
    system.makedirs(root, exist_ok=True)
    documents = store.documents()
    for part, first in enumerate(range(0, rows, size)):
        batch = store.get(np.arange(first, min(first + size, rows)))
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(batch.vectors.ravel()), store.info.dim)
        columns = {"id": list(batch.ids), "text": [next(documents).text for _ in batch.ids], "vector": vectors}
        with system.open(f"{root}/part-{part}.parquet", "wb") as file:
            pq.write_table(pa.table(columns), file)


def _on_bucket(folder: Path, output: str, runner: Runner) -> tuple[float, float, float]:
    """Seconds of a translation, those of the coordinator's core, and bytes of its sockets."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:

        def job() -> None:
            socket.socket = CountedSocket  # type: ignore[misc]
            begun, begun_s = time.perf_counter(), time.process_time()
            location = f"parquet:s3://shards/{output}"
            migrate.translate(open_store(_SOURCE), load_stitch(folder / "on bucket"), location, runner=runner)
            np.save(file.name, [time.perf_counter() - begun, time.process_time() - begun_s, CountedSocket.count])

        if not ended(forked(job)):
            raise SystemExit("a run failed by itself; CLUSTER_DEBUG=1 shows why")
        wall_s, own_s, count = np.load(file.name).tolist()
        return wall_s, own_s, count


_SHARD_ROWS = 8_192


@dataclass(frozen=True)
class MadeUp(Task):
    """Shards whose vectors went to where every machine can write: confidence and checksums are left of them."""

    digest: str = "00"

    def open(self) -> Callable[[Shard], Sequence[memoryview]]:
        """Return what makes up shards; there is nothing to open."""
        return shard_maker(made_up, NoParts)


def made_up(shard: Shard) -> Iterator[Block]:
    """The rows of a shard."""
    ones = np.ones(len(shard), np.float32)
    yield Block({"confidence": ones, "sources": np.arange(shard.start, shard.stop, dtype=np.uint64)})


@dataclass
class MadeUpJob(StoreJob):
    """A store of made-up rows: everything that a coordinator does, but for opening a store."""

    total: int = 0
    shard_bytes: int = 0

    stage = "made up"
    dim = 4

    def configuration(self) -> Configuration:
        """Of nothing but the number of rows."""
        return Configuration("made up", {"rows": self.total})

    def writer(self, work: Work, dim: int) -> NoParts:
        """One that keeps nothing."""
        return NoParts(dim)

    def shards(self, work: Work) -> Iterator[Shard]:
        """Smaller than those of a real store, so that there are more."""
        return shards_of(self.total, _SHARD_ROWS)

    def blocks(self, shard: Shard) -> Iterator[Block]:
        """As a worker makes them."""
        return made_up(shard)

    def task(self, work: Path | None) -> MadeUp:
        """By a module that workers find: not __main__, which is another one there."""
        import cluster

        return cluster.MadeUp()

    def finish(self, work: Work, writer: StoreWriter) -> dict[str, int]:
        """As a translation does, which counts true vectors and writes what lies beside the store."""
        self.shard_bytes = sum(path.stat().st_size for path in (work.path / "shards").iterdir())
        work.all_rows(self.dim)
        work.write_values(None)
        return {"true": sum(int((work.shards.array(shard, "confidence") == 1).sum()) for shard in work.shards)}


def measure_memory(counts: Sequence[int]) -> None:
    """Print the resident memory of the coordinator and of the scheduler."""
    print("       rows   shards  coordinator MiB  scheduler MiB     B/shard file  CPU ms/shard  seconds")
    with tempfile.TemporaryDirectory() as name, processes(Path(name), environment=with_this()) as started:
        for rows in counts:
            if not ended(forked(partial(_hand_out, started, Path(name) / f"made-up-{rows}", rows))):
                raise SystemExit("a run failed by itself")


def measure_commit(rows: int) -> None:
    """Print the memory that a translation takes, without pages of files, beside the size of the vectors."""
    print("index       rows  vectors MiB  memory MiB  of its children")
    for kind in ("flat", "ivf"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            ended(forked(partial(prepare, kind, folder, rows)))
            if not ended(forked(partial(_commit, kind, folder, rows))):
                raise SystemExit("a run failed by itself")


def _commit(kind: str, folder: Path, rows: int) -> None:
    peaks, stop = [0.0, 0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            own = os.getpid()
            children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
            peaks[0] = max(peaks[0], _anonymous_mib(str(own)))
            peaks[1] = max(peaks[1], sum(map(_anonymous_mib, children)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    translate(folder, folder / "new", LocalRunner(1))
    stop.set()
    watcher.join()
    size = (open_store(folder / "new").info.dim * 4 * rows) / (1 << 20)
    print(f"{kind:6} {rows:9,} {size:12.0f} {peaks[0]:11.0f} {peaks[1]:16.0f}", flush=True)


def _anonymous_mib(process: str) -> float:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024
    return 0.0


def with_this() -> dict[str, str]:
    """The variables by which workers find the task of this file."""
    return {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}


def _hand_out(started: Processes, output: Path, rows: int) -> None:
    begun, job = time.perf_counter(), MadeUpJob(rows)
    write_store(output, job, runner=DaskRunner(str(started.file)))
    shutil.rmtree(output)
    used, shards = resource.getrusage(resource.RUSAGE_SELF), -(-rows // _SHARD_ROWS)
    scheduler = started.scheduler.pid if started.scheduler else 0
    cpu_ms = 1_000 * (used.ru_utime + used.ru_stime) / shards
    print(
        f"{rows:11,} {shards:8,} {used.ru_maxrss / 1024:16.0f} {_peak_mib(scheduler):14.0f} "
        f"{job.shard_bytes / shards:16.0f} {cpu_ms:13.1f} {time.perf_counter() - begun:8.1f}",
        flush=True,
    )


def _peak_mib(process: int) -> float:
    """The most memory that a process has had resident."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Print one of five tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    speed = parts.add_parser("speed")
    speed.add_argument("--rows", type=int, nargs="+", default=[100_000])
    speed.add_argument("--texts", type=int, default=4_096)
    kills = parts.add_parser("kills")
    kills.add_argument("--kills", type=int, default=50)
    kills.add_argument("--rows", type=int, default=20_000)
    kills.add_argument("--shards", choices=["none", "folder", "s3"], default="none")
    kills.add_argument("--seed", type=int, default=0)
    memory = parts.add_parser("memory")
    memory.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    bucket = parts.add_parser("bucket")
    bucket.add_argument("--rows", type=int, default=200_000)
    commit = parts.add_parser("commit")
    commit.add_argument("--rows", type=int, default=2_000_000)
    arguments = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clusters that were started end with it
    if arguments.part == "speed":
        print("                          two processes      dask, 2 workers            ratio")
        print("work                     wall s    CPU s    wall s    CPU s    of wall   of CPU")
        for number, rows in enumerate(arguments.rows):
            compare_speed(rows, 0 if number else arguments.texts)
    elif arguments.part == "commit":
        measure_commit(arguments.rows)
    elif arguments.part == "bucket":
        compare_workers(arguments.rows)
    elif arguments.part == "memory":
        measure_memory(arguments.rows)
    elif not count_kills(arguments.kills, arguments.rows, arguments.shards, arguments.seed):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
