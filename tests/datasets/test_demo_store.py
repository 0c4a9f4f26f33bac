"""How the corpus of the demo is made: `benchmarks/demo_store.py`."""

from __future__ import annotations

import demo_store
import pytest

from migrate.datasets import stdlib
from migrate.datasets.stdlib import Docstring, stdlib_beir

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


@pytest.fixture
def library(tmp_path):
    body = "A body that goes on for long enough to count, with nothing of the summary in it at all."
    source = SOURCE.replace("\\n", "\n").replace("{body}", body)
    folder = tmp_path / "library"
    (folder / "json" / "tests").mkdir(parents=True)
    (folder / "json" / "__init__.py").write_text(source)
    (folder / "json" / "tests" / "x.py").write_text(source.replace("summary", "other").replace("body", "other"))
    (folder / "foreign.py").write_text('"""Not of the library.\n\n' + body + '"""')
    return folder


def test_only_public_distinct_and_answerable_docstrings_are_taken(library):
    assert {docstring.name: docstring.summary for docstring in demo_store.docstrings(library)} == {
        "json": "Opening words of the module.",
        "json.Thing": "A thing that spans two lines.",
        "json.Thing.__init__": "Make a new thing.",
        "json.Thing.size": "How large it is.",
    }


def test_what_is_written_is_what_the_package_reads(tmp_path, monkeypatch):
    strange = "it's \u2028 one\x85line, \N{GREEK SMALL LETTER ALPHA}"
    written = [Docstring("a", "First of all.", f"Line.\n\n{strange}"), Docstring("b", strange, "Body.")]
    demo_store.write_texts(tmp_path / stdlib.TEXTS, written)
    monkeypatch.setattr(stdlib, "FOLDER", tmp_path)
    read = stdlib_beir()
    assert [document.text for document in read.documents] == [f"a\nLine.\n\n{strange}", "b\nBody."]
    assert [query.text for query in read.queries] == ["First of all.", strange]
