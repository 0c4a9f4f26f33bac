"""A guarded function or client: a model that is not the store's is found out before its answer is used."""

import asyncio
import copy
import logging
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from openai_server import KEY, OpenAIServer, vector_of

import migrate
from migrate.check.guard.langchain import GuardedEmbeddings
from migrate.check.guard.openai import embedding_function
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.embedders.langchain import LangChainEmbedder
from migrate.embedders.weights import packaged_model_path
from migrate.errors import UsageError, VectorError
from migrate.stores import open_store


class Hashed(Embeddings):
    """Vectors by the hash of a text, of one model or another; it counts the texts of each request."""

    model = "hashed"

    def __init__(self, salt="", dim=8, prefix=""):
        self.salt, self.dim, self.prefix, self.requests = salt, dim, prefix, []

    def embed_documents(self, texts):
        self.requests.append(len(texts))
        return [vector_of(self.salt + text.removeprefix(self.prefix), self.dim).tolist() for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


@pytest.fixture(scope="module")
def folder(short_corpus, tmp_path_factory):
    """A store of the short documents with the vectors of `Hashed()`, which are those of the server too."""
    path = tmp_path_factory.mktemp("guard") / "store"
    embedder = LangChainEmbedder(Hashed(), dimensions=8)
    embed_corpus(lambda: short_corpus.documents, embedder, path)
    return path


def test_the_first_call_and_then_one_in_so_many_are_checked(folder):
    model = Hashed()
    guarded = migrate.guard(model.embed_documents, folder, every=3)
    answers = [guarded(["what is asked"]) for _ in range(7)]
    assert model.requests == [4, 1, 1, 1, 4, 1, 1, 1, 4, 1]
    assert answers == [[Hashed().embed_query("what is asked")]] * 7


def test_what_else_a_function_is_called_with_is_passed_on(folder):
    calls = []

    def embed(texts, *arguments, **options):
        calls.append((len(texts), arguments, options))
        return Hashed().embed_documents(texts)

    migrate.guard(embed, folder)(["a", "b"], "query", batch_size=2)
    assert calls == [(4, (), {}), (2, ("query",), {"batch_size": 2})]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            Hashed("another"),
            r"the guarded model does not give .* have a median cosine of -?0\.\d+ with them; embed queries",
        ),
        (Hashed(dim=12), r"gives vectors of 12 dimensions, and the store has 8, which are those of .*; embed queries"),
    ],
    ids=["another model", "another dimension"],
)
def test_a_wrong_model_is_found_out_before_its_first_answer_and_at_each_call_after(folder, model, message):
    guarded = GuardedEmbeddings(model, folder)
    for _ in range(2):
        with pytest.raises(VectorError, match=message):
            guarded.embed_query("what is asked")
    with pytest.raises(VectorError, match=message):
        asyncio.run(guarded.aembed_query("what is asked"))
    assert model.requests == [4, 4, 4]  # never the question itself


def test_a_model_that_changes_is_found_out_at_the_next_check(folder):
    model = Hashed()
    guarded = migrate.guard(model.embed_documents, folder, every=2)
    guarded(["first"])
    model.salt = "a new version"
    guarded(["second"])
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        guarded(["third"])


def test_it_may_log_and_go_on(folder, caplog):
    guarded = migrate.guard(Hashed("another").embed_documents, folder, every=2, mismatch="log")
    with caplog.at_level(logging.WARNING, "migrate"):
        for _ in range(4):
            assert guarded(["asked"]) == Hashed("another").embed_documents(["asked"])
    assert [record.name for record in caplog.records] == ["migrate", "migrate"]


