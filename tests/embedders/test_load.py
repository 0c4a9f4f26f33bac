import subprocess
import sys

import pytest

from migrate.embedders import load_embedder, parse_spec
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.kinds import split_settings, with_settings
from migrate.errors import UsageError

MINILM = "packaged:all-MiniLM-L6-v2"


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
        ("qqqq", "the kinds are sentence-transformers:, packaged:, openai:, file:, tfidf:"),
        ("amazon:embed", "the kinds are"),
        ("", "the kinds are"),
        ("openai:", "'openai:' lacks the name of a model, for example openai:text-embedding-3-small"),
        ("tfidf:many", "tfidf:many names no number of dimensions; give one such as tfidf:256"),
        ("tfidf:0", "tfidf:256"),
        ("tfidf:-3", "tfidf:256"),
        ("packaged:e5-base-v2", "the only packaged model is packaged:all-MiniLM-L6-v2"),
        (f"layer:x:{MINILM}", "is not of the form layer:N:MODEL"),
        ("layer:4", "is not of the form layer:N:MODEL"),
        (f"layer:-1:{MINILM}", "is not of the form layer:N:MODEL"),
        (f"layer:3:layer:4:{MINILM}", "is not of the form layer:N:MODEL"),
        (f"layer:4:median:{MINILM}", "unknown model"),
        ("layer:4:tfidf:64", "tfidf:64 has no layers"),
        ("prefix:24:tfidf:4", "the commit 0a3df1b0 of lead-migrate is the last that reads it"),
        ("layer:4:openai:text-embedding-3-small", "has no layers"),
    ],
)
def test_says_what_is_wrong_with_a_spec_in_a_line(spec, message):
    with pytest.raises(UsageError, match=message) as caught:
        load_embedder(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ("file:a,b.npz", {}),
        ("tfidf:8,device=cpu", {"device": "cpu"}),
        ("length:24:openai:x,dimensions=8,rate=1/s,2tok/s", {"dimensions": 8, "rate": "1/s,2tok/s"}),
        ("e5-base-v2,document-prefix=passage: ,query-prefix=", {"document_prefix": "passage: ", "query_prefix": ""}),
        ("openai:x,batch-size=2,concurrency=3", {"batch_size": 2, "concurrency": 3}),
    ],
)
def test_settings_follow_a_name_and_are_written_as_they_are_read(spec, settings):
    bare, found = split_settings(spec)
    assert (found, with_settings(bare, found)) == (settings, spec)
    assert with_settings(spec, dict.fromkeys(settings)) == bare


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "dimension=8",
            "tfidf:8,dimension=8: the setting dimension is unknown; a model has device, batch-size, concurrency, rate,",
        ),
        ("batch_size=8", "the setting batch_size is unknown"),
        ("device=cpu,device=cuda", "the setting device is there twice"),
        ("concurrency=0", "the setting concurrency '0' is not a whole number above 0"),
        ("batch-size=many", "the setting batch-size 'many' is not a whole number above 0"),
        ("rate=", "the setting rate '' is empty"),
        ("dimensions=4", "give a number from 1 on, with an API, a local model or langchain: only"),
        ("query-prefix=q", "takes no prefixes"),
        ("device=cpu", "tfidf:8,device=cpu takes no device; leave out device=cpu"),
    ],
)
def test_says_what_is_wrong_with_settings(settings, message):
    with pytest.raises(UsageError, match=message):
        load_embedder(f"tfidf:8,{settings}")


def test_settings_are_not_part_of_a_model_but_for_its_vectors(tmp_path):
    embedder = load_embedder("openai:text-embedding-3-small,dimensions=8,query-prefix=q: ,rate=1/s", rate="2/s")
    assert embedder.profile.spec == "openai:text-embedding-3-small" and embedder.profile.dim == 8
    assert embedder.prefixes["query"] == "q: "


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("tfidf:8", {"batch_size": 0}, "batch size"),
        ("tfidf:8", {"dimensions": 4}, "dimensions"),
        ("openai:x", {"dimensions": 0}, "dimensions"),
        ("file:x.npz", {"document_prefix": "passage: "}, "takes no prefixes"),
    ],
)
def test_options_that_do_not_suit_the_model_are_refused(spec, options, message):
    with pytest.raises(UsageError, match=message):
        load_embedder(spec, **options)


@pytest.mark.parametrize(
    ("spec", "is_cached"),
    [("openai:x", True), (MINILM, True), ("tfidf:8", False), ("file:x.npz", False)],
)
def test_caches_only_what_can_be_cached(spec, is_cached, tmp_path):
    cache = tmp_path / "cache.sqlite"
    assert isinstance(load_embedder(spec, cache=cache), CachedEmbedder) == is_cached
    assert not isinstance(load_embedder(spec, document_prefix="", query_prefix=""), CachedEmbedder)
    assert not cache.exists()


def test_no_heavy_library_is_imported_before_it_is_needed():
    script = """
import sys
from migrate.datasets import beir, download, records, stdlib
from migrate.embedders import known_models, load_embedder
for spec in ("openai:text-embedding-3-small", "packaged:all-MiniLM-L6-v2", "tfidf:8", "file:x.npz"):
    load_embedder(spec)
heavy = "torch transformers sentence_transformers openai sklearn scipy sqlite3 huggingface_hub faiss click"
heavy += " langchain_core langchain_text_splitters turtle tkinter"
print(*[name for name in heavy.split() if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
