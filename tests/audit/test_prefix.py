"""The arm of documents by their first tokens: its ranking, its cost, where it counts, and what it needs."""

import json

import numpy as np
import pytest
from openai_server import OpenAIServer
from topics import DOCUMENTS, QUERIES, QUESTIONS, Topics, audit, make_store, noisy, pool

from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, TRANSLATED
from migrate.audit.step import Audit
from migrate.cli.main import run
from migrate.cost.count import count_texts
from migrate.embedders import load_embedder
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.prefix import PrefixEmbedder, first_of
from migrate.errors import SpendingError, StoreError, UsageError
from migrate.report.audit_sections import audit_sections
from migrate.report.document import audit_document
from migrate.report.terminal import report_text
from migrate.steps.fit import Fit
from migrate.stores import open_store

pytestmark = pytest.mark.slow

SMALL = "openai:text-embedding-3-small"


class Heads(Topics):
    """As `Topics`; what is left of a document after one word is its topic, blurred as all others of that topic."""

    @property
    def profile(self):
        return super().profile.at_price(10.0)

    def _one(self, text, role):
        words = text.split()
        return super()._one(text if len(words) > 1 else f"{text} n0", role)


HEADS = Heads()


def cut(words):
    return list(first_of(DOCUMENTS, HEADS.profile.counter, words))


@pytest.fixture
def stores(tmp_path):
    translated = make_store(tmp_path / "translated", HEADS, vectors=noisy(1.0))
    return translated, make_store(tmp_path / "reference", HEADS)


def test_it_ranks_by_the_vectors_of_the_first_tokens(stores):
    report = audit(*stores, embedder=HEADS, prefix=(1, 2))
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


def test_it_changes_no_verdict_and_costs_what_was_embedded(stores):
    report, without = audit(*stores, embedder=HEADS, prefix=(1, 2)), audit(*stores, embedder=HEADS)
    assert report.verdict == without.verdict
    assert "prefix" in without.skipped_arms and "prefix" not in report.skipped_arms
    for words in (1, 2):
        tokens = count_texts(cut(words), HEADS.profile, once=True).tokens_read
        assert report.arm(f"prefix:{words}").tokens == tokens
        assert report.arm(f"prefix:{words}").usd == pytest.approx(tokens * 1e-5)
    named = {arm["name"]: arm for arm in audit_document(report)["arms"]}
    assert named["prefix:1"]["tokens"] < named["prefix:2"]["tokens"] < named[FULL]["tokens"]
    assert "prefix:2" in report_text(audit_sections(report))


def test_it_is_one_of_the_arms_that_could_serve(stores):
    report = audit(*stores, embedder=HEADS, prefix=(1, 2), two_stage=[20])
    assert set(report.family) == {"prefix:1", "prefix:2", "two-stage 20"}
    assert report.family["prefix:2"].estimate == pytest.approx(1)
    assert report.family["prefix:1"].lower < report.family["prefix:2"].lower
    alone = audit(*stores, embedder=HEADS, two_stage=[20]).family["two-stage 20"]
    assert report.family["two-stage 20"].lower <= alone.lower, "bounds hold for all arms at once"
    options = {option.name: option for option in report.options}
    assert options["prefix:2"].usd == report.arm("prefix:2").usd
    assert not report.doubts
    assert options["prefix:2"].is_safe is ("prefix:2" in report.ways_out)


@pytest.mark.parametrize("questions", [QUESTIONS, QuerySet(QUERIES, None, "unjudged")], ids=["judged", "unjudged"])
def test_a_pool_takes_it_too(questions, stores):
    translated, reference = stores
    full = audit(translated, reference, questions, HEADS, prefix=(1, 2))
    pooled = audit(translated, pool(), questions, HEADS, prefix=(1, 2))
    measure = full.measure
    for words in (1, 2):
        mine, true = (report.arm(f"prefix:{words}").scores[measure] for report in (pooled, full))
        assert np.isfinite(mine).all()
        assert mine.tolist() == pytest.approx(true.tolist(), abs=0.02 if questions.qrels is None else 1e-12)


def at_most(plan, usd):
    plan.cap.cap_usd = usd
    return plan


def test_a_plan_embeds_counts_and_prices_it(stores, tmp_path):
    translated, reference = stores
    cached = CachedEmbedder(Counting(), tmp_path / "cache.sqlite")
    plan = Audit(translated, reference, beir=QUESTIONS, target=cached, prefix=(2, 1, 2))
    estimate = plan.estimate()
    distinct = {document.text for words in (1, 2) for document in cut(words)}
    assert estimate.models[0].documents == len(distinct) + 32, "and those that prove the reference"
    assert cached.misses == 0
    with pytest.raises(SpendingError):
        at_most(plan, estimate.usd / 3).execute()
    assert 0 < cached.misses < len(distinct)
    report = at_most(plan, 2 * estimate.usd).execute()
    assert [arm.name for arm in report.arms if "prefix" in arm.name] == ["prefix:1", "prefix:2"]
    assert cached.misses == len(distinct) + len(QUERIES) + 32, "nothing is paid for twice"
    again = Audit(translated, reference, beir=QUESTIONS, target=cached, prefix="1,2")
    assert again.estimate().models[0].documents == 0, "but for what proves the model"
    left = {option.name: option.usd_left for option in report.options}
    assert left["prefix:1"] == 0, "the cache keeps it"


