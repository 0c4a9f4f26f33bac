"""Every command that writes, and every kind of store, on a full disk: exit code 5, one line, and nothing lost."""

import json
import shutil
from dataclasses import dataclass, field

import faiss
import numpy as np
import pytest
from children import call_in_child
from full_disk import run_in_room
from openai_server import OpenAIServer
from stores_tools import make_store

from migrate.cli.main import run
from migrate.vectors import Document

pytestmark = pytest.mark.slow
API = ("--target", "openai:text-embedding-3-small,dimensions=24")
FILE = ("--target", "file:target.npz")
OUT = ("-o", "disk/out")
NEEDS = {
    "chroma": "chromadb",
    "qdrant": "qdrant_client",
    "lancedb": "lancedb",
    "milvus": "milvus_lite",
    "sqlite-vec": "apsw",
    "parquet": "pyarrow",
}


@dataclass(frozen=True)
class Case:
    """A command, and in `rooms` the kilobytes that are free, of which none is enough.

    `carried` lies on the disk before. `keeps` are beginnings of names there that may have been begun: caches, and
    folders that the same command completes.
    """

    arguments: tuple
    rooms: tuple
    carried: tuple = ()
    keeps: tuple = ()
    environment: dict = field(default_factory=dict)


def translated(kind, *rooms, store="store", stitch="stitch"):
    where = f"{kind}:{{place}}/disk/out" + ("" if kind in ("faiss", "parquet") else "#docs")
    return Case(("translate", store, stitch, "-o", where), rooms)


CACHE = {"keeps": ("cache", "state"), "environment": {"XDG_CACHE_HOME": "disk/cache", "XDG_STATE_HOME": "disk/state"}}
AUDIT = ("audit", "new", "--judged", "beir", "--reference", "build")
CASES = {
    "to faiss": translated("faiss", 0, 128),
    "to chroma": translated("chroma", 512),
    "to qdrant": translated("qdrant", 64),
    "to lancedb": translated("lancedb", 64),
    "to milvus": translated("milvus", 64),
    "to sqlite-vec": translated("sqlite-vec", 64),
    "much to sqlite-vec": translated("sqlite-vec", 2_500, 3_500, store="much", stitch="much-stitch"),
    "to parquet": translated("parquet", 40),
    "of IVF lists": Case(("translate", "ivf", "ivf-stitch", *OUT), (32,)),
    "of LangChain": Case(("translate", "langchain", "langchain-stitch", *OUT), (32,)),
    "--reembed": Case(
        ("translate", "store", "stitch", "--reembed", "50%", *OUT, "--save-stitch", "disk/again"), (128,)
    ),
    "fit": Case(("fit", "store", *FILE, "--kind", "ridge", *OUT), (16,)),
    "fit, its cache": Case(("fit", "store", *API, "--kind", "ridge", "-o", "out", "--force"), (32,), **CACHE),
    "embed": Case(("embed", "beir", "--model", "tfidf:24", *OUT), (64,)),
    "backfill": Case(("backfill", "api", *OUT), (32,)),
    "sync": Case(("sync", "old", "disk/new", "--target", "tfidf:24"), (32,), ("new",)),
    "stamp": Case(("stamp", "disk/new", "--model", "file:target.npz", "--trust", "--force"), (0,), ("new",)),
    "carry": Case(("carry", "store", "stitch", "--directions", "d.npz", *OUT), (0,)),
    "audit --report": Case((*AUDIT, "--report", "disk/out.json"), (8,)),
    "run": Case(
        ("run", "store", "--reference", "pool", *FILE, "--judged", "beir", "--kind", "ridge", *OUT),
        (32,),
        keeps=("out",),
    ),
    "live run": Case(("live", "run", "disk/api", "--once", "--budget", "90"), (16,), ("api",), ("api",)),
    "live run, its state": Case(("live", "run", "{place}/api", "--once", "--budget", "9"), (12,), **CACHE),
}
PLAYED = [(name, room) for name, case in CASES.items() for room in case.rooms]


