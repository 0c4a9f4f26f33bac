import csv
import io
import json

import numpy as np
import pytest
from browser import Question, ask_browser, browse, with_browser
from html_page import Page
from stores_tools import make_store

from migrate.lab.compare.compare import compare
from migrate.lab.compare.report import compare_document, comparison_sentences, csv_files, long_csv
from migrate.lab.compare.sections import Shading, compare_sections, heat_map, loss_curves, shading_of, spectra
from migrate.lab.similarity.measures import MEASURES
from migrate.lab.similarity.stitching import judge_stitching
from migrate.report.page import html, report_page
from migrate.report.terminal import report_text

BY_KEY = {measure.key: measure for measure in MEASURES}


@pytest.fixture(scope="module")
def found(short_training, tmp_path_factory):
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
    groups = {"these": [0, 1], "those": [2]}
    return compare(*stores, labels=labels, kind=["ridge", "mlp:2"], group=groups)


def figures(comparison, name):
    return next(one for one in comparison.figures() if one.name == name)


def rows_of(content):
    return list(csv.reader(io.StringIO(content)))


@pytest.mark.slow
def test_text_fits_and_says_what_was_compared(found):
    text = report_text(compare_sections(found))
    assert max(map(len, text.split("\n"))) <= 100
    assert text.startswith("3 spaces of the same 60 documents\n")
    assert "A–B" in text and "C→B" in text and "old (true)" in text
    line = next(line for line in text.split("\n") if line.startswith("A→C"))
    assert line.split()[6] == "-"  # no identity between 5 and 3 dimensions
    assert "stitches: mlp:2, fitted on 30 documents" in text and "A→A" in text
    assert "CKA with a Gaussian of the same shape" in text


@pytest.mark.slow
def test_the_document_is_json_and_has_every_matrix(found):
    document = json.loads(json.dumps(compare_document(found), allow_nan=False))
    assert (document["schema_version"], document["kind"]) == (1, "compare")
    matrices = {one["key"]: one["matrix"] for one in document["measures"] if one["stitch"] in (None, "ridge")}
    assert set(matrices) == set(BY_KEY)
    assert matrices["r2"][2][0] == found.pairs[0, 2].back.stitch.r2
    assert matrices["r2_identity"][0][2] is None
    stitch = next(one for one in document["stitches"] if (one["from"], one["to"]) == (2, 1))
    assert stitch["singular_values"] == list(found.pairs[1, 2].back.singular_values)
    assert document["downstream"]["probe"][2] is None
    (network,) = (s for s in document["stitches"] if (s["spec"], s["from"], s["to"]) == ("mlp:2", 0, 2))
    assert [len(layer["singular_values"]) for layer in network["layers"]] == [5, 3] and network["singular_values"] == []
    assert len(network["loss_curve"][0]) == 3


@pytest.mark.slow
def test_the_document_has_extremes_and_means_by_source_and_target(found):
    r2 = next(m for m in compare_document(found)["measures"] if (m["key"], m["stitch"]) == ("r2", "ridge"))
    matrix = np.array(r2["matrix"])
    off = matrix[~np.eye(3, dtype=bool)]
    assert (r2["best"]["value"], r2["worst"]["value"]) == (off.max(), off.min())
    assert matrix[r2["worst"]["from"], r2["worst"]["to"]] == off.min()
    np.testing.assert_allclose(r2["by_source"], (matrix.sum(axis=1) - np.diag(matrix)) / 2)
    np.testing.assert_allclose(r2["by_target"], (matrix.sum(axis=0) - np.diag(matrix)) / 2)
    penalty = figures(found, "penalty")
    assert penalty.best.value == min(
        v for row, line in enumerate(penalty.matrix) for col, v in enumerate(line) if row != col
    )
    assert figures(found, "bias_norm").best is None


@pytest.mark.slow
def test_a_gaussian_stands_below_cka_alone(found):
    by_key = {m["key"]: m for m in compare_document(found)["measures"]}
    assert by_key["cka"]["gaussian"] == [chance.cka for chance in found.chance]
    assert by_key["cka_biased"]["gaussian"] == [chance.cka_biased for chance in found.chance]
    assert "gaussian" not in by_key["jaccard"]
    assert rows_of(dict(csv_files(found))["cka"])[-1][0] == "a Gaussian"
    page = Page(report_page(compare_sections(found)))
    rows = [row for table in page.tables for row in table if row[0] == "a Gaussian"]
    assert len(rows) == 2 and rows[0][1] == f"{found.chance[0].cka:.3f}"