class Counting(Heads):
    """Costs money."""

    batch_size = 16

    @property
    def profile(self):
        from dataclasses import replace

        return replace(super().profile, is_paid=True)


def test_what_no_cache_keeps_is_still_to_be_paid(stores):
    report = audit(stores[0], pool(), embedder=HEADS, prefix=(1, 2))
    left = {option.name: option.usd_left for option in report.options}
    assert not report.is_kept
    assert left["prefix:1"] == pytest.approx(report.arm("prefix:1").usd)


def test_a_store_without_texts_is_refused_before_anything_is_embedded(stores, tmp_path):
    bare = make_store(tmp_path / "bare", HEADS, texts=False)
    model = Heads()
    with pytest.raises(StoreError, match="whose first tokens `prefix` embeds") as error:
        Audit(bare, stores[1], beir=QUESTIONS, target=model, prefix=(24,)).run()
    assert "\n" not in str(error.value) and model.asked == []


def test_a_stitch_leads_to_whole_documents(stores):
    with pytest.raises(UsageError, match="moves to whole documents"):
        Fit(stores[0], PrefixEmbedder(HEADS, 2), stitch="ridge", sample=50).run()


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def moved(beir, source_folder, own_cache, tmp_path):
    """A store that was translated for `full`, of tfidf:24."""
    base = ["embed", beir / "corpus.jsonl", "--no-chunks", "-q", "--model", "tfidf:24"]
    assert lead_migrate(*base, "-o", tmp_path / "full") == 0
    fit = ["fit", source_folder, "--target", "tfidf:24", "--stitch", "ridge", "--sample", "60", "-q"]
    assert lead_migrate(*fit, "-o", tmp_path / "stitch") == 0
    assert lead_migrate("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new", "-q") == 0
    return tmp_path


def complaint(capsys, code):
    err = capsys.readouterr().err
    lines = [line for line in err.strip().split("\n") if line]
    return code, lines


@pytest.mark.parametrize("words", ["0", "-3", "abc", "", "24,", "1.5", "24,0"])
def test_other_numbers_are_refused_in_a_line(words, moved, beir, audit_fields, capsys):
    audit_fields(prefix=words)
    capsys.readouterr()
    command = ["audit", moved / "new", "--reference", moved / "full", "--beir", beir, "-q"]
    code, lines = complaint(capsys, lead_migrate(*command))
    assert code == 2 and len(lines) == 1, lines
    assert f"prefix: {words!r} are no numbers of tokens above 0 such as 24,64" in lines[0]


def test_vectors_of_whole_documents_and_stores_without_texts_are_refused_in_a_line(
    source_folder, bare_folder, target_file, beir, own_cache, tmp_path, capsys, audit_fields
):
    audit_fields(prefix="24")
    for folder, code, message in (
        (source_folder, 2, "has vectors of whole documents, none of their first 24 tokens; name the model itself"),
        (bare_folder, 4, "has no texts, whose first tokens `prefix` embeds; put a docs.jsonl"),
    ):
        out = tmp_path / folder.name
        fit = ["fit", folder, "--target", f"file:{target_file}", "--stitch", "ridge", "--sample", "60", "-q"]
        assert lead_migrate(*fit, "-o", out / "stitch") == 0
        assert lead_migrate("translate", folder, out / "stitch", "-o", out / "new", "-q") == 0
        capsys.readouterr()
        command = ["audit", out / "new", "--reference", "build", "--target", f"file:{target_file}", "--beir", beir]
        found, lines = complaint(capsys, lead_migrate(*command, "-q"))
        assert found == code and len(lines) == 1 and message in lines[0], lines


def test_an_audit_with_tfidf_has_the_arms(moved, beir, audit_fields, capsys):
    audit_fields(prefix="4,1000")
    command = ["audit", moved / "new", "--reference", moved / "full", "--beir", beir, "-q"]
    assert lead_migrate(*command, "--report", moved / "report.json", "--report", moved / "page.html") in (0, 1, 3)
    document = json.loads((moved / "report.json").read_text())
    arms = {arm["name"]: arm for arm in document["arms"]}
    assert arms["prefix:1000"]["against"]["retention"]["estimate"] == pytest.approx(1), "no text is longer"
    assert arms["prefix:4"]["tokens"] < arms[FULL]["tokens"]
    assert "prefix:4" in (moved / "page.html").read_text()
    assert {"prefix:4", "prefix:1000"} <= set(document["family"])
    options = {option["name"]: option for option in document["options"]}
    assert options["prefix:4"]["tokens"] == arms["prefix:4"]["tokens"]


