"""What 10^6 to 10^9 documents take: rates measured on this machine, and a cluster that is simulated by them.

    python benchmarks/scale.py [--rows 50000] [--texts 256] [--core-hour 0.05] [--memory 64] [--workers 1 8 64]
                               [--of FOLDER]

Measured in this run, each on one core: opening a store, reading it for its fingerprint, translating, embedding, writing
and reading, what a shard takes of the coordinator, the lists of an IVF index, and the memory for it. Simulated, shard
by shard: workers that open the store, do shards, and die once in a thousand hours with what they have in hand; and a
coordinator that opens the store too, puts one shard after the other into its place, and at the end reads what was
written. A store is a FAISS index with a docs.jsonl, whose coordinator hashes the documents, or eight files of Parquet,
which `fit` has read for their fingerprint on the coordinator's machine: what that takes is printed beside it, and no
part of a translation. Where it is of Parquet, workers put the vectors into the new one's parts themselves, and the
coordinator has 12 bytes of each row. The store has 384 dimensions, the new one 768; documents have 150 words. Money is
that of cores by the hour; an API's is that of its tokens. With `--of FOLDER` there are two more kinds of work: those of
`benchmarks/ten_million.py FOLDER`, by the processor time of one process and the sockets of `dask-local` and `dask`.

The last column says what most of the hours go to: `workers`, so that more of them help; `opening` and `reading` of the
whole store by a single process at the beginning and at the end; `coordinator`, which cannot put shards into their
places as fast as they come; or `memory`, which the coordinator does not have enough of.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from cluster import MadeUpJob, ended, forked, passages, prepare_passages, with_this, write_parquet
from dask_processes import processes

import migrate
from migrate.cluster import DaskRunner
from migrate.cost.count import Tally
from migrate.embedders import load_embedder
from migrate.embedders.registry import known_models
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.faiss.lists import append_lists
from migrate.work.outputs import write_store
from migrate.work.runner import LocalRunner

_OLD_DIM, _DIM, _LISTS = 384, 768, 1_024
_EMBED_ROWS = 1_024
_ID_BYTES = 3 * 8
"""The hash of an id, and what it takes to find equal ones."""

_BESIDE_BYTES = 4 + 8
"""Of a row, beside its vector: confidence and checksum."""

_SHARD_MEMORY = 400
"""Bytes of memory for a finished shard: its rows and the name of its file."""

_SETTLED_S = 3.0
"""The age of files whose fingerprint is noted."""

_LIFE_S = 1_000 * 3_600.0
_MADE_UP_SHARDS = 500
_PAID = "text-embedding-3-small"
_COUNTS = (10**6, 10**7, 10**8, 10**9)
Figures = tuple[float, ...]


@dataclass(frozen=True)
class Work:
    """One kind of work: seconds of a core a row, rows a shard, and bytes that the coordinator moves and holds of a row.

    `open_s` is what opening the store takes a worker for a row, `begin_s` what it takes the coordinator, with the
    fingerprint; `first_s` is the same on a machine that has not seen the files yet. A corpus is not opened, of which
    only hashes of ids are held.
    """

    name: str
    row_s: float
    shard_rows: int
    moved_bytes: float
    dim: int
    open_s: float
    begin_s: float
    first_s: float
    row_bytes: float


@dataclass(frozen=True)
class Rates:
    """What is the same for all work, for each row, byte or shard."""

    open_bytes: float
    base_bytes: float
    estimate_bytes: float
    doc_bytes: float
    doc_tokens: float
    write_s: float
    read_s: float
    put_s: float
    list_s: float
    list_bytes: float


def measure(rows: int, texts: int, folder: Path) -> tuple[Rates, list[Work]]:
    """Everything, by runs of the real thing."""
    _in_child(lambda: prepare_passages(folder, rows))
    source, new = folder / "source", folder / "new"
    small = folder / "small"
    small.mkdir()
    _in_child(lambda: prepare_passages(small, 1_000))
    for of, count in ((folder, rows), (small, 1_000)):
        _in_child(partial(write_parquet, of / "source", str(of / "parquet"), count))
    time.sleep(_SETTLED_S)
    works, memory = [], {}
    for kind, moved in (("", 4 * _DIM + _BESIDE_BYTES), (" of Parquet", _BESIDE_BYTES)):
        prefix, name_of = ("parquet:", "parquet") if kind else ("", "source")
        place, output = f"{prefix}{folder / name_of}", f"{prefix}{new}"
        little = f"{prefix}{small / name_of}"
        at_small = np.array(_in_child(partial(_open, little, little, folder / "cache")))
        at_place = np.array(_in_child(partial(_open, little, place, folder / "cache")))
        # what does not grow with the store is no part of what a row takes
        open_s, begin_s, first_s, open_bytes = np.maximum(at_place - at_small, 0)[1:] / (rows - 1_000)
        base = at_place[0]
        row_bytes = _ID_BYTES if kind else open_bytes  # buffers of Parquet do not grow with the store
        memory[kind] = base, row_bytes
        for name, stitch in (("old vectors", "linear"), ("texts too", "stitch")):
            row_s, shard_rows = _in_child(partial(_translate, little, place, folder / stitch, output, folder / "cache"))
            opens = float(open_s), float(begin_s), float(first_s), float(row_bytes)
            works.append(Work(f"{name}{kind}", row_s, int(shard_rows), moved, _DIM, *opens))
    (embed_s,) = _in_child(partial(_embed, texts))
    works.append(Work("embed, MiniLM", embed_s, _EMBED_ROWS, 4 * _OLD_DIM, _OLD_DIM, 0.0, 0.0, 0.0, _ID_BYTES))
    tokens, estimate_bytes = _in_child(partial(_estimate, rows))
    write_s, read_s = _in_child(partial(_disk, folder / "bytes"))
    list_s, list_bytes = _in_child(partial(_lists, rows, folder / "lists"))
    doc_bytes = (source / "docs.jsonl").stat().st_size / rows
    rates = Rates(
        memory[""][1], memory[""][0], estimate_bytes, doc_bytes, tokens, write_s, read_s,
        _coordinator(folder), list_s, list_bytes,
    )  # fmt: skip
    return rates, works


def _in_child(job: Callable[[], Figures | None]) -> Figures:
    """The figures of a job in a process of its own, whose memory and time nothing else is in."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        if not ended(forked(lambda: np.save(file.name, np.array(job() or (), np.float64)))):
            raise SystemExit("a measurement failed; CLUSTER_DEBUG=1 shows why")
        return tuple(np.load(file.name).tolist())


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def _open(small: str, source: str, cache: Path) -> Figures:
    """Bytes before it; seconds to open a store as a worker does, as a coordinator, and as the first; bytes for it."""
    os.environ["XDG_CACHE_HOME"] = str(cache / "import")
    open_store(small).snapshot()
    base, took = _peak_bytes(), []
    for folder, reads in ((cache / "worker", False), (cache, True), (cache, True)):
        os.environ["XDG_CACHE_HOME"], begun = str(folder), time.process_time()
        store = open_store(source)
        if reads:
            store.snapshot()
        took.append(time.process_time() - begun)
    return base, took[0], took[2], took[1], _peak_bytes() - base