@pytest.mark.slow
def test_tables_of_commas_hold_exact_figures(found):
    files = {name: rows_of(content) for name, content in csv_files(found)}
    rows = files["penalty"]
    assert rows[0] == ["from", *(one.name for one in found.stores)]
    assert float(rows[1][3]) == found.pairs[0, 2].forth.stitch.penalty
    assert files["r2_identity"][1][3] == ""
    long = {(*row[:3], row[4]): row[3] for row in rows_of(long_csv(found))}
    assert float(long["cka", "old", "other", ""]) == found.pairs[0, 2].cka
    assert ("r2_identity", "old", "other", "") not in long
    assert float(long["r2", "old", "other", "mlp:2"]) == found.stitches["mlp:2"][0, 2].stitch.r2
    assert float(long["r2", "old", "", "ridge"]) == figures(found, "r2").by_source[0]
    assert float(long["r2", "", "old", "ridge"]) == figures(found, "r2").by_target[0]
    assert float(long["cka", "a Gaussian", "old", ""]) == found.chance[0].cka
    means = {tuple(row[:3]): row[3:] for row in files["marginals"]}
    assert [float(value) for value in means["penalty", "mlp:2", "other"]] == [
        figures(found, "penalty mlp:2").by_source[2],
        figures(found, "penalty mlp:2").by_target[2],
    ]


@pytest.mark.slow
def test_the_page_is_whole_and_needs_nothing_from_outside(found):
    text = report_page(compare_sections(found))
    assert "<b>new" not in text and "&lt;b&gt;new" in text, "names are shown and not obeyed"
    page = Page(text)
    shown = [one for one in found.figures() if one.measure.key not in ("r2_mean", "r2_random") and one.mean is not None]
    maps = [table for table in page.tables if table[0] == ["", "A", "B", "C"]]
    assert len(maps) == len(shown)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    cka = maps[len([one for one in shown if one.measure.directed])]
    assert [row[0] for row in cka[1:]] == ["A old", f"B {found.stores[1].name}", "C other", "a Gaussian"]
    assert cka[1][1:] == ["1.000", f"{found.pairs[0, 1].cka:.3f}", f"{found.pairs[0, 2].cka:.3f}"]
    assert {"Labels", "Spectra", "Spectra and losses", "The stores", "The stitches"} <= set(page.texts)
    assert "Groups of stores" in page.texts and any("local dimension is low" in text for text in page.texts)
    assert page.texts.count("probe macro-F1") == 1


@pytest.mark.slow
def test_the_diagonal_is_a_stitch_of_a_store_to_itself(found):
    """30 documents are enough for 5 dimensions, and 2,000 dimensions are too many for them."""
    assert [len(found.own_stitches), found.own_stitches[0].judged_on] == [3, 30]
    r2 = found.matrix(BY_KEY["r2"])
    assert [r2[place][place] for place in range(3)] == [own.stitch.r2 for own in found.own_stitches]
    assert 0.99 < r2[0][0] < 1
    wide = np.random.default_rng(0).normal(size=(60, 2_000)).astype(np.float32)
    assert judge_stitching(wide, wide).stitch.r2 < 0.5


def sentences_of(a, b, tmp_path):
    ids = [f"d{row}" for row in range(len(a))]
    stores = [make_store(tmp_path / name, ids, table.astype(np.float32)) for name, table in (("a", a), ("b", b))]
    ((_, words),) = comparison_sentences(compare(*stores), "AB")
    return words


@pytest.mark.slow
def test_the_sentences_say_what_the_figures_mean(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 10))
    # From ten dimensions to three of them everything is known, back hardly anything
    direction, size, own, _ = sentences_of(x, x[:, :3], tmp_path / "fewer")
    assert "finds 100 % of the 10 nearest" in direction
    assert "A to B works better; vectors alone may be enough" in direction
    assert "the number of documents is not what limits it" in size
    assert "A finds 100.0 % and B finds 100.0 %" in own and "not lost by the fit itself" in own
    direction, *_ = sentences_of(x, x + 0.01 * rng.normal(size=x.shape), tmp_path / "the same")
    assert "neither way is clearly better" in direction and "a stitch adds nothing to that" in direction
    hidden = rng.normal(size=(120, 80))
    few = hidden @ rng.normal(size=(80, 100)), hidden @ rng.normal(size=(80, 90))
    _, size, own, _ = sentences_of(*few, tmp_path / "few")
    assert "more documents would bring some more" in size
    assert "so few documents do not span the dimensions" in own
    *_, mean = sentences_of(x, rng.normal(size=(400, 5)) + 3, tmp_path / "unrelated")
    assert "mean estimator? nearly" in mean
    assert "the norm of the target's mean is 6.7" in mean
    *_, mean = sentences_of(x, x @ rng.normal(size=(10, 10)), tmp_path / "related")
    assert "mean estimator? no: from A to B it gives 100 %" in mean


