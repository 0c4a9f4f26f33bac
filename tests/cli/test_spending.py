"""What the spending commands say and meter, against a server that counts every text."""

import json
import re
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from openai_server import status, vector_of

from migrate.selection.model_match import ASKED_AGAIN
from migrate.stores import open_store

pytestmark = pytest.mark.slow

JUDGED = (0, 1, 3)
SMALL = "openai:text-embedding-3-small"
SHORT = f"{SMALL},dimensions=24"
FIT = f"fit store --target {SHORT} --sample 50 --kind ridge"
TEXTS = "fit store --sample 50 --kind ridge+text -o stitch"
COSTLY = "--max-cost 0.00001"
Said = namedtuple("Said", "model documents queries tokens")
SAID = re.compile(r"^to embed(?: by ([^\n]*?))?: ([\d,]+) documents,(?: ([\d,]+) queries,)? (?:about )?([\d,]+) tokens",
                  re.MULTILINE)  # fmt: skip


@pytest.fixture(autouse=True)
def _place(store, judged, corpus):
    """A store, judged queries, and a log of ten queries, none of them among those that judge."""
    asked = (f"asked {number}: {corpus.queries[number].text.split()[0]}" for number in range(10))
    Path("log.txt").write_text("\n".join(asked))


def said(ended):
    """What is told before the start, a line each."""
    found = SAID.findall(ended.err)
    return [Said(model, *(int(number.replace(",", "") or 0) for number in numbers)) for model, *numbers in found]


def documents_of(name="store"):
    return list(open_store(name).documents())


def distinct():
    return len({document.text for document in documents_of()})


def n_queries():
    return len(Path("judged/queries.jsonl").read_text().splitlines())


def without_words(texts):
    """The texts but for the one that a model is asked for to know its dimension."""
    return [text for text in texts if text != "word"]


def test_a_run_without_a_cache_counts_the_sample_and_the_full_re_embed(server, but_again, lead_migrate):
    run = f"run store --reference pool --target {SHORT} --judged judged --sample 50 --kind ridge --cache none -o out"
    (line,) = said(lead_migrate(run, code=JUDGED))
    assert line.documents + line.queries == len(but_again(server.billed))
    assert (line.documents, line.queries) == (distinct(), n_queries())
    assert not Path("cache").exists()


@pytest.mark.parametrize("cache", ["", "--cache none"])
def test_an_audit_asks_for_nothing_twice(cache, server, but_again, lead_migrate):
    """But to prove the model."""
    lead_migrate(f"{TEXTS} --target {SHORT} --view openai:tiny")
    lead_migrate("translate store stitch -o new")
    Path("cache/lead-migrate/embeddings.sqlite").unlink()
    but_again(server.billed)
    server.billed.clear()
    audit = f"audit new --reference build --judged judged --source store {cache}"
    (target,) = said(lead_migrate(audit, code=JUDGED))
    assert target[1:3] == (distinct(), n_queries())
    asked_for = target.documents + target.queries
    assert len(without_words(but_again(server.billed))) == asked_for


@pytest.fixture
def echoed():
    """Judged queries, each of them a document of the store; and the same texts in a file."""
    texts = {document.id: document.text for document in documents_of()}
    folder = Path("echoed")
    (folder / "qrels").mkdir(parents=True)
    rows = [json.dumps({"_id": doc_id, "text": text}) + "\n" for doc_id, text in texts.items()]
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder / name).write_text("".join(rows))
    judgements = "".join(f"{doc_id}\t{doc_id}\t1\n" for doc_id in texts)
    (folder / "qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")
    return folder


def ask(path, echoed, change):
    """Write queries that nobody has judged: the texts of the documents, each changed."""
    rows = [json.loads(line)["text"] for line in (echoed / "queries.jsonl").read_text().splitlines()]
    Path(path).write_text("\n".join(sorted({" ".join(change(text).split()) for text in rows})))


RUN = f"run store --target {SHORT} --sample 50 --kind ridge -o out"


@pytest.mark.parametrize("queries", ["--judged echoed", "--queries asked.txt"])
def test_queries_that_are_documents_end_it_before_the_first_request(queries, echoed, server, lead_migrate):
    lead_migrate(f"{FIT} -o stitch")
    lead_migrate("translate store stitch -o new")
    server.requests.clear()
    ask("asked.txt", echoed, lambda text: f"{text} !")
    for command in (
        f"{RUN} --reference pool",
        f"{RUN} --reference build",
        "audit new --reference pool",
        "audit new --reference build",
        f"audit new --reference pool --target {SHORT} --dry-run",
    ):
        ended = lead_migrate(f"{command} {queries}", code=3)
        assert "INCONCLUSIVE: " in ended.err and "a stored document" in ended.err, command
        assert server.requests == [], command
        shutil.rmtree("out", ignore_errors=True)


@pytest.mark.parametrize("command", [f"{RUN.replace('50', '145')} --reference build", "audit new --reference build"])
def test_queries_that_are_documents_by_their_vectors_alone_end_it_before_all_texts_are_embedded(
    command, echoed, server, but_again, lead_migrate
):
    """Their words are joined, so that no document has any of them."""

    def words(text):
        return re.findall("[a-z0-9]+", text.lower())

    # what words have in common shows in the vectors of their texts, so that a stitch finds them
    server.vectors = lambda texts: np.stack([sum(vector_of(word, 24) for word in words(text)) for text in texts])
    lead_migrate(f"fit store --target {SHORT} --sample 145 --kind ridge -o stitch")
    lead_migrate("translate store stitch -o new")
    but_again(server.billed)
    server.billed.clear()
    ask("asked.txt", echoed, lambda text: "_".join(words(text)))
    asked = Path("asked.txt").read_text().splitlines()
    ended = lead_migrate(f"{command} --queries asked.txt", code=3)
    assert "are a stored document, whole or nearly" in ended.err
    assert set(without_words(but_again(server.billed))) == set(asked)


