"""The experiment of `benchmarks/lead.py` on two made sets and three made models, of which one set lacks one."""

import sys

import lead
import numpy as np
import pytest

from migrate.datasets.beir import write_beir
from migrate.vectors import Document, Query

SIZES = {"first": 40, "second": 30}


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "pairs").mkdir()
    for name, size in SIZES.items():
        ids = [f"d{row}" for row in range(size)]
        documents = [Document(doc_id, f"text of {doc_id}") for doc_id in ids]
        write_beir(tmp_path / name, documents, [Query("q", "text")], {"q": {"d0": 1}})
        x = rng.normal(size=(size, 4))
        spaces = {"a": x, "b": x @ rng.normal(size=(4, 3)), **({"c": x[:, :2]} if name == "first" else {})}
        for space, vectors in spaces.items():
            arrays = {"doc_ids": ids, "docs": vectors.astype(np.float32), "query_ids": ["q"]}
            np.savez(tmp_path / "pairs" / f"{name}.{space}.npz", **arrays, queries=vectors[:1].astype(np.float32))
    return tmp_path


@pytest.mark.slow
def test_models_and_sets_become_one_page(data, monkeypatch, capsys):
    page = data / "page.html"
    monkeypatch.setattr(sys, "argv", ["lead.py", str(data), "--html", str(page), "--stitch", "ridge", "ols"])
    assert lead.main() == 0
    text = capsys.readouterr().out
    assert "c is left out of second: " in text
    rows = [line.split() for line in text.splitlines() if line.startswith(("first, ", "second, "))]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("first,", "3", "ridge"), ("first,", "3", "ols"), ("second,", "2", "ridge"), ("second,", "2", "ols")
    ]  # fmt: skip
    assert "2 spaces of the same 70 documents" in text
    assert "2 spaces of the same 70 documents" in page.read_text()
