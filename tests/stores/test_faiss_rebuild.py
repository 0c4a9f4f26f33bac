"""Indexes that FAISS decodes, built anew: settings, ids, determinism, and what changes with the dimension."""

import faiss
import pytest
from faiss_tools import COUNT, DIM, build, rewrite, save

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.stores.faiss.recipe import Recipe
from migrate.stores.faiss.rescale import nearest_divisor, rescale
from migrate.work.writer import write_rows

pytestmark = pytest.mark.slow


def test_settings_that_are_not_defaults_are_kept(vectors, tmp_path):
    index = build("IVF8_HNSW8,SQ8,Refine(SQfp16)", vectors)
    index.k_factor = 2.5
    lists = faiss.downcast_index(index.base_index)
    lists.nprobe = 5
    lists.by_residual = False
    quantizer = faiss.IndexHNSWFlat(DIM, 8, faiss.METRIC_INNER_PRODUCT)
    quantizer.add(vectors[:8])
    lists.quantizer = quantizer
    faiss.downcast_index(lists.quantizer).hnsw.efSearch = 77
    save(index, tmp_path / "old")
    rewrite(open_store(tmp_path / "old"), tmp_path / "new", dim=DIM)
    new = faiss.read_index(str(tmp_path / "new" / "index.faiss"))
    lists = faiss.downcast_index(new.base_index)
    assert (new.k_factor, lists.nprobe, lists.nlist, lists.by_residual) == (2.5, 5, 8, False)
    quantizer = faiss.downcast_index(lists.quantizer)
    assert (quantizer.hnsw.efSearch, quantizer.metric_type) == (77, faiss.METRIC_INNER_PRODUCT)


@pytest.mark.parametrize(("dim", "parts"), [(768, 96), (1536, 192), (256, 32), (100, 10), (97, 97)])
def test_sub_vectors_stay_about_as_long_as_they_were(dim, parts):
    recipe, remarks = rescale(Recipe("IVF8,PQ48x4"), 384, dim, 1000)
    assert recipe.factory == f"IVF8,PQ{parts}x4"
    assert dim % parts == 0
    assert f"M 48 became {parts}" in remarks[0]


def test_what_fits_is_left_alone():
    recipe = Recipe("IDMap,OPQ48_384,IVF64_HNSW32,PQ48,Refine(SQ8)", {"nprobe": 5.0})
    assert rescale(recipe, 384, 384, 1000) == (recipe, ())
    assert nearest_divisor(384, 48) == 48


def test_a_projection_gives_no_more_dimensions_than_it_gets():
    recipe = Recipe("PCA128,Flat")
    assert rescale(recipe, 384, 768, 1000)[0].factory == "PCA128,Flat"
    adapted, remarks = rescale(recipe, 384, 96, 1000)
    assert adapted.factory == "PCA96,Flat"
    assert "128 became 96" in remarks[0]


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        ("OPQ8_16,IVF64,PQ8,RFlat", "OPQ8_16,IVF10,PQ8,RFlat"),
        ("IDMap2,PCAR32,IVF4(PQ8),SQ8", "IDMap2,PCAR24,IVF4,SQ8"),
        ("IVF4,PQ8+4", "IVF4,PQ6+3"),
        ("PQ8x4fs,Refine(PQ16)", "PQ6x4fs,Refine(PQ12)"),
        ("OPQ8_32,PQ8", "OPQ6_24,PQ6"),
        ("IMI2x3,SQ8_direct", "IMI2x3,SQ8"),
        ("Pad48,Flat", "Pad32,Flat"),
    ],
)
def test_each_step_is_made_to_fit_what_it_gets(factory, expected):
    recipe, remarks = rescale(Recipe(factory), 32, 24, 10)
    assert recipe.factory == expected
    assert remarks


def test_rows_that_an_index_would_lack_are_refused(vectors, tmp_path):
    save(build("SQ8", vectors), tmp_path / "old")
    (tmp_path / "new").mkdir()
    writer = open_store(tmp_path / "old").destination(tmp_path / "new", DIM)
    with pytest.raises(StoreError, match=f"{COUNT} vectors"):
        write_rows(writer, [(0, vectors[:-1])], COUNT)
