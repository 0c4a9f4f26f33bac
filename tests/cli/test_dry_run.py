"""`--dry-run`: what a command would do is said, and nothing is done: the folder and the cache stay as they were."""

import hashlib
import shutil

import pytest
from openai_server import OpenAIServer

from migrate.cli import SUMMARIES

pytestmark = pytest.mark.slow

PAID = "openai:text-embedding-3-small,dimensions=24"

FREE_COMMANDS = {
    "fit store --target tfidf:24 --sample 60 -o other": ("to embed: up to 60 texts by tfidf:24", "to write: other"),
    "translate store stitch -o other": ("to read: store; stitch", "to write: other"),
    "reembed store --target tfidf:24 -o other": ("to embed: up to 150 texts by tfidf:24", "to write: other"),
    "embed store/docs.jsonl --model tfidf:24 -o other": ("by tfidf:24", "to write: other"),
    "run store --reference pool --target tfidf:24 --judged judged --sample 60 -o other": (
        "to read: store; judged",
        "to write: other",
    ),
    "audit new --source store --judged judged --reference build --report page.html": ("to read: new;", "page.html"),
    "sync store new": ("up to date",),
    "check store --model tfidf:32": ("to embed: nothing", "to write: nothing"),
    "check store --model tfidf:32 --full --report page.html": ("to embed: up to 32 texts by tfidf:32", "page.html"),
    "assess store --target tfidf:24 --report page.html": ("to embed: nothing", "to write: page.html"),
    "assess store --target tfidf:24 --calibrate": ("to embed: 32 texts by tfidf:24", "to write: nothing"),
    "assess store --target tfidf:24 --target tfidf:16 --judged judged": (
        "by tfidf:24",
        "by tfidf:16",
        "to read: store; judged",
    ),
    "stamp store --model tfidf:32 --force": ("to embed: 32 texts by tfidf:32", "store/lead-migrate.json"),
}

PAID_COMMANDS = [
    f"fit store --target {PAID} --sample 60 -o other",
    f"fit store --target {PAID} --sample 60 --query-log log.txt --source-model tfidf:32 -o other",
    f"reembed store --target {PAID} -o other",
    f"reembed store --target {PAID} --share 60% --stitch paid -o other",
    f"embed store/docs.jsonl --model {PAID} -o other",
    f"run store --reference pool --target {PAID} --judged judged --sample 60 -o other",
    "translate store paid -o other --reembed 60%",
    "audit translated --source store --judged judged --reference pool --report page.html",
    "backfill translated -o other",
    f"stamp store --model {PAID} --force",
    f"check translated --model {PAID} --full",
    f"assess store --target {PAID} --judged judged",
    "live run translated --budget 60%",
]


@pytest.fixture
def contents(tmp_path):
    """Returns what is in the test's folder, which has the cache and the state in it too: bytes and times by name."""

    def read():
        found = {}
        for path in sorted(tmp_path.rglob("*")):
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path)] = (digest, path.stat().st_mtime_ns)
        return found

    return read


@pytest.mark.parametrize("line", FREE_COMMANDS)
def test_nothing_is_done(line, here, lead_migrate, contents):
    before = contents()
    ended = lead_migrate(f"{line} --dry-run")
    assert contents() == before
    for words in FREE_COMMANDS[line]:
        assert words in ended.said
    assert ended.next is None


@pytest.fixture(scope="module")
def paid(migrated, lead_migrate, tmp_path_factory):
    """A server, and a folder with a stitch `paid` to its model, the store `translated` by it, and a log of queries."""
    folder = shutil.copytree(migrated, tmp_path_factory.mktemp("paid"), dirs_exist_ok=True)
    with OpenAIServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("OPENAI_BASE_URL", server.url)
        lead_migrate(f"fit store --target {PAID} --sample 50 --kind ridge -q -o paid")
        lead_migrate("translate store paid -q -o translated")
        patch.undo()
        (folder / "log.txt").write_text("how do I sort a list\nread a file\n")
        yield server, folder


@pytest.fixture
def paid_here(paid, tmp_path, monkeypatch):
    """A copy of that folder and its cache, in which the test works; the server."""
    server, folder = paid
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    return server


