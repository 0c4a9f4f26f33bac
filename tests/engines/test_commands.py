"""`translate --engine` with each engine that is installed: the store of `translate`, though a worker is killed."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from dask_processes import dask_processes
from s3_server import BUCKET, s3_server

import migrate
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.base import read_all

pytestmark = pytest.mark.slow

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FILES = 16
FILES_ON_S3 = 4
ROWS_A_FILE = 250
WORDS = ("vector", "store", "index", "query", "model", "text", "term", "rank", "score", "batch", "token", "layer")
LIBRARIES = {"dask": "distributed", "ray": "ray", "spark": "pyspark", "daft": "daft"}
NAMES = {"ray": "ray", "spark": "spark:local[2,4]", "daft": "daft"}  # four tries of a task, as on a cluster
WORKERS = {"ray": b"ray::", "spark": b"pyspark.daemon", "daft": b"udf_worker"}
ENVIRONMENT = {
    "SOURCE_DATE_EPOCH": "1700000000",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "true",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder with the store `old` of many files, the stitches `stitch` and `reading`, and what they make of it."""
    folder = tmp_path_factory.mktemp("begun")
    rng = np.random.default_rng(0)
    count = FILES * ROWS_A_FILE
    vectors = rng.standard_normal((count, 32), dtype=np.float32)
    texts = [" ".join(rng.choice(WORDS, 100)) + f" {row}" for row in range(count)]
    columns = {
        "id": [f"document {row}" for row in range(count)],
        "text": texts,
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 32),
        "price": rng.random(count),
    }
    table = pa.table(columns)
    (folder / "old").mkdir()
    for number in range(FILES):
        part = table.slice(number * ROWS_A_FILE, ROWS_A_FILE)
        pq.write_table(part, folder / "old" / f"{number:02d}.parquet", row_group_size=200)
    model = load_embedder("tfidf:24")
    for name, kind in (("stitch", "ridge"), ("reading", "ridge+text")):
        migrate.fit(f"parquet:{folder}/old", model, kind=kind, sample=100).save(folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SOURCE_DATE_EPOCH", ENVIRONMENT["SOURCE_DATE_EPOCH"])
        for name in ("stitch", "reading"):
            migrate.translate("parquet:old", name, f"parquet:by-{name}")
    return folder


@pytest.fixture
def place(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "place")


def command(folder, words, **environment):
    """Start `lead-migrate translate` in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "migrate", "translate", *words.split(), "--quiet"],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def done(process):
    """Wait for the end of a command that gets there."""
    try:
        told, complaint = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, complaint[-3000:]
    assert "Traceback" not in complaint
    return told


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """The variables that lead to a server of S3; none where there is no moto."""
    if importlib.util.find_spec("moto") is None:
        yield {}
        return
    with s3_server(tmp_path_factory.mktemp("s3")) as variables:
        yield variables


@pytest.fixture(scope="module", params=LIBRARIES)
def engine(request, bucket, tmp_path_factory):
    """The name of an engine, and the processes of its workers where they are there before the command."""
    if importlib.util.find_spec(LIBRARIES[request.param]) is None:
        pytest.skip(f"{request.param} is not installed")
    if request.param == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime")
    with ExitStack() as stack:
        if request.param == "dask":
            started = dask_processes(tmp_path_factory.mktemp("dask"), environment={**ENVIRONMENT, **bucket})
            address, workers = stack.enter_context(started)
            yield f"dask:{address}", lambda _: [worker.pid for worker in workers]
        else:
            yield NAMES[request.param], lambda process: workers_of(process, WORKERS[request.param])


def workers_of(process, mark):
    """The processes with a mark in their command line that come of a command, those without children first."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    own = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    marked = [pid for pid in own if mark in command_line(pid)]
    return sorted(marked, key=lambda pid: pid in parents.values())


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_new_store_is_that_of_translate(engine, place):
    done(command(place, f"parquet:old stitch -o parquet:new --engine {engine[0]}"))
    assert contents(place / "new") == contents(place / "by-stitch")
    assert not (place / ".new.made").exists()


def objects(folder):
    """The objects below a folder of the bucket, by their names."""
    import s3fs

    system = s3fs.S3FileSystem(skip_instance_cache=True)
    found = system.find(f"{BUCKET}/{folder}")
    return {path.removeprefix(f"{BUCKET}/{folder}/"): system.cat_file(path) for path in found}


def test_object_storage_is_read_and_written_alike(bucket, engine, place, tmp_path, monkeypatch):
    if not bucket:
        pytest.skip("moto is not installed")
    import s3fs

    monkeypatch.setenv("SOURCE_DATE_EPOCH", ENVIRONMENT["SOURCE_DATE_EPOCH"])
    folder = f"{BUCKET}/{tmp_path.name}"
    few = [str(path) for path in sorted((place / "old").iterdir())[:FILES_ON_S3]]
    s3fs.S3FileSystem(skip_instance_cache=True).put(few, f"{folder}/old/")
    old = f"parquet:s3://{folder}/old"
    migrate.fit(old, load_embedder("tfidf:24"), kind="ridge", sample=100).save(f"s3://{folder}/stitch")
    done(command(place, f"{old} s3://{folder}/stitch -o parquet:s3://{folder}/new --engine {engine[0]}"))
    migrate.translate(old, f"s3://{folder}/stitch", f"parquet:s3://{folder}/expected")
    assert objects(f"{tmp_path.name}/new") == objects(f"{tmp_path.name}/expected")
    assert not objects(f"{tmp_path.name}/.new.made")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")
def test_a_worker_that_is_killed_in_the_middle_costs_nothing_but_time(engine, place):
    """The last test, as workers of Dask stay away.

    Daft alone does not do its part again: its command ends with a line, and continues when it is repeated.
    """
    name, workers = engine
    words = f"parquet:old reading -o parquet:new --engine {name}"
    process = command(place, words)
    killed = None
    while killed is None:
        assert process.poll() is None, f"it ended before a worker was killed: {process.communicate()}"
        made = len(list(place.glob(".new.made/*/part-*")))
        if 2 <= made < FILES - 4 and (present := workers(process)):
            os.kill(present[0], signal.SIGKILL)
            killed = made
        time.sleep(0.02)
    if name == "daft":
        complaint = process.communicate(timeout=240)[1]
        assert process.returncode == 7 and "--engine daft: UDF process closed" in complaint
        assert "run the same command again, it continues" in complaint and not (place / "new").exists()
        assert len(list(place.glob(".new.made/*/part-*"))) >= killed
        process = command(place, words)
    done(process)
    new, expected = (read_all(open_store(f"parquet:{place}/{name}").scan()) for name in ("new", "by-reading"))
    assert list(new.ids) == list(expected.ids)
    assert np.abs(new.vectors - expected.vectors).max() < 1e-5
    assert {path.name for path in (place / "new").iterdir()} == {path.name for path in (place / "by-reading").iterdir()}
    assert not (place / ".new.made").exists()