def test_several_threads_share_a_guard(folder):
    model = Hashed()
    guarded = migrate.guard(model.embed_documents, folder)
    guarded(["first"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(guarded, [[str(number)] for number in range(32)]))
    assert sorted(model.requests) == [1] * 33 + [4]


@pytest.mark.parametrize("location", ["{}", "faiss:{}", "{}/index.faiss"])
def test_a_store_that_is_replaced_is_read_anew(folder, short_corpus, location, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(folder, path)
    model = Hashed()
    guarded = migrate.guard(model.embed_documents, location.format(path), every=1)
    guarded(["asked"])
    shutil.rmtree(path)
    embed_corpus(lambda: short_corpus.documents, LangChainEmbedder(Hashed("new"), dimensions=8), path)
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        guarded(["asked"])
    model.salt = "new"
    guarded(["asked"])


def test_of_a_translated_store_the_new_model_is_asked(short_folder, tmp_path):
    store = open_store(short_folder)
    stitch = migrate.fit(store, LangChainEmbedder(Hashed("target"), dimensions=8), kind="ridge", sample=40)
    migrate.translate(store, stitch, tmp_path / "new")
    migrate.guard(Hashed("target").embed_documents, tmp_path / "new")(["asked"])
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        migrate.guard(Hashed().embed_documents, tmp_path / "new")(["asked"])


def test_a_prefix_of_the_manifest_may_be_put_before_texts_by_the_program_or_by_the_model(short_corpus, tmp_path):
    embedder = LangChainEmbedder(Hashed(), dimensions=8, document_prefix="passage: ")
    embed_corpus(lambda: short_corpus.documents, embedder, tmp_path / "store")
    for model in (Hashed(), Hashed("passage: ", prefix="passage: ")):
        migrate.guard(model.embed_documents, tmp_path / "store")(["asked"])
        assert model.requests == [8, 1]
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        migrate.guard(Hashed("query: ").embed_documents, tmp_path / "store")(["asked"])


@pytest.mark.slow
def test_sentence_transformers_are_guarded_by_their_function(short_corpus, tmp_path):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(packaged_model_path()), device="cpu")
    embed_corpus(lambda: short_corpus.documents, load_embedder("packaged:all-MiniLM-L6-v2"), tmp_path / "store")
    guarded = migrate.guard(model.encode, tmp_path / "store")
    np.testing.assert_allclose(guarded(["asked"], normalize_embeddings=True), model.encode(["asked"]), atol=1e-5)
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        migrate.guard(lambda texts: model.encode(texts)[:, ::-1], tmp_path / "store")(["asked"])


def test_embeddings_of_langchain_are_checked(folder):
    model = Hashed()
    guarded = GuardedEmbeddings(model, folder, every=3)
    assert isinstance(guarded, Embeddings)
    assert guarded.embed_query("asked") == Hashed().embed_query("asked")
    assert guarded.embed_documents(["a", "b"]) == Hashed().embed_documents(["a", "b"])
    assert asyncio.run(guarded.aembed_documents(["a"])) == Hashed().embed_documents(["a"])
    assert asyncio.run(guarded.aembed_query("asked")) == Hashed().embed_query("asked")
    assert model.requests == [4, 1, 2, 1, 4, 1]


def test_guarded_embeddings_are_copied_with_their_guard(folder):
    copied = copy.deepcopy(GuardedEmbeddings(Hashed("another"), folder))
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        copied.embed_query("asked")


@pytest.mark.slow
def test_a_client_of_openai_is_checked(folder):
    import openai

    with OpenAIServer() as server, openai.OpenAI(api_key=KEY, base_url=server.url) as client:
        guarded = migrate.guard(embedding_function(client, "tiny"), folder)
        for _ in range(2):
            np.testing.assert_allclose(guarded(["asked"]), [vector_of("asked")], rtol=1e-6)
        large = migrate.guard(embedding_function(client, "text-embedding-3-small"), folder)
        for text in ("asked", "again"):
            with pytest.raises(VectorError, match="1,536 dimensions"):
                large([text])
        short = migrate.guard(embedding_function(client, "text-embedding-3-small", dimensions=8), folder)
        assert len(short(["asked"])[0]) == 8
    assert [len(request.inputs) for request in server.requests] == [4, 1, 1, 4, 4, 4, 1]


def test_an_asynchronous_client_of_openai_is_checked(folder):
    import openai  # here, as it takes half a second and one worker needs it

    async def ask(model):
        async with openai.AsyncOpenAI(api_key=KEY, base_url=server.url) as client:
            return await migrate.guard(embedding_function(client, model), folder)(["asked"])

    with OpenAIServer() as server:
        assert len(asyncio.run(ask("tiny"))[0]) == 8
        with pytest.raises(VectorError, match="gives vectors of 1,536 dimensions"):
            asyncio.run(ask("text-embedding-3-small"))


def test_a_client_with_too_few_answers_is_refused(folder):
    with pytest.raises(VectorError, match="the guarded model gives 2 vectors for 4 texts"):
        migrate.guard(lambda texts: Hashed().embed_documents(texts)[:2], folder)(["asked"])


@pytest.mark.slow
def test_an_embedding_of_llamaindex_is_checked(folder):
    base = pytest.importorskip("llama_index.core.base.embeddings.base")
    from llamaindex_models import Model

    from migrate.check.guard.llamaindex import GuardedEmbedding

    guarded = GuardedEmbedding(Model(model_name="own", embed_batch_size=3), folder)
    assert isinstance(guarded, base.BaseEmbedding)
    assert (guarded.model_name, guarded.embed_batch_size) == ("own", 3)
    np.testing.assert_allclose(guarded.get_query_embedding("asked"), vector_of("asked"), rtol=1e-6)
    assert guarded.get_text_embedding_batch(["a", "b"]) == [vector_of(text).tolist() for text in "ab"]
    assert guarded.get_text_embedding("a") == vector_of("a").tolist()
    assert asyncio.run(guarded.aget_text_embedding_batch(["a", "b"])) == [vector_of(text).tolist() for text in "ab"]
    wrong = GuardedEmbedding(Model(model_name="other", salt="x"), folder)
    unpickled = pickle.loads(pickle.dumps(wrong))
    assert (unpickled.model_name, unpickled.model.salt) == ("other", "x")
    for model in (wrong, unpickled):
        for ask in (model.get_query_embedding, lambda text, model=model: asyncio.run(model.aget_query_embedding(text))):
            with pytest.raises(VectorError, match="the guarded model does not give"):
                ask("asked")


def test_what_cannot_be_guarded_is_refused(folder, bare_folder):
    with pytest.raises(UsageError, match=r"test_guard\.Hashed .*GuardedEmbeddings"):
        migrate.guard(Hashed(), folder)
    with pytest.raises(UsageError, match="the store has no text of a vector that is known"):
        migrate.guard(Hashed().embed_documents, bare_folder)
    with pytest.raises(UsageError, match="every=0 is a whole number from 1"):
        migrate.guard(Hashed().embed_documents, folder, every=0)
