"""The programs of the page on engines, run as they stand there, each in an engine of its own."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import migrate
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.base import read_all

pytestmark = pytest.mark.slow

pq = pytest.importorskip("pyarrow.parquet")

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
PROGRAMS = dict(re.findall(r"^## ([^\n]+)\n\n```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
ENGINES = {"Dask": "dask.dataframe", "Spark": "pyspark", "Ray Data": "ray", "Daft": "daft", "DuckDB": "duckdb"}

WITH_TEXTS = {
    "Dask": {'["id", "vector"])': '["id", "vector", "text"]).repartition(npartitions=3)'},
    "Spark": {'.select("id", "vector")': '.select("id", "vector", "text").repartition(3)'},
    "Ray Data": {'(["id", "vector"])': '(["id", "vector", "text"]).repartition(3)'},
    "Daft": {
        "vectors: daft.Series)": "vectors: daft.Series, texts: daft.Series)",
        "vectors.to_arrow()}": 'vectors.to_arrow(), "text": texts.to_arrow()}',
        'old["vector"]': 'old["vector"], old["text"]',
    },
    "DuckDB": {"id, vector FROM 'old/*.parquet'": "id, vector, text FROM 'old/*.parquet' ORDER BY text"},
}


def run(program, folder):
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "RAY_USAGE_STATS_ENABLED": "0",
        "DO_NOT_TRACK": "true",
        "SOURCE_DATE_EPOCH": "1700000000",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def begun(source_folder, tmp_path_factory):
    """A folder with the store `old`, the stitches `stitch` and `reading`, and what they make of it."""
    folder = tmp_path_factory.mktemp("begun")
    migrate.reembed(source_folder, "tfidf:32", f"parquet:{folder}/old")
    for name, kind in (("stitch", "ridge"), ("reading", "ridge+text")):
        migrate.fit(folder / "old", load_embedder("tfidf:24"), kind=kind, sample=60).save(folder / name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
            patch.chdir(folder)
            migrate.translate("old", name, f"new-{name}")
    return folder


@pytest.fixture
def workplace(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "work")


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def program_of(engine):
    pytest.importorskip(ENGINES[engine])
    if engine == "Spark" and shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime")
    return PROGRAMS[engine]


def test_every_engine_of_the_page_is_run():
    assert {*PROGRAMS} == {*ENGINES, "The new store"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_program_of_an_engine_makes_the_store_of_translate(engine, workplace):
    run(program_of(engine), workplace)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        patch.chdir(workplace)
        exec(PROGRAMS["The new store"], {})  # in this process: it needs no engine
    assert printed.getvalue().startswith("<Translation new: 150 vectors")
    assert contents(workplace / "new") == contents(workplace / "new-stitch")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_program_of_an_engine_runs_a_stitch_that_reads_texts(engine, workplace):
    """With the column of texts, in many small batches that are done in any order."""
    rows = "2048" if engine == "DuckDB" else "20"  # its least
    changed = program_of(engine).replace('"stitch"', '"reading"').replace("translate.rows", rows)
    for line, line_with_texts in WITH_TEXTS[engine].items():
        assert line in changed
        changed = changed.replace(line, line_with_texts)
    run(changed, workplace)
    migrate.batch(workplace / "reading").finish(workplace / "old", workplace / "made", workplace / "new")
    new, expected = (read_all(open_store(workplace / name).scan()) for name in ("new", "new-reading"))
    assert list(new.ids) == list(expected.ids)
    assert np.abs(new.vectors - expected.vectors).max() < 1e-5
