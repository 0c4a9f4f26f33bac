"""A program's own client behind a guard: a model that is not the store's is found out before its answer is used."""

import asyncio
import copy
import logging
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openai
import pytest
from langchain_core.embeddings import Embeddings
from openai_server import KEY, OpenAIServer, vector_of

import migrate
from migrate.embed import embed_corpus
from migrate.embedders.langchain import LangChainEmbedder
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
    guarded = migrate.guard(model, folder, every=3)
    assert isinstance(guarded, Embeddings) and guarded.model == "hashed"
    answers = [guarded.embed_query("what is asked") for _ in range(7)]
    assert model.requests == [4, 1, 1, 1, 4, 1, 1, 1, 4, 1]
    assert answers == [Hashed().embed_query("what is asked")] * 7
    assert guarded.embed_documents(["a", "b"]) == Hashed().embed_documents(["a", "b"])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            Hashed("another"),
            r"Hashed does not give .* have a median cosine of -?0\.\d+ with them; embed queries",
        ),
        (Hashed(dim=12), r"gives vectors of 12 dimensions, and the store has 8, which are those of .*; embed queries"),
    ],
    ids=["another model", "another dimension"],
)
def test_a_wrong_model_is_found_out_before_its_first_answer_and_at_each_call_after(folder, model, message):
    guarded = migrate.guard(model, folder)
    for _ in range(2):
        with pytest.raises(VectorError, match=message):
            guarded.embed_query("what is asked")
    with pytest.raises(VectorError, match=message):
        asyncio.run(guarded.aembed_query("what is asked"))
    assert model.requests == [4, 4, 4]  # never the question itself


def test_a_model_that_changes_is_found_out_at_the_next_check(folder):
    model = Hashed()
    guarded = migrate.guard(model, folder, every=2)
    guarded.embed_query("first")
    model.salt = "a new version"
    guarded.embed_query("second")
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        guarded.embed_query("third")


def test_it_may_log_and_go_on(folder, caplog):
    guarded = migrate.guard(Hashed("another"), folder, every=2, mismatch="log")
    with caplog.at_level(logging.WARNING, "migrate"):
        for _ in range(4):
            assert guarded.embed_query("asked") == Hashed("another").embed_query("asked")
    assert [record.name for record in caplog.records] == ["migrate", "migrate"]


def test_the_first_calls_of_several_threads_share_one_check(folder):
    model = Hashed()
    guarded = migrate.guard(model, folder)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(guarded.embed_query, map(str, range(32))))
    assert sorted(model.requests) == [1] * 32 + [4]


