import numpy as np
import pytest

from migrate.embedders.sentence_transformers import SentenceTransformersEmbedder
from migrate.vectors import Document

pytestmark = pytest.mark.slow

DOCUMENTS = [Document("a", "A cat sits on the mat."), Document("b", "Interest rates rose. " * 40)]


def test_variants_pool_the_same_tokens_and_cut_the_same_texts_otherwise(minilm):
    own = minilm.embed_documents(DOCUMENTS)
    found = {variant.meaning: variant.embedder.embed_documents(DOCUMENTS) for variant in minilm.variants()}
    texts, options = [document.text for document in DOCUMENTS], {"show_progress_bar": False}
    tokens = [rows.numpy() for rows in minilm.model.encode(texts, output_value="token_embeddings", **options)]
    for mode, pool in {"cls": lambda rows: rows[0], "max": lambda rows: rows.max(axis=0)}.items():
        expected = np.stack([pool(rows) / np.linalg.norm(pool(rows)) for rows in tokens])
        np.testing.assert_allclose(found[f"with {mode} pooling"], expected, atol=1e-5)
    assert "with mean pooling" not in found
    cut = found["with texts cut at 128 tokens instead of 256"]
    np.testing.assert_allclose(cut[0], own[0], atol=1e-5)
    assert cut[1] @ own[1] < 1 - 1e-4
    np.testing.assert_array_equal(minilm.embed_documents(DOCUMENTS), own)  # and the model is as it was


def test_the_quick_identity_is_the_identity_and_loads_nothing(minilm):
    fresh = SentenceTransformersEmbedder(packaged=True, document_prefix="passage: ")
    assert fresh.quick_identity() == SentenceTransformersEmbedder(packaged=True, document_prefix="passage: ").identity
    assert "model" not in vars(fresh)
