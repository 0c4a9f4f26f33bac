"""A store through the commands: inspected, translated, and the new one inspected."""

import json

from sync_tools import Hashed

import migrate
from migrate.cli.main import run
from migrate.stores import open_store


def inspected(location, capsys):
    """What `inspect --json` says of a store."""
    capsys.readouterr()
    assert run(["inspect", str(location), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def moved(location, folder, capsys, output=None, dim=16):
    """Move a store to another model by the commands; the old one and the new one, which have the same documents."""
    folder.mkdir(exist_ok=True)
    before = inspected(location, capsys)
    stitch = folder / "stitch"
    new = str(output or folder / "new")
    migrate.fit(str(location), Hashed(dim=dim), kind="ridge").save(stitch)
    assert run(["translate", str(location), str(stitch), "-o", new]) == 0
    after = inspected(new, capsys)
    assert (after["format"], after["vectors"], after["texts"]) == (before["format"], before["vectors"], True)
    assert after["dimension"] == dim
    old_store, new_store = open_store(str(location)), open_store(new)
    assert list(new_store.documents()) == list(old_store.documents())
    return old_store, new_store
