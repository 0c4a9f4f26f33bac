"""What `--report` writes, by the ending of the file, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
from stores_tools import make_store

CHECK = "check a --model file:longer.npz --report"


@pytest.fixture(autouse=True)
def _stores():
    """Two stores in the current folder, and a model in a file that has more dimensions."""
    ids, x = [f"d{row}" for row in range(40)], np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    make_store(Path("a"), ids, x)
    make_store(Path("b"), ids, x + 1)
    longer = np.hstack([x[::-1], x])
    np.savez("longer.npz", doc_ids=ids, docs=longer, query_ids=["q"], queries=longer[:1])


def test_the_ending_says_the_kind(lead_migrate):
    ended = lead_migrate(f"{CHECK} page.html --report x.json --report x.xml --json", code=1)
    assert "other dimension" in Path("page.html").read_text()
    assert json.loads(Path("x.json").read_text()) == ended.document
    assert Path("x.xml").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{CHECK} x.json --report ./x.json", "--report: a file is named twice"),
        ("compare a b --report x.xml", "end it in .json or .html"),
        ("assess a --target tfidf:8 --report x.xml", "end it in .json or .html"),
    ],
)
def test_what_no_report_can_be_written_to_is_refused(line, said, lead_migrate):
    ended = lead_migrate(line, code=2)
    assert said in ended.complaint and ended.err.count("\n") == 1
    assert not Path("x.json").exists()


def test_a_page_that_is_there_is_kept(lead_migrate):
    Path("page.html").write_text("mine")
    assert "page.html" in lead_migrate(f"{CHECK} page.html", code=2).complaint
    assert Path("page.html").read_text() == "mine"
