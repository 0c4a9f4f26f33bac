"""The commands with a runner, as a user runs them: a cluster that is there, and processes of this machine."""

import re
import time
from functools import partial

import pytest
import victims
from dask_processes import processes
from openai_server import KEY, OpenAIServer
from s3_server import BUCKET, s3_server

import migrate.embed.corpus
from migrate.cli.main import run
from migrate.cluster import DaskRunner
from migrate.embedders import load_embedder
from migrate.embedders.elsewhere import elsewhere
from migrate.errors import RemoteError
from migrate.vectors import Document

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


@pytest.fixture
def running(request, cluster, tmp_path):
    if request.param == "workers":
        return ("--workers", "2")
    shards = ("--shards", tmp_path / "shards") if request.param == "files" else ()
    return ("--runner", f"dask:{cluster.file}", *shards)


@pytest.mark.parametrize(
    ("command", "running"), [("embed", "workers"), ("embed", "dask"), ("reembed", "files")], indirect=["running"]
)
def test_what_is_embedded_has_the_bytes_of_one_process_whoever_embeds_it(
    command, running, beir, source_folder, target_file, tmp_path, left_in
):
    words = (source_folder, "--target", f"file:{target_file}")
    if command == "embed":
        words = (beir / "corpus.jsonl", "--model", "tfidf:24")
    for output, options in (("one", ()), ("many", running)):
        assert lead_migrate(command, *words, "-o", tmp_path / output, *options, "--quiet") == 0
    assert victims.digest(tmp_path / "one") == victims.digest(tmp_path / "many")
    assert not left_in(tmp_path / "shards")


def test_what_a_killed_run_has_paid_for_is_not_paid_for_again(cluster, tmp_path, left_in):
    """Without a cache: what workers have left in files is taken by the next run."""
    batch = [Document(str(row), f"text {row}") for row in range(20)]
    with OpenAIServer() as server:
        for _ in range(2):  # the first comes to its end before anything is released
            model = load_embedder("openai:tiny", base_url=server.url, dimensions=8)
            remote = elsewhere(model, DaskRunner(str(cluster.file), str(tmp_path / "shards")))
            with remote.at_work():
                vectors = remote.embed_documents(batch)
        assert len(server.texts_served) == len(batch)
        with remote.at_work() as pool:
            assert (remote.embed_documents(batch) == vectors).all()
            files = remote.take_files()
            assert len(files) == 2 and files[0] == files[1]
            pool.release(files)
        assert not left_in(tmp_path / "shards")


def test_the_device_is_that_of_the_workers_model(cluster):
    model = load_embedder("packaged:all-MiniLM-L6-v2", device="cuda:99")
    with (
        elsewhere(model, DaskRunner(str(cluster.file))).at_work() as pool,
        pytest.raises(RemoteError, match=r"the worker tcp://.* cannot begin: .*cuda:99"),
    ):
        pool.call([Document("a", "a text")], "document")


def test_a_cluster_keeps_to_one_rate(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(migrate.embed.corpus, "BATCH_DOCUMENTS", 64)
    arrivals = []
    with OpenAIServer() as server:
        server.gate = lambda number: arrivals.append((time.monotonic(), len(server.requests[number - 1].inputs)))
        loaded = load_embedder("openai:tiny", base_url=server.url, batch_size=32, rate="10/s", concurrency=8)
        begun = time.monotonic()
        model = elsewhere(loaded, DaskRunner(str(cluster.file)))
        migrate.embed.corpus.embed_corpus(partial(victims.documents, 16 * 32), model, tmp_path / "new")
    of_workers = [arrived for arrived, texts in arrivals if texts == 32]
    assert len(of_workers) == 16 and len(arrivals) == 16 + 4, "two prove the model, twice"
    for number, arrived in enumerate(sorted(of_workers), start=1):  # and one more for each worker
        assert number <= 10 * (arrived - begun) + 2
    for number, (arrived, _) in enumerate(sorted(arrivals), start=1):  # and the two from here, while workers ask too
        assert number <= 10 * (arrived - begun) + 2 + 2


def test_an_object_store_holds_stitch_and_shards(beir, source_folder, target_file, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    target, place = f"file:{target_file}", f"s3://{BUCKET}/of/ours"
    with s3_server(tmp_path) as variables, processes(tmp_path, environment=variables) as started:
        dask = ("--runner", f"dask:{started.file}", "--shards", f"{place}/shards")
        fit = ("fit", source_folder, "--target", target, "--sample", "80", "--view", "none", "-o", f"{place}/stitch")
        assert lead_migrate(*fit, "--quiet") == 0
        assert lead_migrate(*fit, "--quiet") == 2
        assert "s3://shards/of/ours/stitch exists" in capfd.readouterr().err
        assert lead_migrate(*fit[:-1], f"s3://no-such-bucket/{tmp_path.name}") == 5
        assert "s3://no-such-bucket" in capfd.readouterr().err
        translate = ("translate", source_folder, f"{place}/stitch", "--quiet")
        assert lead_migrate(*translate, "-o", tmp_path / "one") == 0
        assert lead_migrate(*translate, "-o", tmp_path / "many", *dask) == 0
        assert victims.digest(tmp_path / "one") == victims.digest(tmp_path / "many")
        corpus = ("embed", beir / "corpus.jsonl", "--model", "tfidf:24", "--quiet")
        assert lead_migrate(*corpus, "-o", tmp_path / "first") == 0
        assert lead_migrate(*corpus, "-o", tmp_path / "second", *dask) == 0
        assert victims.digest(tmp_path / "first") == victims.digest(tmp_path / "second")
        assert lead_migrate(*translate, "-o", tmp_path / "not", *dask[:3], f"s3://no-such-bucket/{tmp_path.name}") == 5
        error = capfd.readouterr().err
        assert re.search(r"--shards s3://no-such-bucket/.*", error) and "Traceback" not in error
        with OpenAIServer() as server:
            paid = ("embed", beir / "corpus.jsonl", "--model", "openai:tiny", "--base-url", server.url, "--yes")
            assert lead_migrate(*paid, "-o", tmp_path / "not", *dask[:3], "s3://no-such-bucket/x", "--quiet") == 5
            assert "--shards s3://no-such-bucket/x: " in capfd.readouterr().err
            assert not server.billed, "nothing is paid for where nothing can be kept"
