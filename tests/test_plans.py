"""Plans, against a server that counts every text: what they estimate, what they pay, and where they stop."""

import inspect
import json
import shutil

import pytest
from openai_server import OpenAIServer

import migrate
from migrate.audit.audit import run_audit
from migrate.audit.recommendation import options_of
from migrate.audit.step import Audit
from migrate.cli.main import leaf_commands
from migrate.cost.count import count_texts
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.errors import SpendingError, UsageError
from migrate.lab.embed.step import Embed
from migrate.pipeline import Run
from migrate.selection.model_match import ASKED_AGAIN
from migrate.steps.fit import Fit
from migrate.steps.reembed import Reembed
from migrate.steps.sync import Sync
from migrate.steps.translate import Translate
from migrate.stores import open_store
from migrate.vectors import Document

SMALL = "openai:text-embedding-3-small"
SIZE = 50
RIDGE = {"kind": "ridge", "sample": SIZE}


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    with OpenAIServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


@pytest.fixture
def load(server, tmp_path):
    """The target model behind a cache, or without one; a new object each time, as another process would have it."""

    def model(cache="cache", spec=SMALL):
        path = cache and tmp_path / f"{cache}.sqlite"
        return load_embedder(spec, cache=path, dimensions=24, batch_size=10, concurrency=1)

    return model


@pytest.fixture
def store(source_folder):
    return open_store(source_folder)


@pytest.fixture
def plan_step(store, beir, corpus, load, forget_hashes, tmp_path):
    """Plans a step, again and again if need be; with what it stands on paid for aside."""

    def fitted():
        return Fit(store, load("aside"), **RIDGE).run()

    def translated():
        if not (tmp_path / "translated").exists():
            migrate.translate(store, fitted(), tmp_path / "translated")
        return open_store(tmp_path / "translated")

    def changed():
        """The store, whose first 60 documents have got other words."""
        old = tmp_path / "changed"
        if not old.exists():
            shutil.copytree(store.folder, old)
            rows = [json.loads(line) for line in (old / "docs.jsonl").read_text().splitlines()]
            for number, row in enumerate(rows[:60]):
                row["text"] = f"other words {number}"
            (old / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            forget_hashes(old)
        return open_store(old)

    some = {"reembed": "80%", "policy": "random"}
    return {
        "fit": lambda: Fit(store, load(), **RIDGE),
        "embed": lambda: Embed(corpus.documents, load(), tmp_path / "new"),
        "re-embed": lambda: Reembed(store, load(), tmp_path / "reference"),
        "translate": lambda: Translate(store, fitted(), tmp_path / "new", target=load(), **some),
        "audit": lambda: Audit(translated(), "build", judged=str(beir), target=load()),
        "sync": lambda: Sync(changed(), translated(), target=load()),
        "migration": lambda: Run(store, load(), tmp_path / "run", judged=beir, reference="pool", **RIDGE),
    }


def counted(texts, load):
    """Tokens of texts, as an estimate has them."""
    return count_texts([Document(str(n), text) for n, text in enumerate(texts)], load(None).profile).tokens_read


def run_under(cap_usd, plan):
    """Run what is open under a cap that its estimate may be beyond."""
    plan.cap.cap_usd = cap_usd
    return plan.execute()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["fit", "embed", "re-embed", "translate", "audit", "sync", "migration"])
def test_a_plan_stops_at_its_cap_and_the_next_one_counts_what_is_left(step, plan_step, server, load, but_again):
    first = plan_step[step]().open()
    but_again(server.billed)
    server.billed.clear()
    estimate = first.estimate()
    assert server.billed == [] and estimate.usd > 0, "an estimate embeds nothing"
    cap_usd = estimate.usd / 4  # the server charges for fewer tokens than are estimated
    with pytest.raises(SpendingError, match="everything paid for is in the cache"):
        run_under(cap_usd, first)
    assert 0 < sum(len(text.split()) for text in server.billed) * 0.02 / 1e6 <= cap_usd
    paid = but_again(server.billed)
    second = plan_step[step]().open()
    but_again(server.billed)
    server.billed.clear()
    left = second.estimate()
    assert left.tokens == estimate.tokens - counted(paid, load)
    assert first.estimate() == estimate, "what was expected before"
    run_under(estimate.usd, second)
    again = sum(model.again_tokens for model in left.models)
    billed = but_again(server.billed)
    assert counted(billed, load) == left.tokens - again, "the run pays what was estimated"
    assert len(server.billed) - len(billed) <= sum(model.again for model in left.models)
    assert not set(paid) & set(billed)


@pytest.mark.parametrize("step", ["fit", "re-embed", "translate", "migration"])
def test_a_step_that_is_opened_still_holds_what_was_asked_for_alone(step, plan_step, server):
    request = plan_step[step]()
    asked = dict(vars(request))
    server.billed.clear()
    first, second = request.open(), request.open()
    assert first.estimate() == second.estimate() and first.estimate().usd > 0
    assert vars(request) == asked, "nothing is kept in the step"
    assert server.billed == [], "nothing is embedded"


