"""The commands as a user runs them: in this process, through the same entry as the console script."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from migrate.cli.main import leaf_commands
from migrate.cli.options import ModelOptions
from migrate.datasets.beir import load_beir, write_beir
from migrate.datasets.stdlib import stdlib_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.content import content_of

LEAVES = leaf_commands()
JUDGED = (0, 1, 3)
CODES = {"SAFE": 0, "NOT SAFE": 1, "INCONCLUSIVE": 3}
TOOL = [sys.executable, "-c", "from migrate.cli.main import main; main()"]
RIDGE = "--sample 60 --kind ridge"
TINY = f"run store --target openai:tiny {RIDGE} -o out"


def files_of(pattern):
    """Bytes and times of the files in the folder of the run."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path("out").glob(pattern) if path.is_file()}


def test_the_whole_path_by_hand(judged, write_vectors, lead_migrate):
    write_vectors("vectors.npz", "tfidf:48")
    lead_migrate("embed judged/corpus.jsonl --model tfidf:32 --no-chunks -o old")
    lead_migrate("embed judged/corpus.jsonl --model file:vectors.npz --no-chunks -o full")
    table = lead_migrate("fit old --target file:vectors.npz --sample 100 -o stitch").out
    assert "mean (control)" in table and "random (control)" in table and "* " in table
    assert "100 of them true ones" in lead_migrate("translate old stitch -o new").out
    audit = "audit new --reference full --judged judged --target file:vectors.npz --source old --report report.json"
    ended = lead_migrate(audit, code=JUDGED)
    document = json.loads(Path("report.json").read_text())
    outcome = document["verdict"]["outcome"]
    assert ended.code == CODES[outcome]
    assert ended.out.strip().split("\n\n")[-1].split("\n")[-1].strip() and outcome in ended.out
    names = [arm["name"] for arm in document["arms"]]
    vectors, words = ["full re-embed", "translated", "stay"], ["hybrid", "hybrid, full", "BM25"]
    assert names == [*vectors, *words, "mean", "random", "two-stage 20", "two-stage 50", "together"]
    assert max(map(len, ended.out.split("\n"))) <= 100


@pytest.mark.slow
def test_a_reference_is_built_when_asked_for(here, without_words, lead_migrate):
    options = "--reference build --json --two-stage none"
    document = lead_migrate(f"audit new --judged judged {options}", code=JUDGED).document
    assert [arm["name"] for arm in document["arms"]] == ["full re-embed", "translated", "mean", "random"]


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["pool", "build"])
def test_run_leaves_everything_in_one_folder(reference, store, judged, lead_migrate):
    run = f"run store --target tfidf:64 --sample 120 --reference {reference} --judged judged -o out"
    ended = lead_migrate(run, code=JUDGED)
    document = json.loads(Path("out/report.json").read_text())
    assert ended.code == CODES[document["verdict"]["outcome"]]
    assert document["verdict"]["gain_over_stay"] is not None, "the store's manifest says its model"
    assert document["verdict"]["outcome"] in ended.out
    assert ("pool" in document) == (reference == "pool")
    expected = {"stitch", "store", "report.json", "report.html", "run.json"}
    expected |= {"reference"} if reference == "build" else set()
    assert {path.name for path in Path("out").iterdir() if not path.name.startswith(".")} == expected


@pytest.mark.slow
def test_a_finished_run_says_its_verdict_again_and_does_nothing(store, judged, server, lead_migrate):
    command = f"{TINY} --judged judged --cache none"
    first = lead_migrate(command, code=JUDGED)
    before, requests = files_of("*.*"), len(server.requests)
    again = lead_migrate(command, code=first.code)
    assert again.out == first.out and len(first.out.splitlines()) <= 25
    assert "its verdict is printed again" in again.err and "to embed" not in again.err
    ended = lead_migrate(f"{command} --json --report junit.xml", code=first.code)
    assert ended.document == json.loads(Path("out/report.json").read_text())
    assert "verdict" in Path("junit.xml").read_text()
    told = lead_migrate(f"{command} --margin 0.5 --seed 3", code=2).complaint
    assert "other values of seed is there; choose another folder" in told
    told = lead_migrate(f"{command} --kind mean", code=2).complaint
    assert "other values of stitch is there; choose" in told
    assert len(server.requests) == requests
    assert files_of("*.*") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then", "changed"),
    [
        ("--judged judged", "--judged judged --reference build", "reference"),
        ("--judged judged", "--queries synthetic", "queries"),
        ("--judged judged --reference build", "--judged judged --margin 0.5", "margin, reference"),
    ],
)
def test_another_audit_of_a_finished_run_keeps_its_stores(first, then, changed, store, judged, server, lead_migrate):
    lead_migrate(f"{TINY} {first}", code=JUDGED)
    before, report = files_of("*/**/*"), json.loads(Path("out/report.json").read_text())
    ended = lead_migrate(f"{TINY} {then}", code=JUDGED)
    assert f"only the audit is repeated with other values of {changed}" in ended.told
    after, again = files_of("*/**/*"), json.loads(Path("out/report.json").read_text())
    assert before.items() <= after.items(), "nothing that was there is written again"
    assert ("build" in then) == (after.keys() > before.keys())
    assert again["verdict"] != report["verdict"] or ("pool" in again) != ("pool" in report)
    assert "its verdict is printed again" in lead_migrate(f"{TINY} {then}", code=ended.code).err