def _translate(small: str, source: str, stitch: Path, output: str, cache: Path) -> Figures:
    """Seconds a row, beside those for a small store, and the rows of a shard."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    fitted, took = load_stitch(stitch), []
    for place in (small, small, source):  # the first imports
        store, seen = open_store(place), _Seen()
        store.snapshot()
        begun = time.process_time()
        migrate.translate(store, fitted, output, runner=LocalRunner(1), any_store=True, progress=seen)
        took.append((store.info.count, time.process_time() - begun))
        shutil.rmtree(output.removeprefix("parquet:"))
    (small_rows, small_s), (rows, seconds) = took[1:]
    return (seconds - small_s) / (rows - small_rows), seen.shard_rows


class _Seen:
    """A progress that notes the most rows of a shard."""

    def __init__(self) -> None:
        self._done, self.shard_rows = 0, 0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        self.shard_rows, self._done = max(self.shard_rows, done - self._done), done


def _embed(texts: int) -> Figures:
    model, documents = load_embedder("packaged:all-MiniLM-L6-v2", device="cpu"), list(passages(texts))
    model.embed_documents(documents[:8])
    begun = time.process_time()
    model.embed_documents(documents)
    return ((time.process_time() - begun) / texts,)


def _estimate(rows: int) -> Figures:
    """Tokens of a text, and what is remembered of each that was counted."""
    tally = Tally(load_embedder("packaged:all-MiniLM-L6-v2", device="cpu").loaded_profile())
    tally.cost(passages(1_000))
    before = _peak_bytes()
    cost = tally.cost(passages(rows))
    return cost.tokens / rows, (_peak_bytes() - before) / rows


def _disk(path: Path) -> Figures:
    """Seconds to write a byte so that it is durable, and to read one that is not in memory."""
    block, blocks = os.urandom(16 << 20), 32
    begun = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(blocks):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        written = time.perf_counter() - begun
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begun = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.read(16 << 20):
            pass
    size = len(block) * blocks
    return written / size, (time.perf_counter() - begun) / size


def _lists(rows: int, path: Path) -> Figures:
    """Seconds and bytes of memory for a row of an index with 1,024 lists, without the training of these."""
    import faiss

    vectors = np.lib.format.open_memmap(path.with_suffix(".npy"), "w+", np.float32, (rows, _DIM))
    for start in range(0, rows, 4_096):
        block = np.random.default_rng(start).standard_normal((min(4_096, rows - start), _DIM), np.float32)
        vectors[start : start + 4_096] = block
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(_DIM), _DIM, _LISTS, faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1
    index.train(np.ascontiguousarray(vectors[: 4 * _LISTS]))
    path.touch()
    begun = time.process_time()
    append_lists(path, index, vectors, np.arange(rows))
    return (time.process_time() - begun) / rows, 8 + 4 + 8


def _coordinator(folder: Path) -> float:
    """Seconds of the coordinator's core for a shard that two workers hand back at once."""
    with processes(folder, environment=with_this()) as started:

        def write() -> Figures:
            begun = 0.0
            for shards in (10, _MADE_UP_SHARDS):  # the first imports what it needs
                begun = time.process_time()
                write_store(folder / f"{shards}", MadeUpJob(shards * 8_192), runner=DaskRunner(str(started.file)))
            return (time.process_time() - begun,)

        return _in_child(write)[0] / _MADE_UP_SHARDS


