"""Real schedulers and workers, and what is left of a run when they are killed."""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import victims
from dask_processes import ENVIRONMENT, kill, processes
from openai_server import KEY, OpenAIServer

import migrate
from migrate.cluster import DaskRunner
from migrate.embed import embed_corpus, reembed_store
from migrate.embed.corpus import AGAIN
from migrate.embedders import load_embedder
from migrate.embedders.elsewhere import elsewhere
from migrate.errors import OutputError, RemoteError, UsageError, VectorError
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.work.runner import LocalRunner
from migrate.work.shards import ShardFolder

pytestmark = pytest.mark.slow

ROWS = 8_000
HERE = Path(__file__).parent


@pytest.fixture(autouse=True, scope="module")
def small_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "")
        victims.make_parts_small(patch.setattr)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    victims.prepare("flat", folder, ROWS)
    return folder


@pytest.fixture(scope="module")
def expected(folder, small_parts):
    """The files of a run on one machine that nobody disturbed."""
    run(folder, folder / "expected", LocalRunner(1))
    return victims.digest(folder / "expected")


def run(folder, output, runner, **options):
    store, stitch = open_store(folder / "source"), load_stitch(folder / "stitch")
    return migrate.translate(store, stitch, output, runner=runner, **options)


def wait_until(is_so):
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, "time is up"
        time.sleep(0.05)


def after(shards, act):
    """A progress that acts once so many shards are done, and keeps the run from ending at once."""
    seen = []

    def progress(*_):
        seen.append(1)
        time.sleep(0.02)
        if len(seen) == shards:
            act()

    return progress


@pytest.mark.parametrize("shards", [None, "shards"])
def test_a_cluster_writes_the_bytes_of_one_process(cluster, folder, tmp_path, expected, shards, left_in):
    run(folder, tmp_path / "new", DaskRunner(str(cluster.file), shards and str(tmp_path / shards)))
    assert victims.digest(tmp_path / "new") == expected
    assert not left_in(tmp_path / "shards")


def test_local_workers_write_the_bytes_of_one_process(folder, tmp_path, expected):
    run(folder, tmp_path / "new", DaskRunner("local:2"))
    assert victims.digest(tmp_path / "new") == expected


def test_a_bad_row_is_told_as_on_one_machine(cluster, tmp_path):
    victims.prepare("flat", tmp_path, 1_000)
    index = faiss.read_index(str(tmp_path / "source" / "index.faiss"))
    vectors = index.reconstruct_n(0, index.ntotal)
    vectors[700] = 0
    index.reset()
    index.add(np.ascontiguousarray(vectors))
    faiss.write_index(index, str(tmp_path / "source" / "index.faiss"))
    with pytest.raises(VectorError, match="700"):
        run(tmp_path, tmp_path / "new", DaskRunner(str(cluster.file)), any_store=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("moment", "shards"), [(1, None), (5, "shards")])
def test_the_shards_of_a_killed_worker_are_made_by_another(folder, tmp_path, expected, shards, moment):
    with processes(tmp_path) as started:
        runner = DaskRunner(str(started.file), shards and str(tmp_path / shards))
        run(folder, tmp_path / "new", runner, progress=after(moment, lambda: kill(started.workers[0])))
        assert victims.digest(tmp_path / "new") == expected


def test_a_killed_scheduler_is_one_line_and_the_next_run_goes_on(folder, tmp_path, expected, monkeypatch):
    with processes(tmp_path) as started:
        runner = DaskRunner(str(started.file), str(tmp_path / "shards"), patience_s=60)
        with pytest.raises(RemoteError, match=r"gone.*run the same command again, it continues"):
            run(folder, tmp_path / "new", runner, progress=after(5, lambda: kill(started.scheduler)))
        with monkeypatch.context() as patch, pytest.raises(RemoteError, match="no Dask scheduler answers"):
            patch.setattr("migrate.cluster.runner._CONNECT_S", 2.0)
            run(folder, tmp_path / "new", runner)
        started.kill_all()
        started.start_scheduler()
        with pytest.raises(RemoteError, match="has no worker"):
            run(folder, tmp_path / "new", replace(runner, patience_s=1))
        started.start_worker()
        done, again = [], DaskRunner(runner.address, runner.shards)
        run(folder, tmp_path / "new", again, progress=lambda *seen: done.append(seen))
        assert done[0][1] > 0  # what was durable was not made again
        assert victims.digest(tmp_path / "new") == expected


