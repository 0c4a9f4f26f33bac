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
from safe_reports import safe_report

from migrate.cli import SECTIONS
from migrate.cli.main import leaf_commands
from migrate.cli.options import ModelOptions
from migrate.datasets.beir import write_beir
from migrate.datasets.stdlib import stdlib_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.plugins import installed
from migrate.stores import open_store
from migrate.stores.content import content_of

LEAVES = leaf_commands()
JUDGED = (0, 1, 3)
CODES = {"SAFE": 0, "NOT SAFE": 1, "INCONCLUSIVE": 3}
TOOL = [sys.executable, "-c", "from migrate.cli.main import main; main()"]
RIDGE = "--sample 60 --kind ridge"
TINY = f"run store --reference pool --target openai:tiny {RIDGE} -o out"


def files_of(folder, pattern):
    """Bytes and times of the files in the folder of a run."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path(folder).glob(pattern) if path.is_file()}


@pytest.mark.slow
def test_run_leaves_everything_in_one_folder(store, judged, lead_migrate):
    run = "run store --target tfidf:64 --sample 120 --reference build --judged judged -o out"
    ended = lead_migrate(run, code=JUDGED)
    document = json.loads(Path("out/report.json").read_text())
    assert ended.code == CODES[document["verdict"]["outcome"]]
    assert document["verdict"]["gain_over_stay"] is not None, "the store's manifest says its model"
    assert document["verdict"]["outcome"] in ended.out
    assert "pool" not in document
    expected = {"stitch", "store", "reference", "report.json", "report.html", "run.json"}
    assert {path.name for path in Path("out").iterdir() if not path.name.startswith(".")} == expected


@pytest.mark.slow
def test_a_finished_run_says_its_verdict_again_and_does_nothing(store, judged, server, lead_migrate):
    command = f"{TINY} --judged judged --cache none"
    first = lead_migrate(command, code=JUDGED)
    before, requests = files_of("out", "*.*"), len(server.requests)
    again = lead_migrate(command, code=first.code)
    assert again.out == first.out and len(first.out.splitlines()) <= 25
    assert "its verdict is printed again" in again.err and "to embed" not in again.err
    ended = lead_migrate(f"{command} --json --report junit.xml", code=first.code)
    assert ended.document == json.loads(Path("out/report.json").read_text())
    assert "verdict" in Path("junit.xml").read_text()
    told = lead_migrate(f"{command} --margin 0.5 --seed 3", code=2).complaint
    assert "values of seed is there" in told
    told = lead_migrate(f"{command} --kind mean", code=2).complaint
    assert "values of stitch is there" in told
    assert len(server.requests) == requests
    assert files_of("out", "*.*") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queries", "changed"), [("--judged judged --reference build", "reference"), ("--queries synthetic", "queries")]
)
def test_another_audit_of_a_finished_run_keeps_its_stores(queries, changed, finished_here, lead_migrate):
    before, report = files_of("made", "*/**/*"), json.loads(Path("made/report.json").read_text())
    command = f"run old --reference pool --target tfidf:24 {RIDGE} {queries} -o made"
    ended = lead_migrate(command, code=JUDGED)
    assert f"only the audit is repeated with other values of {changed}" in ended.told
    after, again = files_of("made", "*/**/*"), json.loads(Path("made/report.json").read_text())
    assert before.items() <= after.items(), "nothing that was there is written again"
    assert ("build" in queries) == (after.keys() > before.keys())
    assert again["verdict"] != report["verdict"] or ("pool" in again) != ("pool" in report)
    assert "its verdict is printed again" in lead_migrate(command, code=ended.code).err


def interrupted(*arguments, **options):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_another_audit_that_fails_leaves_the_finished_run_as_it_was(finished_here, monkeypatch, lead_migrate):
    with monkeypatch.context() as patch:
        patch.setattr("migrate.audit.audit.audit_store", interrupted)
        lead_migrate(f"{finished_here} --margin 0.5", code=130)
    assert "its verdict is printed again" in lead_migrate(finished_here, code=JUDGED).err
    Path("made/store/docs.jsonl").write_text("")
    assert "docs.jsonl" in lead_migrate(f"{finished_here} --margin 0.5", code=4).complaint


@pytest.mark.slow
def test_a_source_model_that_is_named_afterwards_adds_the_arm_stay(store, judged, lead_migrate):
    (store / "lead-migrate.json").unlink()
    command = f"run store --reference pool --target tfidf:24 {RIDGE} --judged judged -o out"
    assert "whether staying would be better" in lead_migrate(command, code=JUDGED).err
    ended = lead_migrate(f"{command} --source-model tfidf:32", code=JUDGED)
    assert "other values of source model" in ended.told
    assert "stay with the old" in ended.out


def test_documents_without_text_are_dropped_only_when_told(lead_migrate):
    lines = [{"id": "a", "text": "green tea"}, {"id": "b", "text": "  "}, {"id": "c", "text": "black tea leaves"}]
    Path("corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert "document 'b'" in lead_migrate("embed corpus.jsonl --model tfidf:1 -o s", code=4).complaint
    told = lead_migrate("embed corpus.jsonl --model tfidf:1 --skip-bad -o s").err
    assert "skipped 1 documents without text: b" in told
    assert open_store("s").info.count == 2


EXAMPLES = {}
for _name in LEAVES:
    EXAMPLES.setdefault(_name.split()[0], []).append(_name)
"""The commands of each group, whose examples write what the next ones read; other commands are by themselves."""


def help_example(name):
    return LEAVES[name].epilog.split("Example:\n")[1].strip()


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
        lead_migrate("fit my-store --target tfidf:48 --sample 25 -o my-stitch")
        lead_migrate("translate my-store my-stitch -o translated")
        lead_migrate("reembed my-store --target tfidf:48 -o full")
        write_labels()
        write_collections()
    return folder


def write_labels():
    """Write labels of the documents of `my-store`, in turn one of two."""
    documents = open_store("my-store").documents()
    rows = [{"id": document.id, "label": "ab"[number % 2]} for number, document in enumerate(documents)]
    Path("labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_collections():
    """Write two small collections of the documents of `my-store` into one folder of Chroma, and queries."""
    import chromadb

    documents, vectors = read_documents_and_vectors()
    client = chromadb.PersistentClient("vector_db")
    for name, rows in (("one", slice(0, 40)), ("two", slice(40, 80))):
        collection = client.create_collection(name, embedding_function=None)
        chosen = documents[rows]
        texts = [document.text for document in chosen]
        collection.add([document.id for document in chosen], embeddings=vectors[rows], documents=texts)
    client.close()
    Path("queries.txt").write_text("how to open a file\nsort a list of numbers\n")


def read_documents_and_vectors():
    store = open_store("my-store")
    return list(store.documents()), np.concatenate([batch.vectors for batch in store.scan()])


@pytest.fixture
def prepared(prepared_once, tmp_path):
    """A folder in which the examples of the help texts make sense."""
    shutil.copytree(prepared_once, tmp_path, dirs_exist_ok=True)
    return tmp_path


def leave_report(name, lead_migrate):
    """Leave the JSON report that a command reads."""
    if name == "report":
        lead_migrate("audit translated --judged my-beir --source my-store --report report.json", code=JUDGED)
    if name in ("switch", "rollback", "forget"):
        stores = {"source": content_of(open_store("my-store")), "translated": content_of(open_store("new-store"))}
        Path("report.json").write_text(json.dumps(safe_report(stores)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "demo"])  # which the session of the README runs
def test_the_examples_of_the_help_work(name, prepared, server, monkeypatch, lead_migrate):
    monkeypatch.setenv("LEAD_MIGRATE_BASE_URL", server.url)
    if name in ("audit", "labels", "sync", "switch", "rollback", "forget"):
        Path("translated").rename("new-store")
    if name == "private":
        lead_migrate("fit my-store --target tfidf:48 --kind ridge --force -o my-stitch")
    if name == "carry":
        np.savez("concepts.npz", concept=np.eye(32)[0])
    leave_report(name, lead_migrate)
    if name in ("rollback", "forget"):
        lead_migrate("switch my-store new-store --unproven")
    if name == "status":
        lead_migrate(" ".join(shlex.split(help_example("init"))[1:]))
    if name == "stamp":
        Path("my-store/lead-migrate.json").unlink()
    if name in ("backfill", "live"):  # of what is cached, which tfidf: is not
        lead_migrate("fit my-store --target openai:tiny --sample 20 --force -o my-stitch")
        lead_migrate("translate my-store my-stitch -o new-store")
    codes = dict.fromkeys(("audit", "report", "run", "carry", "labels"), JUDGED)
    for leaf in EXAMPLES[name]:
        program, *arguments = shlex.split(help_example(leaf))
        assert program == "lead-migrate"
        if "-o" in arguments:
            shutil.rmtree(arguments[arguments.index("-o") + 1], ignore_errors=True)
        lead_migrate("", *arguments, code=codes.get(leaf, 0))


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_is_explained_in_one_section_of_the_help_and_read_from_the_environment(
    name, lead_migrate, monkeypatch
):
    context = LEAVES[name].make_context(name, [], resilient_parsing=True)
    options = [p for p in LEAVES[name].params if isinstance(p, click.Option) and not p.hidden]
    flags = [next(text for text in option.opts if text.startswith("--")) for option in options]
    for option, flag in zip(options, flags, strict=True):
        assert option.help, flag
        if option.name == "to_dimensions":  # LEAD_MIGRATE_DIMENSIONS is of models, and must not cut a store
            flag = "--to-dimensions"
        with monkeypatch.context() as environment:
            environment.setenv("LEAD_MIGRATE_" + flag[2:].replace("-", "_").upper(), "1")
            assert option.value_from_envvar(context)
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


def test_commands_are_listed_in_the_order_of_the_job(lead_migrate):
    shown = lead_migrate("--help").out.partition("--help ")[2]
    listed = re.findall(r"^(\w[\w ]*):$|^  ([a-z]+)  ", shown, re.MULTILINE)
    assert [title or name for title, name in listed] == [x for title in SECTIONS for x in (title, *SECTIONS[title])]


def test_a_mistyped_command_is_told_the_nearest(lead_migrate):
    told = lead_migrate("tranlate store stitch", code=2).complaint
    assert "'tranlate'; the nearest is 'translate'" in told and told.endswith("see lead-migrate --help")
    told = lead_migrate("zzz", code=2).complaint
    assert "'zzz'; see lead-migrate --help" in told


def test_the_lists_of_commands_say_in_a_short_line_each_what_it_does(lead_migrate):
    for group in ("", "live", "private"):
        lines = lead_migrate(f"{group} --help").out.partition("--help ")[2]
        listed = re.findall(r"^  (\w+) {2,}(\S.*)$", lines, re.MULTILINE)
        assert len(listed) >= 3 and [name for name, line in listed if not (len(line) < 60 and line.endswith("."))] == []
    assert dict(listed)["keygen"].startswith("Make ")
    said = lead_migrate("live --help").out
    assert "run     Give a store true vectors, and watch it." in said, "not the line of the other `run`"


@pytest.mark.slow
def test_bash_gets_a_completion_script_that_completes():
    def asked(**variables):
        return subprocess.run(TOOL, capture_output=True, text=True, check=True, env=os.environ | variables).stdout

    assert "-F _lead_migrate_completion lead-migrate" in asked(_LEAD_MIGRATE_COMPLETE="bash_source")
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
    # A setting of models that nobody types, where `translate` has another option of its name
    assert seen.pop("dimensions") == {("--dimensions",), ("--target-dimensions",)}
    assert {name: spellings for name, spellings in seen.items() if len(spellings) > 1} == {}
    assert set(ModelOptions.__dataclass_fields__) <= {parameter.name for parameter in LEAVES["fit"].params}


@pytest.mark.slow
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
    target = "'openai:text-embedding-3-small,dimensions=24,query-prefix=ask: ,document-prefix=doc: '"
    lead_migrate(f"fit store --target {target} --sample 50 --kind ridge -o stitch --base-url {server.url}")
    facts = json.loads(Path("stitch/lead-migrate.json").read_text())
    assert facts["model"]["spec"] == "openai:text-embedding-3-small"
    lead_migrate("translate store stitch -o new")
    lead_migrate(f"audit new --reference build --judged judged --base-url {server.url}", code=JUDGED)
    served = server.texts_served
    n_texts = 150 + len(Path("judged/queries.jsonl").read_text().splitlines())
    assert len(set(served)) == n_texts, "every document and every query"
    assert len(served) < n_texts + 50, "once, but for what proves the model"
    assert {text[:5] for text in served} == {"ask: ", "doc: "}


def test_what_packages_provide_is_read_once_for_a_path_and_anew_for_another(monkeypatch):
    group = "lead_migrate.stores"
    before = installed(group)
    assert installed(group) is before
    info = Path("more/tape-1.0.dist-info")
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tape\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\ntape = tape:KIND\n")
    monkeypatch.syspath_prepend(Path("more").absolute())
    assert installed(group).keys() == {*before, "tape"}


def test_several_stitches_are_the_candidates_once_each(store, lead_migrate):
    kinds = "--kind ridge --kind ridge+text --kind ridge"
    ended = lead_migrate(f"fit store --target tfidf:16 --sample 100 {kinds} -o s --json --quiet")
    rows = [row["stitch"] for row in ended.document["candidates"] if not row["is_control"]]
    assert sorted(rows) == ["ridge", "ridge+text"] and ended.document["chosen"] in rows
    assert ended.err == ""
