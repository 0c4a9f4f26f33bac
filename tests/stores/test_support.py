"""The table of indexes is kept: each one is built, read through `open_store`, and written for another dimension."""

import configparser
from functools import cache
from pathlib import Path

import mkdocs_hooks
import numpy as np
import pytest
from faiss_support import SUPPORT, render_table
from faiss_tools import empty_index, read, rewrite, save

from migrate.errors import UnsupportedStoreError
from migrate.stores import open_store, registry
from migrate.work.writer import write_rows

pytestmark = pytest.mark.slow

ROWS = 600
DIM = 32
NEW_DIM = 24


@pytest.fixture(scope="module")
def originals():
    rows = np.random.default_rng(8).normal(size=(ROWS, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def build(factory, rows):
    index = empty_index(factory, DIM)
    index.train(rows)
    if factory.startswith("IDMap"):
        index.add_with_ids(rows, np.arange(len(rows))[::-1].astype(np.int64))
    else:
        index.add(rows)
    return index


@pytest.fixture(scope="module")
def old_folder(originals, tmp_path_factory):
    """Called with the name of an index: the folder of one, and its rows; nobody writes to it."""

    @cache
    def made(factory):
        rows = np.round(originals * 100 + 100) if factory == "SQ8_direct" else originals
        folder = tmp_path_factory.mktemp("index")
        save(build(factory, rows), folder)
        return folder, rows

    return made


def mean_cosine(found, expected):
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((found * expected).sum(1) / lengths).mean())


@pytest.mark.parametrize("row", SUPPORT, ids=lambda row: row.factory)
def test_the_table_says_how_each_index_is_read(row, old_folder):
    folder, rows = old_folder(row.factory)
    whole = row.factory == "SQ8_direct"
    if row.reading == "refused":
        with pytest.raises(UnsupportedStoreError, match=r"index\.faiss: .*; "):
            open_store(folder)
        return
    store = open_store(folder)
    ids, found = read(store)
    order = np.array(ids, int)
    expected = rows[::-1][order] if row.factory.startswith("IDMap") else rows[order]
    assert sorted(order) == list(range(ROWS))
    assert store.info.exact is (row.reading == "exact")
    assert store.info.details["reading"] == row.reading
    assert np.array_equal(found, expected) is (row.reading == "exact" or whole)
    assert mean_cosine(found, expected) >= row.cosine - 1e-6


# one of each class; a child process for each file takes its time
REBUILT = [
    "IMI2x3,PQ8", "IVF16_HNSW8,PQ8", "PQ8x4fs", "HNSW8,SQ8", "IVF16,PQ8,RFlat", "OPQ8_16,IVF16,PQ8", "PCA16,Flat",
    "Pad48,Flat", "SQ4,Refine(SQ8)", "SQ8_direct", "LSHrt", "IVF16,RaBitQ", "L2norm,Flat",
]  # fmt: skip


@pytest.mark.parametrize("row", [row for row in SUPPORT if row.factory in REBUILT], ids=lambda row: row.factory)
def test_each_index_is_built_anew_for_another_dimension(row, old_folder, tmp_path):
    old = open_store(old_folder(row.factory)[0])
    new = rewrite(old, tmp_path / "new", lambda vectors: vectors[:, :NEW_DIM], NEW_DIM)
    assert new.info.index_type == old.info.index_type
    assert (new.info.count, new.info.dim, new.info.metric) == (ROWS, NEW_DIM, "l2")
    wanted = dict(zip(*read(old), strict=True))
    ids, found = read(new)
    assert sorted(ids) == sorted(wanted)
    expected = np.stack([wanted[doc_id][:NEW_DIM] for doc_id in ids])
    assert mean_cosine(found, expected) >= row.cosine - 0.2
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["index.faiss"]


@pytest.mark.parametrize("factory", ["NSG16,Flat", "IDMap,PRQ2x2x4", "IVF16,RQ4x4"])
def test_an_index_that_faiss_builds_from_no_name_is_read_but_another_kind_is_written(factory, old_folder, tmp_path):
    old = open_store(old_folder(factory)[0])
    assert len(read(old)[0]) == ROWS
    with pytest.raises(UnsupportedStoreError, match=r"write another index, such as -o 'faiss:"):
        old.destination(tmp_path / "new", NEW_DIM)
    (tmp_path / "new").mkdir()
    writer = registry.output_of(f"faiss:{tmp_path / 'new'}#?index=HNSW8").writer(old, tmp_path / "new", DIM)
    write_rows(writer, [(0, read(old)[1])], ROWS)
    assert np.array_equal(read(open_store(tmp_path / "new"))[1], read(old)[1])


def test_the_site_holds_the_table_of_indexes():
    assert render_table() in mkdocs_hooks.store_reference()


def as_table(head, rows):
    first, *others = (f"| {' | '.join(line)} |" for line in (head, *rows))
    return "\n".join([first, f"|{'---|' * len(head)}", *others])


def test_the_readme_and_the_site_hold_the_table_of_kinds():
    found = {kind.support: kind for kind in registry.built_in_kinds()}
    named = []
    for one in found:
        places = ", ".join(f"`{place}`" for place in one.locations)
        named.append((one.store, places, f"`{one.extra}`" if one.extra else "-"))
        assert f"| {one.kept} | {one.not_kept} | {one.memory} |" in mkdocs_hooks.store_reference()
    root = Path(__file__).parents[2]
    table = as_table(["store", "location", "extra"], named)
    assert table in (root / "README.md").read_text()
    extras = configparser.ConfigParser()
    extras.read(root / "setup.cfg")
    assert {one.extra for one in found} - {""} <= set(extras["options.extras_require"])
    told = table.replace("FOLDER", "faiss").replace(".npy", "arrays")
    assert all(name.partition("+")[0] in told for name in registry.kind_names())
