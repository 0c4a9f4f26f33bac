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
from openai_server import OpenAIServer

from migrate.cli.main import leaf_commands, run
from migrate.cli.options import ModelOptions
from migrate.datasets.beir import write_beir
from migrate.datasets.stdlib import stdlib_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.content import content_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def vectors_file(corpus, tmp_path):
    """A model whose vectors somebody else computed: documents and queries in 48 dimensions."""
    embedder = load_embedder("tfidf:48")
    embedder.fit(corpus.documents)
    path = tmp_path / "vectors.npz"
    np.savez(
        path,
        doc_ids=[document.id for document in corpus.documents],
        docs=embedder.embed_documents(corpus.documents),
        query_ids=[query.id for query in corpus.queries],
        queries=embedder.embed_queries(corpus.queries),
    )
    return path


LEAVES = leaf_commands()


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


def test_the_whole_path_by_hand(beir, vectors_file, tmp_path, capsys):
    corpus = beir / "corpus.jsonl"
    stitch, new, full, report = (tmp_path / name for name in ("stitch", "new", "full", "report.json"))
    target = f"file:{vectors_file}"
    assert lead_migrate("embed", corpus, "--model", "tfidf:32", "--no-chunks", "-o", tmp_path / "old") == 0
    assert lead_migrate("embed", corpus, "--model", target, "--no-chunks", "-o", full) == 0
    assert lead_migrate("fit", tmp_path / "old", "--target", target, "--sample", "100", "-o", stitch) == 0
    table = capsys.readouterr().out
    assert "mean (control)" in table and "random (control)" in table and "* " in table
    assert lead_migrate("translate", tmp_path / "old", stitch, "-o", new) == 0
    assert "100 of them true ones" in capsys.readouterr().out
    code = lead_migrate(
        "audit", new, "--reference", full, "--beir", beir, "--target", target,
        "--source", tmp_path / "old", "--report", report,
    )  # fmt: skip
    text = capsys.readouterr().out
    document = json.loads(report.read_text())
    outcome = document["verdict"]["outcome"]
    assert code == {"SAFE": 0, "NOT SAFE": 1, "INCONCLUSIVE": 3}[outcome]
    assert text.strip().split("\n\n")[-1].split("\n")[-1].strip() and outcome in text
    names = [arm["name"] for arm in document["arms"]]
    hybrid = ["hybrid", "hybrid, full", "BM25"]
    assert names == ["full re-embed", "translated", "stay", *hybrid, "mean", "random", "two-stage 20", "two-stage 50"]
    assert max(len(line) for line in text.split("\n")) <= 100


