"""A finished run says its verdict again only where each of its files is as it left it."""

import json
import shutil
from pathlib import Path

import pytest

from migrate.files import sha256_file, sha256_json
from migrate.stores import open_store

pytestmark = pytest.mark.slow

AGAIN = "its verdict is printed again"
JUDGED = (0, 1, 3)


@pytest.fixture
def again(finished_here, lead_migrate):
    """Runs the command again."""
    return lambda options="", code=JUDGED: lead_migrate(f"{finished_here} {options}", code=code)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-2])


def replace(path):
    path.write_bytes(b"x")


def make_folder(path):
    path.unlink()
    path.mkdir()


def make_endless(path):
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.fixture
def refuse_spoiled(again):
    """Spoils a file of the run, and puts it back; the run has to name it, and takes nothing over."""
    outcome = json.loads(Path("made/report.json").read_bytes())["plan"]["outcome"]

    def refuse(path, spoil):
        shutil.copy(path, "sound")
        spoil(path)
        ended = again(code=4)
        assert AGAIN not in ended.err and f"{outcome}:" not in ended.err, path
        events = [f"{path}: the file {event} since the run finished" for event in ("was changed", "is gone")]
        assert any(event in ended.complaint for event in events)
        assert ended.err.count("\n") == 1
        again("--margin 0.5", code=(2, 4))
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        shutil.move("sound", path)

    return refuse


def test_every_file_that_changed_is_named_and_the_verdict_not_said(refuse_spoiled, again):
    files = sorted(path for path in Path("made").rglob("*") if path.is_file() and path.name != "run.json")
    assert len(files) > 10
    for path in files:
        refuse_spoiled(path, flip)
    assert AGAIN in again().err


@pytest.mark.parametrize("spoil", [flip, cut, Path.unlink, replace, make_folder, make_endless])
def test_a_file_is_known_however_it_changed(spoil, refuse_spoiled):
    for name in ("store/index.faiss", "stitch/lead-migrate.json"):
        refuse_spoiled(Path("made", name), spoil)


@pytest.mark.parametrize("name", ["store/more", "stitch/more", "store/deep/more", "store/.hidden"])
def test_a_file_more_is_named(name, again):
    path = Path("made", name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    assert f"{path}: the file was added since the run finished" in again(code=4).complaint
    assert path.read_text() == "x"


def test_what_lies_beside_the_outputs_is_the_users(again):
    Path("made/notes.txt").write_text("mine")
    assert AGAIN in again().err


def test_a_report_that_audit_has_replaced_is_that_of_the_run_again(again, lead_migrate):
    report = Path("made/report.json")
    words = f"audit made/store --judged judged --reference pool --source old --report {report} --force"
    lead_migrate(words, code=(0, 1, 3))
    assert "migration" not in json.loads(report.read_text())
    assert "only the audit is repeated" in again(code=(0, 1, 3)).told
    assert "migration" in json.loads(report.read_text())
    assert "this run is finished already" in again(code=(0, 1, 3)).told


@pytest.mark.parametrize("name", ["stitch", "store"])
def test_nothing_is_written_into_a_stitch_or_a_store(name, again, lead_migrate):
    folder = Path("made", name)
    before = sorted(folder.rglob("*"))
    for flag in ("", "--force"):
        assert f"{folder}: this is a {name}, not a folder for" in again(f"-o {folder} {flag}", code=2).complaint
    lead_migrate(f"init old --target tfidf:16 --judged judged -o {folder}", code=2)
    assert sorted(folder.rglob("*")) == before and not Path("lead-migrate.toml").exists()


def test_force_makes_the_run_anew(again):
    flip(Path("made/store/index.faiss"))
    again("--force -q")
    assert AGAIN in again().err


def test_a_record_of_an_older_tool_is_audited_anew(again):
    facts = json.loads(Path("made/run.json").read_bytes())
    del facts["sha256"]
    for name, output in facts["outputs"].items():
        files = output.pop("files")
        del output["content"]
        (file,) = {"lead-migrate.json", ""} & files.keys()
        output["sha256"] = sha256_file(Path("made", name, file))
    Path("made/run.json").write_text(json.dumps({**facts, "version": 2}))
    ended = again()
    assert ended.out and AGAIN not in ended.err and "only the audit is repeated" in ended.err
    assert AGAIN in again().err, "it is of today now"


def test_a_record_of_a_tool_whose_report_had_less_is_audited_anew(again):
    path = Path("made/run.json")
    facts = json.loads(path.read_bytes())
    del facts["sha256"]
    older = {**facts, "version": 3, "outcome": "SAFE", "summary": "", "details": "", "suite": {}}
    path.write_text(json.dumps({**older, "sha256": sha256_json(older)}))
    ended = again()
    assert ended.out and AGAIN not in ended.err and "only the audit is repeated" in ended.err
    assert AGAIN in again().err, "it is of today now"


@pytest.mark.parametrize("kind", ["sqlite-vec", "lancedb", "chroma", "milvus", "qdrant", "parquet"])
def test_a_store_of_any_kind_that_nobody_touched_is_vouched_for(kind, here, lead_migrate):
    location = "parquet:old" if kind == "parquet" else f"{kind}:old#docs"
    if lead_migrate(f"translate store stitch -q -o {location}", code=(0, 2)).code == 2:
        pytest.skip(f"needs the extra {kind}")
    command = "run old --reference pool --target tfidf:28 --sample 60 --kind ridge --judged judged -o out"
    code = lead_migrate(f"{command} -q", code=JUDGED).code
    for _ in range(2):
        assert AGAIN in lead_migrate(command, code=code).err
        store = open_store("out/store")
        assert sum(len(batch) for batch in store.scan()) == 150 and next(store.documents()).text
