"""Every command that is printed as the next one, typed as it is printed, with paths as they were typed."""

import json
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stores_tools import make_store

from migrate.datasets.beir import write_beir
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.vectors import Document, Query

pytestmark = pytest.mark.slow

PACKAGED = "packaged:all-MiniLM-L6-v2"
STAGES = "audit new --reference pool --judged judged --plan two-stage-149 --margin 0.7"
TO_FILL_IN = {"DIR": "judged", "SPEC": "tfidf:8", "OLD": "store", "STORE": "store", "KEYS": "keys", "STITCH": "mapped"}
JUDGED = (0, 1, 3)
AUDIT = "audit new --reference pool --judged judged"
RUN = "run store --reference pool --judged judged --kind mean --sample 60 --target"
GOOD = "audit good --reference pool --judged many --margin 0.5"
"""By as many queries as a verdict needs."""


@pytest.fixture(scope="module")
def made(source_folder, bare_folder, beir, all_queries, write_vectors, lead_migrate, tmp_path_factory):
    """A folder with stores, stitches, judged queries and models in files."""
    folder = tmp_path_factory.mktemp("made") / "my work; here"
    for source, name in ((source_folder, "store"), (source_folder, "plain"), (bare_folder, "bare"), (beir, "judged")):
        shutil.copytree(source, folder / name)
    (folder / "plain/lead-migrate.json").unlink()
    rows = [json.loads(line) for line in (beir / "corpus.jsonl").read_text().splitlines()]
    texts = [json.dumps({"id": row["_id"], "text": row["text"]}) + "\n" for row in rows]
    (folder / "all.jsonl").write_text("".join(texts))
    (folder / "most.jsonl").write_text("".join(texts[:140]))
    shutil.copytree(all_queries, folder / "many")
    write_vectors(folder / "old.npz", "tfidf:40")
    write_vectors(folder / "target.npz", "tfidf:48")
    shutil.copytree(folder / "judged", folder / "echoed")
    queries = (json.dumps({"_id": row["_id"], "text": row["text"]}) + "\n" for row in rows)
    (folder / "echoed/queries.jsonl").write_text("".join(queries))
    judgements = "".join(f"{row['_id']}\t{row['_id']}\t1\n" for row in rows)
    (folder / "echoed/qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")
    np.savez(folder / "probes.npz", some=np.ones((2, 32), dtype=np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in (
            "fit store --target tfidf:48 --kind mean --sample 60 -o stitch",
            "fit store --target tfidf:48 --kind ridge --sample 145 -o better",
            "translate store stitch -o new",
            "translate store better -o good",
            "reembed store --target tfidf:48 -o full",
            "embed most.jsonl --model file:old.npz --no-chunks -o grown",
            "fit grown --target file:target.npz --kind ridge --sample 60 -o mapped",
            "translate grown mapped --target file:target.npz -o behind",
            "embed all.jsonl --model file:old.npz --no-chunks -o grown --force",
        ):
            lead_migrate(f"{command} -q", code=JUDGED)
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A copy of that folder, whose name needs quoting; the current one."""
    folder = tmp_path / made.name
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def printed(lead_migrate):
    """Runs a command; the command that it prints as the next one, with what is to be filled in, or None."""

    def of(command, codes=(0,)):
        ended = lead_migrate(command, code=tuple(codes))
        if ended.next is None:
            return None
        words, lines = shlex.split(ended.next), ended.err.splitlines()
        for word in TO_FILL_IN.keys() & set(words):
            assert any(line.startswith(f"{word}: ") for line in lines), "it is explained"
        return shlex.join(TO_FILL_IN.get(word, word) for word in words)

    return of


ROWS = {
    "a translated store": ("inspect new", {0}, "audit new --reference pool", JUDGED),
    "a store of true vectors": ("inspect full", {0}, "switch store full", {0}),
    "a stitch": ("inspect stitch", {0}, "translate store stitch", {0}),
    "fitted for queries": (
        "fit store --target tfidf:48 --kind ridge --sample 60 --direction query -o st", {0}, None, None
    ),
    "a part re-embedded": (
        "reembed store --target tfidf:48 --share 100 --stitch stitch -o part", {0}, "audit part", JUDGED
    ),
    "all re-embedded with a stitch": (
        "reembed store --target tfidf:48 --share 100% --stitch stitch -o part", {0}, "switch store part", {0}
    ),
    "the same model": ("run full --target tfidf:48 --judged judged -o out", {0}, "switch store full", {0}),
    "the same model, for long": ("run store --target tfidf:32 --judged judged -o out", {0}, None, None),
    "what a sync would do": (
        "sync grown behind --target file:target.npz --dry-run", {0}, "sync grown behind --target=file:target.npz", {0}
    ),
    "synced": ("sync grown behind --target file:target.npz", {0}, "audit behind", JUDGED),
    "SAFE, without a source": (f"{GOOD} --report report.json", {0}, None, None),
    "NOT SAFE, without a source": (AUDIT, {1}, "reembed new", {0}),
    "INCONCLUSIVE": (AUDIT.replace("new", "good").replace(" judged", " many"), {3}, "reembed good", {0}),
    "a doubt": (GOOD.replace(" many", " echoed"), {3}, "audit good --reference=pool", JUDGED),
    "a doubt in a run": (
        "run store --reference pool --judged echoed --kind ridge --sample 145 --target tfidf:48 --margin 0.5 -o out",
        {3}, "run store", JUDGED,
    ),
    "provisional": (
        "audit good --reference pool --queries synthetic --source store", JUDGED, "reembed store", {0}
    ),
    "provisional and SAFE": (
        f"{GOOD.replace('--judged many', '--queries synthetic')} --source store --report report.json",
        JUDGED, "switch store good --unproven", {0},
    ),
    "against a store of the model": (f"{AUDIT.replace('pool', 'full')} --source store", {1}, "switch store full", {0}),
    "all true vectors": (f"{AUDIT.replace('new', 'full')} --source store", JUDGED, "switch store full", {0}),
    "two stages, without a report": (f"{STAGES} --source store", {0}, "audit new", {0}),
    "staying is better": (f"{RUN.replace(' judged', ' many')} tfidf:24 -o out", JUDGED, None, None),
    "a run of a file": (f"{RUN} file:target.npz -o out", {1}, "reembed store", {0}),
    "a run without texts": (f"{RUN.replace('store', 'bare')} file:target.npz -o out", JUDGED, "inspect bare", {0}),
    "a demo of true vectors alone": (
        "demo --from tfidf:8 --docs 300 --sample 300 -o tried", {0}, "switch tried/source tried/store", {0}
    ),
    "a small store": ("run store --judged judged --target tfidf:48 -o out", {0}, "switch store out/full", {0}),
}  # fmt: skip


@pytest.mark.parametrize(("command", "codes", "begins", "then"), ROWS.values(), ids=ROWS)
def test_what_is_printed_runs(command, codes, begins, then, here, printed, lead_migrate):
    found = printed(command, codes)
    if begins is None:
        assert found is None
    else:
        assert found is not None and found.startswith(begins), found
        lead_migrate(found, code=tuple(then))


def test_a_large_store_and_a_slow_model_are_run(here, printed, lead_migrate):
    padding = [Document(f"more {n}", f"text number {n} of {n % 97} and {n % 89}") for n in range(10_000)]
    documents = [*open_store("full").documents(), *padding]
    vectors = np.random.default_rng(0).normal(size=(len(documents), 8)).astype(np.float32)
    make_store(Path("large"), documents, vectors)
    run = printed("assess large --target tfidf:16,rate=1/min")
    assert run.startswith("run large ")
    lead_migrate(f"{run} --dry-run")  # it takes the words and opens the store: enough of 10,000 documents


@pytest.mark.parametrize(
    ("kind", "target"), [("store", "file:target.npz"), ("plain", "tfidf:40"), ("langchain", "tfidf:40")]
)
def test_from_the_assessment_to_the_audit(kind, target, here, printed, lead_migrate):
    if kind == "langchain":
        lead_migrate("embed judged --model tfidf:32 --no-chunks --format langchain -o one")
        Path("one/lead-migrate.json").unlink()
    else:
        shutil.copytree(kind, "one")
    full = printed(f"assess one --target {target}")
    assert full == f"reembed one --target {target} -o one-full", "so small a store"
    translate = printed(f"fit one --target {target} -o st --sample 100 --kind ridge")
    assert translate.startswith("translate ")
    audit = printed(translate)
    assert audit.startswith("audit ") and " --reference pool" in audit
    assert " --source one" in audit, "whether its model is known or not"
    lead_migrate(audit, code=JUDGED)


def test_the_same_audit_again_leaves_settings_to_the_file_that_is_named_again(here, printed, lead_migrate):
    Path("settings.toml").write_text('[tool.lead-migrate]\ndevice = "cpu"\nconcurrency = 4\n')
    audit = printed("--config settings.toml translate store better -o again")
    assert audit.startswith("--config=settings.toml audit ")
    again = printed("--config settings.toml audit again --judged many --source store --margin 0.5")
    assert again.startswith("--config=settings.toml audit ")
    assert "--device" not in again and "--concurrency" not in again
    lead_migrate(again, code=JUDGED)


@pytest.mark.parametrize("kind", ["faiss", "parquet"])
def test_a_file_in_a_folder_of_its_own_is_switched_and_one_among_others_is_not(kind, here, printed, lead_migrate):
    file = Path("one/index.faiss")
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        lead_migrate("reembed store --target tfidf:24 -o parquet:one")
        (file,) = Path("one").rglob("*.parquet")
    else:
        shutil.copytree("store", "one")
    for path in Path("one").iterdir():
        if path.name == "_lead-migrate":
            shutil.rmtree(path)
        elif path.name not in (file.name, "docs.jsonl"):
            path.unlink()
    full = printed(f"assess {file} --target tfidf:40")
    assert full == f"reembed {file} --target tfidf:40 -o {file.stem}-full", "beside the folder"
    switch = printed(full)
    assert switch == f"switch {file} {file.stem}-full"
    assert printed(switch) is None
    assert open_store(file).info.dim == 40
    lead_migrate(f"rollback {file}")
    Path("one/notes.txt").touch()
    full = printed(f"assess {file} --target tfidf:48")
    assert full.endswith(f" -o one/{file.stem}-full"), "beside the file"
    assert printed(full) == f"inspect one/{file.stem}-full", "it cannot be switched"


def command_after(ended, begins):
    """The command that is printed behind some words."""
    (line,) = [line for line in (ended.out + ended.err).splitlines() if line.startswith(begins)]
    return line.removeprefix(f"{begins} lead-migrate ")


def test_a_switch_of_the_current_folder_prints_a_way_back_that_runs_there(here, monkeypatch, lead_migrate):
    monkeypatch.chdir("store")
    ended = lead_migrate("switch . ../full")
    assert f"cd {shlex.quote(str(here / 'store'))}" in ended.err, "the shell has stayed with the old store"
    lead_migrate(command_after(ended, "to roll back:"))
    assert open_store(here / "store").info.dim == open_store(".").info.dim != 48


def test_an_output_inside_the_folder_of_the_store_is_told_and_what_follows_lies_outside(here, lead_migrate):
    told = lead_migrate("reembed store/index.faiss --target tfidf:40 -o store/moved").err
    assert "note: store/moved lies in the folder" in told and "such as -o index-new" in told
    shutil.rmtree("store/moved")
    outside = lead_migrate("reembed store/index.faiss --target tfidf:40 -o moved")
    assert "lies in the folder" not in outside.err


@pytest.fixture
def served(server, corpus):
    """A server whose model makes of texts what a lexical one does; unlike that, it is worth keeping the vectors of."""
    embedder = load_embedder("tfidf:48")
    embedder.fit(corpus.documents)
    server.vectors = lambda texts: embedder.embed_queries([Query(text, text) for text in texts])
    return "openai:tiny-raw,dimensions=48"


def test_a_reembed_that_a_verdict_prints_names_no_options_that_the_model_lacks(here, served, printed, lead_migrate):
    lead_migrate(f"fit store --target {served} --sample 20 --kind mean -o st")
    lead_migrate("translate store st -o again")
    full = printed("audit again --reference pool --judged judged --source store", (1, 3))
    assert full.startswith("reembed store ")
    assert [word for word in full.split() if word.startswith("-")] == ["--target", "-o"]
    assert printed(full).startswith("switch ")


def test_the_report_of_a_run_recommends_what_the_command_prints(here, printed):
    target = "file:target.npz"
    command = f"{RUN} {target} --source-model tfidf:32 --margin 0.9 -o out"
    full = printed(command, (1, 3))
    assert full == f"reembed store --target {target} -o out-full"
    found = json.loads(Path("out/report.json").read_text())["recommendation"]
    assert (found["plan"], found["command"]) == ("full re-embed", full.split())
    assert printed(command, (1, 3)) == full, "said again"


def test_a_run_a_status_and_a_switch_mean_the_full_reembed_of_a_settings_file(here, printed):
    printed("init store --target file:target.npz --judged judged")
    full = printed("run --reference pool --kind mean --sample 60 --margin 0.9", (1, 3))
    assert full == "reembed store --target file:target.npz -o moved/full"
    assert json.loads(Path("moved/report.json").read_text())["recommendation"]["command"] == full.split()
    assert printed("status") == "reembed"
    switch = printed(full)
    assert (switch, printed("status")) == ("switch store moved/full", "switch")
    printed(switch)


def test_from_a_run_that_embedded_every_text_to_a_whole_store(here, served, printed):
    command = f"{RUN} {served} -o out"
    full = printed(command, (1, 3))
    assert full == f"reembed store --target {served} -o out-full"
    assert printed(command, (1, 3)) == full, "said again"
    switch = printed(f"{command} --reference build", (1, 3))
    assert switch == "switch store out/reference", "the reference is there"


def test_a_plan_decides_the_exit_code_and_what_switch_takes(here, printed, lead_migrate):
    audit = "audit new --reference build --judged judged --source store"
    lead_migrate(audit, code=1)
    for plan, told in (
        ("two-stage-20000 --report no.json", "two-stage-20000 ranks all of the store's 150 documents again"),
        ("three-stage", "there is no plan 'three-stage'; did you mean two-stage-20?"),
        ("mine", "there is no plan 'mine'; name one such as translated, together,"),
    ):
        complaint = lead_migrate(f"{audit} --plan {plan}", code=2).complaint
        assert "--plan" in complaint and told in complaint
    switch = printed(f"{audit} --plan two-stage-149 --report report.json --margin 0.7")
    assert switch == "switch store new --audit report.json"
    said = lead_migrate(switch).out
    assert "SAFE in two stages alone" in said and "LiveLimits(depth=149, max_documents=149" in said


def test_a_packaged_model_needs_no_hub(corpus, printed, lead_migrate, monkeypatch):
    """Neither as the source, which the manifest says, nor as the target, which the stitch says."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    documents = [replace(document, text=" ".join(document.text.split()[:5])) for document in corpus.documents[:100]]
    write_beir(Path("judged"), documents, corpus.queries[:20], corpus.qrels)
    embed = f"embed judged --model '{PACKAGED},document-prefix=title: ' --no-chunks -o one"
    assert lead_migrate(embed).next == "assess one --target SPEC"
    audit = printed(printed(f"fit one --target {PACKAGED} --kind procrustes --sample 40 -o st"))
    assert " --source one" in audit
    lead_migrate(audit, code=JUDGED)


def test_what_was_typed_for_the_model_goes_along(here, printed):
    fit = "fit store --target tfidf:16,batch-size=8 --sample 60 --kind ridge -o st --cache own.sqlite"
    translate = printed(fit)
    assert translate.endswith(" --target tfidf:16,batch-size=8 --cache=own.sqlite")
    assert printed(translate).endswith(" --target tfidf:16,batch-size=8 --cache=own.sqlite")


def test_names_that_begin_like_options_are_printed_so_that_they_can_be_typed(here, lead_migrate):
    Path("store").rename("-store")
    fitted = lead_migrate("fit --target tfidf:16 --sample 60 --kind ridge -o -stitch -- -store")
    assert fitted.next.startswith("translate ./-store ./-stitch -o ./-store-translated")
    lead_migrate(fitted.next)
    lead_migrate(lead_migrate("inspect ./-store-translated").next.replace("DIR", "judged"), code=JUDGED)


def test_a_file_beside_the_stitch_or_the_store_is_named(here, lead_migrate):
    Path("data").mkdir()
    for name in ("store", "target.npz"):
        Path(name).rename(Path("data", name))
    lead_migrate("fit data/store --target file:data/target.npz --sample 60 --kind ridge -o st")
    ended = lead_migrate("translate data/store st -o again")
    assert ended.next.endswith(" --target file:data/target.npz")
    lead_migrate(ended.next.replace("DIR", "judged"), code=JUDGED)
    Path("elsewhere").mkdir()
    Path("data/target.npz").rename("elsewhere/target.npz")
    lead_migrate("fit data/store --target file:elsewhere/target.npz --sample 60 --kind ridge -o st --force")
    assert lead_migrate("translate data/store st -o once").next.endswith(" --target file:elsewhere/target.npz")
    Path("elsewhere/target.npz").rename("data/moved.npz")
    Path("stitches").mkdir()
    Path("st").rename("stitches/st")
    Path("data/moved.npz").rename("stitches/target.npz")
    ended = lead_migrate("translate data/store stitches/st -o further")
    assert ended.next.endswith(" --target file:stitches/target.npz")


def test_a_file_that_is_out_of_sight_is_asked_for_by_its_option(here, lead_migrate):
    lead_migrate("fit store --target file:target.npz --sample 60 -o st")
    lead_migrate("embed judged --no-chunks --model file:target.npz -o of-a-file")
    Path("target.npz").rename("moved.npz")
    ended = lead_migrate("translate store st -o again")
    assert "file:PATH: where target.npz is" in ended.err
    audit = ended.next.replace("DIR", "judged").replace("file:PATH", "file:moved.npz")
    assert audit.startswith("audit again ") and "judged" in audit and "file:moved.npz" in audit
    lead_migrate(audit, code=JUDGED)
    assert lead_migrate("inspect again").next == ended.next.replace(" --source store", "")
    Path("elsewhere").mkdir()
    shutil.copyfile("moved.npz", "elsewhere/target.npz")
    found = "file:elsewhere/target.npz"
    checked = lead_migrate(f"check again --model {found}")
    command, *words = checked.next.split()
    assert command == "audit" and "again" in words and words[-2:] == ["--target", found]
    lead_migrate(checked.next.replace("DIR", "judged"), code=JUDGED)
    audit = "audit again --reference build --judged judged"
    told = lead_migrate(audit, code=2).complaint
    assert "target.npz" in told and "--target" in told
    told = lead_migrate(f"{audit} --target file:moved.npz --source of-a-file", code=2).complaint
    assert "--source-model file:PATH" in told
    lead_migrate(f"{audit} --target file:moved.npz", code=JUDGED)


def test_from_a_verdict_that_is_safe_to_the_switch_and_back(here, printed, lead_migrate):
    again = printed(f"{GOOD} --source store")
    assert again.startswith("audit good ") and again.endswith(" --report=report.json"), "a switch wants the report"
    assert " --judged=many " in again
    switch = printed(again)
    assert switch == "switch store good --audit report.json"
    ended = lead_migrate(switch)
    assert ended.next is None and open_store("store").info.dim == 48
    assert "tfidf:48 instead of tfidf:32" in ended.out
    assert "to roll back: lead-migrate rollback store" in ended.out
    lead_migrate("rollback store")
    assert open_store("store").info.dim == 32
    lead_migrate(switch)
    assert "agree with --yes" in lead_migrate("forget store", code=2).complaint
    lead_migrate("forget store --yes")
    assert not Path("good").exists()


@pytest.fixture
def staged(here, served, lead_migrate):
    """The audit of a store that is SAFE in two stages alone, whose model is worth keeping the vectors of."""
    for name in ("stitch", "new"):
        shutil.rmtree(name)
    lead_migrate(f"fit store --target {served} --kind ridge --sample 60 -q -o stitch")
    lead_migrate("translate store stitch -q -o new")
    return "audit new --reference pool --judged many --source store --margin 0.6 --two-stage 100"


@pytest.mark.usefixtures("staged")
def test_a_store_is_completed_by_the_printed_worker_and_switched(printed, lead_migrate):
    assert lead_migrate("live run new --once --budget 20").next == "live status new"
    assert lead_migrate("live status new", code=JUDGED).next == "live run new --yes"  # which another test runs
    lead_migrate("live run new --once --yes -q")
    found = printed("live status new", JUDGED)
    assert found == "backfill new -o new-complete"
    found = printed(found)
    assert found == "switch store new-complete"
    lead_migrate(found)


def test_two_stages_are_served_by_the_printed_lines_and_completed_by_the_printed_worker(staged, shell, lead_migrate):
    lead_migrate(f"{staged} --plan two-stage-100 --report report.json -q")
    switched = lead_migrate("switch store new --audit report.json")
    assert switched.next == "live run store --yes"
    lines = [line.strip() for line in switched.out.splitlines() if line.startswith("  ")]
    program = "\n".join([*lines, "assert len(answer.ids) == 10, answer", "searcher.close()"])
    exec(program, {})

    shell(f"lead-migrate {switched.next} > worker.txt 2>&1 &")
    deadline = time.monotonic() + 240
    while "150 of 150 vectors are true ones" not in (status := lead_migrate("live status store", code=JUDGED)).out:
        assert time.monotonic() < deadline, Path("worker.txt").read_text()
        time.sleep(0.2)
    assert status.next == "backfill store -o store-complete"
    after = lead_migrate("live stop store").next
    assert after == "live status store"
    lead_migrate(after)
    assert "150 of 150 vectors are true ones" in Path("worker.txt").read_text()

    lead_migrate(command_after(switched, "to roll back:"))
    assert lead_migrate("backfill new -o new-complete").next == "switch OLD new-complete"
    lead_migrate("switch store new-complete")
    lead_migrate(f"{command_after(switched, 'to delete the old store:')} --yes")


def test_a_private_translation_leads_from_side_to_side(here, lead_migrate):
    pytest.importorskip("tenseal")
    ended = lead_migrate("private keygen -o keys")
    for begins, codes in (
        ("private encrypt grown", 0),
        ("private translate", 0),
        ("private decrypt", 0),
        ("audit new-store", JUDGED),
    ):
        line = shlex.join({**TO_FILL_IN, "STORE": "grown"}.get(word, word) for word in shlex.split(ended.next))
        assert line.startswith(begins), line
        ended = lead_migrate(line, code=codes)


def test_what_was_typed_is_not_to_be_filled_in_again(here, lead_migrate, printed):
    """A copy without its manifest is made again from the source that was named; judged queries are those of `check`."""
    lead_migrate("fit store --target file:target.npz --kind ridge --sample 60 -o to-file -q")
    lead_migrate("translate store to-file -o moved -q")
    shutil.copytree("moved", "copied")
    Path("copied/lead-migrate.json").unlink()
    target = "file:target.npz"
    checked = printed(f"check moved --model {target} --judged judged --sample 60")
    command, *words = checked.split()
    assert command == "audit" and "--judged=judged" in words and words[-2:] == ["--target", target]
    lead_migrate(checked, code=JUDGED)
    copied = "audit copied --reference pool --judged judged --target file:target.npz --source store"
    ended = lead_migrate(copied, code=JUDGED)
    assert "no manifest names the model" in " ".join(ended.out.split())
    assert "SPEC" not in ended.err and "OLD" not in ended.err
    again = printed(copied, JUDGED)
    assert again == "translate store mapped -o translated"
    lead_migrate(again.replace("mapped", "to-file"))
    audited = lead_migrate(copied.replace("copied", "translated"), code=JUDGED)
    assert "no manifest names the model" not in " ".join(audited.out.split())