@pytest.mark.slow
def test_a_reference_is_built_when_asked_for(beir, source_folder, vectors_file, audit_fields, tmp_path, capsys):
    audit_fields(no_bm25=True)
    target = f"file:{vectors_file}"
    lead_migrate("fit", source_folder, "--target", target, "--sample", "100", "-o", tmp_path / "stitch")
    lead_migrate("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new")
    capsys.readouterr()
    options = ["--reference", "build", "--target", target, "--json"]
    lead_migrate("audit", tmp_path / "new", "--beir", beir, *options, "--two-stage", "none")
    document = json.loads(capsys.readouterr().out)
    assert [arm["name"] for arm in document["arms"]] == ["full re-embed", "translated", "mean", "random"]


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["pool", "build"])
def test_run_leaves_everything_in_one_folder(reference, beir, source_folder, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--target", "tfidf:64", "--sample", "120", *(["--reference", "build"] if reference == "build" else [])]
    code = lead_migrate("run", source_folder, *options, "--beir", beir, "-o", out)
    shown = capsys.readouterr().out
    document = json.loads((out / "report.json").read_text())
    assert code == {"SAFE": 0, "NOT SAFE": 1, "INCONCLUSIVE": 3}[document["verdict"]["outcome"]]
    assert document["verdict"]["gain_over_stay"] is not None  # the store's manifest says its model
    assert document["verdict"]["outcome"] in shown
    assert ("pool" in document) == (reference == "pool")
    expected = {"stitch", "store", "report.json", "report.html", "run.json"}
    expected |= {"reference"} if reference == "build" else set()
    assert {path.name for path in out.iterdir() if not path.name.startswith(".")} == expected


@pytest.mark.slow
def test_a_finished_run_says_its_verdict_again_and_does_nothing(beir, source_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    out = tmp_path / "out"
    with OpenAIServer() as server:
        options = ["--target", "openai:tiny", "--base-url", server.url, "--sample", "60", "--stitch", "ridge"]
        command = ["run", source_folder, *options, "--beir", beir, "--cache", "none", "-o", out]
        code = lead_migrate(*command)
        text = capsys.readouterr().out
        before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.glob("*.*")}
        requests = len(server.requests)
        assert lead_migrate(*command) == code and code in (0, 1, 3)
        again = capsys.readouterr()
        assert again.out == text and len(text.splitlines()) <= 25
        assert "nothing is done again" in again.err and "to embed" not in again.err
        assert lead_migrate(*command, "--json", "--report", tmp_path / "junit.xml") == code
        assert json.loads(capsys.readouterr().out) == json.loads((out / "report.json").read_text())
        assert "verdict" in (tmp_path / "junit.xml").read_text()
        for others, told in (
            (["--margin", "0.5", "--seed", "3"], "other values of seed is there; choose another folder"),
            (["--stitch", "mean"], "other values of stitch is there; choose"),
        ):
            assert lead_migrate(*command, *others) == 2
            assert told in capsys.readouterr().err
        assert len(server.requests) == requests
        assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.glob("*.*")} == before
        (out / "report.json").write_text("{}")
        assert lead_migrate(*command) == 4
        assert "report.json: the file was changed since the run finished" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then", "changed"),
    [
        (["--beir", "BEIR"], ["--beir", "BEIR", "--reference", "build"], "reference"),
        (["--beir", "BEIR"], ["--queries", "synthetic"], "queries"),
        (["--beir", "BEIR", "--reference", "build"], ["--beir", "BEIR", "--margin", "0.5"], "margin, reference"),
    ],
)
def test_another_audit_of_a_finished_run_keeps_its_stores(
    first, then, changed, beir, source_folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    out = tmp_path / "out"

    def texts():
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.rglob("*/*")}

    with OpenAIServer() as server:
        models = ["--target", "openai:tiny", "--base-url", server.url, "--sample", "60", "--stitch", "ridge"]
        command = ["run", source_folder, *models, "--cache", tmp_path / "cache.sqlite", "-o", out]
        words, others = ([str(beir) if word == "BEIR" else word for word in part] for part in (first, then))
        assert lead_migrate(*command, *words) in (0, 1, 3)
        before, report = texts(), json.loads((out / "report.json").read_text())
        capsys.readouterr()
        code = lead_migrate(*command, *others)
        captured = capsys.readouterr()
        assert code in (0, 1, 3), captured.err
        values = f"only the audit is made anew with other values of {changed}"
        assert values in " ".join(captured.err.split())
        assert before.items() <= texts().items(), "nothing that was there is written again"
        assert ("reference" in changed and "build" in then) == (texts().keys() > before.keys())
        again = json.loads((out / "report.json").read_text())
        assert again["verdict"] != report["verdict"] or ("pool" in again) != ("pool" in report)
        assert lead_migrate(*command, *others) == code
        assert "nothing is done again" in capsys.readouterr().err


