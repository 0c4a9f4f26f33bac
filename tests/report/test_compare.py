import csv
import html.parser
import io
import json

import numpy as np
import pytest
from stores_tools import make_store

from migrate.report.compare import (
    compare_document,
    compare_page,
    compare_text,
    letter,
    long_csv,
    matrix_csv,
    shading_of,
    spectra,
)
from migrate.report.svg.charts import Shading, heat_map
from migrate.similarity.comparison import compare_stores
from migrate.similarity.measures import MEASURES

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


class Page(html.parser.HTMLParser):
    """Open and closed tags, and what is said inside of titles of pictures."""

    def __init__(self, text):
        super().__init__()
        self.open, self.pictures, self.texts, self.tips, self.links = [], 0, [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.pictures += tag == "svg"
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "link", "rect", "line", "polyline", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        (self.tips if self.open[-2:] == ["g", "title"] else self.texts).append(data)


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
    assert page.open == ["html"] or page.open == []
    shown = [measure for measure in MEASURES if measure.key not in ("r2_mean", "r2_random")]
    assert page.pictures == len(shown) + 1
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert f"old → other: {found.pairs[0, 2].cka:.3f}" in page.tips
    assert {"Labels", "Spectra", "The stores"} <= set(page.texts)
    assert page.texts.count("probe macro-F1") == 1


def test_names_are_shown_and_not_obeyed(found):
    text = compare_page(found)
    assert "<b>new" not in text and "&lt;b&gt;new" in text


@pytest.mark.parametrize("key", ["cka", "cka_distance", "r2_identity", "penalty", "bias_norm"])
def test_the_most_alike_is_shaded_deepest(found, key):
    measure = BY_KEY[key]
    matrix = measure.matrix(found)
    shading = shading_of(measure, matrix)
    values = sorted(v for row, line in enumerate(matrix) for col, v in enumerate(line) if row != col and v is not None)
    shades = [shading.opacity(value) for value in values]
    assert shades == sorted(shades, reverse=measure.alike == "less")
    assert all(0 < shade < 0.6 for shade in shades)


def test_a_heat_map_has_a_number_in_every_cell():
    picture = heat_map(
        "Likeness", ["a", "b"], [[1.0, 0.25], [None, 1.0]], Shading(0, 1, "deeper: more"), "{:.2f}".format
    )
    page = Page(picture)
    assert page.tips == ["a → a: 1.00", "a → b: 0.25", "b → a: –", "b → b: 1.00"]
    assert page.texts.count("0.25") == 1 and "1.00, deeper: more" in page.texts
    assert picture.count('fill-opacity="0.000"') == 3  # the diagonal and what is not known
    assert 'fill-opacity="0.175"' in picture


def test_equal_values_are_no_obstacle():
    assert Shading(2, 2, "").share(2) == 0


def test_spectra_leave_out_what_is_below_the_scale():
    picture = spectra({"one": [4.0, 2.0, 4e-5, 0.0], "none": [0.0, 0.0]})
    first, second = (part.split('"')[1] for part in picture.split("<polyline ")[1:])
    assert len(set(first.split())) == 2 and second == ""
