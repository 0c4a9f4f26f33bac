"""Documents of a docs.jsonl are read in blocks where they are asked for one after another, and not for vectors."""

import json

import numpy as np
import pytest
from stores_tools import make_store

from migrate.errors import LeadMigrateError
from migrate.stores import open_store
from migrate.stores.documents.jsonl import DOCS_NAME

SIZES = [3, 70_000, 0, 65_536, 9, 200_000, *[40_000] * 5, 1]
IDS = [f"d{row}" for row in range(len(SIZES))]
TEXTS = [letter * size for letter, size in zip("abcdefghijkl", SIZES, strict=True)]


@pytest.fixture(params=["\n", "\r\n", "\n\n \n"], ids=["LF", "CRLF", "blank lines"])
def store(request, tmp_path):
    vectors = np.eye(len(IDS), dtype=np.float32)
    make_store(tmp_path / "store", IDS, vectors)
    lines = [json.dumps({"id": doc_id, "text": text}) for doc_id, text in zip(IDS, TEXTS, strict=True)]
    (tmp_path / "store" / DOCS_NAME).write_bytes(request.param.join(lines).encode())
    return open_store(tmp_path / "store")


ORDERS = {"on": range(12), "back": range(11, -1, -1), "again": [0, 0, 1, 1, 0], "jumps": [5, 6, 7, 1, 2, 11, 3]}


@pytest.mark.parametrize("rows", ORDERS.values(), ids=ORDERS)
def test_each_document_is_its_own_in_any_order(rows, store):
    found = [(document.id, document.text) for document in store.documents(np.array(rows))]
    assert found == [(IDS[row], TEXTS[row]) for row in rows]


def test_vectors_are_read_without_the_documents(store):
    (store.folder / DOCS_NAME).unlink()
    batch = store.get(np.array([3, 1]))
    assert batch.vectors.argmax(axis=1).tolist() == [3, 1] and len(batch) == 2
    with pytest.raises(LeadMigrateError, match=r"docs\.jsonl"):
        list(batch.ids)