@pytest.mark.slow
def test_another_audit_that_fails_leaves_the_finished_run_as_it_was(beir, source_folder, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    command = ["run", source_folder, "--target", "tfidf:24", "--sample", "60", "--stitch", "ridge", "-o", out]
    assert lead_migrate(*command, "--beir", beir) in (0, 1, 3)
    with monkeypatch.context() as patch:
        patch.setattr("migrate.audit.audit.audit_store", interrupted)
        assert lead_migrate(*command, "--beir", beir, "--margin", "0.5") == 130
    capsys.readouterr()
    assert lead_migrate(*command, "--beir", beir) in (0, 1, 3)
    assert "nothing is done again" in capsys.readouterr().err
    (out / "store" / "docs.jsonl").write_text("")
    assert lead_migrate(*command, "--beir", beir, "--margin", "0.5") == 4
    assert "docs.jsonl" in capsys.readouterr().err


def interrupted(*arguments, **options):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_source_model_that_is_named_afterwards_adds_the_arm_stay(beir, source_folder, tmp_path, capsys):
    shutil.copytree(source_folder, tmp_path / "plain")
    (tmp_path / "plain" / "lead-migrate.json").unlink()
    options = ["--target", "tfidf:24", "--sample", "60", "--stitch", "ridge", "--beir", beir, "-o", tmp_path / "out"]
    command = ["run", tmp_path / "plain", *options]
    assert lead_migrate(*command) in (0, 1, 3)
    assert "whether staying would be better" in capsys.readouterr().err
    assert lead_migrate(*command, "--source-model", "tfidf:32") in (0, 1, 3)
    captured = capsys.readouterr()
    assert "only the audit is made anew with other values of source model" in " ".join(captured.err.split())
    assert "stay with the old" in captured.out


@pytest.mark.slow
def test_a_store_of_the_same_model_loses_nothing(source_folder, tmp_path, capsys, beir, audit_fields):
    """Nothing is lost when the target is the source, and 150 queries are enough to say so at a low margin.

    Beside BM25, which is better than such a small model, nothing is said to be SAFE, whether its arm is shown or not.
    """
    embedder = load_embedder("tfidf:32", state=source_folder)
    everything = read_all(open_store(source_folder).scan())
    from migrate.datasets.beir import load_beir

    queries = load_beir(beir).queries
    np.savez(
        tmp_path / "same.npz",
        doc_ids=list(everything.ids), docs=everything.vectors,
        query_ids=[q.id for q in queries], queries=embedder.embed_queries(queries),
    )  # fmt: skip
    target = f"file:{tmp_path / 'same.npz'}"
    code = lead_migrate(
        "run", source_folder, "--target", target, "--beir", beir, "--sample", "75", "--margin", "0.9",
        "--reference", "build", "-o", tmp_path / "out", "--json",
    )  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["retention"]["estimate"] == pytest.approx(1, abs=1e-6)
    assert (code, document["verdict"]["outcome"]) == (3, "INCONCLUSIVE")
    assert "the full re-embed is significantly worse than BM25" in document["verdict"]["sentence"]
    parts = [tmp_path / "out/store", "--reference", tmp_path / "out/reference", "--target", target]
    audit_fields(no_bm25=True)
    assert lead_migrate("audit", *parts, "--beir", beir, "--margin", "0.9", "--json") == 3
    shown = json.loads(capsys.readouterr().out)
    assert "the full re-embed is significantly worse than BM25" in shown["verdict"]["sentence"]
    assert "BM25" not in [arm["name"] for arm in shown["arms"]]


def test_inspect_tells_the_facts(source_folder, capsys):
    assert lead_migrate("inspect", source_folder, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["vectors"] == 150 and facts["dimension"] == 32 and facts["norms"] == "unit"
    assert facts["model"] == "tfidf:32" and facts["bad_vectors"] == 0 and facts["texts"] is True
    lead_migrate("inspect", source_folder)
    assert re.search(r"^norms +unit$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.slow
def test_chunks_are_judged_by_their_document(beir, tmp_path, capsys):
    chunked = tmp_path / "chunked"
    options = ["--chunk-tokens", "40", "--chunk-overlap", "5"]
    assert lead_migrate("embed", beir, "--model", "tfidf:32", *options, "-o", chunked) == 0
    store = open_store(chunked)
    assert store.info.count > 150
    assert any("#" in document.id for document in store.documents())
    capsys.readouterr()
    code = lead_migrate(
        "run", chunked, "--target", "tfidf:64", "--beir", beir, "--sample", "200", "-o", tmp_path / "out", "--json"
    )
    document = json.loads(capsys.readouterr().out)
    assert code in (0, 1, 3)
    assert document["dataset"]["documents"] == 150
    assert document["arms"][0]["means"]["recall@100"] > 0.5


def test_documents_without_text_are_dropped_only_when_told(tmp_path, capsys):
    lines = [{"id": "a", "text": "green tea"}, {"id": "b", "text": "  "}, {"id": "c", "text": "black tea leaves"}]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, lines)))
    assert lead_migrate("embed", corpus, "--model", "tfidf:1", "-o", tmp_path / "s") == 4
    assert "document 'b'" in capsys.readouterr().err
    assert lead_migrate("embed", corpus, "--model", "tfidf:1", "--skip-bad", "-o", tmp_path / "s") == 0
    assert "skipped 1 documents without text: b" in capsys.readouterr().err
    assert open_store(tmp_path / "s").info.count == 2


@pytest.mark.slow
def test_an_openai_target_pays_for_the_sample_only_once(source_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with OpenAIServer() as server:
        options = ["--target", "openai:text-embedding-3-small", "--base-url", server.url, "--sample", "50"]
        options += ["--stitch", "ridge"]
        for name in ("first", "second"):
            assert lead_migrate("fit", source_folder, *options, "-o", tmp_path / name) == 0
        assert len(server.texts_served) == 50
    facts = json.loads((tmp_path / "first" / "lead-migrate.json").read_text())
    assert facts["model"]["spec"] == "openai:text-embedding-3-small"


def help_example(name):
    return LEAVES[name].epilog.split("Example:\n")[1].strip()


def steps_before(name):
    """The commands whose examples write what the example of this one reads."""
    names = list(LEAVES)
    return [other for other in names[: names.index(name)] if other.split()[:-1] == name.split()[:-1] != []]


@pytest.fixture(scope="module")
def prepared_once(tmp_path_factory):
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
        lead_migrate("fit", "my-store", "--target", "tfidf:48", "--sample", "60", "-o", "my-stitch")
        lead_migrate("translate", "my-store", "my-stitch", "-o", "translated")
    return folder


@pytest.fixture
def prepared(prepared_once, tmp_path, monkeypatch):
    """A folder in which the examples of the help texts make sense."""
    shutil.copytree(prepared_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LEAVES if name != "demo"])  # which the session of the README runs