@dataclass(frozen=True)
class Run:
    """What a simulated run took, and what took most of it."""

    hours: float
    core_hours: float
    lost: int
    most: str


def simulate(work: Work, rates: Rates, count: int, workers: int, rng: np.random.Generator) -> Run:
    """Every shard: whoever is free first does it, dies perhaps, and the coordinator puts what came of it in its place.

    A worker is replaced at once, and its successor opens the store again. Shards are done by groups of equal ones where
    there are more than 10^5 of them, which changes no sum.
    """
    shards = -(-count // work.shard_rows)
    group = -(-shards // 100_000)
    shard_s = work.row_s * work.shard_rows * group
    put_s = (rates.put_s + work.shard_rows * work.moved_bytes * rates.write_s) * group
    open_s, begin_s = count * work.open_s, count * work.begin_s
    free = [begin_s + open_s] * workers  # the coordinator opens it first
    put_until, lost = begin_s, 0
    opened = begin_s + open_s
    for _ in range(-(-shards // group)):
        done = heapq.heappop(free) + shard_s
        while rng.random() < 1 - np.exp(-shard_s / _LIFE_S):
            done, lost = done + open_s + shard_s / group, lost + 1
        heapq.heappush(free, done)
        put_until = max(put_until, done) + put_s
    # What comes in order is hashed while it is put; of a cluster it does not, so that an index is read once
    finish_s = count * work.moved_bytes * rates.read_s
    if work.moved_bytes >= 4 * work.dim:  # documents are written with the parts where there are any
        finish_s += count * rates.doc_bytes * (rates.read_s + rates.write_s)
    wall_s, worked = put_until + finish_s, max(free)
    parts = {"opening": opened, "workers": worked - opened, "coordinator": put_until - worked, "reading": finish_s}
    return Run(wall_s / 3_600, (workers + 1) * wall_s / 3_600, lost, max(parts, key=lambda name: parts[name]))


def works_of_ten_million(folder: Path, like: Work) -> list[Work]:
    """Return the work of `ten_million.py` by its own figures: written where it is made, or sent to the coordinator.

    What a store takes to open is `like` that of another.
    """
    lines = map(json.loads, (folder / "figures.jsonl").read_text().splitlines())
    line_of = {line["run"]: line for line in lines if not line["code"]}
    works = []
    try:
        row_s = line_of["parquet, one"]["cpu_s"] / line_of["parquet, one"]["rows"]
        for run, name in (("parquet, dask-local", "ten million"), ("parquet, dask", "ten million, sent")):
            moved_bytes = line_of[run]["socket_bytes"] / line_of[run]["rows"]
            works.append(replace(like, name=name, row_s=row_s, moved_bytes=moved_bytes, dim=_OLD_DIM))
    except KeyError as error:
        raise SystemExit(f"{folder}: {error} was not run; see benchmarks/ten_million.py") from None
    return works


def print_rates(rates: Rates, works: Sequence[Work], core_hour_usd: float) -> None:
    """What was measured."""
    list_us = 1e6 * rates.list_s
    for work in works:
        print(
            f"{work.name:24} {1e6 * work.row_s:10.1f} us of a core a row, {1 / work.row_s:,.0f} rows/s, "
            f"${work.row_s * 1e6 / 3_600 * core_hour_usd:.3f} for 10^6; {work.shard_rows:,} rows a shard, "
            f"{work.moved_bytes:.0f} bytes a row by the coordinator"
        )
        if work.open_s:
            print(
                f"{'':24} {1e6 * work.open_s:10.2f} us a row to open the store, with {work.row_bytes:.0f} bytes of "
                f"memory; by the coordinator {1e6 * work.begin_s:.2f}, {1e6 * work.first_s:.2f} the first time"
            )
    print(f"a document               {rates.doc_bytes:10.0f} bytes, {rates.doc_tokens:.0f} tokens")
    print(f"disk                     {1e-6 / rates.write_s:10.0f} MB/s written, {1e-6 / rates.read_s:.0f} MB/s read")
    print(f"coordinator              {1e3 * rates.put_s:10.1f} ms of a core a shard, beside the bytes")
    print(f"lists of an IVF index    {list_us:10.1f} us of a core a row, {rates.list_bytes:.0f} bytes of memory")
    print(f"estimate of tokens       {rates.estimate_bytes:10.0f} bytes of memory a text")


def print_runs(
    rates: Rates, works: Sequence[Work], workers: Sequence[int], core_hour_usd: float, memory_gib: float
) -> None:
    """The table."""
    price = next(model.price_usd_per_mtok for model in known_models() if model.name == _PAID) or 0.0
    print(
        f"{'work':23}     documents  workers      hours  $ of cores  memory GiB  disk GiB  moved GiB  lost  most of it"
    )
    for work in works:
        for count in _COUNTS:
            for number in workers:
                run = simulate(work, rates, count, number, np.random.default_rng(0))
                memory = rates.base_bytes + count * work.row_bytes + _SHARD_MEMORY * count / work.shard_rows
                disk = count * (4 * work.dim + rates.doc_bytes + 12)
                most = run.most if memory < memory_gib * 2**30 else "memory"
                print(
                    f"{work.name:23} {count:13,} {number:8} {run.hours:10.2f} {run.core_hours * core_hour_usd:11,.2f} "
                    f"{memory / 2**30:11.1f} {disk / 2**30:9.1f} "
                    f"{work.moved_bytes * count / 2**30:10.1f} {run.lost:5}  {most}"
                )
    print(f"\nembedding by {_PAID}, at ${price} for 10^6 tokens:")
    print("   ".join(f"{count:,}: ${count * rates.doc_tokens * price / 1e6:,.2f}" for count in _COUNTS))


def print_limits(rates: Rates, works: Sequence[Work], memory_gib: float) -> None:
    """What gives way first."""
    room = memory_gib * 2**30 - rates.base_bytes
    print(f"\nwith {memory_gib:.0f} GiB a machine, documents that fit:")
    for what, row_bytes in (
        ("a corpus that is embedded", _ID_BYTES + _SHARD_MEMORY / _EMBED_ROWS),
        ("a store with a docs.jsonl, opened", rates.open_bytes),
        ("the same, with an IVF index at the end", rates.open_bytes + rates.list_bytes),
        ("the estimate of tokens of a paid model", rates.estimate_bytes),
    ):
        print(f"{what:40} {room / row_bytes:16,.0f}")
    print("workers that keep one coordinator busy:")
    for work in works:
        put_s = rates.put_s + work.shard_rows * work.moved_bytes * rates.write_s
        print(f"{work.name:40} {work.row_s * work.shard_rows / put_s:16,.1f}")


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--core-hour", type=float, default=0.05, help="US dollars")
    parser.add_argument("--memory", type=float, default=64, help="GiB of a machine")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--of", type=Path, help="the folder of benchmarks/ten_million.py")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rates, works = measure(arguments.rows, arguments.texts, Path(name))
    if arguments.of:
        like = next(work for work in works if work.name == "old vectors of Parquet")
        works += works_of_ten_million(arguments.of, like)
    print_rates(rates, works, arguments.core_hour)
    print()
    print_runs(rates, works, arguments.workers, arguments.core_hour, arguments.memory)
    print_limits(rates, works, arguments.memory)


if __name__ == "__main__":
    main()
