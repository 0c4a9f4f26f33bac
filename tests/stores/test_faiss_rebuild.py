"""Indexes that FAISS decodes, built anew: settings, ids, determinism, and what changes with the dimension."""

import faiss
import pytest
from faiss_tools import COUNT, DIM, build, rewrite, save

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.stores.faiss.rescale import nearest_divisor, rescale
from migrate.work.writer import write_rows

pytestmark = pytest.mark.slow

PQ = {"kind": "PQ", "M": 48, "nbits": 8, "polysemous": False}


def test_settings_that_are_not_defaults_are_kept(vectors, tmp_path):
    index = build("IVF8_HNSW8,SQ8,Refine(SQfp16)", vectors)
    index.k_factor = 3.0
    lists = faiss.downcast_index(index.base_index)
    lists.nprobe = 5
    faiss.downcast_index(lists.quantizer).hnsw.efSearch = 77
    save(index, tmp_path / "old")
    rewrite(open_store(tmp_path / "old"), tmp_path / "new", dim=DIM)
    new = faiss.read_index(str(tmp_path / "new" / "index.faiss"))
    lists = faiss.downcast_index(new.base_index)
    assert (new.k_factor, lists.nprobe, lists.nlist) == (3.0, 5, 8)
    assert faiss.downcast_index(lists.quantizer).hnsw.efSearch == 77


@pytest.mark.parametrize(("dim", "parts"), [(768, 96), (1536, 192), (256, 32), (100, 10), (97, 97)])
def test_sub_vectors_stay_about_as_long_as_they_were(dim, parts):
    recipe, remarks = rescale(PQ, 384, dim, 1000)
    assert recipe["M"] == parts
    assert dim % recipe["M"] == 0
    assert f"M 48 became {parts}" in remarks[0]


def test_what_fits_is_left_alone():
    assert rescale(PQ, 384, 384, 1000) == (PQ, ())
    assert nearest_divisor(384, 48) == 48


def test_a_projection_gives_no_more_dimensions_than_it_gets():
    pca = {"kind": "PCA", "d_out": 128, "d_in": 384, "whiten": False, "rotate": False}
    recipe = {"kind": "PreTransform", "transforms": [pca], "inner": {"kind": "Flat"}}
    assert rescale(recipe, 384, 768, 1000)[0]["transforms"][0]["d_out"] == 128
    adapted, remarks = rescale(recipe, 384, 96, 1000)
    assert adapted["transforms"][0]["d_out"] == 96
    assert "128 became 96" in remarks[0]


def test_rows_that_an_index_would_lack_are_refused(vectors, tmp_path):
    save(build("SQ8", vectors), tmp_path / "old")
    (tmp_path / "new").mkdir()
    writer = open_store(tmp_path / "old").destination(tmp_path / "new", DIM)
    with pytest.raises(StoreError, match=f"{COUNT} vectors"):
        write_rows(writer, [(0, vectors[:-1])], COUNT)
