"""Comparing stores from the command line."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from stores_tools import make_store

from migrate.cli.main import run
from migrate.similarity.measures import MEASURES

IDS = [f"d{row}" for row in range(40)]


@pytest.fixture
def stores(tmp_path, monkeypatch):
    """a and b of the same documents, c of some of them, and d of none."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6)).astype(np.float32)
    make_store(tmp_path / "a", IDS, x)
    make_store(tmp_path / "b", IDS, (x @ rng.normal(size=(6, 6))).astype(np.float32))
    make_store(tmp_path / "c", IDS[:25], rng.normal(size=(25, 4)).astype(np.float32))
    make_store(tmp_path / "d", [f"else{row}" for row in range(40)], x)
    return tmp_path


def test_two_stores_are_compared_in_a_table(stores, capsys):
    assert run(["compare", "a", "b"]) == 0
    text = capsys.readouterr().out
    assert "A–B" in text and "A→B" in text and "B→A" in text
    assert max(map(len, text.split("\n"))) <= 100


def test_three_stores_are_compared_on_what_all_have(stores, capsys):
    assert run(["compare", "a", "b", "c", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["documents"]) == ("compare", 25)
    assert any("a has 15 documents" in note for note in document["notes"])
    assert len(document["measures"]) == len(MEASURES)


def test_a_sample_is_the_same_for_the_same_seed(stores, capsys):
    shown = []
    for seed in ("1", "1", "2"):
        run(["compare", "a", "b", "--sample", "20", "--seed", seed, "--json"])
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert shown[0]["documents"] == 20
    assert shown[0]["measures"] != shown[2]["measures"]


def test_page_and_tables_are_written(stores, capsys):
    assert run(["compare", "a", "b", "--report", "page.html", "--csv", "figures"]) == 0
    assert Path("page.html").read_text().startswith("<!doctype html>")
    assert {path.stem for path in Path("figures").iterdir()} == {
        "marginals",
        "dimensions",
        *(measure.key for measure in MEASURES),
    }
    assert run(["compare", "a", "b", "--csv", "figures.csv"]) == 0
    with Path("figures.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["measure"] for row in rows} == {measure.key for measure in MEASURES}


def test_several_stitches_are_fitted(stores, capsys):
    kinds = ["--stitch", "ridge", "--stitch", "ols", "--stitch", "procrustes", "--stitch", "lowrank:2"]
    assert run(["compare", "a", "b", *kinds, "--json", "--csv", "figures"]) == 0
    document = json.loads(capsys.readouterr().out)
    r2 = {one["stitch"]: one["matrix"][0][1] for one in document["measures"] if one["key"] == "r2"}
    assert list(r2) == ["ridge", "ols", "procrustes", "lowrank:2"]
    assert r2["ols"] == pytest.approx(1) and r2["lowrank:2"] < 0.95 and r2["procrustes"] < 0.95
    assert [one["key"] for one in document["measures"]].count("r2_identity") == 1
    assert {"r2.csv", "r2-lowrank-2.csv", "penalty-ols.csv"} <= {path.name for path in Path("figures").iterdir()}
    assert run(["compare", "a", "b", *kinds]) == 0
    assert "stitches: lowrank:2, fitted on 20" in capsys.readouterr().out


def test_groups_are_set_against_each_other(stores, capsys):
    named = ["--group", "first=a,b", "--group", "second=e,c"]
    make_store(Path("e"), IDS, np.random.default_rng(2).normal(size=(40, 5)).astype(np.float32))
    assert run(["compare", "c", *named, "--report", "page.html", "--csv", "figures"]) == 0
    text = capsys.readouterr().out
    assert "first: B, C; second: D, A. Means over pairs" in text and "Layer by layer" in text
    assert max(map(len, text.split("\n"))) <= 100
    assert "Groups of stores" in Path("page.html").read_text()
    run(["compare", "c", *named, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [store["name"] for store in document["stores"]] == ["c", "a", "b", "e"]
    assert document["groups"]["places"] == {"first": [1, 2], "second": [3, 0]}
    angles = next(one["matrix"] for one in document["measures"] if one["key"] == "cka_distance")
    expected = np.hypot(angles[1][3], angles[2][0])
    assert document["groups"]["layer_distances"][0][1] == pytest.approx(expected)
    with Path("figures/groups.csv").open(newline="") as file:
        rows = {(row["measure"], row["where"]): row["mean"] for row in csv.DictReader(file)}
    assert float(rows["layer_distance", "first to second"]) == pytest.approx(expected)
    with Path("figures/dimensions.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    assert first["id"] == document["local_dimensions"][0]["lowest"][0]["id"]


@pytest.mark.parametrize("output", [["--report", "out.html"], ["--csv", "out"], ["--csv", "out.csv"]])
def test_an_output_is_replaced_only_when_told(stores, output, capsys):
    Path(output[1]).write_text("mine")
    assert run(["compare", "a", "b", *output]) == 2
    assert Path(output[1]).read_text() == "mine" and "--force" in capsys.readouterr().err
    assert run(["compare", "a", "b", *output, "--force"]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a"], 2, "two or more stores"),
        (["a", "d"], 4, "the stores have no ids in common"),
        (["a", "missing"], 4, "missing"),
        (["a", "b", "--report", "a/page.html"], 2, "overlaps"),
        (["a", "b", "--report", "x.html", "--csv", "x.html"], 2, "are one output"),
        (["a", "b", "--labels", "none.tsv"], 4, "no such file"),
        (["a", "b", "--stitch", "ridge+text"], 2, "stitches of vectors alone"),
        (["a", "b", "--group", "x=a"], 2, "name two or more with stores"),
        (["a", "b", "--group", "x"], 2, "such as old=a,b"),
        (["a", "b", "--group", "x=a,b", "--group", "x=c"], 2, "no name of its own"),
        (["--group", "x=a,b", "--group", "y=b,c"], 2, "a store is in one group"),
        ([], 2, "two or more stores; name another"),
        (["a", "b", "--stitch", "auto"], 2, "found 'auto'"),
        (["a", "b", "--stitch", "adjoint"], 2, "found 'adjoint'"),
        (["a", "b", "--stitch", "mlp"], 2, "mlp:1 to mlp:7"),
    ],
)
def test_what_cannot_be_compared_is_one_line(stores, arguments, code, message, capsys):
    before = sorted(path.name for path in stores.rglob("*"))
    assert run(["compare", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and message in captured.err
    assert sorted(path.name for path in stores.rglob("*")) == before


def test_labels_are_scored_beside_the_true_vectors(stores, capsys):
    lines = (f"{doc_id}\t{'even' if row % 2 else 'odd'}" for row, doc_id in enumerate(IDS))
    Path("labels.tsv").write_text("\n".join(lines))
    assert run(["compare", "a", "b", "--labels", "labels.tsv"]) == 0
    assert "a (true)" in capsys.readouterr().out
    run(["compare", "a", "b", "--labels", "labels.tsv", "--json"])
    scored = json.loads(capsys.readouterr().out)["downstream"]
    assert scored["labels"] == 2 and scored["trained_on"] + scored["judged_on"] == 40
    assert set(scored["probe"][1]) == {"accuracy", "macro_f1"}


def test_a_store_is_like_its_copy(stores, capsys):
    run(["compare", "a", "a", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [store["name"] for store in document["stores"]] == ["a", "a (2)"]
    matrices = {one["key"]: one["matrix"] for one in document["measures"]}
    for key in ("cka", "jaccard", "rank_similarity", "r2_identity"):
        assert matrices[key][0][1] == pytest.approx(1)


def test_a_store_that_is_compared_with_itself_is_told(stores, capsys):
    assert run(["compare", "a", "./a"]) == 0
    assert "./a is named twice: a store is compared with itself" in capsys.readouterr().err
    assert run(["compare", "a", "b"]) == 0
    assert "named twice" not in capsys.readouterr().err