@pytest.mark.parametrize(("shards", "points"), [(None, ["recorded:2", "synced:5"]), ("shards", ["written:4"])])
def test_a_killed_coordinator_goes_on(cluster, folder, tmp_path, expected, shards, points, left_in):
    runner = f"dask:{cluster.file}"
    options = [] if shards is None else ["--shards", str(tmp_path / shards)]
    command = [sys.executable, str(HERE / "coordinator.py"), str(folder), str(tmp_path / "new"), runner, *options]
    for point in points:
        environment = os.environ | ENVIRONMENT | {"DIES_AT": point, "SOURCE_DATE_EPOCH": "1700000000"}
        died = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert died.returncode == 137, died.stderr
    run(folder, tmp_path / "new", DaskRunner(str(cluster.file), shards and str(tmp_path / shards)))
    assert victims.digest(tmp_path / "new") == expected
    assert not left_in(tmp_path / "shards")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three files of Parquet, none of whole batches, a stitch, and `expected`, what one process makes of them."""
    folder = tmp_path_factory.mktemp("files")
    vectors = np.random.default_rng(0).standard_normal((ROWS, victims.DIM), np.float32)
    (folder / "source").mkdir()
    for number, part in enumerate(np.split(np.arange(ROWS), [3_001, 5_503])):
        columns = {"id": [f"doc-{row}" for row in part], "vector": list(vectors[part])}
        pq.write_table(pa.table(columns), folder / "source" / f"part-{number}.parquet")
    victims.make_stitch(folder / "source", folder / "stitch")
    run(folder, folder / "expected", LocalRunner(1))
    return folder


@pytest.fixture
def large_files(monkeypatch):
    """Files that are too large to be sent as a whole."""
    monkeypatch.setattr("migrate.steps.translate.job._LARGEST_SENT", 1)


@pytest.mark.parametrize("shards", [None, "shards"])
def test_a_large_file_is_put_together_from_pieces_and_written_once(
    cluster, files, tmp_path, shards, left_in, large_files, monkeypatch
):
    written, write = [], ShardFolder.write
    monkeypatch.setattr(ShardFolder, "write", lambda self, *args: (written.append(args), write(self, *args)))
    run(files, tmp_path / "new", DaskRunner(str(cluster.file), shards and str(tmp_path / shards)))
    assert victims.digest(tmp_path / "new") == victims.digest(files / "expected")
    assert [(shard.start, shard.stop) for shard, *_ in written] == [(0, 3_001), (3_001, 5_503), (5_503, ROWS)]
    assert all("vectors" not in arrays for _, arrays, _ in written)
    assert not left_in(tmp_path / "shards")


@pytest.mark.parametrize("shards", [None, "shards"])
def test_pieces_of_a_killed_worker_are_made_by_another(files, tmp_path, shards, large_files):
    with processes(tmp_path) as started:
        runner = DaskRunner(str(started.file), shards and str(tmp_path / shards))
        run(files, tmp_path / "new", runner, progress=after(1, lambda: kill(started.workers[0])))
    assert victims.digest(tmp_path / "new") == victims.digest(files / "expected")


@pytest.mark.parametrize("shards", [None, "shards"])
def test_files_of_pieces_go_on_after_a_stop(cluster, files, tmp_path, shards, large_files, left_in):
    def interrupt():
        raise KeyboardInterrupt

    runner = DaskRunner(str(cluster.file), shards and str(tmp_path / shards))
    with pytest.raises(KeyboardInterrupt):
        run(files, tmp_path / "new", runner, progress=after(2, interrupt))
    done = []
    run(files, tmp_path / "new", runner, progress=lambda *seen: done.append(seen[1]))
    assert done[0] == 3_001, "the file that was finished stays"
    assert victims.digest(tmp_path / "new") == victims.digest(files / "expected")
    assert not left_in(tmp_path / "shards")


def test_a_damaged_shard_file_is_made_again(cluster, folder, tmp_path, expected, left_in):
    shards, damaged, stop = tmp_path / "shards", set(), threading.Event()

    def damage():
        while not stop.wait(0.001):
            for path in set(left_in(shards)) - damaged:
                if len(damaged) < 3:
                    damaged.add(path)
                    path.write_bytes(b"damaged")

    vandal = threading.Thread(target=damage)
    vandal.start()
    try:
        run(folder, tmp_path / "new", DaskRunner(str(cluster.file), str(shards)))
    finally:
        stop.set()
        vandal.join()
    assert victims.digest(tmp_path / "new") == expected


@pytest.mark.parametrize("content", ["{}", "no JSON", '"a text"'])
def test_a_file_that_is_not_of_a_scheduler_is_refused(content, folder, tmp_path):
    (tmp_path / "scheduler.json").write_text(content)
    with pytest.raises(UsageError, match=r"scheduler.json: not a file that `dask scheduler"):
        run(folder, tmp_path / "new", DaskRunner(str(tmp_path / "scheduler.json")))


def test_a_service_that_is_no_scheduler_is_told(folder, tmp_path, monkeypatch):
    """It takes the connection, and waits for words of its own."""
    monkeypatch.setattr("migrate.cluster.runner._CONNECT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as service, pytest.raises(RemoteError, match="no Dask scheduler"):
        run(folder, tmp_path / "new", DaskRunner(f"tcp://127.0.0.1:{service.getsockname()[1]}"))


def test_a_place_that_a_worker_cannot_write_to_is_named(folder, tmp_path):
    """It has room for no file, as on a full disk."""
    with processes(tmp_path, workers=1) as started:
        run(folder, tmp_path / "first", DaskRunner(str(started.file)))
        resource.prlimit(started.workers[0].pid, resource.RLIMIT_FSIZE, (512, 512))
        with pytest.raises(OutputError, match=r"--shards .*/shards: .*too large.*; the same command continues"):
            run(folder, tmp_path / "new", DaskRunner(str(started.file), str(tmp_path / "shards")))
    assert not (tmp_path / "new").exists()


@pytest.fixture
def paid(tmp_path, monkeypatch):
    """Embeds 40 texts by an API, whose vectors workers leave at a place; which texts were asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with OpenAIServer() as server:

        def embed(runner):
            model = elsewhere(load_embedder("openai:tiny", base_url=server.url, dimensions=8), runner)
            embed_corpus(partial(victims.documents, 40), model, tmp_path / "new")
            return server.texts_served

        embed.server = server
        yield embed