@pytest.mark.parametrize("location", ["{}", "faiss:{}", "{}/index.faiss"])
def test_a_store_that_is_replaced_is_read_anew(folder, short_corpus, location, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(folder, path)
    model = Hashed()
    guarded = migrate.guard(model, location.format(path), every=1)
    guarded.embed_query("asked")
    shutil.rmtree(path)
    embed_corpus(lambda: short_corpus.documents, LangChainEmbedder(Hashed("new"), dimensions=8), path)
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        guarded.embed_query("asked")
    model.salt = "new"
    guarded.embed_query("asked")


def test_of_a_translated_store_the_new_model_is_asked(short_folder, tmp_path):
    store = open_store(short_folder)
    stitch = migrate.fit(store, LangChainEmbedder(Hashed("target"), dimensions=8), kind="ridge", sample=40)
    migrate.translate(store, stitch, tmp_path / "new")
    migrate.guard(Hashed("target"), tmp_path / "new").embed_query("asked")
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        migrate.guard(Hashed(), tmp_path / "new").embed_query("asked")


def test_a_prefix_of_the_manifest_is_put_before_texts_where_they_do_not_fit_without(short_corpus, tmp_path):
    embedder = LangChainEmbedder(Hashed(), dimensions=8, document_prefix="passage: ")
    embed_corpus(lambda: short_corpus.documents, embedder, tmp_path / "store")
    bare, own = Hashed(), Hashed("passage: ", prefix="passage: ")
    migrate.guard(bare, tmp_path / "store").embed_query("asked")
    assert bare.requests == [4, 4, 1]
    migrate.guard(own, tmp_path / "store").embed_query("asked")
    assert own.requests == [4, 1]


def test_a_client_of_openai_is_checked_for_each_model(folder, tmp_path):
    with OpenAIServer() as server, openai.OpenAI(api_key=KEY, base_url=server.url) as client:
        guarded = migrate.guard(client, folder)
        assert guarded.api_key == KEY
        for _ in range(2):
            answer = guarded.embeddings.create(model="tiny", input="asked")
            np.testing.assert_allclose(answer.data[0].embedding, vector_of("asked"), rtol=1e-6)
        for text in ("asked", "again"):
            with pytest.raises(VectorError, match="text-embedding-3-small gives vectors of 1,536 dimensions"):
                guarded.with_options(timeout=9).embeddings.create(model="text-embedding-3-small", input=text)
        answer = guarded.embeddings.create(model="text-embedding-3-small", dimensions=8, input="asked")
        assert len(answer.data[0].embedding) == 8
    assert [len(request.inputs) for request in server.requests] == [4, 1, 1, 4, 4, 4, 1]


def test_no_way_to_ask_a_client_of_openai_goes_past_the_guard(folder):
    with OpenAIServer() as server, migrate.guard(openai.OpenAI(api_key=KEY, base_url=server.url), folder) as guarded:
        raw = guarded.embeddings.with_raw_response
        assert len(raw.create(model="tiny", input="asked").parse().data[0].embedding) == 8
        for embeddings in (raw, guarded.with_raw_response.embeddings, guarded.embeddings.with_streaming_response):
            with pytest.raises(VectorError, match="gives vectors of 1,536 dimensions"):
                embeddings.create(model="text-embedding-3-small", input="asked")


def test_a_guarded_client_is_copied_with_its_guard(folder):
    copied = copy.deepcopy(migrate.guard(Hashed("another"), folder))
    with pytest.raises(VectorError, match="does not give the store's vectors"):
        copied.embed_query("asked")


def test_what_is_set_on_a_guard_reaches_the_client(folder):
    model = Hashed()
    guarded = migrate.guard(model, folder)
    guarded.embed_query("asked")
    guarded.salt = "another"
    assert model.salt == "another" and guarded.embed_query("asked") == Hashed("another").embed_query("asked")
    client = openai.OpenAI(api_key=KEY, base_url="http://127.0.0.1:9")
    shown = migrate.guard(client, folder)
    shown.api_key = "another key"
    assert (client.api_key, shown.api_key) == ("another key", "another key")


def test_a_client_with_too_few_answers_is_refused(folder):
    class Short(Hashed):
        def embed_documents(self, texts):
            return super().embed_documents(texts)[:2]

    with pytest.raises(VectorError, match="Short gives 2 vectors for 4 texts"):
        migrate.guard(Short(), folder).embed_query("asked")


def test_an_asynchronous_client_of_openai_is_checked(folder):
    async def ask(model):
        async with openai.AsyncOpenAI(api_key=KEY, base_url=server.url) as client:
            return await migrate.guard(client, folder).embeddings.create(model=model, input="asked")

    with OpenAIServer() as server:
        assert len(asyncio.run(ask("tiny")).data[0].embedding) == 8
        with pytest.raises(VectorError, match="gives vectors of 1,536 dimensions"):
            asyncio.run(ask("text-embedding-3-small"))


def test_an_embedding_of_llamaindex_is_checked(folder):
    base = pytest.importorskip("llama_index.core.base.embeddings.base")
    from llamaindex_models import Model

    guarded = migrate.guard(Model(model_name="own", embed_batch_size=3), folder)
    assert isinstance(guarded, base.BaseEmbedding)
    assert (guarded.model_name, guarded.embed_batch_size) == ("own", 3)
    np.testing.assert_allclose(guarded.get_query_embedding("asked"), vector_of("asked"), rtol=1e-6)
    assert guarded.get_text_embedding_batch(["a", "b"]) == [vector_of(text).tolist() for text in "ab"]
    wrong = migrate.guard(Model(model_name="other", salt="x"), folder)
    for ask in (wrong.get_query_embedding, lambda text: asyncio.run(wrong.aget_query_embedding(text))):
        with pytest.raises(VectorError, match="other does not give the store's vectors"):
            ask("asked")
    unpickled = pickle.loads(pickle.dumps(wrong))
    assert (unpickled.model_name, unpickled.salt) == ("other", "x")
    with pytest.raises(VectorError, match="other does not give the store's vectors"):
        unpickled.get_query_embedding("asked")
    unpickled.salt, unpickled.embed_batch_size = "", 7
    np.testing.assert_allclose(unpickled.get_query_embedding("asked"), vector_of("asked"), rtol=1e-6)
    assert (unpickled._model.embed_batch_size, unpickled.embed_batch_size) == (7, 7)


def test_what_cannot_be_guarded_is_refused(folder, bare_folder):
    with pytest.raises(UsageError, match=r"builtins\.list cannot be guarded; give a LangChain Embeddings"):
        migrate.guard([], folder)
    with pytest.raises(UsageError, match="the store has no text of a vector that is known"):
        migrate.guard(Hashed(), bare_folder)
    with pytest.raises(UsageError, match="every=0 is a whole number from 1"):
        migrate.guard(Hashed(), folder, every=0)
