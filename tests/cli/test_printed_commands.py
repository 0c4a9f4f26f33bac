"""Every command that is printed as the next one, run as it is printed, in a new shell in the same folder."""

import json
import re
import shlex
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import create_store, open_store
from migrate.vectors import Document

pytestmark = pytest.mark.slow

PACKAGED = "packaged:all-MiniLM-L6-v2"
STAGES = "audit new --reference pool --beir judged --plan two-stage-149 --margin 0.7"
TO_FILL_IN = {"DIR": "judged", "SPEC": "tfidf:8", "OLD": "store", "STORE": "store", "KEYS": "keys", "STITCH": "mapped"}
JUDGED = {0, 1, 3}
AUDIT = "audit new --reference pool --beir judged"
RUN = "run store --beir judged --stitch mean --sample 60 --target"
GOOD = "audit good --reference pool --beir judged --margin 0.5"


@pytest.fixture(autouse=True)
def without_words(audit_fields):
    """Leaves the arms of words out of what audits report."""
    audit_fields(no_bm25=True)


@pytest.fixture(scope="module")
def made(corpus, source_folder, bare_folder, beir, tmp_path_factory):
    """A folder with stores, stitches, judged queries and models in files."""
    folder = tmp_path_factory.mktemp("made") / "my work; here"
    for source, name in ((source_folder, "store"), (source_folder, "plain"), (bare_folder, "bare"), (beir, "judged")):
        shutil.copytree(source, folder / name)
    (folder / "plain/lead-migrate.json").unlink()
    lines = (beir / "corpus.jsonl").read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    texts = [json.dumps({"id": row["_id"], "text": row["text"]}) + "\n" for row in rows]
    (folder / "all.jsonl").write_text("".join(texts))
    (folder / "most.jsonl").write_text("".join(texts[:140]))
    for name, spec in (("old", "tfidf:40"), ("target", "tfidf:48")):
        embedder = load_embedder(spec)
        embedder.fit(corpus.documents)
        np.savez(
            folder / f"{name}.npz",
            doc_ids=[document.id for document in corpus.documents],
            docs=embedder.embed_documents(corpus.documents),
            query_ids=[query.id for query in corpus.queries],
            queries=embedder.embed_queries(corpus.queries),
        )
    shutil.copytree(folder / "judged", folder / "echoed")
    queries = [{"_id": row["_id"], "text": row["text"]} for row in rows]
    (folder / "echoed/queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    judgements = "".join(f"{query['_id']}\t{query['_id']}\t1\n" for query in queries)
    (folder / "echoed/qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")
    np.savez(folder / "probes.npz", some=np.ones((2, 32), dtype=np.float32))
    commands = [
        "fit store --target tfidf:48 --stitch mean --sample 60 -o stitch",
        "fit store --target tfidf:48 --stitch ridge --sample 145 -o better",
        "translate store stitch -o new",
        "translate store better -o good",
        "reembed store --target tfidf:48 -o full",
        "embed most.jsonl --model file:old.npz --no-chunks -o grown",
        "fit grown --target file:target.npz --stitch ridge --sample 60 -o mapped",
        "translate grown mapped --target file:target.npz -o behind",
        "embed all.jsonl --model file:old.npz --no-chunks -o grown --force",
        f"{RUN} tfidf:48 -o finished",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in commands:
            assert run([*command.split(), "-q"]) in JUDGED, command
    padding = [Document(f"more {n}", f"text number {n} of {n % 97} and {n % 89}") for n in range(10_000)]
    documents = [*open_store(folder / "full").documents(), *padding]
    (folder / "many").mkdir()
    writer = create_store(folder / "many", format="faiss", dim=8)
    writer.append(documents, np.random.default_rng(0).normal(size=(len(documents), 8)).astype(np.float32))
    writer.finish()
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / made.name
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def printed(capsys):
    """Runs a command; the command that it prints as the next one, as its last line, or None."""

    def of(command, codes):
        capsys.readouterr()
        code = run(shlex.split(command))
        told = capsys.readouterr().err
        assert code in codes, told
        lines = told.splitlines()
        found = [line.removeprefix("next: ") for line in lines if line.startswith("next:")]
        assert len(found) <= 1, told
        if not found:
            return None
        assert lines[-1] == f"next: {found[0]}", told
        words = shlex.split(found[0])
        for word in words:
            assert word not in TO_FILL_IN or any(line.startswith(f"{word}: ") for line in lines), "it is explained"
        assert words[0] == "lead-migrate"
        return shlex.join([words[0], *(TO_FILL_IN.get(word, word) for word in words[1:])])

    return of


ROWS = {
    "a store": ("inspect store", {0}, "assess store", {0}),
    "a translated store": ("inspect new", {0}, "audit new --reference pool", JUDGED),
    "a store of true vectors": ("inspect full", {0}, "switch store full", {0}),
    "several stores": ("inspect .", {0}, "inspect ", {0}),
    "a stitch": ("inspect stitch", {0}, "translate store stitch", {0}),
    "no texts": ("inspect bare", {0}, None, None),
    "embedded": ("embed judged --model tfidf:16 --no-chunks -o fresh", {0}, "assess fresh", {0}),
    "stamped": ("stamp plain --model tfidf:32", {0}, "assess plain", {0}),
    "compatible": ("check store --model tfidf:32", {0}, "assess store", {0}),
    "compatible, not stamped": ("check plain --model tfidf:32", {0}, "stamp plain --as-found", {0}),
    "assessed": ("assess store --target tfidf:48", {0}, "reembed store", {0}),
    "assessed, for a budget": (
        "assess store --target tfidf:48 --stitch better --budget 9500tok", {0}, "reembed store", {0}
    ),
    "assessed, for a quality": (
        "assess store --target tfidf:48 --stitch stitch --keep 0.5", {0}, "reembed store", {0}
    ),
    "assessed, a slow model": ("assess many --target tfidf:16,rate=1/min", {0}, "run many", JUDGED),
    "fitted": ("fit store --target tfidf:48 --stitch ridge --sample 60 -o st", {0}, "translate store st", {0}),
    "fitted for queries": (
        "fit store --target tfidf:48 --stitch ridge --sample 60 --direction query -o st", {0}, None, None
    ),
    "translated": ("translate store stitch -o again", {0}, "audit again --reference pool", JUDGED),
    "re-embedded": ("reembed store --target tfidf:48 -o again", {0}, "switch store again", {0}),
    "a part re-embedded": (
        "reembed store --target tfidf:48 --share 100 --stitch stitch -o part", {0}, "audit part", JUDGED
    ),
    "all re-embedded with a stitch": (
        "reembed store --target tfidf:48 --share 100% --stitch stitch -o part", {0}, "switch store part", {0}
    ),
    "the same model": ("run full --target tfidf:48 --beir judged -o out", {0}, "switch store full", {0}),
    "the same model, for long": ("run store --target tfidf:32 --beir judged -o out", {0}, None, None),
    "served, all true": ("live status full", {0}, "switch store full", {0}),
    "what a sync would do": (
        "sync grown behind --target file:target.npz --dry-run", {0}, "sync grown behind --target=file:target.npz", {0}
    ),
    "synced": ("sync grown behind --target file:target.npz", {0}, "audit behind", JUDGED),
    "up to date": ("sync store new", {0}, None, None),
    "SAFE, without a report": (f"{GOOD} --source store", {0}, "audit good", {0}),
    "SAFE": (f"{GOOD} --source store --report report.json", {0}, "switch store good --report report.json", {0}),
    "SAFE, without a source": (f"{GOOD} --report report.json", {0}, None, None),
    "NOT SAFE": (f"{AUDIT} --source store", {1}, "reembed store", {0}),
    "NOT SAFE, without a source": (AUDIT, {1}, "reembed new", {0}),
    "INCONCLUSIVE": (AUDIT.replace("new", "good"), {3}, "reembed good", {0}),
    "a doubt": (GOOD.replace("judged", "echoed"), {3}, "audit good --reference=pool", JUDGED),
    "a doubt in a run": (
        "run store --beir echoed --stitch ridge --sample 145 --target tfidf:48 --margin 0.5 -o out", {3},
        "run store --target=tfidf:48", JUDGED,
    ),
    "not compatible": ("check store --model openai:text-embedding-3-small", {1}, "assess store", {0}),
    "provisional": (
        "audit good --reference pool --queries synthetic --source store", JUDGED, "reembed store", {0}
    ),
    "provisional and SAFE": (
        f"{GOOD.replace('--beir judged', '--queries synthetic')} --source store --report report.json",
        JUDGED, "switch store good --unproven", {0},
    ),
    "a part is enough": (
        f"{AUDIT.replace('pool', 'build')} --source store --frontier better --margin 0.9",
        JUDGED, "reembed store --share", {0},
    ),
    "against a store of the model": (f"{AUDIT.replace('pool', 'full')} --source store", {1}, "switch store full", {0}),
    "all true vectors": (f"{AUDIT.replace('new', 'full')} --source store", JUDGED, "switch store full", {0}),
    "two stages, without a report": (f"{STAGES} --source store", {0}, "audit new", {0}),
    "two stages": (f"{STAGES} --source store --report report.json", {0}, "switch store new --report", {0}),
    "staying is better": (f"{RUN} tfidf:24 -o out", JUDGED, None, None),
    "a run": (f"{RUN} tfidf:48 -o out", {1}, "reembed store", {0}),
    "a finished run": (f"{RUN} tfidf:48 -o finished", {1}, "reembed store", {0}),
    "a run of a file": (f"{RUN} file:target.npz -o out", {1}, "reembed store", {0}),
    "a run without texts": (f"{RUN.replace('store', 'bare')} file:target.npz -o out", JUDGED, "inspect bare", {0}),
    "compared": ("compare store full", {0}, None, None),
    "carried": ("carry store better --directions probes.npz -o carried", {0, 1}, None, None),
    "a demo": ("demo --docs 300", {0}, "demo -o demo --docs=300", None),  # as "a demo of true vectors alone" runs it
    "a demo that is kept": (
        "demo --docs 300 --sample 100 -o tried", {0}, "reembed tried/source --target file:tried/", {0}
    ),
    "a demo of true vectors alone": ("demo --docs 300 -o tried", {0}, "switch tried/source tried/store", {0}),
    "a demo of another model": (
        "demo --from tfidf:64 --docs 300 --sample 100 -o tried", {0}, "reembed tried/source --target file:tried/", {0}
    ),
    "the hard demo": ("demo --hard --docs 700 -o tried", {0}, None, None),
}  # fmt: skip


SHOWN = set()
MADE = re.compile(r" (again|part|st|out|tried|kept|fresh|report.json)(/| |$)")
"""What a row makes, so that the same words are another command in another row."""


@pytest.mark.parametrize(("command", "codes", "begins", "then"), ROWS.values(), ids=ROWS)
def test_what_is_printed_runs(command, codes, begins, then, here, printed, shell):
    found = printed(command, codes)
    if begins is None:
        assert found is None
        return
    assert found is not None and found.startswith(f"lead-migrate {begins}"), found
    if then is None or (found, *sorted(then)) in SHOWN:
        return  # another row has run it on the same files
    done = shell(found)
    assert done.returncode in then, done.stderr
    if " store " in found and not MADE.search(found):
        SHOWN.add((found, *sorted(then)))


def told(done, begins="next: "):
    """The one line of a command in a shell that begins so, without its beginning."""
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(begins)]
    return line.removeprefix(begins).replace("python -m migrate", "lead-migrate")


@pytest.fixture
def staged(short_folder, short_beir, tmp_path, monkeypatch):
    """The audit of a store that is SAFE in two stages alone, whose model is worth keeping the vectors of."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(short_folder, "store")
    shutil.copytree(short_beir, "judged")
    for command in (
        f"fit store --target {PACKAGED} --stitch ridge --sample 60 -o stitch",
        "translate store stitch -o new",
    ):
        assert run([*command.split(), "-q"]) == 0
    return "audit new --reference pool --beir judged --source store --margin 0.6 --two-stage 100"


def complete(worker, store, shell, capsys):
    """Run a printed worker until it has completed its store; what `live status` says then, and what `live stop` does.

    The line that `live stop` leads on to is run as well.
    """
    shell(f"{worker} > worker.txt 2>&1 &")
    deadline, status = time.monotonic() + 240, capsys.readouterr()
    while not status.out.startswith("SAFE: every vector is the model's own"):
        assert time.monotonic() < deadline
        time.sleep(1)
        run(["live", "status", store])
        status = capsys.readouterr()
    after = told(shell(f"lead-migrate live stop {store}"))
    assert after == f"lead-migrate live status {store}" and shell(after).returncode == 0
    assert "150 of 150 vectors are true ones" in Path("worker.txt").read_text()
    return status


@pytest.mark.usefixtures("staged")
def test_a_store_is_completed_by_the_printed_worker_and_switched(printed, shell, capsys):
    assert printed("live run new --once --budget 80", {0}) == "lead-migrate live status new"
    assert printed("live status new", {0}) == "lead-migrate live run new"  # which another test runs
    assert run(["live", "run", "new", "--once", "-q"]) == 0
    capsys.readouterr()
    run(["live", "status", "new"])
    status = capsys.readouterr()
    assert status.out.startswith("SAFE: every vector is the model's own")
    assert status.err == "OLD: the store that the new one was made from\nnext: lead-migrate switch OLD new\n"
    assert shell("lead-migrate switch store new").returncode == 0
    assert shell("lead-migrate rollback store").returncode == 0
    found = printed("backfill new -o filled", {0})
    assert found == "lead-migrate switch store filled" and shell(found).returncode == 0


def test_two_stages_are_served_by_the_printed_lines_and_completed_by_the_printed_worker(staged, shell, capsys):
    assert run([*staged.split(), "--plan", "two-stage-100", "--report", "report.json", "-q"]) == 0
    switched = shell("lead-migrate switch store new --report report.json")
    worker = told(switched)
    assert worker == "lead-migrate live run store"
    lines = [line.strip() for line in switched.stdout.splitlines() if line.startswith("  ")]
    program = "\n".join([*lines, "assert len(answer.ids) == 10, answer", "searcher.close()"])
    served = shell(shlex.join([sys.executable, "-c", program]))
    assert served.returncode == 0, served.stderr
    status = complete(worker, "store", shell, capsys)
    assert "next:" not in status.err, "it was switched before"
    back = told(switched, "to roll back: ")
    assert shell(back).returncode == 0
    assert told(shell("lead-migrate live status new")) == "lead-migrate switch OLD new"
    assert shell("lead-migrate switch store new").returncode == 0
    assert shell(told(switched, "to delete the old store: ") + " --yes").returncode == 0


def test_a_private_translation_leads_from_side_to_side(here, shell):
    pytest.importorskip("tenseal")
    line = "lead-migrate private keygen -o keys"
    for begins in ("private encrypt grown", "private translate", "private decrypt", "audit new-store"):
        line = told(shell(line))
        line = shlex.join({**TO_FILL_IN, "STORE": "grown"}.get(word, word) for word in shlex.split(line))
        assert line.startswith(f"lead-migrate {begins}"), line
    assert shell(line).returncode in JUDGED
