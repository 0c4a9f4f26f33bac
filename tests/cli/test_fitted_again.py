"""A fit whose stitch is there: the same one says that it is done, and another one is refused."""

from pathlib import Path

import pytest

SHORT = "openai:text-embedding-3-small,dimensions=24"
FIT = f"fit store --target {SHORT} --sample 50 --kind ridge -o stitch"


def content():
    return {path.name: path.read_bytes() for path in Path("stitch").iterdir()}


@pytest.mark.parametrize(
    "kind", ["ridge", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("auto", "ridge+text"))]
)
def test_the_same_fit_again_is_done_and_asks_for_nothing(kind, store, server, lead_migrate):
    fit = f"{FIT.replace('ridge', kind)} --view none"
    first = lead_migrate(fit)
    before, asked = content(), len(server.billed)
    Path("cache/lead-migrate/embeddings.sqlite").unlink()
    again = lead_migrate(fit)
    assert "this fit is done already" in again.err
    assert again.out == first.out.splitlines(keepends=True)[-1] and again.next == first.next
    of_json = lead_migrate(f"{fit} --json").document
    assert "would write" not in lead_migrate(f"{fit} --dry-run").out
    assert (content(), len(server.billed)) == (before, asked)
    timed = lead_migrate(f"{fit} --force --json").document
    for row in timed["candidates"]:
        assert row["fit_s"] is not None
        row["fit_s"] = None
    assert of_json == timed


@pytest.mark.parametrize(
    "change",
    [("--sample 50", "--sample 60"), ("ridge", "mean"), ("dimensions=24", "dimensions=16"), ("-o", "--seed 1 -o")],
)
def test_another_fit_is_refused_before_anything_is_paid(change, store, server, lead_migrate):
    lead_migrate(FIT)
    before, asked = content(), len(server.billed)
    assert "stitch exists; choose another output" in lead_migrate(FIT.replace(*change), code=2).err
    assert (content(), len(server.billed)) == (before, asked)


def test_a_fit_of_another_store_or_of_a_damaged_stitch_is_refused(store, lead_migrate):
    fit = "fit store --target tfidf:24 --sample 50 --kind ridge -o stitch"
    lead_migrate(fit)
    lead_migrate("reembed store --target tfidf:40 -o other")
    assert "stitch exists" in lead_migrate(fit.replace("store", "other"), code=2).complaint
    assert "done already" in lead_migrate(fit).err
    Path("stitch/weights.safetensors").write_bytes(b"")
    assert "stitch exists" in lead_migrate(fit, code=2).complaint