def test_a_view_is_told_of_again_where_it_reads_a_whole_store(server, but_again, lead_migrate):
    # the server's models agree, so that the stitch does use the view
    lead_migrate(f"{TEXTS} --target openai:text-embedding-ada-002 --view {SMALL}")
    assert len(without_words(but_again(server.billed))) == 2 * 50
    server.billed.clear()
    translate = "translate store stitch -o new"
    for options, code in ((COSTLY, 2), ("", 0)):
        (line,) = said(lead_migrate(f"{translate} {options}", code=code))
        assert line[:2] == (f"{SMALL} (view)", distinct() - 50)
    assert len(without_words(server.billed)) == distinct() - 50, "each text once"


def test_a_run_that_fails_says_what_was_spent(server, lead_migrate):
    server.gate = lambda count: status(401, "no more", "invalid_api_key") if count == 4 else None
    command = f"embed judged --model {SHORT},batch-size=20,concurrency=1 --no-chunks -o out"
    told = lead_migrate(command, code=7).err
    spent = server.billed_tokens
    assert spent and f"embedded until it broke off: {spent:,} tokens, " in told
    assert "(estimate: " in told and "; what could be used is in the cache" in told
    assert told.index("until it broke off") < told.index("lead-migrate: "), "the error is the last word"
    server.gate = None
    told = lead_migrate(command).err
    assert f"embedded: {server.billed_tokens - spent:,} tokens, " in told


@pytest.mark.parametrize(
    ("command", "sample"),
    [
        ("embed judged --no-chunks --model", 0),
        ("run store --judged judged --sample 50 --kind ridge --reference build --target", 50),
    ],
    ids=["embed", "run"],
)
def test_finished_parts_are_not_counted_again_without_a_cache(
    command, sample, server, monkeypatch, but_again, lead_migrate
):
    """Parts are of 64 documents here; the run breaks off when it asks for the second."""
    monkeypatch.setattr("migrate.embed.corpus.BATCH_DOCUMENTS", 64)
    count = open_store("store").info.count
    command = f"{command} {SHORT},batch-size=64 --cache none -o out"

    def refuse(_count):
        if sum(len(request.inputs) > ASKED_AGAIN for request in server.requests) > 1 + (sample > 0):
            server.faults.append(status(401, "no more", "invalid_api_key"))

    server.gate = refuse
    (line,) = said(lead_migrate(command, code=7))
    billed = but_again(server.billed)
    assert line.documents == count and 64 <= len(billed) <= sample + 64, "a part and the sample, which may overlap"
    server.gate = None
    server.faults.clear()
    server.billed.clear()
    ended = lead_migrate(command, code=(*JUDGED, 4))  # the audit may ask another model than that of the source store
    assert [line.documents for line in said(ended)] == [count - 64]
    assert len(server.billed) >= count - 64


def test_a_pool_is_metered_announced_and_paid_for_once(all_queries, server, but_again, lead_migrate):
    lead_migrate(f"{FIT} -o stitch")
    lead_migrate("translate store stitch -o new")
    but_again(server.billed)
    server.billed.clear()
    audit = f"audit new --reference pool --judged {all_queries} --source store"
    told = lead_migrate(f"{audit} {COSTLY}", code=2).complaint
    assert "raise --max-cost, or agree with --yes" in told and server.billed == []
    told = lead_migrate(f"{audit} --report report.json", code=JUDGED).err
    assert "to embed: " in told and "pool, the first 20 documents for 150 queries" in told
    paid = without_words(but_again(server.billed))
    assert len(paid) == len(set(paid))
    pool = json.loads(Path("report.json").read_text())["pool"]
    assert pool["documents"] == pool["count"] == 150 and pool["usd"] == pool["full_usd"] > 0
    server.billed.clear()
    lead_migrate(audit, code=JUDGED)
    assert without_words(but_again(server.billed)) == [], "all is in the cache"


@pytest.mark.parametrize(
    ("views", "told"),
    [
        (f"--view {SHORT}", "a stitch loads a further model as it is by itself; leave out dimensions"),
        (f"--view none --view {SMALL}", "--view none goes alone; leave it or the others out"),
    ],
)
def test_a_view_is_the_model_as_it_is_and_none_stands_alone(views, told, lead_migrate):
    assert told in lead_migrate(f"fit store --target tfidf:24 --sample 50 {views} -o stitch", code=2).complaint
    assert not Path("stitch").exists()


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (f"{RUN} --judged judged --report out/report.json", 2, "the run leaves that by itself"),
        (f"{RUN} --reference pool --judged judged --plan bridge", 2, "(bridge needs a stitch for queries"),
        (f"{FIT} -o /proc/nope", 5, "cannot write /proc/nope"),
        (f"reembed store --target {SHORT} -o judged/queries.jsonl/new", 5, "is not a folder"),
        (f"{RUN} --reference pool --judged strange", 4, "none of the judged documents is in the stores"),
    ],
)
def test_what_needs_no_paid_text_is_refused_before_the_first(command, code, told, server, lead_migrate):
    Path("strange/qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        Path("strange", name).write_text(Path("judged", name).read_text())
    ids = [json.loads(line)["_id"] for line in Path("judged/queries.jsonl").read_text().splitlines()]
    rows = "".join(f"{query}\tnowhere\t1\n" for query in ids)
    Path("strange/qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    assert told in lead_migrate(command, code=code).complaint
    assert server.requests == []
