"""Outputs that exist: every command and every function refuses them alike, before anything is spent."""

import shutil
from pathlib import Path

import pytest
from openai_server import OpenAIServer

import migrate
from migrate.embedders import load_embedder
from migrate.errors import UsageError

MODEL = "openai:text-embedding-3-small,dimensions=24"
COMMANDS = {
    f"embed store/docs.jsonl --model {MODEL} -o out": "out",
    f"reembed store --target {MODEL} -o out": "out",
    f"reembed store --target {MODEL} --share 50% --stitch stitch -o out": "out",
    "backfill translated -o out": "out",
    f"fit store --target {MODEL} --sample 40 -o out": "out",
    "translate store stitch -o out": "out",
    "translate store viewed -o out": "out",
    "translate store stitch --reembed 50% -o out": "out",
    "translate store stitch --reembed 50% -o new": "new.stitch",
    "translate store stitch --reembed 50% --save-stitch out -o new": "out",
    f"run store --reference pool --target {MODEL} --judged judged -o out": "out/stitch",
    f"run store --reference pool --target {MODEL} --judged judged -o new": "new/report.html",
}
"""Commands, and what each finds in its way."""


@pytest.fixture(scope="module")
def made(source_folder, beir, lead_migrate, tmp_path_factory):
    """A store, judged queries, a stitch and a translated store; and a stitch that reads texts with a paid model."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(source_folder, folder / "store")
    shutil.copytree(beir, folder / "judged")
    with OpenAIServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        lead_migrate(f"fit store --target {MODEL} --sample 40 --kind ridge --view none -q -o stitch")
        lead_migrate("translate store stitch -q -o translated")
        # The server's models agree, so that the stitch does read texts with the view
        target = "--target openai:text-embedding-ada-002 --view openai:text-embedding-3-small"
        lead_migrate(f"fit store {target} --sample 40 --kind ridge+text -q -o viewed")
    return folder


@pytest.fixture(autouse=True)
def here(made, server, tmp_path, monkeypatch):
    """A copy of these, in the folder that the test works in."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("COLUMNS", "200")


def names():
    """Return the paths of all that is in the folder of the test, without its cache."""
    return sorted(str(path) for path in Path().rglob("*") if path.parts[0] != "cache")


@pytest.mark.parametrize(("command", "existing"), COMMANDS.items())
def test_a_command_refuses_what_exists_before_anything_is_spent(command, existing, server, lead_migrate):
    Path(existing).mkdir(parents=True)
    Path(existing, "mine").touch()
    before, billed = names(), len(server.billed)
    ended = lead_migrate(f"{command} --max-cost 0" if "backfill" not in command else command, code=2)
    assert f" {existing} exists; " in ended.complaint and "--force" in ended.complaint
    assert len(server.billed) == billed and names() == before


@pytest.mark.parametrize("name", ["x y", "x", "_xyz", "x/y/z"])
@pytest.mark.parametrize(
    "command",
    [
        f"reembed store --target {MODEL} --max-cost 0",
        "translate store viewed --max-cost 0",
    ],
)
def test_a_name_that_the_database_does_not_take_is_refused_before_anything_is_spent(
    command, name, server, lead_migrate
):
    before, billed = names(), len(server.billed)
    ended = lead_migrate(command, "-o", f"chroma:out#{name}", code=2)
    assert f"chroma:out#{name}: Chroma takes no collection of the name '{name}'" in ended.complaint
    assert len(server.billed) == billed and names() == before


def test_lancedb_takes_no_table_with_a_space_in_its_name(lead_migrate):
    before = names()
    ended = lead_migrate("translate store stitch -o", "lancedb:out#x y", code=2)
    assert "LanceDB" in ended.complaint and "'x y'" in ended.complaint and names() == before


@pytest.mark.parametrize(
    "command",
    [
        f"embed store/docs.jsonl --model {MODEL} -o chroma:out#abc",
        f"run store --target {MODEL} -o chroma:out#abc",
        f"fit store --target {MODEL} -o chroma:out#abc",
        f"audit new --target {MODEL} --queries judged/queries.jsonl --reference pool --report chroma:out#abc",
        "demo -o chroma:out#abc",
    ],
)
def test_no_folder_gets_the_name_of_a_store_of_a_kind(command, lead_migrate):
    before = names()
    ended = lead_migrate(command, code=2)
    assert "chroma:out#abc: a store is named" in ended.complaint
    assert names() == before


def test_a_function_refuses_what_exists_before_anything_is_spent(server):
    Path("out/stitch").mkdir(parents=True)
    billed = len(server.billed)
    with pytest.raises(UsageError, match=r"^out/stitch exists; .*`force=True`$"):
        migrate.run("store", load_embedder(MODEL), judged="judged", output="out", reference="pool", max_cost=0)
    assert len(server.billed) == billed