@pytest.mark.slow
@pytest.mark.parametrize("key", ["cka", "cka_distance", "r2_identity", "penalty", "bias_norm"])
def test_the_most_alike_is_shaded_deepest(found, key):
    measure = BY_KEY[key]
    matrix = found.matrix(measure)
    shading = shading_of(measure, matrix)
    values = sorted(v for row, line in enumerate(matrix) for col, v in enumerate(line) if row != col and v is not None)
    shades = [shading.share(value) for value in values]
    assert shades == sorted(shades, reverse=measure.alike == "less")
    assert len(set(shades)) > 1 and all(0 <= shade <= 1 for shade in shades)


@pytest.mark.slow
def test_a_heat_map_has_a_figure_in_every_cell(found):
    shown = Page(html(heat_map(figures(found, "r2_identity"), "XYZ")))
    (rows,) = shown.tables
    assert [row.count("-") for row in rows[1:]] == [1, 1, 2]
    assert rows[1][:2] + rows[1][3:] == ["A X", "1.000", "-"]
    assert [cell.get("style") for cell in shown.all("td")][1:4:2] == ["--shade:50%", "--shade:0%"]
    assert any("Deeper: more alike." in text for text in shown.texts)


def test_squared_errors_are_shaded_by_order_of_magnitude():
    shading = shading_of(BY_KEY["mse"], ((1e-6, 1e-2), (1.0, 1e-6)))
    assert [round(shading.share(value), 3) for value in (1.0, 1e-2, 1e-3, 1e-6, 0.0)] == [0, 0.333, 0.5, 1, 1]
    assert "order of magnitude" in shading.deeper
    assert shading_of(BY_KEY["mse"], ((0.0, 0.0), (0.0, 0.0))).share(0.0) == 0
    assert Shading(2, 2, "").share(2) == 0, "equal values are no obstacle"


def test_spectra_leave_out_what_is_below_the_scale():
    chart = spectra({"one": [4.0, 2.0, 4e-5, 0.0], "none": [0.0, 0.0]})
    said = [title.text for title in chart.drawing.iter("title")]
    assert said == ["one", "one: 1 at 1", "one: 0.5 at 2"]
    assert spectra({"none": [0.0, 0.0]}) is None


def test_loss_curves_have_both_losses():
    chart = loss_curves({"a": [(1, 0.9, 2.0), (2, 0.8, 1.5)], "b": [(1, 0.5)], "c": []})
    assert [name for name, _ in chart.legend] == ["a, held out", "a, training", "b, training"]
    said = [title.text for title in chart.drawing.iter("title")]
    assert "a, held out: 1.5 at 2" in said
    assert loss_curves({"c": []}) is None


@pytest.mark.slow
@with_browser
def test_a_browser_shows_it_and_a_telephone_without_scrolling_sideways(found, tmp_path):
    path = tmp_path / "spaces.html"
    path.write_text(report_page(compare_sections(found)), encoding="utf-8")
    shown = browse(tmp_path, path, "--dump-dom")
    assert "penalty above self" in shown.stdout and "CONSOLE" not in shown.stderr, shown.stderr
    script = """page => {
      const root = page.documentElement, cell = page.querySelector("table.heat tbody td");
      const drawn = page.querySelectorAll("svg[role=img]").length;
      return [root.scrollWidth - root.clientWidth, getComputedStyle(cell).backgroundColor, drawn];
    }"""
    page = report_page(compare_sections(found))
    beyond, colour, drawn = ask_browser(tmp_path, {"telephone": Question(page, script, width=390)})["telephone"]
    assert beyond == 0 and colour != "rgba(0, 0, 0, 0)" and drawn == 4
