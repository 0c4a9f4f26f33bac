"""The arm of documents by their first tokens: its ranking, its cost, where it counts, and what it needs."""

from dataclasses import replace

import numpy as np
import pytest
from openai_server import OpenAIServer
from topics import DOCUMENTS, QUERIES, QUESTIONS, UNJUDGED, Topics, audit, make_store, noisy, pool, shown

from migrate import fit, translate
from migrate.audit.results import FULL
from migrate.audit.step import Audit
from migrate.cost.count import count_texts
from migrate.embedders import load_embedder
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.prefix import PrefixEmbedder, first_of
from migrate.errors import SpendingError, StoreError, UsageError
from migrate.report.document import audit_document
from migrate.steps.assess import read_first_tokens
from migrate.steps.fit import Fit
from migrate.stores import open_store

pytestmark = pytest.mark.slow

SMALL = "openai:text-embedding-3-small,dimensions=24"


class Heads(Topics):
    """As `Topics`; what is left of a document after one word is its topic, blurred as all others of that topic."""

    @property
    def profile(self):
        return super().profile.at_price(10.0)

    def _one(self, text, role):
        words = text.split()
        return super()._one(text if len(words) > 1 else f"{text} n0", role)


class PaidHeads(Heads):
    batch_size = 16

    @property
    def profile(self):
        return replace(super().profile, is_paid=True)


HEADS = Heads()


def cut(words):
    return list(first_of(DOCUMENTS, HEADS.profile.counter, words))


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    translated = make_store(folder / "translated", HEADS, vectors=noisy(1.0))
    return translated, make_store(folder / "reference", HEADS)


@pytest.fixture(scope="module")
def report(stores):
    return audit(*stores, embedder=HEADS, first_tokens=(1, 2))


def test_it_ranks_by_the_vectors_of_the_first_tokens(report):
    asked, truth = HEADS.embed_queries(QUERIES), HEADS.embed_documents(DOCUMENTS)
    full = np.argsort(-(asked @ truth.T), axis=1)[:, :10]
    for words in (1, 2):
        scores = asked @ HEADS.embed_documents(cut(words)).T
        mine = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        shares = [len(set(own) & set(best)) / 10 for own, best in zip(mine, full, strict=True)]
        assert report.arm(f"prefix:{words}").mean("overlap@10") == pytest.approx(np.mean(shares), abs=0.02)
    assert report.arm("prefix:2").scores["nDCG@10"].tolist() == report.arm(FULL).scores["nDCG@10"].tolist()
    assert report.arm("prefix:1").mean("nDCG@10") < report.arm(FULL).mean("nDCG@10")
    assert "the first 2 words of every document" in report.arm("prefix:2").meaning


def test_it_changes_no_verdict_and_costs_what_was_embedded(report, stores):
    without = audit(*stores, embedder=HEADS)
    assert report.verdict == without.verdict
    assert "prefix" in without.skipped_arms and "prefix" not in report.skipped_arms
    for words in (1, 2):
        tokens = count_texts(cut(words), HEADS.profile, once=True).tokens_read
        assert report.arm(f"prefix:{words}").tokens == tokens
        assert report.arm(f"prefix:{words}").usd == pytest.approx(tokens * 1e-5)
    named = {arm["name"]: arm for arm in audit_document(report)["arms"]}
    assert named["prefix:1"]["tokens"] < named["prefix:2"]["tokens"] < named[FULL]["tokens"]
    assert "prefix:2" in shown(report)


def test_it_is_one_of_the_arms_that_could_serve(stores):
    report = audit(*stores, embedder=HEADS, first_tokens=(1, 2), two_stage=[20])
    assert set(report.family) == {"prefix:1", "prefix:2", "two-stage 20"}
    assert report.family["prefix:2"].estimate == pytest.approx(1)
    assert report.family["prefix:1"].lower < report.family["prefix:2"].lower
    alone = audit(*stores, embedder=HEADS, two_stage=[20]).family["two-stage 20"]
    assert report.family["two-stage 20"].lower <= alone.lower, "bounds hold for all arms at once"
    options = {option.name: option for option in report.options}
    assert options["prefix:2"].usd == report.arm("prefix:2").usd
    assert not report.doubts
    assert options["prefix:2"].is_safe is ("prefix:2" in report.ways_out)


@pytest.mark.parametrize("questions", [QUESTIONS, UNJUDGED], ids=["judged", "unjudged"])
def test_a_pool_takes_it_too(questions, stores):
    full, pooled = (audit(stores[0], by, questions, HEADS, first_tokens=(1, 2)) for by in (stores[1], pool()))
    for words in (1, 2):
        mine, true = (report.arm(f"prefix:{words}").scores[full.measure] for report in (pooled, full))
        assert np.isfinite(mine).all()
        assert mine.tolist() == pytest.approx(true.tolist(), abs=0.02 if questions.qrels is None else 1e-12)
    left = {option.name: option.usd_left for option in pooled.options}
    assert not pooled.is_kept
    assert left["prefix:1"] == pytest.approx(pooled.arm("prefix:1").usd), "no cache keeps what was embedded"


