import hashlib
import json
import random
import subprocess
import sys

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from migrate.embedders.abilities import save_state
from migrate.embedders.tfidf import STATE_NAME, WEIGHTS_NAME, TfidfEmbedder
from migrate.errors import InputError, UsageError
from migrate.vectors import Document

RANDOM = random.Random(5)
WORDS = [f"word{number}" for number in range(300)]
CORPUS = [Document(f"d{row}", " ".join(RANDOM.choices(WORDS, k=40))) for row in range(200)]
QUERIES = [Document("q1", "word1 word2 word250"), Document("q2", "nothing known here"), Document("q3", "word7")]


@pytest.fixture
def fitted():
    return fit(CORPUS)


def fit(corpus, seed=3):
    embedder = TfidfEmbedder(24, seed=seed)
    embedder.fit(iter(corpus))
    return embedder


def saved(embedder, folder):
    folder.mkdir()
    save_state(embedder, folder)
    return b"".join((folder / name).read_bytes() for name in (STATE_NAME, WEIGHTS_NAME))


def test_agrees_with_the_pipeline_of_scikit_learn(fitted):
    weights = TfidfVectorizer(sublinear_tf=True).fit(text.text for text in CORPUS)
    svd = TruncatedSVD(24, n_iter=7, random_state=3).fit(weights.transform(text.text for text in CORPUS))
    for texts in (CORPUS, [QUERIES[0], QUERIES[2]]):
        expected = normalize(svd.transform(weights.transform(text.text for text in texts)))
        np.testing.assert_allclose(fitted.embed_documents(texts), expected, atol=1e-6)


def test_a_text_without_a_known_word_gets_the_mean_direction(fitted):
    vector = fitted.embed_queries([QUERIES[1]])[0]
    mean = fitted.embed_documents(CORPUS).mean(axis=0)
    np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.slow
def test_a_saved_state_embeds_the_same_in_another_process(fitted, tmp_path):
    save_state(fitted, tmp_path)
    script = f"""
import sys, numpy as np
from pathlib import Path
from migrate.vectors import Document
from migrate.embedders import load_embedder
embedder = load_embedder("tfidf:24", state=Path({str(tmp_path)!r}))
texts = [Document(str(row), text) for row, text in enumerate({[text.text for text in CORPUS + QUERIES]!r})]
sys.stdout.buffer.write(embedder.embed_documents(texts).tobytes())
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, check=True)
    assert done.stdout == fitted.embed_documents(CORPUS + QUERIES).tobytes()
    assert TfidfEmbedder(24, state=tmp_path).identity == fitted.identity


def test_the_saved_bytes_depend_on_corpus_and_seed_alone(fitted, tmp_path):
    first = saved(fitted, tmp_path / "a")
    assert first == saved(fit(CORPUS), tmp_path / "b")
    assert first != saved(fit(CORPUS, seed=4), tmp_path / "c")
    assert first != saved(fit(CORPUS[1:]), tmp_path / "d")
    assert hashlib.sha256(first).hexdigest() == fitted.identity.revision


def test_what_was_learned_once_stays(fitted):
    before = fitted.identity
    fitted.fit(CORPUS[:50])
    assert fitted.identity == before


def test_says_what_to_do_before_it_has_learned():
    embedder = TfidfEmbedder(8)
    with pytest.raises(UsageError, match="give it the corpus to fit"):
        embedder.embed_documents(CORPUS)
    with pytest.raises(UsageError, match="learned nothing"):
        save_state(embedder, None)
    assert embedder.identity.revision is None


@pytest.mark.parametrize(
    ("dim", "corpus", "message"),
    [
        (301, CORPUS * 2, "400 and 300"),
        (201, CORPUS, "200 and 300"),
        (2, [], "the corpus has no words"),
        (2, [Document("d", "! ?")], "the corpus has no words"),
    ],
)
def test_a_corpus_too_small_for_the_dimension_is_refused(dim, corpus, message):
    with pytest.raises(InputError, match=message):
        TfidfEmbedder(dim).fit(corpus)


def change_json(folder, **facts):
    path = folder / STATE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


DAMAGE = {
    "no such folder": lambda folder: (folder / STATE_NAME).unlink(),
    "not JSON": lambda folder: (folder / STATE_NAME).write_bytes(b"{"),
    "JSON of something else": lambda folder: (folder / STATE_NAME).write_bytes(b"[]"),
    "another version": lambda folder: change_json(folder, format_version=2),
    "another dimension": lambda folder: change_json(folder, dim=25),
    "fewer words": lambda folder: change_json(folder, vocabulary=["word1"]),
    "no words": lambda folder: change_json(folder, vocabulary=None),
    "the same word": lambda folder: change_json(folder, vocabulary=["word1"] * 300),
    "weights cut off": lambda folder: (folder / WEIGHTS_NAME).write_bytes((folder / WEIGHTS_NAME).read_bytes()[:-9]),
    "NaN": lambda folder: (folder / WEIGHTS_NAME).write_bytes((folder / WEIGHTS_NAME).read_bytes()[:-8] + b"\xff" * 8),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_state_is_refused(damage, fitted, tmp_path):
    save_state(fitted, tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError) as caught:
        TfidfEmbedder(24, state=tmp_path)
    assert "\n" not in str(caught.value)