def test_a_fit_learns_from_the_sample_that_was_counted(store, load, server, monkeypatch):
    from migrate.steps.fit import job

    drawn, real, model = [], job.draw_sample, load()
    monkeypatch.setattr(job, "draw_sample", lambda *args, **options: drawn.append(args) or real(*args, **options))
    plan = Fit(store, model, strategy="diverse", seed=5, **RIDGE).open()
    (estimate,) = plan.estimate().models
    assert estimate.documents == SIZE
    stitch = plan.run()
    assert len(drawn) == 1
    assert list(stitch.sample.ids) == [document.id for document in plan.sample.documents]
    assert model.misses == len(server.billed) - ASKED_AGAIN == SIZE, "the cache of the caller counts what was embedded"


def test_views_and_source_models_share_the_cap(store, load, corpus, server):
    view, old = load("view", "openai:tiny"), load("old", "openai:text-embedding-ada-002")
    log, views = corpus.queries[:10], {"openai:tiny": view}
    plan = Fit(store, load(), kind="ridge+text", sample=SIZE, query_log=log, source_model=old, view=views).open()
    target, source, seen = plan.estimate().models
    assert (target.documents, source.documents, source.queries, seen.documents) == (SIZE, 0, 10, SIZE)
    assert (source.model, seen.model) == ("openai:text-embedding-ada-002 (source model)", "openai:tiny (view)")
    assert plan.estimate().tokens == target.tokens + source.tokens + seen.tokens
    assert server.requests == []
    with pytest.raises(SpendingError):
        run_under(1e-9, plan)
    assert server.billed == []


@pytest.mark.slow
def test_a_fit_for_a_store_that_has_grown_pays_for_what_is_new(store, corpus, load, server, tmp_path):
    half = tmp_path / "half"
    embed_corpus(lambda: iter(list(corpus.documents)[:80]), load_embedder("tfidf:32"), half)
    earlier = Fit(open_store(half), load(), **RIDGE).run()
    assert len(server.billed) == SIZE + ASKED_AGAIN
    plan = Fit(store, load(), kind="ridge", sample=SIZE + 20, grown_from=earlier).open()
    assert plan.estimate().models[0].documents == 20
    fitted = plan.run()
    assert len(server.billed) == SIZE + 20 + 2 * ASKED_AGAIN
    assert set(earlier.sample.ids) < set(fitted.sample.ids)
    with pytest.raises(UsageError, match=r"no room for new documents: .* 50, which count"):
        Fit(store, load(), **RIDGE, grown_from=earlier).run()


def test_a_free_model_needs_no_cap(store, tmp_path):
    plan = Fit(store, load_embedder("tfidf:24"), **RIDGE).open()
    assert plan.estimate().models == () and plan.estimate().usd == 0 and plan.models[0].meter is None
    assert run_under(0, plan).manifest.counts["pairs"] == SIZE


@pytest.mark.slow
def test_a_reference_that_is_there_costs_nothing(store, load, server, tmp_path):
    migrate.reembed(store, load(), tmp_path / "reference")
    server.billed.clear()
    again = Reembed(store, load(None), tmp_path / "reference").open()
    assert again.estimate().tokens == 0 and run_under(0, again).count == store.info.count
    assert server.billed == []


@pytest.mark.slow
@pytest.mark.parametrize(("reference", "cache"), [("pool", "cache"), ("build", "cache"), ("build", None)])
def test_what_is_left_to_pay_after_an_audit_is_what_a_full_reembed_then_pays(
    reference, cache, store, load, beir, tmp_path
):
    fitted = Fit(store, load(cache), **RIDGE).run()
    migrate.translate(store, fitted, tmp_path / "new")
    result = run_audit(Audit(tmp_path / "new", reference, target=load(cache), judged=beir).open().inputs)
    full, new = (
        next(option for option in options_of(result) if option.name == name) for name in ("full re-embed", "translated")
    )
    left = Reembed(store, load(cache), tmp_path / "reference").estimate()
    left_usd = left.usd - sum(model.again_tokens for model in left.models) * 0.02 / 1e6  # those prove the model
    assert result.reference_at is None and new.usd_left == 0
    assert full.usd_left == pytest.approx(left_usd if cache else full.usd)
    assert (full.usd_left == 0) == (cache is not None) and full.usd > 0


@pytest.mark.slow
def test_the_front_door_refuses_before_anything_is_spent(store, source_folder, load, beir, server, tmp_path):
    unlabelled = shutil.copytree(source_folder, tmp_path / "unlabelled")
    (unlabelled / "lead-migrate.json").unlink()
    with pytest.raises(SpendingError, match=r"max_cost \(<\$0\.0001\)"):
        migrate.fit(store, load(), **RIDGE, max_cost=1e-6)
    with pytest.raises(SpendingError, match="max_cost"):
        migrate.audit(unlabelled, judged=beir, target=load_embedder(SMALL, dimensions=32), max_cost=1e-6)
    stitch = migrate.fit(store, "tfidf:24", **RIDGE, max_cost=0)
    assert stitch.dim == 24
    assert server.billed == []
    assert migrate.fit(store, load(), **RIDGE).dim == 24, "within the five dollars of the default"


def test_the_command_line_and_the_library_have_one_default():
    for name in ("fit", "translate", "reembed", "sync", "audit", "run"):
        (typed,) = [param for param in leaf_commands()[name].params if param.name == "max_cost"]
        assert typed.default == inspect.signature(getattr(migrate, name)).parameters["max_cost"].default == 5
