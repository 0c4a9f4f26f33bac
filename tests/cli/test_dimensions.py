"""Fewer dimensions of the same model on the command line."""

from pathlib import Path

import numpy as np
import pytest
from openai_server import vector_of
from stores_tools import make_store

from migrate.stores import open_store
from migrate.vectors import unit_rows

SPEC = "openai:text-embedding-3-small,dimensions=32"


@pytest.fixture(autouse=True)
def _stamped(store, server, lead_migrate):
    """A store of an API's model, which says so."""
    documents = list(open_store("store").documents())
    make_store(Path("mine"), documents, unit_rows(np.stack([vector_of(document.text, 32) for document in documents])))
    lead_migrate(f"stamp mine --model {SPEC} --trust")
    server.billed.clear()


def test_a_cut_asks_no_model_and_leads_on_to_an_audit(server, lead_migrate):
    dry = lead_migrate("translate mine --dimensions 8 -o short --dry-run")
    assert "cut to the first 8 of 32 dimensions" in dry.out and not Path("short").exists()
    done = lead_migrate("translate mine --dimensions 8 -o short")
    assert "dimension 32 to 8, 150 of them true ones" in done.out
    assert done.next == "audit short --reference pool --judged DIR --source mine"
    assert server.billed == []
    assert "no report of an audit" in lead_migrate("switch mine short", code=4).complaint


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--dimensions 32", "32 are not fewer"),
        ("--dimensions 0", "--dimensions"),
        ("", "name a stitch that `fit` wrote, or cut vectors by --dimensions N"),
        ("some-stitch --dimensions 8", "--dimensions cuts vectors, and goes without --stitch"),
        ("--dimensions 8 --reembed 10%", "goes without --reembed"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(words, told, lead_migrate):
    assert told in lead_migrate(f"translate mine {words} -o short", code=2).complaint
    assert not Path("short").exists()


def test_dimensions_of_models_in_the_settings_cut_nothing(lead_migrate, monkeypatch):
    told = "name a stitch"
    monkeypatch.setenv("LEAD_MIGRATE_DIMENSIONS", "8")
    assert told in lead_migrate("translate mine -o short", code=2).complaint
    monkeypatch.delenv("LEAD_MIGRATE_DIMENSIONS")
    Path("pyproject.toml").write_text("[tool.lead-migrate]\ndimensions = 8\n")
    assert told in lead_migrate("translate mine -o short", code=2).complaint


def test_a_move_to_the_same_model_with_fewer_dimensions_is_told_what_costs_nothing(lead_migrate):
    told = lead_migrate("assess mine --target openai:text-embedding-3-small,dimensions=8").err
    assert "lead-migrate translate mine --dimensions 8 -o NEW" in told
    lead_migrate("translate mine --dimensions 8 -o NEW")
    told = lead_migrate("assess mine --target openai:text-embedding-3-large,dimensions=8").err
    assert "--dimensions 8" not in told
