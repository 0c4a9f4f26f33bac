"""A model behind an API that is not what it was, or mixes up its answers: nobody believes what is known of it."""

import itertools
import json
import shutil

import numpy as np
import pytest
from mistakes import DIM
from openai_server import OpenAIServer, status

from migrate.cli.main import run
from migrate.vectors import unit_rows

pytestmark = pytest.mark.slow

TARGET = ["--target", f"openai:text-embedding-3-small,dimensions={DIM}"]


def worse(model):
    """The model after a change for the worse: its vectors have a cosine of about 0.8 with those before."""

    def vectors(texts):
        rows = model(texts)
        noise = np.random.default_rng([len(text) for text in texts]).normal(size=rows.shape) / np.sqrt(DIM)
        return unit_rows((rows + 0.75 * noise).astype(np.float32))

    return vectors


def rotated(model):
    """Another model of as good vectors."""
    turned = np.linalg.qr(np.random.default_rng(5).normal(size=(DIM, DIM)))[0].astype(np.float32)
    return lambda texts: model(texts) @ turned


def swapped(model):
    """The first two texts of each request have each other's vectors."""

    def vectors(texts):
        rows = model(texts)
        rows[:2] = rows[:2][::-1].copy()
        return rows

    return vectors


def last_swapped(model):
    return lambda texts: swapped(model)(texts[::-1])[::-1]


def shifted(model):
    """Each text has the vector of the one before it in the request."""
    return lambda texts: np.roll(model(texts), 1, axis=0)


def of_two_servers(model):
    """Requests go to one server and to another, of another model, in turn."""
    turns = itertools.cycle([model, rotated(model)])
    return lambda texts: next(turns)(texts)


def half_from_another(model):
    """Every other text of a request has the vector of another model."""
    other = rotated(model)
    return lambda texts: np.where((np.arange(len(texts)) % 2 == 0)[:, None], model(texts), other(texts))


def by_length(model):
    """Long requests go to another model: those of few texts, with which it is asked again, do not."""
    other = rotated(model)
    return lambda texts: (other if len(texts) > 8 else model)(texts)


MIXED = [swapped, last_swapped, shifted, of_two_servers, half_from_another, by_length]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(scope="module")
def moved(good, tmp_path_factory):
    """A translated store, its reference, and the cache of the server that gave their true vectors."""
    folder = tmp_path_factory.mktemp("moved")
    with pytest.MonkeyPatch.context() as patch, OpenAIServer() as server:
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder / "none"))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        server.vectors = good.model
        for command in (
            ["fit", good.source, *TARGET, "--sample", "120", "--kind", "ridge", "-o", folder / "stitch"],
            ["translate", good.source, folder / "stitch", "-o", folder / "new"],
            ["reembed", good.source, *TARGET, "-o", folder / "full"],
        ):  # fmt: skip
            assert run([*map(str, command), "-q"]) in (0, 3)
    labels = (f"{document.id}\t{number % 2}\n" for number, document in enumerate(good.documents))
    (folder / "labels.tsv").write_text("".join(labels))
    return folder


@pytest.fixture
def server(good, moved, tmp_path, monkeypatch):
    """The server as it is now, where a server was before: the cache goes by its address."""
    with OpenAIServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        running.vectors = good.model
        yield running


def judged(moved, good, reference):
    named = moved / "full" if reference == "full" else reference
    return ["audit", moved / "new", "--reference", named, "--judged", good.beir, "--two-stage", "none", "--json"]


def is_refused(answer):
    code, report, err = answer
    return code == 4 and report is None and "gives another vector for the text of" in err and err.count("\n") == 1


# A full re-embed that is there is believed where labels are judged
@pytest.mark.parametrize(("reference", "times"), [("pool:20", 2), ("build", 1)])
def test_a_model_that_is_what_it_was_is_believed_with_its_cache_and_without(
    reference, times, good, moved, server, told
):
    for _ in range(times):
        code, report, err = told(*judged(moved, good, reference))
        doubts = [doubt for doubt in report["reference"]["doubts"] if "worse than BM25" not in doubt]
        assert code in (0, 3) and report["reference"]["proven"] and not doubts, err
        assert report["verdict"]["retention"]["lower"] >= 0.9, "the 300 queries are in some 210 groups"


@pytest.mark.parametrize(
    ("change", "reference"),
    [
        *((change, "pool") for change in [rotated, of_two_servers, by_length]),  # a fit is asked by all of them
        *((worse, reference) for reference in ("pool:20", "full", "build")),
    ],
)
def test_no_verdict_rests_on_another_model(change, reference, good, moved, server, told):
    server.vectors = change(good.model)
    assert is_refused(told(*judged(moved, good, reference)))


def test_what_the_cache_has_is_not_believed_of_another_model(good, moved, server, told):
    assert told(*judged(moved, good, "pool"))[0] in (0, 3)
    server.vectors = rotated(good.model)
    assert is_refused(told(*judged(moved, good, "pool")))
    server.vectors = by_length(good.model)
    asked = len(server.requests)
    code, report, _ = told(*judged(moved, good, "pool"))
    assert code in (0, 3) and report["reference"]["proven"], "all that is long is in the cache"
    assert all(len(request.inputs) <= 8 for request in server.requests[asked:])


def test_labels_are_not_judged_by_another_model(good, moved, server, told):
    command = ["labels", moved / "new", "--reference", moved / "full", "--labels", moved / "labels.tsv", "--json"]
    server.vectors = worse(good.model)
    assert is_refused(told(*command))
    server.vectors = good.model
    code, report, _ = told(*command)
    assert code in (0, 1, 3) and report["doubts"] == []


