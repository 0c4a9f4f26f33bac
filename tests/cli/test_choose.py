"""`assess` with queries: several targets in one table, each figure against a computation of its own."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import migrate
from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.manifest import read_manifest
from migrate.vectors import Document, query_key

pytestmark = pytest.mark.slow

LEXICAL = "tfidf:24"
SMALL = "tfidf:8"
BETTER = "tfidf:96"
ASSESS = f"assess store --target {LEXICAL} --target {BETTER}"


@pytest.fixture(scope="module")
def folder(source_folder, all_queries, lead_migrate, tmp_path_factory):
    """A store and judged queries, and the answer of `assess` for two targets."""
    folder = tmp_path_factory.mktemp("choice")
    shutil.copytree(source_folder, folder / "store")
    shutil.copytree(all_queries, folder / "judged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        ended = lead_migrate(f"{ASSESS} --judged judged --sample 60 --report page.html --json")
        (folder / "answer.json").write_text(ended.out)
    return folder


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def answers_of(folder, spec):
    """nDCG@10 of every distinct query over all documents, by brute force and the definition."""
    store, judged = migrate.open_store(folder / "store"), load_beir(folder / "judged", split="test")
    documents = list(store.documents())
    model = load_embedder(spec)
    model.fit(Document(one.id, one.text) for one in documents)
    vectors, queries = model.embed_documents(documents), model.embed_queries(judged.queries)
    by_text = {}
    for query, scores in zip(judged.queries, queries @ vectors.T, strict=True):
        grades = judged.qrels[query.id]
        first = np.argsort(-scores, kind="stable")[:10]
        gains = [grades.get(documents[row].id, 0) for row in first]
        best = sorted(grades.values(), reverse=True)[:10]
        dcg, ideal = (sum(gain / np.log2(place + 2) for place, gain in enumerate(it)) for it in (gains, best))
        by_text.setdefault(query_key(query.text), []).append(dcg / ideal)
    return np.array([np.mean(scores) for scores in by_text.values()])


def test_a_model_of_the_store_that_is_switched_off_is_not_asked(here, lead_migrate):
    manifest = read_manifest(here / "store", "store")
    model = replace(manifest.model, spec="gemini:text-embedding-004")
    replace(manifest, model=model).write(here / "store")
    ended = lead_migrate(f"assess store --target {LEXICAL} --judged judged --sample 60 --json")
    assert json.loads(ended.out)["stay"] is None


def test_the_table_has_what_an_independent_computation_gives(folder):
    found = json.loads((folder / "answer.json").read_text())
    stay = answers_of(folder, "tfidf:32")
    assert found["stay"]["estimate"] == pytest.approx(stay.mean(), abs=1e-6)
    assert [target["name"] for target in found["targets"]] == [LEXICAL, BETTER]
    for target in found["targets"]:
        full, gain = answers_of(folder, target["name"]), target["gain_over_stay"]
        assert target["quality"]["estimate"] == pytest.approx(full.mean(), abs=1e-4)
        assert gain["estimate"] == pytest.approx((full - stay).mean(), abs=1e-4)
        deviation = (full - stay).std(ddof=1) / np.sqrt(len(full))
        assert gain["lower"] < gain["estimate"] - 1.5 * deviation and gain["upper"] > gain["estimate"] + 1.5 * deviation
        assert target["is_better"] == (gain["lower"] > 0)
        assert target["outcome"] in ("SAFE", "NOT SAFE", "INCONCLUSIVE") and 0 < target["retention"]["estimate"] < 2
    lexical, better = found["targets"]
    assert lexical["usd"] == better["usd"] == 0, "models that run here"
    assert lexical["minutes"] > 0 and better["minutes"] > 0
    assert found["best"] == BETTER and found["answers"][0].startswith(f"{BETTER}: ")


def test_next_comes_the_run_to_the_best_target_which_finds_what_the_table_has(here, lead_migrate):
    ended = lead_migrate(f"{ASSESS} --judged judged --sample 60")
    assert ended.next == f"run store --target {BETTER} --judged judged -o store-moved"
    assert max(map(len, ended.out.split("\n"))) <= 100
    table = json.loads((here / "answer.json").read_text())["targets"][1]
    same_sample = "--reference pool --sample 60 --json"
    verdict = lead_migrate(f"{ended.next} {same_sample}", code=(0, 1, 3)).document["verdict"]
    assert verdict["retention"] == table["retention"] and verdict["outcome"] == table["outcome"]


def test_nothing_is_left_and_the_page_has_the_table(folder):
    assert {path.name for path in folder.iterdir()} == {"store", "judged", "page.html", "answer.json"}
    page = (folder / "page.html").read_text()
    assert "against staying" in page and BETTER in page


def test_the_price_is_said_before_anything_is_sent_and_paid_once(store, judged, server, lead_migrate, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    small = "openai:text-embedding-3-small,dimensions=24"
    words = f"assess store --target {small} --target openai:text-embedding-ada-002 --judged judged"
    refused = lead_migrate(f"{words} --sample 60 --max-cost $0.00001", code=2)
    assert server.requests == [] and "more than --max-cost" in refused.complaint
    for name in ("text-embedding-3-small", "text-embedding-ada-002"):
        assert f"to embed by openai:{name} (a target): " in refused.told
    done = lead_migrate(f"{words} --sample 60")
    assert "embedded by openai:text-embedding-3-small" in done.told
    assert {request.model for request in server.requests} == {"text-embedding-3-small", "text-embedding-ada-002"}
    first = sum(len(request.inputs) for request in server.requests)
    again = lead_migrate(f"assess store --target {small} --judged judged --sample 60")
    assert "3-small (a target): 0 documents" in again.told
    assert sum(len(request.inputs) for request in server.requests) - first < 40, "texts that prove the model alone"


def test_without_judgements_the_table_says_what_translations_keep_and_no_more(here, lead_migrate):
    questions = [json.loads(line)["text"] for line in (here / "judged/queries.jsonl").read_text().splitlines()]
    Path("asked.txt").write_text("\n".join(dict.fromkeys(questions)))
    found = lead_migrate(f"assess store --target {LEXICAL} --target {SMALL} --queries asked.txt --sample 60 --json")
    assert found.document["stay"] is None and found.document["best"] is None and found.next is None
    for target in found.document["targets"]:
        assert target["quality"] is target["gain_over_stay"] is None
        assert 0 < target["agreement@10"]["estimate"] <= 1
    assert found.document["answers"][0].startswith("nothing is judged")


def test_a_store_that_names_no_model_is_not_held_against_staying(here, lead_migrate):
    (here / "store/lead-migrate.json").unlink(missing_ok=True)
    for path in (here / "store").glob("*manifest*"):
        path.unlink()
    ended = lead_migrate(f"assess store --target {LEXICAL} --judged judged --sample 60 --json")
    assert ended.document["stay"] is None and "no --source-model" in ended.told
    assert "name it with --source-model" in ended.document["answers"][0]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (f"--target {LEXICAL} --target {SMALL}", "several targets are told apart by queries"),
        (f"--target {LEXICAL} --target {LEXICAL} --judged judged", f"--target {LEXICAL} is there twice"),
        (f"--target {LEXICAL} --target tfidf:32 --judged judged", "store is of tfidf:32 already"),
        (f"--target {LEXICAL} --judged judged --price 1", "--price is for one target that no queries judge"),
        (f"--target {LEXICAL} --judged judged --queries judged/queries.jsonl", "exclude each other"),
        (f"--target {LEXICAL} --judged nowhere", "nowhere"),
    ],
)
def test_what_makes_no_table_is_refused_in_one_line(here, lead_migrate, words, complaint):
    assert complaint in lead_migrate(f"assess store {words}", code=(2, 4, 5)).complaint
