"""The file that names a migration once: `init` writes it, and commands without arguments follow it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from migrate.stores import open_store

FILE = Path("lead-migrate.toml")


def say(text):
    FILE.write_text(text)


@pytest.fixture
def migration(here):
    """A migration of which stitch and new store are there, and the file that names them."""
    say(
        'store = "store"\nsource-model = "tfidf:32"\ntarget = "tfidf:24"\njudged = "judged"\noutput = "out"\n'
        'stitch = "stitch"\nnew-store = "new"\n'
    )
    return here


def test_commands_without_arguments_do_what_the_file_says(migration, lead_migrate):
    checked = lead_migrate("check")
    assert "compatible with tfidf:32" in checked.said
    assert checked.err.splitlines()[0] == "from lead-migrate.toml: store, model"
    assert "manifest" in checked.said and "embedded" in checked.said, "judged queries do not make it embed"
    assert "to write: new-2" in lead_migrate("translate -o new-2 --dry-run").said
    assert "up to date" in lead_migrate("sync").said
    assert "to read: new; judged; store" in lead_migrate("audit --dry-run").said
    assert "there is no report" in lead_migrate("switch", code=4).complaint
    assert "this store was not served live yet" in lead_migrate("live status", code=2).complaint
    assert "to read: store" in lead_migrate("fit -o other --dry-run").said
    assert "to write: out" in lead_migrate("run --reference pool --sample 60 --dry-run").said
    assert lead_migrate("check -q").err == "", "notes are for those who want them"


def test_what_is_typed_wins(migration, lead_migrate):
    assert "not of tfidf:16" in lead_migrate("check --model tfidf:16", code=4).complaint
    assert "nowhere: no such file or folder" in lead_migrate("check nowhere", code=4).complaint
    Path("mine.txt").write_text("a question\n")
    read = lead_migrate("run --queries mine.txt --reference pool --sample 60 --dry-run", code=(0, 3, 4))
    assert "judged" not in read.err.splitlines()[0], "the one of two that was typed"
    cut = lead_migrate("translate --dimensions 4 -o cut", code=2)
    assert cut.err.splitlines()[0] == "from lead-migrate.toml: store"
    assert "takes no dimensions=N" in cut.complaint


def test_the_report_of_the_file_is_about_the_new_store_of_the_file(migration, lead_migrate):
    lead_migrate("audit -q", code=(1, 3))
    lead_migrate("reembed -q -o full")
    assert "out/report.json: this report says" in lead_migrate("switch store new", code=4).complaint
    assert lead_migrate("switch store full").err == ""
    lead_migrate("rollback store")
    # A full re-embed in the place that was judged takes no proof either
    lead_migrate("reembed -q -o new --force")
    assert lead_migrate("switch").err == "from lead-migrate.toml: old, new\n"


def test_paths_are_relative_to_the_file_which_is_looked_for_above(migration, monkeypatch, lead_migrate):
    Path("deep/down").mkdir(parents=True)
    monkeypatch.chdir("deep/down")
    ended = lead_migrate("check")
    assert ended.err.splitlines()[0] == "from ../../lead-migrate.toml: store, model"
    assert "to read: ../../new; ../../judged; ../../store" in lead_migrate("audit --dry-run").said
    assert "../../new" in lead_migrate("status").said


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("chroma:folder#docs", "chroma:../folder#docs"),
        ("records:rows.json#?vector=v", "records:../rows.json#?vector=v"),
        ("pgvector:postgresql://db/shop#items", "pgvector:postgresql://db/shop#items"),
        ("qdrant:http://db:6333#docs", "qdrant:http://db:6333#docs"),
        ("/srv/store", "/srv/store"),
        ("parquet:/srv/store", "parquet:/srv/store"),
    ],
)
def test_a_location_keeps_its_kind_and_what_follows_its_path(value, seen, tmp_path, monkeypatch):
    from migrate.cli.project.settings import MigrationSettings

    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert MigrationSettings.of({"store": value}, tmp_path / FILE).store == seen
    assert (
        MigrationSettings.of({"target": "file:a.npz,dimensions=8"}, tmp_path / FILE).target
        == "file:../a.npz,dimensions=8"
    )
    assert MigrationSettings.of({"target": "sentence-transformers:org/name"}, tmp_path / FILE).target.endswith(
        ":org/name"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('stroe = "x"\n', "lead-migrate.toml: unknown option 'stroe'; did you mean store? The keys of a migration are"),
        ('nonsense = "x"\n', "unknown option 'nonsense'. The keys of a migration are store, target, source-model"),
        ("store = 5\n", "lead-migrate.toml: store is 5, and has to be text"),
        ("judged = true\n", "lead-migrate.toml: judged is True, and has to be text"),
        ('output = ""\n', "lead-migrate.toml: output is ''"),
        ('new-store = ["a"]\n', "lead-migrate.toml: new-store is ['a']"),
        ("margin = true\n", "Invalid value for margin in "),
        ("store = \n", "lead-migrate.toml: this is not TOML"),
        ('[store]\nx = "y"\n', "unknown command 'store'"),
    ],
)
def test_a_fault_of_the_file_is_one_line(text, told, lead_migrate):
    say(text)
    for command in ("run x --target tfidf:8 -o out --judged y", "status"):
        ended = lead_migrate(command, code=(2, 4))
        if command == "status" and "margin" in text:
            continue  # it does not need that
        assert told in ended.complaint and ended.code == 2 and ended.err.count("\n") == 1


def test_a_password_in_the_file_is_printed_nowhere(lead_migrate):
    say('store = "pgvector:postgresql://ann:geheim@127.0.0.1:1/shop#items"\noutput = "out"\ntarget = "tfidf:24"\n')
    for command, code in (("status", 0), ("status --json", 0), ("inspect", (2, 5, 7))):
        ended = lead_migrate(command, code=code)
        assert "geheim" not in ended.out + ended.err and "ann" in ended.out + ended.err


def test_one_of_two_files_in_a_folder_would_be_passed_over(lead_migrate):
    Path("pyproject.toml").write_text("[tool.lead-migrate]\nmargin = 0.97\n")
    say('store = "x"\n')
    assert "has a table [tool.lead-migrate] too; keep one" in lead_migrate("status", code=2).complaint


def test_the_table_of_a_project_says_the_same(migration, lead_migrate):
    Path("pyproject.toml").write_text(f"[tool.lead-migrate]\n{FILE.read_text()}")
    FILE.unlink()
    assert "compatible with tfidf:32" in lead_migrate("check").said
    assert lead_migrate("status").said.startswith("file pyproject.toml")
    told = lead_migrate("init store --target tfidf:24 --judged judged --force", code=2).complaint
    assert "this project has its settings in [tool.lead-migrate]" in told


def test_init_writes_what_it_sees_and_was_told(store, judged, lead_migrate):
    ended = lead_migrate("init store --target tfidf:24 --judged judged -o made")
    assert "faiss, 150 vectors of 32 dimensions of tfidf:32, with texts" in ended.said
    assert ended.next == "run"
    assert FILE.read_text().splitlines()[1:6] == [
        'store = "store"',
        'source-model = "tfidf:32"',
        'target = "tfidf:24"',
        'judged = "judged"',
        'output = "made"',
    ]
    assert "to write: made" in lead_migrate(f"{ended.next} --reference pool --sample 60 --dry-run").said


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("store", 2, "no terminal to ask in; give --target SPEC, and --judged DIR or --queries FILE|synthetic"),
        ("store --target tfidf:24", 2, "give --judged DIR or --queries FILE|synthetic"),
        ("store --target tfidf:24 --judged a --queries b", 2, "leave the other out"),
        ("store --target tfidf:24 --judged nowhere", 2, "--judged nowhere: there is no such file or folder"),
        ("store --target tfidf:32 --judged judged", 2, "store: this is of tfidf:32 already"),
        ("store --target mini --judged judged", 2, "unknown model 'mini'"),
        ("store --target file:no.npz,dimensions=8 --judged judged", 2, "dimensions=8: there is no such file; check"),
        ("store --target tfidf:24 --source-model file:no.npz --judged judged", 2, "--source-model file:no.npz: there"),
        ("nowhere --target tfidf:24 --judged judged", 4, "nowhere: no such file or folder"),
        (". --target tfidf:24 --judged judged", 2, "there are several stores here; name one of judged, old, store"),
    ],
)
def test_init_refuses_what_would_not_run(words, code, told, store, judged, lead_migrate):
    if words.startswith("."):
        Path("old").symlink_to("store")
    ended = lead_migrate(f"init {words}", code=code)
    assert told in ended.complaint and not FILE.exists()


def test_a_store_that_shares_a_folder_with_its_output_is_told_of_before_anything_is_embedded(here, lead_migrate):
    words = "--target tfidf:40"
    for path in Path("store").iterdir():
        shutil.copy2(path, path.name)
    ended = lead_migrate(f"init index.faiss {words} --judged judged")
    assert "note: moved lies in the folder of the old store, beside other files" in ended.told
    own_folder = re.search(r"such as (\S+), and name it there", ended.told)[1]
    told = lead_migrate("reembed index.faiss --target tfidf:40 -o moved --dry-run").told
    assert "note: moved lies in the folder" in told

    shutil.copytree("store", own_folder)
    ended = lead_migrate(f"init {own_folder}/index.faiss {words} --judged judged --force")
    assert "lies in the folder" not in ended.told
    lead_migrate("reembed -q")
    lead_migrate("switch")
    assert open_store(own_folder).info.dim == 40


def test_a_report_that_no_audit_replaces_is_not_said_to_be(migration, lead_migrate):
    lead_migrate("audit --reference pool --plan two-stage-20", code=(0, 1, 3))
    report = Path("out/report.json")
    before = report.read_bytes()
    ended = lead_migrate("audit stitch", code=4)
    assert "this is a stitch, not a store" in ended.err and "replaced" not in ended.err
    assert report.read_bytes() == before
    assert "out/report.json: the audit of " in lead_migrate("audit --reference pool", code=(0, 1, 3)).told
    assert report.read_bytes() != before


def test_a_full_reembed_is_audited_without_a_plan_and_weighed_against_none(here, lead_migrate):
    lead_migrate("reembed store --target tfidf:24 -q -o full")
    words = "full --judged judged --reference pool --source store"
    ended = lead_migrate(f"audit {words} --plan two-stage-20 --report full.json", code=(0, 1, 3))
    assert "without the plan two-stage-20" in ended.told
    assert "the better deal" not in ended.told and "full-full" not in ended.told
    assert json.loads(Path("full.json").read_text())["plan"]["name"] == "translated"
    lead_migrate("switch store full")


@pytest.mark.parametrize("place", ["pointer", "pointer/index.faiss", "."])
def test_init_says_what_is_wrong_with_the_only_store_of_a_folder(place, lead_migrate):
    Path("pointer").mkdir()
    Path("pointer/index.faiss").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    complaint = lead_migrate(f"init {place} --target tfidf:8 --queries synthetic", code=4).complaint
    assert "run git lfs pull" in complaint and not FILE.exists()


def test_init_says_what_a_folder_of_an_old_chroma_is(lead_migrate):
    Path("old").mkdir()
    collections = pa.table({"uuid": ["u1", "u2"], "name": ["a", "b"]})
    records = pa.table({"collection_uuid": ["u1", "u2"], "uuid": ["1", "2"], "embedding": [[1.0], [2.0]]})
    parquet.write_table(collections, "old/chroma-collections.parquet")
    parquet.write_table(records, "old/chroma-embeddings.parquet")
    ended = lead_migrate("init old --target tfidf:8 --queries synthetic", code=4)
    assert "Chroma before 0.4 wrote this" in ended.complaint


def test_init_asks_for_no_model_that_the_store_names(store, judged, write_vectors, lead_migrate):
    Path("models").mkdir()
    write_vectors(Path("models/old.npz"), "tfidf:32")
    lead_migrate("stamp store --model file:models/old.npz --trust --force -q")
    ended = lead_migrate("init store --target tfidf:24 --judged judged")
    assert "of file:old.npz" in ended.said and "no source-model" not in ended.err


def test_init_replaces_nothing_unasked(store, judged, lead_migrate):
    say('store = "mine"\n')
    assert "replace it with --force" in lead_migrate("init store --target tfidf:24 --judged judged", code=2).complaint
    assert FILE.read_text() == 'store = "mine"\n'
    lead_migrate("init store --target tfidf:24 --queries synthetic --force")
    assert 'queries = "synthetic"' in FILE.read_text()


@pytest.mark.slow
def test_init_asks_in_a_terminal(store, judged):
    """In a process of its own, whose terminal is a real one."""
    import pty

    master, slave = pty.openpty()
    command = [sys.executable, "-m", "migrate", "init", "store"]
    with subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.write(master, b"tfidf:24\njudged\n")
        _, err = process.communicate(timeout=60)
    os.close(slave)
    os.close(master)
    assert process.returncode == 0, err
    assert "Model to move to" in err and "next: " in err
    assert 'target = "tfidf:24"\njudged = "judged"\n' in FILE.read_text()