@pytest.mark.parametrize("change", [last_swapped, of_two_servers, by_length])
def test_no_store_is_made_of_answers_that_are_mixed_up(change, good, server, tmp_path, told):
    command = ["embed", good.beir, "--model", f"{TARGET[1]},batch-size=40", "--no-chunks", "-o", tmp_path / "new"]
    server.vectors = change(good.model)
    assert is_refused(told(*command)) and not (tmp_path / "new").exists()


def backwards(model):
    """Each request is answered from its end."""
    return lambda texts: model(texts)[::-1]


@pytest.mark.parametrize("change", [backwards, *MIXED])
def test_no_stitch_is_learned_from_answers_that_are_mixed_up(change, good, server, tmp_path, told):
    command = ["fit", good.source, *TARGET, "--sample", "120", "--kind", "ridge", "-o", tmp_path / "stitch", "--json"]
    server.vectors = change(good.model)
    assert is_refused(told(*command)) and not (tmp_path / "stitch").exists()
    server.vectors = good.model
    assert is_refused(told(*command)), "the cache has the mixed answers"
    if change is backwards:  # what was answered wrongly before makes no difference to a new cache
        assert told(*command, "--cache", tmp_path / "other.sqlite")[0] == 0


def test_a_fit_that_is_believed_asks_eight_texts_more_and_says_so_beforehand(good, server, tmp_path, told):
    command = ["fit", good.source, *TARGET, "--sample", "120", "--kind", "ridge", "-o", tmp_path / "stitch", "--json"]
    code, plan, _ = told(*command, "--dry-run")
    assert code == 0 and "120 documents" in plan["embeds"][0] and "up to 8 texts again" in plan["embeds"][0]
    assert told(*command)[0] == 0
    assert len(server.billed) == 120 + 8 and len(set(server.billed)) == 120


def test_neither_run_nor_collections_nor_a_choice_goes_on_with_answers_that_are_mixed_up(good, server, tmp_path, told):
    shutil.copytree(good.source, tmp_path / "many" / "one")
    shutil.copytree(good.source, tmp_path / "many" / "two")
    server.vectors = shifted(good.model)
    folder = tmp_path / "out"
    judges = ["--judged", good.beir, "--sample", "120", "--json"]
    for command in (
        ["run", good.source, *TARGET, "--kind", "ridge", "-o", folder, *judges],
        ["assess", good.source, *TARGET, "--target", "openai:tiny-raw", *judges],
        ["collections", "fit", tmp_path / "many" / "*", *TARGET, "--sample", "120", "-o", tmp_path / "stitches"],
    ):
        code, report, err = told(*command)
        assert code == 4 and report is None and "gives another vector for the text of" in err, err
        assert not (folder / "stitch").exists() and not (tmp_path / "stitches").exists()


def refuse_after(server, count):
    """From the request of this number on the server takes the key for a wrong one."""
    server.gate = lambda number: status(401, "no", "invalid_api_key") if number > count else None


def answer_again(server, model):
    server.gate = None
    server.faults.clear()
    server.vectors = model


def test_a_broken_off_embed_does_not_go_on_with_another_model(good, server, tmp_path, monkeypatch, told):
    monkeypatch.setattr("migrate.embed.corpus.BATCH_DOCUMENTS", 64)
    command = ["embed", good.beir, "--model", f"{TARGET[1]},batch-size=64,concurrency=1", "--no-chunks"]
    command += ["-o", tmp_path / "new"]
    refuse_after(server, 4)
    assert told(*command)[0] == 7
    answer_again(server, rotated(good.model))
    assert is_refused(told(*command)) and not (tmp_path / "new").exists()
    answer_again(server, good.model)
    assert told(*command)[0] == 0


def test_a_sync_adds_nothing_of_another_model(good, moved, server, tmp_path, told, forget_hashes):
    new, old = (shutil.copytree(place, tmp_path / place.name) for place in (moved / "new", good.source))
    first, *others = (old / "docs.jsonl").read_text().splitlines()
    changed = json.dumps({**json.loads(first), "text": "words that were not there before"})
    (old / "docs.jsonl").write_text("\n".join([changed, *others, ""]))
    forget_hashes(old)
    server.vectors = worse(good.model)
    before = (new / "index.faiss").read_bytes()
    assert is_refused(told("sync", old, new)) and (new / "index.faiss").read_bytes() == before
    server.vectors = good.model
    assert told("sync", old, new)[0] == 0


def test_a_backfill_believes_no_cache_of_another_model(good, moved, server, tmp_path, told):
    told(*judged(moved, good, "pool"))
    command = ["backfill", moved / "new", "-o", tmp_path / "better"]
    server.vectors = rotated(good.model)
    assert is_refused(told(*command))
    refuse_after(server, 0)
    assert told(*command)[0] == 7 and not (tmp_path / "better").exists()
    answer_again(server, good.model)
    assert told(*command)[0] == 0


def test_no_share_is_embedded_by_another_model(good, moved, server, tmp_path, told):
    command = ["translate", good.source, moved / "stitch", "--reembed", "60%", "--policy", "random"]
    command += ["-o", tmp_path / "new"]
    server.vectors = worse(good.model)
    assert is_refused(told(*command)) and not (tmp_path / "new").exists()
    server.vectors = good.model
    assert told(*command)[0] == 0
