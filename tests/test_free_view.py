"""A free local model is tried as a further view where the target is behind an API."""

import re

import numpy as np
import pytest
from openai_server import OpenAIServer

import migrate
from migrate.embedders import load_embedder
from migrate.errors import UsageError
from migrate.report.fit import choice_sentence, fit_sentences
from migrate.steps.fit import Fit
from migrate.steps.fit.inputs import FREE_VIEW
from migrate.stitch import select
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all

pytestmark = pytest.mark.slow

MODULE = """
import numpy as np
from langchain_core.embeddings import Embeddings
from migrate.embedders import load_embedder
from migrate.vectors import Document

MODEL = load_embedder("packaged:all-MiniLM-L6-v2")
ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(384, 384)))[0].astype(np.float32)

class Rotated(Embeddings):
    def embed_documents(self, texts):
        return (MODEL.embed_documents([Document(str(i), text) for i, text in enumerate(texts)]) @ ROTATION).tolist()

    def embed_query(self, text):
        return self.embed_documents([text])[0]
"""


@pytest.fixture(scope="module")
def relative(tmp_path_factory):
    """A model of which it is not known whether it costs money, and to which all-MiniLM-L6-v2 has much to say."""
    folder = tmp_path_factory.mktemp("module")
    (folder / "relative_of_minilm.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield "langchain:relative_of_minilm:Rotated"


@pytest.fixture(scope="module")
def store(short_folder):
    return open_store(short_folder)


@pytest.fixture(scope="module")
def load(relative, tmp_path_factory):
    """The target; what it was asked once is in a cache."""
    cache = tmp_path_factory.mktemp("cache") / "cache.sqlite"
    return lambda: load_embedder(relative, cache=cache)


@pytest.fixture(scope="module")
def fitted(store, load):
    return migrate.fit(store, load(), sample=120)


def sentences_of_trial(fitted):
    return [line for line in fit_sentences(fitted.selection) if "was tried" in line]


def test_it_is_used_where_it_helps(store, load, fitted, tmp_path):
    tried = fitted.selection.tried
    assert tried.is_used and tried.overlap_with > tried.overlap_without + 0.1
    assert list(fitted.reader.models) == [FREE_VIEW]
    fitted.save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    assert loaded.selection.tried == tried and list(loaded.reader.models) == [FREE_VIEW]
    tokens = fitted.selection.tokens
    assert tokens.is_used and tokens.overlap_with > tokens.overlap_without
    assert loaded.selection.tokens == tokens and loaded.reader.pieces.vectors.shape[1] == 384
    assert f"are read by the token embeddings of {FREE_VIEW}" in "\n".join(fit_sentences(fitted.selection))
    unseen = [i for i, document in enumerate(store.documents()) if document.id not in set(fitted.sample.ids)]
    assert len(unseen) == 30
    truth = load().embed_documents(list(store.documents(unseen)))

    def mean_cosine(stitch, name):
        migrate.translate(store, stitch, tmp_path / name)
        rows = read_all(open_store(tmp_path / name).scan()).vectors[unseen]
        return float(np.einsum("ij,ij->i", rows, truth).mean())

    without = migrate.fit(store, load(), sample=120, view={})
    assert mean_cosine(loaded, "with") > mean_cosine(without, "without") + 0.05
    (said,) = sentences_of_trial(fitted)
    assert "It is used" in said and f"{100 * tried.overlap_without:.1f} % without" in said
    every = f"translating embeds every text with {FREE_VIEW}, on this machine"
    assert every in choice_sentence(fitted.selection)


def test_a_large_store_is_told_what_it_would_add(store, load, fitted, monkeypatch):
    monkeypatch.setattr(select, "MOST_VIEWED", 100)
    large = migrate.fit(store, load(), sample=120)
    assert large.selection.tried == fitted.selection.tried and not large.selection.tried.is_used
    assert not large.reader.models
    assert large.selection.tried.minutes > 0
    (said,) = sentences_of_trial(large)
    assert re.search(rf"150 documents .* about \S+ \w+ here; .*--view {FREE_VIEW}$", said)


def test_it_is_left_out_where_it_does_not_help(store, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    with OpenAIServer() as server:  # its vectors mean nothing
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        target = load_embedder("openai:text-embedding-3-small", dimensions=24)
        fitted = migrate.fit(store, target, sample=120)
    assert not fitted.selection.tried.helps and not fitted.selection.tokens.is_used
    assert fitted.reader is None or not (fitted.reader.models or fitted.reader.pieces)


@pytest.mark.parametrize(
    "options",
    [{"view": {}}, {"sample": 99}, {"kind": "ridge+text"}, {"direction": "query"}],
    ids=["told not to", "few pairs", "no choice", "queries"],
)
def test_it_is_not_tried_without_need(store, relative, options):
    inputs = Fit(store, load_embedder(relative), **options).open().inputs
    assert inputs.views == {} and inputs.free is None


def test_it_is_not_tried_for_a_local_target_nor_for_a_store_of_its_own(store, relative):
    local = Fit(store, load_embedder("tfidf:24")).open().inputs
    assert local.views == {} and local.free is None
    own = Fit(store, load_embedder(relative), source_model=load_embedder(FREE_VIEW)).open().inputs
    assert own.views == {} and own.free is not None  # the old vectors hold all but its tokens
    assert list(Fit(store, load_embedder(relative)).open().inputs.views) == [FREE_VIEW]


def test_a_model_that_is_named_but_not_used_is_not_asked_again(store, tmp_path):
    views = {FREE_VIEW: load_embedder(FREE_VIEW)}
    fitted = migrate.fit(store, load_embedder("tfidf:32"), kind=["identity", "ridge+text"], sample=120, view=views)
    assert fitted.selection.tried is None
    assert fitted.reader is None or not fitted.reader.models


@pytest.fixture
def same(relative, monkeypatch):
    """The free local model itself, behind a wrapper that does not say so."""
    import relative_of_minilm

    monkeypatch.setattr(relative_of_minilm, "ROTATION", np.eye(384, dtype=np.float32))
    return load_embedder(relative)


def test_a_target_in_disguise_is_named_and_not_run_on_every_text(store, same, tmp_path):
    fitted = migrate.fit(store, same, sample=120)
    assert fitted.selection.tried.is_target and not fitted.selection.tried.is_used
    assert fitted.reader is None or not fitted.reader.models
    assert fitted.selection.best.scores.overlap_at_10 < 0.9
    fitted.save(tmp_path / "stitch")
    assert load_stitch(tmp_path / "stitch").selection.tried == fitted.selection.tried
    said = choice_sentence(fitted.selection)
    assert f"`reembed --target {FREE_VIEW}`" in said
    assert sentences_of_trial(fitted) == []


def test_the_target_is_no_view_of_itself(store):
    target = load_embedder(FREE_VIEW)
    with pytest.raises(UsageError, match="is the target itself"):
        Fit(store, target, view={target.profile.spec: target}).run()