def test_a_store_of_first_tokens_is_audited_and_is_no_reference(moved, beir, capsys):
    base = ["embed", beir / "corpus.jsonl", "--no-chunks", "-q", "--model", "prefix:6:tfidf:24"]
    assert lead_migrate(*base, "-o", moved / "heads") == 0
    heads, full = open_store(moved / "heads"), open_store(moved / "full")
    assert heads.info.manifest.model.spec == "prefix:6:tfidf:24"
    command = ["audit", moved / "heads", "--reference", moved / "full", "--beir", beir, "-q"]
    assert lead_migrate(*command, "--report", moved / "report.json") in (0, 1, 3)
    document = json.loads((moved / "report.json").read_text())
    (arm,) = (arm for arm in document["arms"] if arm["name"] == TRANSLATED)
    assert 0 < arm["means"]["overlap@10"] < 1
    capsys.readouterr()
    command = ["audit", moved / "new", "--reference", moved / "heads", "--beir", beir, "-q"]
    code, lines = complaint(capsys, lead_migrate(*command))
    assert code == 4 and len(lines) == 1 and "'prefix:6:tfidf:24'" in lines[0]
    assert full.info.count == heads.info.count
    assert lead_migrate("check", moved / "heads", "--model", "prefix:6:tfidf:24", "--full", "-q") == 0, (
        "its own model embeds the same again"
    )


def test_a_server_is_asked_for_the_first_words_and_nothing_twice(
    source_folder, beir, own_cache, tmp_path, monkeypatch, capsys, but_again, audit_fields
):
    audit_fields(prefix="3,6", no_bm25=True)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        fit = ["fit", source_folder, "--target", f"{SMALL},dimensions=24", "--sample", 50, "--stitch", "ridge", "-q"]
        assert lead_migrate(*fit, "-o", tmp_path / "stitch") == 0
        assert lead_migrate("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new", "-q") == 0
        server.billed.clear()
        command = ["audit", tmp_path / "new", "--reference", "build", "--beir", beir]
        assert lead_migrate(*command, "--max-cost", "0.00001") == 2
        assert server.billed == [], "refused before anything is spent"
        assert lead_migrate(*command, "--report", tmp_path / "report.json") in (0, 1, 3)
        texts = {document.text for document in open_store(source_folder).documents()}
        firsts = {" ".join(text.split()[:words]) for text in texts for words in (3, 6)}
        paid = but_again(server.billed)
        billed = [" ".join(text.split()) for text in paid if text != "word"]
        assert firsts <= set(billed) and len(paid) == len(set(paid))
        arms = {arm["name"]: arm for arm in json.loads((tmp_path / "report.json").read_text())["arms"]}
        assert 0 < arms["prefix:3"]["usd"] < arms["prefix:6"]["usd"] < arms[FULL]["usd"]
        server.billed.clear()
        assert lead_migrate(*command) in (0, 1, 3)
        embed = ["embed", source_folder / "docs.jsonl", "--model", f"prefix:3:{SMALL},dimensions=24", "--no-chunks"]
        assert lead_migrate(*embed, "-o", tmp_path / "heads") == 0
        assert [text for text in but_again(server.billed) if text != "word"] == [], "all is in the cache"


def test_a_real_model_counts_its_tokens(short_beir, short_folder, own_cache, audit_fields, tmp_path):
    audit_fields(prefix="8")
    spec = "packaged:all-MiniLM-L6-v2"
    model = load_embedder(spec, device="cpu")
    documents = list(open_store(short_folder).documents())
    assert (
        lead_migrate(
            "embed", short_beir / "corpus.jsonl", "--no-chunks", "-q", "--model", spec, "-o", tmp_path / "full"
        )
        == 0
    )
    fit = ["fit", short_folder, "--target", spec, "--stitch", "ridge", "--sample", "60", "-q"]
    assert lead_migrate(*fit, "-o", tmp_path / "stitch") == 0
    assert lead_migrate("translate", short_folder, tmp_path / "stitch", "-o", tmp_path / "new", "-q") == 0
    command = ["audit", tmp_path / "new", "--reference", tmp_path / "full", "--beir", short_beir, "-q"]
    assert lead_migrate(*command, "--report", tmp_path / "report.json") in (0, 1, 3)
    arms = {arm["name"]: arm for arm in json.loads((tmp_path / "report.json").read_text())["arms"]}
    counter = model.profile.counter
    left = {document.text for document in first_of(documents, counter, 8)}
    assert arms["prefix:8"]["tokens"] == int(counter.count(sorted(left)).sum())
    assert arms["prefix:8"]["tokens"] <= (8 + counter.special) * len(left)
    assert 0 < arms["prefix:8"]["against"]["retention"]["estimate"] < 1