@pytest.mark.parametrize("has_cache", [False, True])
@pytest.mark.parametrize("line", PAID_COMMANDS)
def test_nothing_is_paid_for(line, has_cache, paid_here, lead_migrate, contents):
    if not has_cache:
        shutil.rmtree("cache")
    n_served, before = len(paid_here.texts_served), contents()
    assert "to write: " in lead_migrate(f"{line} --dry-run").said
    assert contents() == before
    document = lead_migrate(f"{line} --dry-run --json").document
    assert document["kind"] == "dry run" and line.startswith(f"{document['command']} ")
    assert document["command"] != "live"
    assert contents() == before
    assert set(paid_here.texts_served[n_served:]) <= {"word"}, "what is asked to know the model by"


def test_what_would_be_paid_is_the_estimate_of_the_command(here, server, lead_migrate):
    line = f"reembed store --target {PAID} -o other"
    (estimate,) = [row for row in lead_migrate(f"{line} --dry-run").out.splitlines() if row.startswith("to embed")]
    dry = lead_migrate(f"{line} --dry-run --json").document
    assert dry["usd"] > 0 and dry["tokens"] > 0 and dry["embeds"] == [estimate]
    assert estimate in lead_migrate(line).err.splitlines()


def test_what_a_worker_would_send_is_what_its_budget_and_the_cache_leave(paid_here, lead_migrate):
    planned = lead_migrate("live run translated --budget 20 --dry-run --json").document
    assert "to embed: 12 documents" in planned["embeds"][0] and "8 texts again" in planned["embeds"][0]
    n_served = len(paid_here.texts_served)
    lead_migrate("live run translated --budget 20 --once")
    assert len([text for text in paid_here.texts_served[n_served:] if text != "word"]) == 20
    planned = lead_migrate("live run translated --budget 20 --dry-run --json").document
    assert planned["tokens"] == 0 and planned["embeds"][0].startswith("to embed: 0 documents")


def test_more_than_may_be_spent_is_said_and_not_asked(here, server, lead_migrate):
    ended = lead_migrate(f"reembed store --target {PAID} -o other --max-cost 0 --dry-run")
    assert "more than --max-cost ($0.00)" in ended.said


def test_what_the_command_refuses_is_refused(here, lead_migrate, contents, short_folder):
    lead_migrate(f"fit {short_folder} --sample 60 --target tfidf:24 --kind ridge -q -o of-another")
    before = contents()
    for line, code in {
        "fit store --target tfidf:24 -o stitch": 2,
        "translate store stitch -o new": 2,
        "translate store of-another -o other": 4,
        "reembed store --target tfidf:24 -o new": 2,
        "stamp store --model tfidf:32": 2,
        "switch store new": 4,
        "rollback store": 2,
        "forget store": 2,
    }.items():
        ended = lead_migrate(f"{line} --dry-run", code=code)
        assert ended.complaint and contents() == before, line


def test_a_switch_and_its_ways_back_and_on_are_only_said(here, lead_migrate, contents):
    lead_migrate("reembed store --target tfidf:24 -o full")
    before = contents()
    assert "for the new store" in lead_migrate("switch store full --dry-run").said
    assert contents() == before
    lead_migrate("switch store full")
    before = contents()
    assert "for the old store" in lead_migrate("rollback store --dry-run").said
    assert "which is deleted" in lead_migrate("forget store --dry-run").said
    assert contents() == before
    lead_migrate("rollback store")


def test_a_field_that_would_be_added_is_named(here, lead_migrate, contents):
    lancedb = pytest.importorskip("lancedb")
    rows = [{"id": f"d{n}", "text": f"text {n}", "vector": [float(n), 1.0, float(n % 7)]} for n in range(100)]
    lancedb.connect("lance").create_table("docs", rows)
    lead_migrate("fit lancedb:lance#docs --target tfidf:16 --kind ridge --sample 60 -o of-lance")
    before = contents()
    ended = lead_migrate("translate lancedb:lance#docs of-lance --into fresh --dry-run")
    assert ended.said.splitlines()[-1].endswith("lance#docs?vector=fresh") and contents() == before


def test_a_finished_run_stays_as_it_is(finished_here, lead_migrate, contents):
    before = contents()
    ended = lead_migrate(f"{finished_here} --report again.json --dry-run")
    assert "to write: again.json" in ended.said and contents() == before


def test_every_command_that_writes_a_store_or_asks_a_model_for_one_has_it(lead_migrate):
    without = {
        "init",
        "status",
        "completion",
        "demo",
        "inspect",
        "report",
        "live",
        "compare",
        "carry",
        "private",
        "collections",
    }
    paid = {"collections fit", "collections audit"}
    for name in (SUMMARIES.keys() - without) | paid:
        assert "--dry-run" in lead_migrate(f"{name} --help-all").out, name
