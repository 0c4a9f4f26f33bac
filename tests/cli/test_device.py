"""The device of stitches and search, as commands are told of it."""

from pathlib import Path

import pytest


@pytest.mark.parametrize("where", ["file", "environment"])
@pytest.mark.parametrize(
    "command",
    [
        "fit store --target tfidf:24 -o made",
        "translate store stitch -o made",
        "audit new --judged judged --reference build --source store",
        "run store --target tfidf:24 --judged judged -o made",
    ],
)
def test_a_device_that_is_not_there_is_told_before_anything_is_done(command, where, here, monkeypatch, lead_migrate):
    if where == "file":
        Path("pyproject.toml").write_text('[tool.lead-migrate]\ndevice = "cuda:99"\n')
    else:
        monkeypatch.setenv("LEAD_MIGRATE_DEVICE", "cuda:99")
    before = sorted(here.rglob("*"))
    told = lead_migrate(command, code=2).complaint
    assert "device 'cuda:99' is not usable here for stitches and search (" in told
    assert told.endswith("; set LEAD_MIGRATE_DEVICE=cpu") and sorted(here.rglob("*")) == before


def test_a_device_that_is_typed_goes_into_a_spec_or_the_environment(lead_migrate):
    told = lead_migrate("translate store stitch -o new --device cuda", code=2).complaint
    assert "SPEC,device=cuda; for stitches and search too, set LEAD_MIGRATE_DEVICE=cuda" in told


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["build", "pool"])
def test_a_migration_by_the_code_of_a_gpu_ends_as_by_numpy(reference, source_folder, beir, monkeypatch, lead_migrate):
    outcomes = []
    for device in ("cpu", "cpu:0"):
        monkeypatch.setenv("LEAD_MIGRATE_DEVICE", device)
        lead_migrate(f"fit {source_folder} --target tfidf:24 --kind ridge+text --sample 60 -q -o stitch --force")
        lead_migrate(f"translate {source_folder} stitch -q -o new --force")
        audit = f"audit new --judged {beir} --reference {reference} --source {source_folder} --json"
        document = lead_migrate(audit, code=(0, 1, 3)).document
        figures = {f"{arm['name']} {name}": mean for arm in document["arms"] for name, mean in arm["means"].items()}
        outcomes.append((document["verdict"]["outcome"], figures))
    (by_numpy, scores), (by_torch, scores_by_torch) = outcomes
    assert by_torch == by_numpy and scores_by_torch == pytest.approx(scores, abs=1e-3)