def test_a_relative_path_of_shards_is_that_of_the_coordinator(cluster, paid, folder, tmp_path, expected, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    runner = DaskRunner(str(cluster.file), "sh")
    assert runner == DaskRunner(str(cluster.file), "file://sh") == DaskRunner(str(cluster.file), f"{tmp_path}/here/sh")
    asked = paid(runner)
    assert len(asked) <= len(set(asked)) + AGAIN, "no text is paid for twice, but for what proves the model"
    run(folder, tmp_path / "translated", runner)
    assert victims.digest(tmp_path / "translated") == expected
    assert not [path for path in (tmp_path / "here").rglob("*") if path.is_file()]
    assert not (cluster.folder / "sh").exists()


def test_a_place_that_a_worker_does_not_see_is_refused_before_anything_is_paid_for(paid, folder, tmp_path):
    """As a worker on another machine has it, whose folder of that name is another."""
    place = tmp_path / "own"
    place.mkdir()
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("there is no way to a file system of its own here")
    with processes(tmp_path, workers=1) as started:
        worker = f"{sys.executable} -m dask worker --scheduler-file {started.file} --no-nanny --no-dashboard"
        command = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs tmpfs {place} && exec {worker}"]
        started.workers.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        runner = DaskRunner(str(started.file), str(place / "sh"))
        with runner.cluster() as cluster:
            wait_until(lambda: len(cluster.client.nthreads()) == 2)
        for work in (paid, partial(run, folder, tmp_path / "translated")):
            words = r"sh: the worker tcp://\S+ sees another place there; name one"
            with pytest.raises(UsageError, match=words):
                work(runner=runner)
    assert not paid.server.billed
    assert not [path for path in place.rglob("*") if path.is_file()]


def test_a_worker_of_another_version_is_refused_by_name(folder, tmp_path):
    preload = tmp_path / "older.py"
    preload.write_text("import migrate\nmigrate.__version__ = '0.0.1'\n")
    with processes(tmp_path, workers=1) as started:
        started.start_worker("--preload", str(preload), "--name", "older")
        runner = DaskRunner(str(started.file))
        with pytest.raises(UsageError, match=r"workers have other versions than .*: tcp://.* \(0\.0\.1\)"):
            with runner.cluster() as cluster:  # refuses it, unless it comes later than the other
                wait_until(lambda: cluster.threads() == 2)
            run(folder, tmp_path / "new", runner)


def test_an_embedding_goes_on_whoever_is_killed(tmp_path):
    embed_corpus(partial(victims.documents, 3_000), load_embedder("tfidf:16"), tmp_path / "source")
    store = open_store(tmp_path / "source")
    load = partial(load_embedder, "tfidf:16", state=tmp_path / "source")
    reembed_store(store, load(), tmp_path / "expected")
    with processes(tmp_path) as started:
        runner = DaskRunner(str(started.file), patience_s=20)

        def embed(**options):
            reembed_store(store, elsewhere(load(), runner), tmp_path / "new", **options)

        with pytest.raises(RemoteError, match="it continues"):
            embed(progress=after(4, lambda: kill(started.scheduler)))
        started.kill_all()
        started.start_scheduler()
        started.start_worker()
        started.start_worker()
        embed(progress=after(3, lambda: kill(started.workers[0])))
        assert victims.digest(tmp_path / "new") == victims.digest(tmp_path / "expected")


def test_no_key_stands_in_what_dask_shows(cluster, tmp_path, monkeypatch):
    runner = DaskRunner(str(cluster.file))  # of workers that have no key of their own
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer(key=KEY) as server:
        model = elsewhere(load_embedder("openai:tiny", base_url=server.url, dimensions=8), runner)
        embed_corpus(partial(victims.documents, 600), model, tmp_path / "new")
        assert len(set(server.texts_served)) == 600
    with runner.cluster() as running:
        shown = str(running.client.run_on_scheduler(lambda dask_scheduler: (
            list(dask_scheduler.tasks), list(dask_scheduler.transition_log), dask_scheduler.get_logs(),
        )))  # fmt: skip
    assert KEY not in shown
    assert not any(KEY in path.read_text() for path in cluster.folder.glob("*.log"))


def test_sigterm_is_not_needed_to_end_local_workers(tmp_path):
    """A coordinator that is killed takes the workers of `dask:local` with it: nobody writes behind the next run."""
    victims.prepare("flat", tmp_path, ROWS)
    command = [sys.executable, str(HERE / "coordinator.py"), str(tmp_path), str(tmp_path / "new"), "dask:local:2"]
    environment = os.environ | ENVIRONMENT | {"DIES_AT": "recorded:2", "CLUSTER_TEST": str(tmp_path)}
    started = subprocess.Popen(command, env=environment, start_new_session=True)
    assert started.wait(120) == 137
    try:
        wait_until(lambda: not _of_session(started.pid))
    finally:
        for pid in _of_session(started.pid):
            os.kill(pid, signal.SIGKILL)


def _of_session(session):
    found = []
    for path in Path("/proc").iterdir():
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z" and path.name.isdecimal():
            found.append(int(path.name))
    return found
