import csv
import io
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from html_page import Page
from stores_tools import make_store

from migrate.report.compare import (
    Shading,
    compare_document,
    compare_page,
    compare_text,
    comparison_sentences,
    heat_map,
    letter,
    long_csv,
    matrix_csv,
    shading_of,
    spectra,
)
from migrate.similarity.comparison import compare_stores
from migrate.similarity.measures import MEASURES
from migrate.similarity.stitching import judge_stitching

BY_KEY = {measure.key: measure for measure in MEASURES}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Three stores, one with a long and nasty name, one of another dimension."""
    folder = tmp_path_factory.mktemp("spaces")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)).astype(np.float32)
    names = ("old", "<b>new & improved</b>" + "x" * 60, "other")
    tables = (x, (x @ rng.normal(size=(5, 5))).astype(np.float32), rng.normal(size=(60, 3)).astype(np.float32))
    ids = [f"d{row}" for row in range(60)]
    stores = [
        make_store(folder / place / name.replace("/", "_"), ids, table)
        for place, name, table in zip("abc", names, tables, strict=True)
    ]
    labels = {doc_id: "even" if row % 2 else "odd" for row, doc_id in enumerate(ids)}
    return compare_stores(stores, labels=labels)


def test_text_fits_and_says_what_was_compared(found):
    text = compare_text(found)
    assert max(map(len, text.split("\n"))) <= 100
    assert text.startswith("3 spaces of the same 60 documents\n")
    assert "A–B" in text and "C→B" in text and "old (true)" in text
    line = next(line for line in text.split("\n") if line.startswith("A→C"))
    assert line.split()[7:9] == ["-", "-"]  # no identity between 5 and 3 dimensions


def test_letters_go_on_after_z():
    assert [letter(place) for place in (0, 25, 26, 51, 52)] == ["A", "Z", "AA", "AZ", "BA"]


def test_the_document_is_json_and_has_every_matrix(found):
    document = json.loads(json.dumps(compare_document(found), allow_nan=False))
    assert (document["schema_version"], document["kind"]) == (1, "compare")
    matrices = {one["key"]: one["matrix"] for one in document["measures"]}
    assert set(matrices) == set(BY_KEY)
    assert matrices["r2"][2][0] == found.pairs[0, 2].back.stitch.r2
    assert matrices["r2_identity"][0][2] is None
    stitch = next(one for one in document["stitches"] if (one["from"], one["to"]) == (2, 1))
    assert stitch["singular_values"] == list(found.pairs[1, 2].back.singular_values)
    assert document["downstream"]["probe"][2] is None


def test_tables_of_commas_hold_exact_figures(found):
    rows = list(csv.reader(io.StringIO(matrix_csv(BY_KEY["penalty"], found))))
    assert rows[0] == ["from", *(one.name for one in found.stores)]
    assert float(rows[1][3]) == found.pairs[0, 2].forth.stitch.penalty
    assert list(csv.reader(io.StringIO(matrix_csv(BY_KEY["r2_identity"], found))))[1][3] == ""
    long = {tuple(row[:3]): row[3] for row in csv.reader(io.StringIO(long_csv(found)))}
    assert float(long["cka", "old", "other"]) == found.pairs[0, 2].cka
    assert ("r2_identity", "old", "other") not in long


def test_the_page_is_whole_and_needs_nothing_from_outside(found):
    page = Page(compare_page(found))
    assert page.open == []
    shown = [measure for measure in MEASURES if measure.key not in ("r2_mean", "r2_random")]
    maps = [table for table in page.tables if table[0] == ["", "A", "B", "C"]]
    assert len(maps) == len(shown)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    cka = maps[len([measure for measure in shown if measure.directed])]
    assert [row[0] for row in cka[1:]] == ["A old", f"B {found.stores[1].name}", "C other"]
    assert cka[1][1:] == ["1.000", f"{found.pairs[0, 1].cka:.3f}", f"{found.pairs[0, 2].cka:.3f}"]
    assert {"Labels", "Spectra", "The stores"} <= set(page.texts)
    assert page.texts.count("probe macro-F1") == 1


def test_the_diagonal_is_a_stitch_of_a_store_to_itself(found):
    """30 documents are enough for 5 dimensions, and 2,000 dimensions are too many for them."""
    assert [len(found.own_stitches), found.own_stitches[0].judged_on] == [3, 30]
    r2 = BY_KEY["r2"].matrix(found)
    assert [r2[place][place] for place in range(3)] == [own.stitch.r2 for own in found.own_stitches]
    assert 0.99 < r2[0][0] < 1
    wide = np.random.default_rng(0).normal(size=(60, 2_000)).astype(np.float32)
    assert judge_stitching(wide, wide).stitch.r2 < 0.5


def sentences_of(a, b, tmp_path):
    ids = [f"d{row}" for row in range(len(a))]
    stores = [make_store(tmp_path / name, ids, table.astype(np.float32)) for name, table in (("a", a), ("b", b))]
    ((_, words),) = comparison_sentences(compare_stores(stores), "AB")
    return words


def test_the_better_direction_is_named(tmp_path):
    """From ten dimensions to three of them everything is known, back hardly anything."""
    x = np.random.default_rng(0).normal(size=(400, 10))
    direction, size, own = sentences_of(x, x[:, :3], tmp_path)
    assert "finds 100% of the 10 nearest neighbours that B has" in direction
    assert "A to B works better; vectors alone may be enough" in direction
    assert "the number of documents is not what limits it" in size
    assert "A finds 100.0% and B finds 100.0%" in own and "not lost by the fit itself" in own


def test_spaces_that_are_one_need_no_stitch(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 10))
    direction, *_ = sentences_of(x, x + 0.01 * rng.normal(size=x.shape), tmp_path)
    assert "neither way is clearly better" in direction and "a stitch adds nothing to that" in direction


def test_too_few_documents_are_said_to_be_too_few(tmp_path):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(120, 80))
    _, size, own = sentences_of(hidden @ rng.normal(size=(80, 100)), hidden @ rng.normal(size=(80, 90)), tmp_path)
    assert "more documents would bring some more" in size
    assert "so few documents do not span the dimensions" in own


def test_names_are_shown_and_not_obeyed(found):
    text = compare_page(found)
    assert "<b>new" not in text and "&lt;b&gt;new" in text


@pytest.mark.parametrize("key", ["cka", "cka_distance", "r2_identity", "penalty", "bias_norm"])
def test_the_most_alike_is_shaded_deepest(found, key):
    measure = BY_KEY[key]
    matrix = measure.matrix(found)
    shading = shading_of(measure, matrix)
    values = sorted(v for row, line in enumerate(matrix) for col, v in enumerate(line) if row != col and v is not None)
    shades = [shading.share(value) for value in values]
    assert shades == sorted(shades, reverse=measure.alike == "less")
    assert len(set(shades)) > 1 and all(0 <= shade <= 1 for shade in shades)


def test_a_heat_map_has_a_figure_in_every_cell(found):
    shown = heat_map(BY_KEY["r2_identity"], found)
    assert [[figure for figure, _ in row].count("-") for row in shown.cells] == [1, 1, 2]
    assert shown.cells[0][2] == ("-", 0.0)
    assert shown.cells[0][0] == ("1.000", 1.0)
    assert shown.deeper == "deeper: more alike"


def test_equal_values_are_no_obstacle():
    assert Shading(2, 2, "").share(2) == 0


def test_spectra_leave_out_what_is_below_the_scale():
    chart = spectra({"one": [4.0, 2.0, 4e-5, 0.0], "none": [0.0, 0.0]})
    said = [title.text for title in ElementTree.fromstring(chart.drawing).iter("title")]
    assert said == ["one", "one: 1 at 1", "one: 0.5 at 2"]
    assert spectra({"none": [0.0, 0.0]}) is None
