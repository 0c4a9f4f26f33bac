"""Comparing stores from the command line."""

import csv
from pathlib import Path

import numpy as np
import pytest
from stores_tools import make_store

from migrate.lab.similarity.measures import MEASURES

IDS = [f"d{row}" for row in range(40)]


@pytest.fixture(autouse=True)
def _stores():
    """a and b of the same documents, c of some of them, and d of none."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6)).astype(np.float32)
    make_store(Path("a"), IDS, x)
    make_store(Path("b"), IDS, (x @ rng.normal(size=(6, 6))).astype(np.float32))
    make_store(Path("c"), IDS[:25], rng.normal(size=(25, 4)).astype(np.float32))
    make_store(Path("d"), [f"else{row}" for row in range(40)], x)


def table(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_two_stores_are_compared_in_a_table(lead_migrate):
    ended = lead_migrate("compare a b")
    assert "A–B" in ended.out and "A→B" in ended.out and "B→A" in ended.out
    assert max(map(len, ended.out.split("\n"))) <= 100
    assert "named twice" not in ended.err


def test_page_and_tables_are_written(lead_migrate):
    keys = {measure.key for measure in MEASURES}
    lead_migrate("compare a b --report page.html --csv figures")
    assert Path("page.html").read_text().startswith("<!doctype html>")
    assert {path.stem for path in Path("figures").iterdir()} == {"marginals", "dimensions", *keys}
    lead_migrate("compare a b --csv figures.csv")
    assert {row["measure"] for row in table("figures.csv")} == keys


def test_several_stitches_are_fitted(lead_migrate):
    compare = "compare a b --kind ridge --kind ols --kind procrustes --kind lowrank:2"
    document = lead_migrate(f"{compare} --json --csv figures").document
    r2 = {one["stitch"]: one["matrix"][0][1] for one in document["measures"] if one["key"] == "r2"}
    assert list(r2) == ["ridge", "ols", "procrustes", "lowrank:2"]
    assert r2["ols"] == pytest.approx(1) and r2["lowrank:2"] < 0.95 and r2["procrustes"] < 0.95
    assert [one["key"] for one in document["measures"]].count("r2_identity") == 1
    assert {"r2.csv", "r2-lowrank-2.csv", "penalty-ols.csv"} <= {path.name for path in Path("figures").iterdir()}
    assert "stitches: lowrank:2, fitted on 20" in lead_migrate(compare).out


def test_groups_are_set_against_each_other(lead_migrate):
    make_store(Path("e"), IDS, np.random.default_rng(2).normal(size=(40, 5)).astype(np.float32))
    compare = "compare c --group first=a,b --group second=e,c"
    document = lead_migrate(f"{compare} --json --csv figures").document
    assert [store["name"] for store in document["stores"]] == ["c", "a", "b", "e"]
    assert document["groups"]["places"] == {"first": [1, 2], "second": [3, 0]}
    angles = next(one["matrix"] for one in document["measures"] if one["key"] == "cka_distance")
    expected = np.hypot(angles[1][3], angles[2][0])
    assert document["groups"]["layer_distances"][0][1] == pytest.approx(expected)
    means = {(row["measure"], row["where"]): row["mean"] for row in table("figures/groups.csv")}
    assert float(means["layer_distance", "first to second"]) == pytest.approx(expected)


@pytest.mark.parametrize("output", ["--report out.html", "--csv out", "--csv out.csv"])
def test_an_output_is_replaced_only_when_told(output, lead_migrate):
    path = Path(output.split()[1])
    path.write_text("mine")
    assert "--force" in lead_migrate(f"compare a b {output}", code=2).complaint
    assert path.read_text() == "mine"
    lead_migrate(f"compare a b {output} --force")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("a", 2, "two or more stores"),
        ("a d", 4, "the stores have no ids in common"),
        ("a missing", 4, "missing"),
        ("a b --report a/page.html", 2, "overlaps"),
        ("a b --labels none.tsv", 4, "no such file"),
        ("a b --kind ridge+text", 2, "stitches of vectors alone"),
        ("a b --group x=a", 2, "name two or more with stores"),
        ("a b --group x", 2, "as in old=a,b"),
        ("a b --group x=a,b --group x=c", 2, "not a unique name"),
        ("--group x=a,b --group y=b,c", 2, "a store is in one group"),
        ("", 2, "two or more stores; name another"),
        ("a b --kind auto", 2, "not 'auto'"),
        ("a b --kind adjoint", 2, "not 'adjoint'"),
        ("a b --kind mlp", 2, "mlp:1 to mlp:7"),
    ],
)
def test_what_cannot_be_compared_is_one_line(tmp_path, arguments, code, message, lead_migrate):
    before = sorted(tmp_path.rglob("*"))
    ended = lead_migrate(f"compare {arguments}", code=code)
    assert message in ended.complaint and ended.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
