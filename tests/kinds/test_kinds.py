"""Each kind by its own client: what was made is read again, so is what changed, and what is written beside it."""

from contextlib import ExitStack

import numpy as np
import pytest
from kinds import KINDS, kind_class
from sync_tools import changed, some_records

from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.registry import output_of
from migrate.work.writer import write_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def ends():
    with ExitStack() as ends:
        yield ends


def read_by_client(kind, location):
    """The bits of all vectors, in order."""
    return sorted(bytes(np.asarray(vector, np.float32)) for _, _, vector in kind.read(location)[0])


@pytest.mark.usefixtures("_own_folders")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_a_client_reads_what_it_made_and_what_was_written_of_it(name, ends, tmp_path):
    kind = kind_class(name).started(ends, tmp_path / "server")
    records = some_records(60)
    location = kind.make(tmp_path / "old", records)
    for after in (records, changed(some_records(120))):
        kind.change(location, records, after)
        expected = sorted(bytes(vector) for _, vector in after.values())
        store = open_store(location)
        assert read_by_client(kind, location) == expected
        assert {document.id for document in store.documents()} == after.keys()
        records = after
    place = kind.place(tmp_path / "new")
    output = output_of(place)
    vectors = read_all(store.scan()).vectors
    content = tmp_path / "content"
    content.mkdir()
    write_rows(output.writer(store, content, vectors.shape[1]), [(0, -vectors)], len(vectors))
    output.publish(content, force=False)
    assert read_by_client(kind, place + kind.options) == sorted(map(bytes, -vectors))
