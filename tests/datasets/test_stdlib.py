from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from migrate.datasets import stdlib as module
from migrate.datasets.beir import load_beir, write_beir
from migrate.datasets.stdlib import stdlib_beir
from migrate.errors import DatasetError, UsageError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo():
    """The whole corpus: parsing the library takes seconds, so it is done once."""
    return stdlib_beir(max_docs=100_000)


def plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def test_there_are_enough_queries_for_a_verdict(demo):
    assert len(demo.queries) >= 1_000
    assert module.MAX_DOCS >= 1_000


def test_ids_are_unique_and_sorted_and_every_query_has_its_document(demo):
    ids = [document.id for document in demo.documents]
    assert ids == sorted(set(ids))
    assert demo.qrels == {f"q:{doc_id}": {doc_id: 1} for doc_id in ids}
    assert [query.id for query in demo.queries] == list(demo.qrels)


def test_a_summary_is_not_in_its_document(demo):
    for query, document in zip(demo.queries, demo.documents, strict=True):
        name, _, body = document.text.partition("\n")
        assert name == document.id
        assert plain(query.text) not in plain(body)


def test_summaries_and_bodies_are_distinct_and_of_sensible_length(demo):
    bodies = [document.text.partition("\n")[2] for document in demo.documents]
    assert len({plain(body) for body in bodies}) == len(bodies)
    assert len({plain(query.text) for query in demo.queries}) == len(demo.queries)
    assert all(80 <= len(body) <= 1_000 for body in bodies)
    assert all(len(query.text.split()) >= 3 for query in demo.queries)


def test_a_well_known_docstring_is_where_it_should_be(demo):
    texts = {document.id: document.text for document in demo.documents}
    summaries = {query.id: query.text for query in demo.queries}
    assert summaries["q:json.decoder.JSONDecoder.raw_decode"].startswith("Decode a JSON document from")
    assert texts["json.decoder.JSONDecoder.raw_decode"].startswith("json.decoder.JSONDecoder.raw_decode\nThis can be")
    assert not any(re.search(r"(^|\.)_(?!_)", name) or name.startswith(("test.", "idlelib.")) for name in texts)


@pytest.fixture
def few_modules(tmp_path, monkeypatch):
    for package in ("json", "logging", "email"):
        shutil.copytree(Path(sysconfig.get_path("stdlib")) / package, tmp_path / package)
    monkeypatch.setattr(module.sysconfig, "get_path", lambda name: str(tmp_path))


@pytest.mark.usefixtures("few_modules")
def test_the_sample_depends_on_nothing_but_its_seed():
    everything = stdlib_beir().documents
    assert len(everything) > 50
    few, same, other = (stdlib_beir(max_docs=50, seed=seed) for seed in (1, 1, 2))
    assert few == same
    assert len(few.documents) == len(other.documents) == 50
    assert few.documents != other.documents
    assert {document.id for document in few.documents} < {document.id for document in everything}


def test_the_demo_goes_through_the_same_loader(demo, tmp_path):
    write_beir(tmp_path / "demo", demo.documents, demo.queries, demo.qrels)
    beir_set = load_beir(tmp_path / "demo")
    assert tuple(beir_set.documents()) == demo.documents
    assert beir_set.queries == demo.queries
    assert beir_set.qrels == demo.qrels


SOURCE = '''
"""Opening words of the module.

The module's body is long enough to be kept as a document of this corpus, about here.
"""
raise SystemExit("never imported")

def twice_a(): """The same summary line.\n\n{body} One."""
def twice_b(): """the same  summary line.\n\n{body} Two."""
def copied_a(): """First of two copies.\n\n{body}"""
def copied_b(): """Second of two copies.\n\n{body}"""
def brief(): """Too short a body.\n\nShort."""
def wordy(): """Two words\n\n{body} Three."""
def repeats(): """Says it all again.\n\n{body} Says it\nall again."""
def signature(): """signature(a, b) -> a list of things\n\n{body} Four."""
def _hidden(): """Hidden from the public.\n\n{body} Five."""
class Thing:
    """A thing that\n    spans two lines.\n\n{body} Six."""
    def __init__(self): """Make a new thing.\n\n{body} Seven."""
    @property
    def size(self):
        """How large it is.\n\n{body} Eight."""
        def inner(): """Inside of a function.\n\n{body} Nine."""
'''


def test_only_public_distinct_and_answerable_docstrings_are_taken(tmp_path, monkeypatch):
    body = "A body that goes on for long enough to count, with nothing of the summary in it at all."
    source = SOURCE.replace("\\n", "\n").replace("{body}", body)
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "tests").mkdir()
    (tmp_path / "json" / "__init__.py").write_text(source)
    (tmp_path / "json" / "tests" / "x.py").write_text(source.replace("summary", "other").replace("body", "other"))
    (tmp_path / "foreign.py").write_text('"""Not of the library.\n\n' + body + '"""')
    monkeypatch.setattr(module.sysconfig, "get_path", lambda name: str(tmp_path))
    demo = stdlib_beir()
    assert {query.id: query.text for query in demo.queries} == {
        "q:json": "Opening words of the module.",
        "q:json.Thing": "A thing that spans two lines.",
        "q:json.Thing.__init__": "Make a new thing.",
        "q:json.Thing.size": "How large it is.",
    }


def test_an_installation_without_sources_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(DatasetError, match="the sources of Python's standard library are not there"):
        stdlib_beir()


def test_a_demo_without_documents_is_refused():
    with pytest.raises(UsageError, match="max_docs: 0 is too few"):
        stdlib_beir(max_docs=0)


def test_no_heavy_library_is_imported_with_the_package():
    code = (
        "import sys, migrate.datasets.beir, migrate.datasets.download, migrate.datasets.chunking, "
        "migrate.datasets.records, migrate.datasets.stdlib;"
        "print(sorted({'torch', 'faiss', 'sklearn', 'transformers', 'openai', 'click', 'langchain_core', "
        "'langchain_text_splitters', 'turtle', 'tkinter'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
