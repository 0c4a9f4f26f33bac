"""What commands read beside stores: each file of it in turn is a pipe, a device or a socket."""

import os
import shutil
import socket
from pathlib import Path

import pytest
from openai_server import KEY

AUDIT = "audit new --reference build --judged judged -q"
UNJUDGED = "audit new --reference build --queries queries.txt -q"
SYNC = "sync store new -q"
TRANSLATE = "translate store stitch -q -o out"
PAID = "openai:text-embedding-3-small,dimensions=24"
LOGGED = "fit store --target tfidf:8 --sample 40 --kind ridge --query-log queries.txt -q -o out"
INPUTS = [
    *[(f"stitch/{name}", TRANSLATE) for name in ("lead-migrate.json", "weights.safetensors", "sample.json")],
    *[(f"stitch/{name}", TRANSLATE) for name in ("embedder.json", "embedder.safetensors")],
    *[(f"judged/{name}", AUDIT) for name in ("queries.jsonl", "qrels/test.tsv")],
    *[(f"new/{name}", AUDIT) for name in ("confidence.npy", "lead-migrate.json", "embedder.json")],
    *[(f"new/{name}", SYNC) for name in ("confidence.npy", "sources.npy", "lead-migrate.json")],
    ("queries.txt", UNJUDGED),
    ("queries.txt", LOGGED),
    ("defaults.toml", "--config defaults.toml fit store --target tfidf:8 -q -o out"),
    ("report.json", "assess store --target tfidf:16 --audit report.json -q"),
    ("vectors.npz", "fit store --target file:vectors.npz -q -o out"),
    ("cache.sqlite", f"fit store --target {PAID} --sample 40 --cache cache.sqlite --yes -q -o out"),
    ("cache.sqlite-wal", f"fit store --target {PAID} --sample 40 --cache cache.sqlite --yes -q -o out"),
    ("model/weights.bin", "check store --model sentence-transformers:./model -q"),
]


def make(kind, path):
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))


KINDS = ["pipe", "device", "socket"]


@pytest.mark.parametrize(
    ("kind", "name", "command"),
    [
        # Quick: each input as one of them in turn
        pytest.param(kind, *one, marks=[] if row % len(KINDS) == place else pytest.mark.slow)
        for row, one in enumerate(INPUTS)
        for place, kind in enumerate(KINDS)
    ],
)
def test_an_input_that_is_no_file_is_named(kind, name, command, here, server, lead_migrate, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    Path("queries.txt").write_text("".join(f"how is module {row} used?\n" for row in range(60)))
    if name.startswith("model/"):
        Path("model").mkdir()
        Path("model/config.json").write_text("{}")
    assert name.startswith(("model/", "cache", "defaults", "report", "vectors")) or Path(name).is_file(), (
        "it is an input"
    )
    make(kind, Path(name))
    complaint = lead_migrate(command, code=(4, 5)).complaint
    assert name.removesuffix("-wal") in complaint
    shutil.rmtree("out", ignore_errors=True)