def test_the_example_of_the_help_works(name, prepared, monkeypatch, capsys):
    if name in ("audit", "sync"):
        (prepared / "translated").rename(prepared / "new-store")
    if name.startswith("private"):
        lead_migrate("fit", "my-store", "--target", "tfidf:48", "--stitch", "ridge", "--force", "-o", "my-stitch")
    if name == "carry":
        np.savez("concepts.npz", concept=np.eye(32)[0])
    if name in ("switch", "rollback", "forget"):
        (prepared / "translated").rename(prepared / "new-store")
        stores = {"source": content_of(open_store("my-store")), "translated": content_of(open_store("new-store"))}
        report = {"kind": "audit", "verdict": {"outcome": "SAFE"}, "stores": stores}
        Path("report.json").write_text(json.dumps(report))
    if name in ("rollback", "forget"):
        assert lead_migrate("switch", "my-store", "new-store", "--unproven") == 0
    if name == "stamp":
        (prepared / "my-store" / "lead-migrate.json").unlink()
    with OpenAIServer() as server:
        monkeypatch.setenv("LEAD_MIGRATE_BASE_URL", server.url)
        if name == "backfill" or name.startswith("live"):  # of what is cached, which tfidf: is not
            options = ["--target", "openai:tiny", "--sample", "20", "--force"]
            assert lead_migrate("fit", "my-store", *options, "-o", "my-stitch") == 0
            assert lead_migrate("translate", "my-store", "my-stitch", "-o", "new-store") == 0
        for earlier in steps_before(name):
            assert run(shlex.split(help_example(earlier))[1:]) == 0
        program, *arguments = shlex.split(help_example(name))
        assert program == "lead-migrate"
        if "-o" in arguments:
            shutil.rmtree(arguments[arguments.index("-o") + 1], ignore_errors=True)
        code = run(arguments)
    captured = capsys.readouterr()
    assert code in ((0, 1, 3) if name in ("audit", "run", "carry") else (0,)), captured.err


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_is_explained_and_read_from_the_environment(name):
    command = LEAVES[name]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, parameter.name
            flag = next(text for text in parameter.opts if text.startswith("--"))
            assert parameter.envvar == "LEAD_MIGRATE_" + flag[2:].replace("-", "_").upper()


@pytest.mark.parametrize("name", LEAVES)
def test_the_help_shows_every_option_once_in_a_section_of_few(name, capsys):
    assert run([*name.split(), "--help"]) == 0
    described = capsys.readouterr().out.partition("\n\n  Example:")[0]
    assert "RANGE" not in described and "<=x" not in described
    titles = re.findall(r"^(\w.*):$", described, re.MULTILINE)
    sections = re.split(r"^\w.*:\n", described, flags=re.MULTILINE)[1:]
    found = [re.findall(r"^  (?:-\w, )?(--[\w-]+)", section, re.MULTILINE) for section in sections]
    options = [p for p in LEAVES[name].params if isinstance(p, click.Option) and not p.hidden]
    flags = [next(text for text in option.opts if text.startswith("--")) for option in options]
    assert sorted(flag for section in found for flag in section) == sorted([*flags, "--help"])
    assert max(len(section) for section in found) <= 10
    assert titles[-1] == ("General" if len(titles) > 1 else "Options")
    assert len(set(titles)) == len(titles)
    assert found[-1][-1] == "--help"


def test_the_lists_of_commands_say_in_a_short_line_each_what_it_does(capsys):
    for group in ("", "live", "private"):
        assert run([*group.split(), "--help"]) == 0
        listed = re.findall(
            r"^  (\w+) {2,}(\S.*)$", capsys.readouterr().out.partition("\nCommands:\n")[2], re.MULTILINE
        )
        assert len(listed) >= 3 and [name for name, line in listed if not (len(line) < 60 and line.endswith("."))] == []
    assert dict(listed)["keygen"].startswith("Make ")
    run(["live", "--help"])
    assert "run     Write true vectors into a store" in capsys.readouterr().out, "not the line of the other `run`"