def test_a_plan_embeds_counts_and_prices_it(stores, tmp_path):
    cached = CachedEmbedder(PaidHeads(), tmp_path / "cache.sqlite")
    plan = Audit(*stores, judged=QUESTIONS, target=cached, first_tokens=(2, 1, 2))
    estimate = plan.estimate()
    distinct = {document.text for words in (1, 2) for document in cut(words)}
    assert estimate.models[0].documents == len(distinct) + 32, "and those that prove the reference"
    assert cached.misses == 0
    plan.cap.cap_usd = estimate.usd / 3
    with pytest.raises(SpendingError):
        plan.execute()
    assert 0 < cached.misses < len(distinct)
    plan.cap.cap_usd = 2 * estimate.usd
    report = plan.execute()
    assert [arm.name for arm in report.arms if "prefix" in arm.name] == ["prefix:1", "prefix:2"]
    assert cached.misses == len(distinct) + len(QUERIES) + 32, "nothing is paid for twice"
    again = Audit(*stores, judged=QUESTIONS, target=cached, first_tokens="1,2")
    assert again.estimate().models[0].documents == 0, "but for what proves the model"
    left = {option.name: option.usd_left for option in report.options}
    assert left["prefix:1"] == 0, "the cache keeps it"


def test_a_store_without_texts_is_refused_before_anything_is_embedded(stores, tmp_path):
    bare = make_store(tmp_path / "bare", HEADS, texts=False)
    model = Heads()
    with pytest.raises(StoreError, match="which first_tokens would embed") as error:
        Audit(bare, stores[1], judged=QUESTIONS, target=model, first_tokens=(24,)).run()
    assert "\n" not in str(error.value) and model.asked == []


def test_a_stitch_leads_to_whole_documents(stores):
    with pytest.raises(UsageError, match="moves to whole documents"):
        Fit(stores[0], PrefixEmbedder(HEADS, 2), kind="ridge", sample=50).run()


@pytest.mark.parametrize("words", ["0", "-3", "abc", "", "24,", "1.5", "24,0"])
def test_other_numbers_are_refused_in_a_line(words, stores):
    with pytest.raises(UsageError) as refused:
        audit(*stores, embedder=HEADS, first_tokens=words)
    assert f"first_tokens: {words!r} is not a list of numbers of tokens above 0 such as 24,64" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_number_is_a_number_of_tokens_too(stores):
    assert Audit(*stores, judged=QUESTIONS, target=HEADS, first_tokens=2).prefixes == [2]
    assert read_first_tokens(24) == read_first_tokens("24") == (24,)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_store_of_first_tokens_is_audited_and_is_no_reference(source_folder, beir, own_cache, told, tmp_path):
    for name, model in (("heads", "prefix:6:tfidf:24"), ("full", "tfidf:24")):
        command = ["embed", beir / "corpus.jsonl", "--no-chunks", "--model", model, "-o", tmp_path / name]
        assert told(*command)[0] == 0
    new = tmp_path / "new"
    source, target = open_store(source_folder), load_embedder("tfidf:24", state=tmp_path / "full")
    translate(source, fit(source, target, kind="ridge", sample=60), new)
    heads = open_store(tmp_path / "heads")
    assert heads.info.manifest.model.spec == "prefix:6:tfidf:24"
    code, document, _ = told("audit", heads.folder, "--reference", tmp_path / "full", "--judged", beir, "--json")
    assert code in (0, 1, 3)
    (arm,) = (arm for arm in document["arms"] if arm["name"] == "translated")
    assert 0 < arm["means"]["overlap@10"] < 1
    code, _, said = told("audit", new, "--reference", heads.folder, "--judged", beir)
    assert code == 4 and said.count("\n") == 1 and "'prefix:6:tfidf:24'" in said
    assert told("check", heads.folder, "--model", "prefix:6:tfidf:24", "--full")[0] == 0, "it embeds the same again"


def test_a_server_is_asked_for_the_first_words_and_nothing_twice(
    source_folder, beir, own_cache, told, tmp_path, monkeypatch, but_again, audit_fields
):
    audit_fields(first_tokens="3,6", no_bm25=True)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        fitting = ["fit", source_folder, "--target", SMALL, "--sample", 50, "--kind", "ridge"]
        assert told(*fitting, "-o", tmp_path / "stitch")[0] == 0
        assert told("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new")[0] == 0
        server.billed.clear()
        command = ["audit", tmp_path / "new", "--reference", "build", "--judged", beir, "--json"]
        assert told(*command, "--max-cost", "0.00001")[0] == 2
        assert server.billed == [], "refused before anything is spent"
        code, document, _ = told(*command)
        assert code in (0, 1, 3)
        texts = {one.text for one in open_store(source_folder).documents()}
        firsts = {" ".join(text.split()[:words]) for text in texts for words in (3, 6)}
        paid = but_again(server.billed)
        billed = [" ".join(text.split()) for text in paid if text != "word"]
        assert firsts <= set(billed) and len(paid) == len(set(paid))
        arms = {arm["name"]: arm for arm in document["arms"]}
        assert 0 < arms["prefix:3"]["usd"] < arms["prefix:6"]["usd"] < arms[FULL]["usd"]
        server.billed.clear()
        assert told(*command)[0] in (0, 1, 3)
        embed = ["embed", source_folder / "docs.jsonl", "--model", f"prefix:3:{SMALL}", "--no-chunks"]
        assert told(*embed, "-o", tmp_path / "heads")[0] == 0
        assert [text for text in but_again(server.billed) if text != "word"] == [], "all is in the cache"