@pytest.fixture(scope="module")
def place(source_folder, beir, target_file, tmp_path_factory):
    """A folder with stores, stitches and what else the commands read, beside the disk."""
    folder = tmp_path_factory.mktemp("place")
    for name, made in (("store", source_folder), ("old", source_folder), ("beir", beir)):
        shutil.copytree(made, folder / name)
    shutil.copy(target_file, folder / "target.npz")
    (folder / "disk").mkdir()
    rows = np.ascontiguousarray(faiss.read_index(str(folder / "store/index.faiss")).reconstruct_n())
    np.savez(folder / "d.npz", x=rows[:2] - rows[2:4])
    lists = faiss.index_factory(rows.shape[1], "IVF4,Flat", faiss.METRIC_INNER_PRODUCT)
    lists.train(rows)
    lists.add(rows)
    (folder / "ivf").mkdir()
    faiss.write_index(lists, str(folder / "ivf/index.faiss"))
    shutil.copy(folder / "store/docs.jsonl", folder / "ivf")
    # more than SQLite holds in memory, so that it writes in the middle of a statement
    texts = [Document(str(row), " ".join(f"word{7 * row % 211 + n % 5}" for n in range(300))) for row in range(1_500)]
    make_store(folder / "much", texts, np.resize(rows, (len(texts), rows.shape[1])))
    lines = [json.loads(line) for line in (folder / "old/docs.jsonl").read_text().splitlines()]
    for line in lines[:40]:
        line["text"] += " and more"
    (folder / "old/docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "old/lead-migrate.json").unlink()
    with pytest.MonkeyPatch.context() as patch, OpenAIServer() as server:
        patch.chdir(folder)
        for name, value in environment(folder).items():
            patch.setenv(name, value)
        patch.setenv("OPENAI_BASE_URL", server.url)
        typed("embed", "beir", "--model", "tfidf:32", "--format", "langchain", "-o", "langchain")
        fit = ("--kind", "ridge", "--sample", "60")
        for name in ("ivf", "langchain", "much"):
            typed("fit", name, "--target", "tfidf:24", *fit, "-o", f"{name}-stitch")
        typed("fit", "store", "--target", "tfidf:24", *fit, "-o", "stitch")
        typed("translate", "store", "stitch", "-o", "new")
        typed("fit", "store", *API, *fit, "-o", "api-stitch")
        typed("translate", "store", "api-stitch", "-o", "api")
        yield folder


def environment(folder):
    return {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "TIKTOKEN_CACHE_DIR": str(folder / "none"),
        "OPENAI_API_KEY": "sk-test-0123456789",
    }


def typed(*arguments):
    assert run([*arguments, "-q"]) == 0, arguments


@pytest.mark.parametrize(("name", "room"), PLAYED)
def test_a_full_disk_is_told_and_the_same_command_goes_on(name, room, place):
    case = CASES[name]
    if (kind := name.rpartition("to ")[2]) in NEEDS:
        pytest.importorskip(NEEDS[kind])
    arguments = [part.format(place=place) for part in case.arguments]
    if case.arguments[0] != "live":
        arguments.append("-q")
    own = {key: str(place / value) for key, value in case.environment.items()}
    try:
        played = call_in_child(run_in_room, arguments, place, case.carried, room << 10, own)
    finally:  # what is there where nothing can be mounted
        shutil.rmtree(place / "disk")
        (place / "disk").mkdir()
    (code, printed), before, after, (again, said) = played
    complaints = [line for line in printed.splitlines() if line.startswith("lead-migrate: ")]
    assert code == 5 and len(complaints) == 1 and "; " in complaints[0], (code, printed)
    assert "Traceback" not in printed
    seen = {path for path in {*before, *after} if not path.startswith((".", *case.keeps))}
    assert {path: after.get(path) for path in seen} == {path: before.get(path) for path in seen}
    assert again in (0, 1, 3), said
