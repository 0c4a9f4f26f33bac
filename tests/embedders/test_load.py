import subprocess
import sys

import numpy as np
import pytest

from migrate.embedders import load_embedder, parse_spec
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import UsageError
from migrate.vectors import Document


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("openai:my-model", ("openai", "my-model")),
        ("openai:org/my:model", ("openai", "org/my:model")),
        ("sentence-transformers:./folder", ("sentence-transformers", "./folder")),
        ("file:a:b.npz", ("file", "a:b.npz")),
        ("text-embedding-3-small", ("openai", "text-embedding-3-small")),
        ("ALL-minilm-l6-V2", ("sentence-transformers", "sentence-transformers/all-MiniLM-L6-v2")),
        ("BAAI/bge-small-en-v1.5", ("sentence-transformers", "BAAI/bge-small-en-v1.5")),
    ],
)
def test_reads_specs(spec, expected):
    assert parse_spec(spec) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("text-embedding-3-smal", "did you mean text-embedding-3-small"),
        ("qqqq", "expected one of sentence-transformers:, packaged:, openai:, file:, tfidf:"),
        ("cohere:embed", "expected one of"),
        ("", "expected one of"),
        ("openai:", "'openai:' lacks the name of a model, for example openai:text-embedding-3-small"),
        ("tfidf:many", "tfidf:many names no number of dimensions; give one such as tfidf:256"),
        ("tfidf:0", "tfidf:256"),
        ("tfidf:-3", "tfidf:256"),
        ("packaged:e5-base-v2", "the only packaged model is packaged:all-MiniLM-L6-v2"),
    ],
)
def test_says_what_is_wrong_with_a_spec(spec, message):
    with pytest.raises(UsageError, match=message):
        load_embedder(spec)


def test_options_that_do_not_suit_the_model_are_refused(tmp_path):
    with pytest.raises(UsageError, match="batch size"):
        load_embedder("tfidf:8", batch_size=0)
    with pytest.raises(UsageError, match="dimensions"):
        load_embedder("tfidf:8", dimensions=4)
    with pytest.raises(UsageError, match="dimensions"):
        load_embedder("openai:x", dimensions=0)
    with pytest.raises(UsageError, match="takes no prefixes"):
        load_embedder("file:x.npz", document_prefix="passage: ")
    load_embedder("file:x.npz", document_prefix="", query_prefix="")


def test_caches_only_what_can_be_cached(tmp_path):
    cache = tmp_path / "cache.sqlite"
    assert isinstance(load_embedder("openai:x", cache=cache), CachedEmbedder)
    assert isinstance(load_embedder("packaged:all-MiniLM-L6-v2", cache=cache), CachedEmbedder)
    assert not isinstance(load_embedder("tfidf:8", cache=cache), CachedEmbedder)
    assert not isinstance(load_embedder("file:x.npz", cache=cache), CachedEmbedder)
    assert not isinstance(load_embedder("openai:x"), CachedEmbedder)
    assert not cache.exists()


@pytest.mark.slow
def test_a_cached_local_model_gives_the_same_vectors(tmp_path):
    texts = [Document("a", "tea"), Document("b", "milk"), Document("c", "tea")]
    plain = load_embedder("packaged:all-MiniLM-L6-v2")
    for _ in range(2):
        cached = load_embedder("packaged:all-MiniLM-L6-v2", cache=tmp_path / "cache.sqlite")
        np.testing.assert_allclose(cached.embed_documents(texts), plain.embed_documents(texts), atol=1e-6)
    assert (cached.hits, cached.misses) == (3, 0)


def test_no_heavy_library_is_imported_before_it_is_needed():
    heavy = [
        "torch",
        "transformers",
        "sentence_transformers",
        "openai",
        "sklearn",
        "scipy",
        "sqlite3",
        "huggingface_hub",
    ]
    script = f"""
import sys
from migrate.embedders import known_models, load_embedder
for spec in ("openai:text-embedding-3-small", "packaged:all-MiniLM-L6-v2", "tfidf:8", "file:x.npz"):
    load_embedder(spec)
print(*[name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