def test_bash_gets_a_completion_script_that_completes(tmp_path):
    tool = [sys.executable, "-c", "from migrate.cli.main import main; main()"]

    def asked(**variables):
        done = subprocess.run(
            tool, capture_output=True, text=True, check=True, env=os.environ | variables, cwd=tmp_path
        )
        return done.stdout

    assert "complete -o nosort -F _lead_migrate_completion lead-migrate" in asked(_LEAD_MIGRATE_COMPLETE="bash_source")
    typed = {"_LEAD_MIGRATE_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    assert asked(**typed, COMP_WORDS="lead-migrate fit --st") == "plain,--stitch\n"
    assert asked(**typed, COMP_WORDS="lead-migrate fit my-") == "file,my-\n"  # bash looks for files


def test_shared_options_are_spelled_the_same_everywhere():
    seen = {}
    for name in LEAVES:
        for parameter in LEAVES[name].params:
            if isinstance(parameter, click.Option):
                seen.setdefault(parameter.name, set()).add(tuple(parameter.opts))
    del seen["reembed"]  # what `translate --reembed` is called in a command of that name is `--share`
    del seen["stitch"]  # an audit tries budgets from a stitch, and calls it `--frontier`
    assert {name: spellings for name, spellings in seen.items() if len(spellings) > 1} == {}


def test_model_options_have_a_flag_each():
    flags = {p.name for p in LEAVES["fit"].params}
    assert set(ModelOptions.__dataclass_fields__) <= flags


def test_an_option_can_come_from_the_environment(source_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAD_MIGRATE_SAMPLE", "33")
    monkeypatch.setenv("LEAD_MIGRATE_STITCH", "procrustes")
    assert lead_migrate("fit", source_folder, "--target", "tfidf:16", "-o", tmp_path / "s") == 0
    facts = json.loads((tmp_path / "s" / "lead-migrate.json").read_text())
    assert (facts["counts"]["pairs"], facts["details"]["stitch"]) == (33, "procrustes")


def test_the_console_script_and_the_module_are_there(tmp_path):
    tool = [sys.executable, "-c", "from migrate.cli.main import main; main()"]
    done = subprocess.run([*tool, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("lead-migrate, version ")
    nothing = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert nothing.returncode == 2


def test_python_m_migrate_is_the_tool_under_that_name():
    tool = [sys.executable, "-m", "migrate"]
    shown = subprocess.run([*tool, "fit", "--help"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("Usage: python -m migrate fit [OPTIONS] STORE\n")
    refused = subprocess.run([*tool, "fit"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.endswith("; see python -m migrate fit --help\n")


@pytest.mark.slow
def test_progress_and_advice_stay_off_stdout(source_folder, tmp_path, capsys):
    lead_migrate("fit", source_folder, "--target", "tfidf:16", "--json", "-o", tmp_path / "s")
    captured = capsys.readouterr()
    json.loads(captured.out)
    lead_migrate("fit", source_folder, "--target", "tfidf:16", "--quiet", "-o", tmp_path / "t")
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_queries_get_the_prefix_that_the_store_was_made_for(source_folder, beir, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    with OpenAIServer() as server:
        target = ["--target", "openai:text-embedding-3-small,query-prefix=ask: ,document-prefix=doc: "]
        target += ["--base-url", server.url]
        options = ["--sample", "50", "--stitch", "ridge"]
        lead_migrate("fit", source_folder, *target, *options, "-o", tmp_path / "stitch")
        lead_migrate("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new")
        options = ["--reference", "build", "--beir", beir, "--base-url", server.url]
        assert lead_migrate("audit", tmp_path / "new", *options) in (0, 1, 3)
        served = list(server.texts_served)
    assert len(set(served)) == 150 + 150  # every document and every query
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
def test_several_stitches_are_the_candidates(kinds, expected, source_folder, tmp_path, capsys):
    command = ["fit", source_folder, "--target", "tfidf:16", "--sample", "100", "-o", tmp_path / "s", "--json"]
    assert lead_migrate(*command, *(word for kind in kinds for word in ("--stitch", kind))) == 0
    facts = json.loads(capsys.readouterr().out)
    rows = [row["stitch"] for row in facts["candidates"] if not row["is_control"]]
    assert set(rows) == expected and len(rows) == len(expected)
    assert facts["chosen"] in expected


def test_the_help_of_audit_says_what_queries_are_taken_and_how_drawn_ones_come_back(capsys):
    assert run(["audit", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Replace each null by a grade, 0 for not relevant, and give the file back with --beir." in shown
    assert "a file with a query a line, or JSONL with `text`; or the word `synthetic`" in shown
    assert "The verdict is then provisional" in shown
