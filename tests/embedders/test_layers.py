"""Layers of a network as models: what transformers itself gives for them, and how specs name them."""

import json

import numpy as np
import pytest

from migrate.cli.main import run
from migrate.embedders import load_embedder, recorded_options
from migrate.embedders.sentence_transformers import packaged_model_path
from migrate.stores import open_store
from migrate.vectors import Document

MINILM = "packaged:all-MiniLM-L6-v2"
TEXTS = ["A cat sits on the mat.", "A kitten is lying on a rug, and it purrs.", "Interest rates rose.", "x"]
DOCUMENTS = [Document(f"d{row}", text) for row, text in enumerate(TEXTS)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hidden():
    """The hidden states of all layers and the mask, as transformers gives them."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = str(packaged_model_path())
    tokens = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        states = model(**tokens, output_hidden_states=True).hidden_states
    return [state.numpy() for state in states], tokens["attention_mask"].numpy()[:, :, None]


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def mean(states, mask):
    return (states * mask).sum(axis=1) / mask.sum(axis=1)


def largest(states, mask):
    return np.where(mask, states, -np.inf).max(axis=1)


def first(states, _mask):
    return states[:, 0]


@pytest.mark.parametrize(
    ("layer", "pooled"),
    [("0", mean), ("3", mean), ("6", mean), ("3:mean", mean), ("3:cls", first), ("3:max", largest)],
)
def test_a_layer_pools_its_hidden_states(layer, pooled, hidden):
    states, mask = hidden
    found = load_embedder(f"layer:{layer}:{MINILM}", device="cpu").embed_documents(DOCUMENTS)
    np.testing.assert_allclose(found, unit(pooled(states[int(layer[0])], mask)), atol=1e-5)


def test_the_layer_is_in_the_identity_and_so_in_the_cache(tmp_path):
    models = [load_embedder(f"layer:{n}:{MINILM}", device="cpu", cache=tmp_path / "c.sqlite") for n in (2, 5)]
    specs = [model.identity.spec for model in models]
    assert specs == [f"layer:{n}:sentence-transformers:sentence-transformers/all-MiniLM-L6-v2" for n in (2, 5)]
    once, other, again = (model.embed_documents(DOCUMENTS) for model in (*models, models[0]))
    assert np.abs(once - other).max() > 0.01
    np.testing.assert_array_equal(again, once)
    assert models[0].identity.dim == models[0].profile.dim == 384 and models[0].identity.normalized
    assert models[0].profile.counter.exact
    assert recorded_options(models[0].identity)["document_prefix"] == ""


def test_the_command_embeds_a_layer_and_the_manifest_names_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = (json.dumps({"id": document.id, "text": document.text}) for document in DOCUMENTS)
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    asked = ["embed", "docs.jsonl", "--no-chunks", "--cache", "none", "-q"]
    assert run([*asked, "--model", f"layer:3:cls:{MINILM},device=cpu", "-o", "store"]) == 0
    store = open_store(tmp_path / "store")
    spec = "layer:3:cls:sentence-transformers:sentence-transformers/all-MiniLM-L6-v2"
    assert store.info.manifest.model.spec == spec
    expected = load_embedder(f"layer:3:cls:{MINILM}", device="cpu").embed_documents(DOCUMENTS)
    np.testing.assert_allclose(store.get(np.arange(4)).vectors, expected, atol=1e-6)
    assert run(["check", "store", "--model", f"layer:3:cls:{MINILM},device=cpu", "-q"]) == 0
    assert run(["check", "store", "--model", f"{MINILM},device=cpu", "-q"]) == 1
    capsys.readouterr()
    assert run([*asked, "--model", f"layer:9:{MINILM}", "-o", "other"]) == 2
    assert "no layer 9; name one from 0 to 6" in capsys.readouterr().err and not (tmp_path / "other").exists()
