"""What all engines have in common, by one that is this process."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import migrate
from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.engines.base import Engine
from migrate.engines.row_ranges import RangeFunction, file_of, row_ranges_of
from migrate.errors import LockedError, RemoteError, StitchError, StoreError, UsageError, VectorError
from migrate.files import output_lock
from migrate.progress import no_progress
from migrate.steps.base import RunContext
from migrate.steps.translate import Translate
from migrate.stores import open_store
from migrate.stores.base import read_all

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 150
LAYOUTS = {
    "one file": [[150]],
    "row groups": [[70, 40, 40]],
    "files": [[50, 10], [60], [7, 7, 7, 9]],
    "long": [[150], []],
}


class Here(Engine):
    """Makes parts in this process, those of `parts_made`; stops where a task fails, after so many."""

    name = "here"
    library = "json"
    package = "json"

    def __init__(self, fails_after=None):
        super().__init__()
        self.fails_after = fails_after
        self.parts_made = []

    def map(self, function, parts):
        for part in reversed(parts):
            if len(self.parts_made) == self.fails_after:
                raise RuntimeError("no worker is left\nTraceback: of many lines")
            self.parts_made.append(part.number)
            yield function(part)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Batches of 8 documents, chunks of 4, and a part for each row group that has a batch."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("migrate.translate._BATCH_BYTES", 8 * 4 * 32)
    monkeypatch.setattr("migrate.translate._CACHE_BYTES", 4 * 4 * 32)
    monkeypatch.setattr("migrate.translate._FEWEST_ROWS", 1)
    monkeypatch.setattr("migrate.engines.row_ranges.RANGE_BYTES", 1)


@pytest.fixture(scope="module")
def table(source_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    migrate.reembed(source_folder, "tfidf:32", f"parquet:{folder}/whole")
    read = pq.read_table(folder / "whole" / "part-00000.parquet", columns=["id", "vector", "text"])
    read = read.replace_schema_metadata(None)
    return read.append_column("price", pa.array(range(len(read)), pa.int32()))


def write_files(folder, table, layout):
    """Write a file for each list of a layout, with row groups of so many rows."""
    folder.mkdir()
    row = 0
    for number, groups in enumerate(layout):
        with pq.ParquetWriter(folder / f"{number}.parquet", table.schema) as writer:
            for count in groups:
                writer.write_table(table.slice(row, count))
                row += count
    return folder


@pytest.fixture
def old(table, tmp_path):
    return write_files(tmp_path / "old", table, LAYOUTS["files"])


def fit(old, kind="ridge"):
    return migrate.fit(f"parquet:{old}", load_embedder("tfidf:24"), kind=kind, sample=60)


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def by(engine, old, fitted, output, progress=no_progress, **options):
    step = Translate(f"parquet:{old}", fitted, f"parquet:{output}", **options)
    return engine.translate(step.open(RunContext(progress=progress)))


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_engine_makes_the_files_of_translate(layout, table, tmp_path):
    old = write_files(tmp_path / "old", table, LAYOUTS[layout])
    fitted = fit(old)
    migrate.translate(f"parquet:{old}", fitted, f"parquet:{tmp_path}/expected")
    seen = []
    engine = Here()
    done = by(engine, old, fitted, tmp_path / "new", progress=lambda *arguments: seen.append(arguments))
    assert (done.count, done.source_dim, done.target_dim, done.n_true) == (ROWS, 32, 24, 60)
    assert contents(tmp_path / "new") == contents(tmp_path / "expected")
    assert len(engine.parts_made) > 1 or layout in ("one file", "long")
    assert ("translate by here", ROWS, ROWS) in seen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["expected", "new", "old"]


@pytest.mark.parametrize(("size", "layout"), [(1, [[150]]), (1, [[5] * 30]), (40 * 128, [[20, 3, 20, 30], [77]])])
def test_parts_are_of_whole_batches_and_all_rows_are_in_one(size, layout, table, tmp_path, monkeypatch):
    monkeypatch.setattr("migrate.engines.row_ranges.RANGE_BYTES", size)
    store = open_store(f"parquet:{write_files(tmp_path / 'old', table, layout)}")
    parts = row_ranges_of(store, 8, 128)
    row = 0
    for part in parts:
        assert part.first_row + part.start == row and part.start % 8 == 0 and len(part) > 0
        row += len(part)
        counts = store.table.group_rows[int(Path(part.file.name).stem)]
        assert part.groups_start == sum(counts[: part.groups[0]])
        assert part.groups_start <= part.start and sum(counts[: part.groups[-1] + 1]) >= part.stop
    assert row == ROWS
    assert [part.number for part in parts] == list(range(len(parts)))
    large = [part for part in parts if len(part) * 128 < size]
    assert len(large) <= len(layout), "only the last of a file may be small"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "rows"])
def test_ids_may_be_numbers_or_those_of_the_rows(kind, table, tmp_path):
    ids = pa.array(range(1_000, 1_000 + ROWS), pa.int64())
    changed = table.set_column(0, "id", ids) if kind == "numbers" else table.drop_columns(["id"])
    old = write_files(tmp_path / "old", changed, LAYOUTS["files"])
    fitted = fit(old)
    migrate.translate(f"parquet:{old}", fitted, f"parquet:{tmp_path}/expected")
    by(Here(), old, fitted, tmp_path / "new")
    assert contents(tmp_path / "new") == contents(tmp_path / "expected")


@pytest.mark.slow
@pytest.mark.parametrize("any_store", [False, True])
def test_a_stitch_that_reads_texts_makes_the_same_but_for_last_digits(any_store, old, tmp_path):
    fitted = fit(old, "ridge+text")
    migrate.translate(f"parquet:{old}", fitted, f"parquet:{tmp_path}/expected", any_store=any_store)
    by(Here(), old, fitted, tmp_path / "new", any_store=any_store)
    new, expected = (read_all(open_store(tmp_path / name).scan()) for name in ("new", "expected"))
    assert list(new.ids) == list(expected.ids)
    assert np.abs(new.vectors - expected.vectors).max() < 1e-5


@pytest.mark.slow
def test_a_store_without_texts_is_translated_by_the_fallback(table, tmp_path):
    fitted = fit(write_files(tmp_path / "with texts", table, LAYOUTS["files"]), "ridge+text")
    old = write_files(tmp_path / "old", table.drop_columns(["text"]), LAYOUTS["files"])
    migrate.translate(f"parquet:{old}", fitted, f"parquet:{tmp_path}/expected", any_store=True)
    by(Here(), old, fitted, tmp_path / "new", any_store=True)
    assert contents(tmp_path / "new") == contents(tmp_path / "expected")


@pytest.mark.slow
def test_what_was_made_before_an_engine_failed_is_not_made_again(old, tmp_path):
    fitted = fit(old)
    migrate.translate(f"parquet:{old}", fitted, f"parquet:{tmp_path}/expected")
    first, second = Here(fails_after=2), Here()
    with pytest.raises(RemoteError) as told:
        by(first, old, fitted, tmp_path / "new")
    assert str(told.value).startswith("--engine here: no worker is left; ")
    assert not (tmp_path / "new").exists() and (tmp_path / ".new.made").is_dir()
    by(second, old, fitted, tmp_path / "new")
    assert len(first.parts_made) == 2 and not {*first.parts_made} & {*second.parts_made}
    assert contents(tmp_path / "new") == contents(tmp_path / "expected")
    assert not (tmp_path / ".new.made").exists()


@pytest.mark.slow
@pytest.mark.parametrize("changes", ["stitch", "restart"])
def test_what_was_made_by_another_stitch_or_before_a_restart_is_made_again(changes, old, tmp_path):
    fitted = fit(old)
    with pytest.raises(RemoteError):
        by(Here(fails_after=2), old, fitted, tmp_path / "new")
    again = fit(old, "procrustes") if changes == "stitch" else fitted
    engine = Here()
    by(engine, old, again, tmp_path / "new", restart=changes == "restart")
    migrate.translate(f"parquet:{old}", again, f"parquet:{tmp_path}/expected")
    assert sorted(engine.parts_made) == list(range(len(engine.parts_made)))
    assert contents(tmp_path / "new") == contents(tmp_path / "expected")


@pytest.mark.slow
def test_a_run_that_breaks_off_while_the_store_is_written_goes_on(old, tmp_path):
    def interrupt(stage, done, total):
        if stage == "translate" and done:
            raise KeyboardInterrupt

    fitted = fit(old)
    with pytest.raises(KeyboardInterrupt):
        by(Here(), old, fitted, tmp_path / "new", progress=interrupt)
    engine = Here()
    by(engine, old, fitted, tmp_path / "new")
    migrate.translate(f"parquet:{old}", fitted, f"parquet:{tmp_path}/expected")
    assert engine.parts_made == []
    assert contents(tmp_path / "new") == contents(tmp_path / "expected")


class Meddling(Here):
    """Does something to the files once all are made."""

    def __init__(self, meddle):
        super().__init__()
        self.meddle = meddle

    def map(self, function, parts):
        yield from super().map(function, parts)
        self.meddle(Path(function.folder.location))


def spoil(folder):
    path = sorted(folder.iterdir())[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def lose(folder):
    sorted(folder.iterdir())[1].unlink()


@pytest.mark.slow
@pytest.mark.parametrize(("meddle", "words"), [(spoil, "changed since it was made"), (lose, "is not there")])
def test_a_part_that_is_not_what_was_written_is_refused_and_all_are_made_again(meddle, words, old, tmp_path):
    fitted = fit(old)
    with pytest.raises(StoreError, match=words):
        by(Meddling(meddle), old, fitted, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]
    by(Here(), old, fitted, tmp_path / "new")
    migrate.translate(f"parquet:{old}", fitted, f"parquet:{tmp_path}/expected")
    assert contents(tmp_path / "new") == contents(tmp_path / "expected")


@pytest.mark.slow
def test_a_part_that_was_made_twice_is_taken_once(old, tmp_path):
    def repeat(folder):
        path = sorted(folder.iterdir())[0]
        shutil.copy(path, folder / f"{path.name[:12]}{'f' * 64}.parquet")  # by a processor that rounds otherwise
        (folder / ".part-abc").write_bytes(b"half of one")

    fitted = fit(old)
    by(Meddling(repeat), old, fitted, tmp_path / "new")
    migrate.translate(f"parquet:{old}", fitted, f"parquet:{tmp_path}/expected")
    assert contents(tmp_path / "new") == contents(tmp_path / "expected")


@pytest.mark.slow
def test_vectors_that_are_not_those_of_the_stitch_are_refused(old, tmp_path):
    class Wrong(Here):
        def map(self, function, parts):
            other = migrate.batch(fit(old, "procrustes"))
            return super().map(replace(function, function=other), parts)

    with pytest.raises(StitchError, match="is not what this stitch makes"):
        by(Wrong(), old, fit(old), tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]


def test_the_error_of_a_part_is_told_as_on_one_machine(table, tmp_path):
    vectors = np.stack(table.column("vector").to_numpy(zero_copy_only=False))
    fitted = fit(write_files(tmp_path / "good", table, LAYOUTS["files"]))
    vectors[77] = 0
    spoiled = table.set_column(1, "vector", pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 32))
    old = write_files(tmp_path / "old", spoiled, LAYOUTS["files"])
    with pytest.raises(VectorError, match=repr(table.column("id")[77].as_py())):
        by(Here(), old, fitted, tmp_path / "new", any_store=True)
    assert not (tmp_path / "new").exists()


def test_a_worker_says_that_it_has_another_version_or_sees_other_files(old, tmp_path):
    class Changed(Here):
        def __init__(self, **changes):
            super().__init__()
            self.changes = changes

        def map(self, function, parts):
            assert isinstance(function, RangeFunction)
            changes = self.changes or {"folder": replace(function.folder, location=str(tmp_path / "nowhere"))}
            return super().map(replace(function, **changes), parts)

    fitted = fit(old)
    with pytest.raises(UsageError, match=r"0\.0\.0"):
        by(Changed(version="0.0.0"), old, fitted, tmp_path / "new")
    with pytest.raises(UsageError, match="sees no such folder; let all machines share it"):
        by(Changed(), old, fitted, tmp_path / "new")
    with pytest.raises(RemoteError, match="have it see the same files"):
        file_of(json.dumps({"error": "RemoteError", "message": "have it see the same files"}))


@pytest.mark.slow
def test_an_output_that_is_there_or_is_being_written_is_refused_before_anything_is_made(old, tmp_path):
    fitted = fit(old)
    (tmp_path / "new").mkdir()
    engine = Here()
    with pytest.raises(UsageError, match="exists"):
        by(engine, old, fitted, tmp_path / "new")
    with output_lock(tmp_path / "new.made"), pytest.raises(LockedError):
        by(engine, old, fitted, tmp_path / "new", force=True)
    assert engine.parts_made == []
    by(engine, old, fitted, tmp_path / "new", force=True)
    assert open_store(tmp_path / "new").info.count == ROWS


# Looked for and not imported, as the command does: it takes a second
@pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "parquet:old stitch -o parquet:new --engine sparkle",
            "there is no engine 'sparkle'; name one of daft, dask, ray",
        ),
        ("parquet:old stitch -o faiss:new --engine dask", "name an output parquet:LOCATION"),
        ("parquet:old stitch -o sqlite-vec:new.db#docs --engine dask --dry-run", "name an output parquet:LOCATION"),
        ("flat stitch -o parquet:new --engine dask", "engines translate Parquet to Parquet, and this is faiss"),
        ("parquet:old stitch --into other --engine dask", "--engine and --into exclude each other"),
        ("parquet:old stitch -o parquet:new --engine dask --workers 2", "--engine and --workers exclude each other"),
        ("parquet:old stitch -o parquet:new --engine dask --pace 0.5", "--engine and --pace exclude each other"),
        ("parquet:old stitch -o parquet:new --engine dask:local:none", "write it as in dask:local:4"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_in_one_line(
    words, message, old, source_folder, tmp_path, monkeypatch, capfd
):
    fit(old).save(tmp_path / "stitch")
    shutil.copytree(source_folder, tmp_path / "flat")
    before = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    assert run(["translate", *words.split()]) == 2
    told = capfd.readouterr().err.strip().splitlines()
    assert message in told[-1] and "Traceback" not in "".join(told)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