def interrupted(*arguments, **options):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_another_audit_that_fails_leaves_the_finished_run_as_it_was(store, judged, monkeypatch, lead_migrate):
    command = f"run store --target tfidf:24 {RIDGE} --judged judged -o out"
    lead_migrate(command, code=JUDGED)
    with monkeypatch.context() as patch:
        patch.setattr("migrate.audit.audit.audit_store", interrupted)
        lead_migrate(f"{command} --margin 0.5", code=130)
    assert "its verdict is printed again" in lead_migrate(command, code=JUDGED).err
    Path("out/store/docs.jsonl").write_text("")
    assert "docs.jsonl" in lead_migrate(f"{command} --margin 0.5", code=4).complaint


@pytest.mark.slow
def test_a_source_model_that_is_named_afterwards_adds_the_arm_stay(store, judged, lead_migrate):
    (store / "lead-migrate.json").unlink()
    command = f"run store --target tfidf:24 {RIDGE} --judged judged -o out"
    assert "whether staying would be better" in lead_migrate(command, code=JUDGED).err
    ended = lead_migrate(f"{command} --source-model tfidf:32", code=JUDGED)
    assert "only the audit is repeated with other values of source model" in ended.told
    assert "stay with the old" in ended.out


@pytest.mark.slow
def test_a_store_of_the_same_model_loses_nothing(store, judged, audit_fields, lead_migrate):
    """Nothing is lost when the target is the source, and 150 queries are enough to say so at a low margin.

    Beside BM25, which is better than such a small model, nothing is said to be SAFE, whether its arm is shown or not.
    """
    everything, queries = read_all(open_store(store).scan()), load_beir(judged).queries
    asked = load_embedder("tfidf:32", state=store).embed_queries(queries)
    np.savez(
        "same.npz",
        doc_ids=list(everything.ids), docs=everything.vectors,
        query_ids=[query.id for query in queries], queries=asked,
    )  # fmt: skip
    verdict = lead_migrate(
        "run store --target file:same.npz --judged judged --sample 75 --margin 0.9 --reference build -o out --json",
        code=3,
    ).document["verdict"]
    assert verdict["retention"]["estimate"] == pytest.approx(1, abs=1e-6)
    assert verdict["outcome"] == "INCONCLUSIVE"
    assert "the full re-embed is significantly worse than BM25" in verdict["sentence"]
    audit_fields(no_bm25=True)
    audit = "audit out/store --reference out/reference --target file:same.npz --judged judged --margin 0.9 --json"
    shown = lead_migrate(audit, code=3).document
    assert "the full re-embed is significantly worse than BM25" in shown["verdict"]["sentence"]
    assert "BM25" not in [arm["name"] for arm in shown["arms"]]


def test_inspect_tells_the_facts(store, lead_migrate):
    facts = lead_migrate("inspect store --json").document
    assert facts["vectors"] == 150 and facts["dimension"] == 32 and facts["norms"] == "unit"
    assert facts["model"] == "tfidf:32" and facts["bad_vectors"] == 0 and facts["texts"] is True
    assert re.search(r"^norms +unit$", lead_migrate("inspect store").out, re.MULTILINE)


@pytest.mark.slow
def test_chunks_are_judged_by_their_document(judged, lead_migrate):
    lead_migrate("embed judged --model tfidf:32 --chunk-tokens 40 --chunk-overlap 5 -o chunked")
    store = open_store("chunked")
    assert store.info.count > 150
    assert any("#" in document.id for document in store.documents())
    run = "run chunked --target tfidf:64 --judged judged --sample 200 -o out --json"
    document = lead_migrate(run, code=JUDGED).document
    assert document["dataset"]["documents"] == 150
    assert document["arms"][0]["means"]["recall@100"] > 0.5


