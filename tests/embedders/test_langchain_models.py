"""`langchain:MODULE:CLASS`, with a module of a user's own and LangChain's own classes."""

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from migrate.cli.main import run
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.embedders.langchain import LangChainEmbedder
from migrate.errors import RemoteError, UsageError, VectorError
from migrate.vectors import Document

pytestmark = pytest.mark.slow

MAKE = "langchain:langchain_models:make_fake"


@pytest.mark.parametrize("name", ["make_fake", "ready"])
def test_vectors_are_those_of_the_object(name, models, documents):
    embedder, texts = load_embedder(f"langchain:langchain_models:{name}"), ["a cat", "two cats"]
    np.testing.assert_allclose(
        embedder.embed_documents(documents(*texts)), models.ready.embed_documents(texts), rtol=1e-6
    )
    assert (embedder.identity.dim, embedder.profile.is_paid, embedder.profile.price_usd_per_mtok) == (24, None, None)


def test_an_object_of_the_library_is_wrapped_as_it_is(documents):
    embedder = LangChainEmbedder(DeterministicFakeEmbedding(size=8), dimensions=8)
    assert embedder.embed_documents(documents("a")).shape == (1, 8)
    assert embedder.identity.spec == "langchain:langchain_core.embeddings.fake:DeterministicFakeEmbedding"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("langchain_models", "is not of the form langchain:MODULE:CLASS, for example"),
        ("no_such_module:A", "no module named 'no_such_module'; install it, or put its folder on PYTHONPATH"),
        ("langchain_models:Nothing", "has nothing named 'Nothing'; check the spelling"),
        (
            "langchain_models:NeedsSize",
            "calling it without arguments failed with TypeError: .*size.*; write a function that makes it",
        ),
        ("langchain_models:not_embeddings", "gives a list, not a LangChain Embeddings; name a class"),
        ("langchain_models:functools", "gives a module, not a LangChain Embeddings; name a class"),
    ],
)
def test_says_what_is_wrong_with_a_spec(name, message, models):
    with pytest.raises(UsageError, match=message):
        load_embedder(f"langchain:{name}")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda rows: rows[1:], RemoteError, "returned 1 vectors for 2 texts"),
        (lambda rows: [row[1:] for row in rows], VectorError, "its vectors have dimension 23, not 24"),
        (
            lambda rows: [[float("nan")] * 24, *rows[1:]],
            VectorError,
            "NaN, Inf or overflowing vector for document",
        ),
        (lambda rows: [rows[0], [0.0] * 24], VectorError, "zero vector for document 'd1'"),
        (lambda rows: [rows[0], rows[1][1:]], VectorError, "not a table of numbers with rows of equal length"),
        (lambda rows: None, RemoteError, "failed with TypeError"),
        (lambda rows: rows[99], RemoteError, "failed with IndexError: list index out of range"),
    ],
)
def test_a_wrong_answer_is_an_error_in_one_line(change, error, message, models, documents, monkeypatch):
    embedder = load_embedder("langchain:langchain_models:Spoiled")
    assert embedder.identity.dim == 24
    monkeypatch.setattr(models.Spoiled, "change", staticmethod(change))
    with pytest.raises(error, match=message) as raised:
        embedder.embed_documents(documents("a", "b"))
    assert "\n" not in str(raised.value) and MAKE.rpartition(":")[0] in str(raised.value)


def test_a_declared_dimension_saves_the_probe_and_is_held_against_vectors(models, documents):
    embedder = load_embedder(MAKE, dimensions=12)
    assert embedder.profile.dim == 12
    with pytest.raises(VectorError, match=r"dimension 24, not 12; .*dimensions=12"):
        embedder.embed_documents(documents("a"))


def test_scopes_name_module_class_and_model(models):
    scopes = {
        load_embedder(f"langchain:langchain_models:{name}").cache_scope("document") for name in ("ready", "make_fake")
    }
    assert len(scopes) == 2 and all("DeterministicFakeEmbedding" in scope for scope in scopes)
    named = load_embedder("langchain:langchain_models:Named", dimensions=384)
    assert "their-model" in named.cache_scope("document") != named.cache_scope("query")


def test_check_says_that_the_same_model_by_way_of_langchain_is_compatible(
    short_corpus, models, tmp_path, monkeypatch, capsys
):
    embed_corpus(lambda: short_corpus.documents[:40], LangChainEmbedder(models.ready), tmp_path / "store")
    (tmp_path / "store" / "lead-migrate.json").unlink()
    arguments = ["check", str(tmp_path / "store"), "--cache", "none", "--sample", "8", "--model"]
    assert run([*arguments, MAKE]) == 0
    assert capsys.readouterr().out.startswith(f"compatible with {MAKE}")
    monkeypatch.setattr(models.Spoiled, "change", staticmethod(lambda rows: [row[::-1] for row in rows]))
    assert run([*arguments, "langchain:langchain_models:Spoiled"]) == 1


def test_a_store_moves_to_a_langchain_model_and_is_audited(source_folder, beir, models, tmp_path, capsys):
    stitch, new, cache = tmp_path / "stitch", tmp_path / "new", ["--cache", str(tmp_path / "cache")]
    fit = ["fit", str(source_folder), "--target", MAKE, "--kind", "ridge", "--sample", "60", "-o", str(stitch), *cache]
    assert run(fit) == 0
    said = capsys.readouterr().err
    assert "no price known" in said and f"not known if {MAKE} costs money" in said and "--price" in said
    assert run(["translate", str(source_folder), str(stitch), "-o", str(new)]) == 0
    assert f"--target {MAKE}" in capsys.readouterr().err
    judged = ["audit", str(new), "--reference", "build", "--judged", str(beir), *cache]
    assert run(judged) == 2
    assert "--target langchain:" in capsys.readouterr().err
    assert run([*judged, "--target", MAKE, "--price", "10"]) in (0, 1, 3)
    assert "not known if" not in capsys.readouterr().err


def test_a_stitch_does_not_read_texts_by_code_that_a_file_names(source_folder, models, tmp_path, capsys):
    fit = ["fit", str(source_folder), "--target", "tfidf:8", "-o", str(tmp_path / "s"), "--cache", "none"]
    assert run([*fit, "--kind", "ridge+text", "--view", MAKE]) == 2
    assert f"--view {MAKE}" in capsys.readouterr().err


def test_document_ids_are_in_messages_of_texts_that_nothing_embeds(models):
    with pytest.raises(Exception, match="'empty' has no text"):
        load_embedder(MAKE).embed_documents([Document("empty", " ")])
