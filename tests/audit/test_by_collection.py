"""The verdict on each collection of a store that is several."""

import json

import faiss
import numpy as np
import pytest

import migrate
from migrate.audit.by_collection import collections_sentence
from migrate.audit.query_set import QuerySet
from migrate.audit.results import TRANSLATED
from migrate.embedders.base import Embedder
from migrate.manifest import Manifest, ModelIdentity
from migrate.report.audit_sections import audit_sections
from migrate.report.document import audit_document
from migrate.report.page import report_page
from migrate.report.summary import audit_summary
from migrate.report.terminal import report_text
from migrate.vectors import Query

DIM, ASKED = 24, "where does it say: "


class Hashed(Embedder):
    """A random vector for each text, and one near it for the question that asks for it."""

    identity = ModelIdentity("hashed", DIM, True)

    def embed(self, texts, role, *, progress=None):
        return np.stack([self._one(text.text) for text in texts])

    def _one(self, text):
        if not text.startswith(ASKED):
            return vector_of(text)
        name, row = text.removeprefix(ASKED).split()
        return vector_of(f"text {int(row[1:], 16)} of {name}") + 0.4 * vector_of(text)


def vector_of(text):
    vector = np.random.default_rng(list(text.encode())).normal(size=DIM)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def write(folder, name, count, *, is_harmed=False):
    """Write a collection, of which all queries find their own document, or none does."""
    texts = [f"text {row} of {name}" for row in range(count)]
    vectors = np.stack([vector_of(f"{text}, lost" if is_harmed else text) for text in texts])
    (folder / name).mkdir(parents=True)
    index = faiss.IndexFlatIP(DIM)
    index.add(vectors)
    faiss.write_index(index, str(folder / name / "index.faiss"))
    lines = [json.dumps({"id": str(row), "text": text}) for row, text in enumerate(texts)]
    (folder / name / "docs.jsonl").write_text("\n".join(lines) + "\n")


def audited(folder, queries, **options):
    """Audit all collections by so many queries of each, which ask for the text of a document."""
    asked = [(name, row) for name, count in queries.items() for row in range(count)]
    judges = [Query(f"q-{name}-{row}", f"{ASKED}{name} x{row:x}") for name, row in asked]
    # What is relevant besides is found by nobody
    qrels = {f"q-{name}-{row}": {f"{name}#{row}": 2, f"{name}#{(row + 3) % 30}": 1} for name, row in asked}
    if not options.pop("judged", True):
        qrels = None
    Manifest("store", Hashed.identity, details={"index": "*"}).write(folder)  # of all together
    query_set = QuerySet(judges, qrels, "asked")
    return migrate.audit(f"{folder}/*", target=Hashed(), judged=query_set, two_stage="none", **options)


@pytest.fixture(scope="module")
def harmed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harmed")
    write(folder, "handbook", 400)
    write(folder, "minutes", 120, is_harmed=True)
    write(folder, "notes", 40)
    return audited(folder, {"handbook": 400, "minutes": 25, "notes": 5})


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    write(folder, "handbook", 200)
    write(folder, "minutes", 120)
    write(folder, "notes", 40)
    return audited(folder, {"handbook": 150, "minutes": 115, "notes": 30})


def rows_of(report):
    return [(it.name, it.documents, it.verdict.n_queries, it.verdict.outcome) for it in report.collections[TRANSLATED]]


def test_harm_in_one_collection_is_harm_on_the_whole(harmed):
    assert rows_of(harmed) == [
        ("minutes", 120, 25, "NOT SAFE"),
        ("handbook", 400, 400, "SAFE"),
        ("notes", 40, 5, "INCONCLUSIVE"),
    ]
    assert (harmed.outcome, harmed.verdict.outcome) == ("NOT SAFE", "NOT SAFE")
    assert harmed.verdict.retention.lower > 0.9  # by the queries of all it is not
    assert "on the whole, but NOT SAFE in minutes: retention " in harmed.sentence
    assert harmed.ways_out == ()


def test_all_collections_that_are_sound_make_a_sound_whole(sound):
    assert sorted(rows_of(sound)) == [
        ("handbook", 200, 150, "SAFE"),
        ("minutes", 120, 115, "SAFE"),
        ("notes", 40, 30, "INCONCLUSIVE"),  # of 40 documents the first ten are hardly a selection
    ]
    assert (sound.outcome, sound.verdict.harm) == ("SAFE", None)


def test_bounds_hold_for_all_collections_at_once(sound):
    assert [it.verdict.confidence for it in sound.collections[TRANSLATED]] == pytest.approx([1 - 0.05 / 3] * 3)


def test_reports_name_the_worst_and_list_all(harmed):
    said = collections_sentence(harmed.collections[TRANSLATED])
    assert said.startswith("3 collections: 1 SAFE, 1 NOT SAFE, 1 with fewer than 20 queries, INCONCLUSIVE by")
    assert "; the worst is minutes, NOT SAFE: retention " in said
    assert "3 collections: 1 SAFE, 1 NOT SAFE" in " ".join(audit_summary(harmed).split())
    document = audit_document(harmed)
    listed = {it["name"]: (it["outcome"], it["documents"]) for it in document["collections"]}
    assert listed == {"minutes": ("NOT SAFE", 120), "handbook": ("SAFE", 400), "notes": ("INCONCLUSIVE", 40)}
    assert (document["verdict"]["outcome"], document["plan"]["outcome"]) == ("NOT SAFE", "NOT SAFE")
    sections = audit_sections(harmed)
    for shown in (report_page(sections), report_text(sections)):
        assert all(name in shown for name in ("minutes", "handbook", "notes"))


def test_queries_that_nobody_judged_count_for_the_collection_that_they_find(tmp_path):
    write(tmp_path, "handbook", 200)
    write(tmp_path, "minutes", 120, is_harmed=True)
    report = audited(tmp_path, {"handbook": 120, "minutes": 40}, judged=False)
    assert [row[:3] for row in rows_of(report)] == [("minutes", 120, 40), ("handbook", 200, 120)]
    assert report.outcome == "NOT SAFE"


def test_a_store_that_is_one_has_no_collections(tmp_path):
    write(tmp_path, "one", 120)
    query_set = QuerySet([Query(f"q{row}", f"{ASKED}one x{row:x}") for row in range(30)],
                         {f"q{row}": {str(row): 1} for row in range(30)}, "asked")  # fmt: skip
    report = migrate.audit(tmp_path / "one", target=Hashed(), judged=query_set)
    assert report.collections == {} and "collections" not in audit_document(report)
