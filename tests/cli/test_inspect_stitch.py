"""What `inspect` tells of a stitch, against the arrays in its folder."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.stats import entropy

import migrate
from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import open_store


@pytest.fixture(scope="module")
def stitches(source_folder, short_training, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stitches")
    store, target = open_store(source_folder), load_embedder("tfidf:24")
    for name, kind in (("network", "mlp:2"), ("linear", "ridge"), ("texts", "ridge+text")):
        migrate.fit(store, target, sample=60, stitch=kind).save(folder / name)
    migrate.fit(store, target, sample=60, stitch="adjoint", direction="query").save(folder / "queries")
    return folder


def inspect(folder, capsys):
    assert run(["inspect", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert run(["inspect", str(folder)]) == 0
    return document, dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())


def test_a_linear_map_has_its_spectrum_and_bias(stitches, capsys):
    document, lines = inspect(stitches / "linear", capsys)
    arrays = load_file(stitches / "linear" / "weights.safetensors")
    matrix = next(array for name, array in arrays.items() if name.endswith("matrix")).astype(float)
    offset = next(array for name, array in arrays.items() if name.endswith("offset"))
    values = np.linalg.svd(matrix, compute_uv=False)
    (layer,) = document["layers"]
    np.testing.assert_allclose(layer["singular_values"], values, rtol=1e-5, atol=1e-6 * values[0])
    assert layer["bias_norm"] == pytest.approx(np.linalg.norm(offset), rel=1e-5)
    assert layer["effective_rank"] == pytest.approx(np.exp(entropy(values / values.sum())), rel=1e-3)
    share = np.cumsum(values**2) / (values**2).sum()
    assert layer["directions_for_90_percent"] == (share < 0.9).sum() + 1
    assert (document["spec"], document["from_dimension"], document["to_dimension"]) == ("ridge", 32, 24)
    assert document["pairs"] == 60 and document["views"] == []
    assert lines["map"].strip().startswith("24 singular values from ")
    assert lines["views"].strip() == "the old vector alone"


def test_a_network_has_layers_and_a_loss_curve(stitches, capsys):
    document, lines = inspect(stitches / "network", capsys)
    arrays = load_file(stitches / "network" / "weights.safetensors")
    curve = next(array for name, array in arrays.items() if name.endswith("loss_curve"))
    np.testing.assert_array_equal(np.array(document["loss_curve"], dtype=np.float32), curve)
    assert len(document["layers"]) == 2 and {"layer 1", "layer 2"} <= set(lines)
    assert lines["loss curve"].strip().startswith(f"{len(curve)} epochs, held-out loss {curve[0, 2]:.3f} at first")


def test_a_stitch_that_reads_texts_names_its_views_and_has_no_matrix(stitches, capsys):
    document, lines = inspect(stitches / "texts", capsys)
    assert document["reads_texts"] and "vector" in document["views"] and document["layers"] == []
    assert document["without_texts"] in lines["without texts"]
    assert "sum of kernels" in lines["layers"]


def test_a_stitch_for_queries_goes_the_other_way(stitches, capsys):
    document, lines = inspect(stitches / "queries", capsys)
    assert (document["maps"], document["from_model"], document["to_model"]) == ("queries", "tfidf:24", "tfidf:32")
    assert (document["from_dimension"], document["to_dimension"]) == (24, 32)
    assert lines["maps"].strip() == "queries: tfidf:24 -> tfidf:32"


def test_a_damaged_stitch_is_one_line(stitches, tmp_path, capsys):
    (tmp_path / "lead-migrate.json").write_bytes((stitches / "linear" / "lead-migrate.json").read_bytes())
    assert run(["inspect", str(tmp_path)]) == 4
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and "incomplete or damaged" in captured.err
