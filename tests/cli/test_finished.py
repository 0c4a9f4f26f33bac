"""A finished run says its verdict again only where each of its files is as it left it."""

import json
import shutil

import pytest

from migrate.cli.main import run

pytestmark = pytest.mark.slow

AGAIN = "nothing is done again"


@pytest.fixture(scope="module")
def finished(source_folder, beir, tmp_path_factory):
    """A folder with a finished run, and the command that made it."""
    folder = tmp_path_factory.mktemp("finished") / "made"
    options = ["--target", "tfidf:24", "--sample", "60", "--stitch", "ridge", "--beir", beir]
    command = [str(part) for part in ("run", source_folder, *options, "-o")]
    assert run([*command, str(folder), "-q"]) in (0, 1, 3)
    return folder, command


@pytest.fixture
def again(finished, tmp_path, capsys):
    """A copy of it, and what runs it again: exit code, what is printed, and what is told."""
    shutil.copytree(finished[0], tmp_path / "made")

    def runs(*options):
        capsys.readouterr()
        code = run([*finished[1], str(tmp_path / "made"), *map(str, options)])
        return code, *capsys.readouterr()

    return tmp_path / "made", runs


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


SPOILERS = {
    "flipped": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "deleted": lambda path: path.unlink(),
    "replaced": lambda path: path.write_bytes(b"x"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "without end": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("spoil", SPOILERS.values(), ids=SPOILERS)
def test_a_file_that_is_another_is_named_and_the_verdict_not_said(spoil, again):
    folder, runs = again
    outcome = json.loads((folder / "run.json").read_bytes())["outcome"]
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "run.json")
    assert len(files) > 10
    for path in files:
        shutil.copy(path, folder.parent / "sound")
        spoil(path)
        code, out, told = runs()
        assert (code, out) == (4, "") and AGAIN not in told and f"{outcome}:" not in told, path
        assert any(
            f"{path}: the file {event} since the run finished" in told for event in ("was changed", "is gone")
        ), told
        assert len(told.splitlines()) == 1
        assert runs("--margin", "0.5")[0] in (2, 4), "another audit takes nothing over either"
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        shutil.move(folder.parent / "sound", path)
    assert AGAIN in runs()[2]


@pytest.mark.parametrize("spoil", [flip, lambda path: path.write_bytes(path.read_bytes()[:-2]), SPOILERS["replaced"]])
def test_a_record_that_is_damaged_vouches_for_nothing(spoil, again):
    folder, runs = again
    spoil(folder / "run.json")
    code, out, told = runs()
    assert code in (2, 4) and out == "" and len(told.splitlines()) == 1, told


@pytest.mark.parametrize("name", ["store/more", "stitch/more", "store/deep/more", "store/.hidden"])
def test_a_file_more_is_named(name, again):
    folder, runs = again
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("x")
    code, out, told = runs()
    assert (code, out) == (4, "")
    assert f"{folder / name}: the file was added since the run finished" in told
    assert (folder / name).read_text() == "x"


def test_what_lies_beside_the_outputs_is_the_users(again):
    folder, runs = again
    (folder / "notes.txt").write_text("mine")
    assert AGAIN in runs()[2]


def test_force_makes_the_run_anew(again):
    folder, runs = again
    flip(folder / "store/index.faiss")
    assert runs("--force", "-q")[0] in (0, 1, 3)
    assert AGAIN in runs()[2]


def test_a_record_of_an_older_tool_is_audited_anew(again):
    folder, runs = again
    facts = json.loads((folder / "run.json").read_bytes())
    del facts["sha256"]
    for name, output in facts["outputs"].items():
        files = output.pop("files")
        del output["content"]
        output["sha256"] = files.get("lead-migrate.json") or files[""]
        assert (folder / name).exists()
    (folder / "run.json").write_text(json.dumps({**facts, "version": 2}))
    code, out, told = runs()
    assert code in (0, 1, 3) and out
    assert AGAIN not in told and "only the audit is made anew" in told
    assert AGAIN in runs()[2], "it is of today now"


@pytest.mark.parametrize("kind", ["sqlite-vec", "lancedb", "chroma", "milvus", "qdrant", "parquet"])
def test_a_store_of_any_kind_that_nobody_touched_is_vouched_for(kind, source_folder, beir, tmp_path, capsys):
    from migrate.stores import open_store

    made = [str(part) for part in (tmp_path / "out", tmp_path / "stitch", tmp_path / "old")]
    location = {"parquet": f"parquet:{made[2]}"}.get(kind, f"{kind}:{made[2]}#docs")
    same = [
        "fit",
        str(source_folder),
        "--target",
        "tfidf:28",
        "--stitch",
        "ridge",
        "--sample",
        "60",
        "-o",
        made[1],
        "-q",
    ]
    assert run(same) == 0
    if run(["translate", str(source_folder), made[1], "-o", location, "-q"]) == 2:
        pytest.skip(f"needs the extra {kind}")
    command = ["run", made[2], "--target", "tfidf:24", "--sample", "60", "--stitch", "ridge", "--beir", str(beir)]
    code = run([*command, "-o", made[0], "-q"])
    assert code in (0, 1, 3), capsys.readouterr().err
    for _ in range(2):
        capsys.readouterr()
        assert run([*command, "-o", made[0]]) == code
        assert AGAIN in capsys.readouterr().err
        store = open_store(tmp_path / "out/store")
        assert sum(len(batch) for batch in store.scan()) == 150 and next(store.documents()).text