def test_documents_without_text_are_dropped_only_when_told(lead_migrate):
    lines = [{"id": "a", "text": "green tea"}, {"id": "b", "text": "  "}, {"id": "c", "text": "black tea leaves"}]
    Path("corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert "document 'b'" in lead_migrate("embed corpus.jsonl --model tfidf:1 -o s", code=4).complaint
    told = lead_migrate("embed corpus.jsonl --model tfidf:1 --skip-bad -o s").err
    assert "skipped 1 documents without text: b" in told
    assert open_store("s").info.count == 2


def help_example(name):
    return LEAVES[name].epilog.split("Example:\n")[1].strip()


def steps_before(name):
    """The commands whose examples write what the example of this one reads."""
    names = list(LEAVES)
    return [other for other in names[: names.index(name)] if other.split()[:-1] == name.split()[:-1] != []]


@pytest.fixture(scope="module")
def prepared_once(lead_migrate, tmp_path_factory):
    """Stores, a stitch and a corpus; the corpus is so small that no local model is tried beside a paid one."""
    folder = tmp_path_factory.mktemp("prepared")
    small = stdlib_beir(max_docs=80, seed=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        write_beir(Path("my-beir"), small.documents, small.queries, small.qrels)
        embed_corpus(lambda: small.documents, load_embedder("tfidf:32"), Path("my-store"))
        shutil.copy("my-beir/corpus.jsonl", "corpus.jsonl")
        with Path("corpus.jsonl").open("a") as file:
            for number, document in enumerate(small.documents * 3):  # as many as `tfidf:256` needs
                more = {"id": f"more-{number}", "text": document.text[:: -1 - number // len(small.documents)]}
                file.write(json.dumps(more) + "\n")
        lead_migrate("fit my-store --target tfidf:48 --sample 60 -o my-stitch")
        lead_migrate("translate my-store my-stitch -o translated")
    return folder


@pytest.fixture
def prepared(prepared_once, tmp_path):
    """A folder in which the examples of the help texts make sense."""
    shutil.copytree(prepared_once, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LEAVES if name != "demo"])  # which the session of the README runs
def test_the_example_of_the_help_works(name, prepared, server, monkeypatch, lead_migrate):
    monkeypatch.setenv("LEAD_MIGRATE_BASE_URL", server.url)
    if name in ("audit", "sync", "switch", "rollback", "forget"):
        Path("translated").rename("new-store")
    if name.startswith("private"):
        lead_migrate("fit my-store --target tfidf:48 --kind ridge --force -o my-stitch")
    if name == "carry":
        np.savez("concepts.npz", concept=np.eye(32)[0])
    if name in ("switch", "rollback", "forget"):
        stores = {"source": content_of(open_store("my-store")), "translated": content_of(open_store("new-store"))}
        report = {"kind": "audit", "verdict": {"outcome": "SAFE"}, "stores": stores}
        Path("report.json").write_text(json.dumps(report))
    if name in ("rollback", "forget"):
        lead_migrate("switch my-store new-store --unproven")
    if name == "stamp":
        Path("my-store/lead-migrate.json").unlink()
    if name == "backfill" or name.startswith("live"):  # of what is cached, which tfidf: is not
        lead_migrate("fit my-store --target openai:tiny --sample 20 --force -o my-stitch")
        lead_migrate("translate my-store my-stitch -o new-store")
    for earlier in steps_before(name):
        lead_migrate(help_example(earlier).removeprefix("lead-migrate "))
    program, *arguments = shlex.split(help_example(name))
    assert program == "lead-migrate"
    if "-o" in arguments:
        shutil.rmtree(arguments[arguments.index("-o") + 1], ignore_errors=True)
    lead_migrate("", *arguments, code=JUDGED if name in ("audit", "run", "carry") else 0)


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_is_explained_in_one_section_of_the_help_and_read_from_the_environment(name, lead_migrate):
    options = [p for p in LEAVES[name].params if isinstance(p, click.Option) and not p.hidden]
    flags = [next(text for text in option.opts if text.startswith("--")) for option in options]
    for option, flag in zip(options, flags, strict=True):
        assert option.help, flag
        assert option.envvar == "LEAD_MIGRATE_" + flag[2:].replace("-", "_").upper()
    described = lead_migrate(f"{name} --help-all").out.partition("\n\n  Example:")[0]
    assert "RANGE" not in described and "<=x" not in described
    titles = re.findall(r"^(\w.*):$", described, re.MULTILINE)
    sections = re.split(r"^\w.*:\n", described, flags=re.MULTILINE)[1:]
    found = [re.findall(r"^  (?:-\w, )?(--[\w-]+)", section, re.MULTILINE) for section in sections]
    more = ["--help-all"] if len(flags) > 12 else []
    assert sorted(flag for section in found for flag in section) == sorted([*flags, *more, "--help"])
    assert max(len(section) for section in found) <= 10
    assert titles[-1] == ("General" if len(titles) > 1 else "Options")
    assert len(set(titles)) == len(titles)
    assert found[-1][-1] == "--help"


def test_options_that_are_seldom_needed_are_left_out_of_the_first_help(lead_migrate):
    first, everything = (lead_migrate(f"audit {flag}").out for flag in ("--help", "--help-all"))
    assert "--help-all" in first and "--margin" in first and "--seed" not in first and "--slice" not in first
    assert all(flag in everything for flag in ("--margin", "--seed", "--slice", "--two-stage"))
    assert lead_migrate("inspect --help-all").out == lead_migrate("inspect --help").out


def test_the_lists_of_commands_say_in_a_short_line_each_what_it_does(lead_migrate):
    for group in ("", "live", "private"):
        lines = lead_migrate(f"{group} --help").out.partition("--help ")[2]
        listed = re.findall(r"^  (\w+) {2,}(\S.*)$", lines, re.MULTILINE)
        assert len(listed) >= 3 and [name for name, line in listed if not (len(line) < 60 and line.endswith("."))] == []
    assert dict(listed)["keygen"].startswith("Make ")
    said = lead_migrate("live --help").out
    assert "run     Write true vectors into a store" in said, "not the line of the other `run`"


def test_the_help_of_audit_says_what_queries_are_taken_and_how_drawn_ones_come_back(lead_migrate):
    shown = lead_migrate("audit --help-all").said
    assert "Replace each null by a grade, 0 for not relevant, and give the file back with --judged." in shown
    assert "a file with a query a line, or JSONL with `text`; or the word `synthetic`" in shown
    assert "The verdict is then provisional" in shown


def test_bash_gets_a_completion_script_that_completes():
    def asked(**variables):
        return subprocess.run(TOOL, capture_output=True, text=True, check=True, env=os.environ | variables).stdout

    assert "complete -o nosort -F _lead_migrate_completion lead-migrate" in asked(_LEAD_MIGRATE_COMPLETE="bash_source")
    typed = {"_LEAD_MIGRATE_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    assert asked(**typed, COMP_WORDS="lead-migrate fit --ki") == "plain,--kind\n"
    assert asked(**typed, COMP_WORDS="lead-migrate fit my-") == "file,my-\n"  # bash looks for files


def test_shared_options_are_spelled_the_same_everywhere():
    seen = {}
    for command in LEAVES.values():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                seen.setdefault(parameter.name, set()).add(tuple(parameter.opts))
    del seen["reembed"]  # what `translate --reembed` is called in a command of that name is `--share`
    assert {name: spellings for name, spellings in seen.items() if len(spellings) > 1} == {}
    assert set(ModelOptions.__dataclass_fields__) <= {parameter.name for parameter in LEAVES["fit"].params}


def test_the_console_script_and_the_module_are_there():
    def typed(*words):
        return subprocess.run(words, capture_output=True, text=True, check=False)

    assert typed(*TOOL, "--version").stdout.startswith("lead-migrate, version ")
    assert typed(*TOOL).returncode == 2
    module = [sys.executable, "-m", "migrate", "fit"]
    assert typed(*module, "--help").stdout.startswith("Usage: python -m migrate fit [OPTIONS] STORE\n")
    refused = typed(*module)
    assert refused.returncode == 2
    assert refused.stderr.endswith("; see python -m migrate fit --help\n")


@pytest.mark.slow
def test_queries_get_the_prefix_that_the_store_was_made_for(store, judged, server, monkeypatch, lead_migrate):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    target = "'openai:text-embedding-3-small,query-prefix=ask: ,document-prefix=doc: '"
    lead_migrate(f"fit store --target {target} --sample 50 --kind ridge -o stitch --base-url {server.url}")
    facts = json.loads(Path("stitch/lead-migrate.json").read_text())
    assert facts["model"]["spec"] == "openai:text-embedding-3-small"
    lead_migrate("translate store stitch -o new")
    lead_migrate(f"audit new --reference build --judged judged --base-url {server.url}", code=JUDGED)
    served = server.texts_served
    assert len(set(served)) == 150 + 150, "every document and every query"
    assert len(served) < 150 + 150 + 50, "once, but for what proves the model, though 50 were asked for twice"
    assert {text[:5] for text in served} == {"ask: ", "doc: "}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["ridge", "lowrank:8", "procrustes"], {"procrustes", "lowrank:8", "ridge"}),
        (["ridge", "ridge+text", "ridge"], {"ridge", "ridge+text"}),
        (["auto", "kernel"], {"procrustes", "ols", "lowrank", "ridge", "ridge+near", "ridge+text", "kernel"}),
    ],
)
def test_several_stitches_are_the_candidates(kinds, expected, store, lead_migrate):
    stitches = " ".join(f"--kind {kind}" for kind in kinds)
    ended = lead_migrate(f"fit store --target tfidf:16 --sample 100 {stitches} -o s --json --quiet")
    assert ended.err == ""
    facts = ended.document
    rows = [row["stitch"] for row in facts["candidates"] if not row["is_control"]]
    assert set(rows) == expected and len(rows) == len(expected)
    assert facts["chosen"] in expected
