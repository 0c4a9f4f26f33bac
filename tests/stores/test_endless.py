"""What is read of stores of all kinds: each of their files in turn is a pipe, a device, a socket or a folder."""

import os
import subprocess
import sys
from pathlib import Path

import endless_reads
import pytest
from kinds import kind_class

pytestmark = pytest.mark.slow
KINDS = ("faiss", "arrays", "parquet", "langchain", "chroma", "qdrant", "milvus", "lancedb", "sqlite-vec")


@pytest.mark.parametrize("kind", [*KINDS, *endless_reads.OWN])
def test_no_reading_waits_for_ever_or_fills_the_memory_or_the_disk(kind, tmp_path):
    if kind not in endless_reads.OWN:
        kind_class(kind)
    folders = {"XDG_CACHE_HOME": f"{tmp_path}/cache", "XDG_STATE_HOME": f"{tmp_path}/state"}
    env = {**os.environ, **folders, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(Path(endless_reads.__file__)), kind, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    endings = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith(f"{kind} ")]
    refused = [ending for ending in endings if "this is a pipe, a socket or a device; give a file" in ending]
    assert len(refused) >= 12, "confidence, checksums, manifest: four times each"
