"""Sources that change or vanish, within a run and between two; disks that are full, too small or read-only."""

import os

import pytest
import victims

import migrate
import migrate.embed
from migrate.errors import StoreError
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.vectors import Document

pytestmark = pytest.mark.slow


class Disturb:
    """Progress that does something when it is told of so many rows."""

    def __init__(self, at, act):
        self.at, self.act = at, act

    def __call__(self, stage, done, total):
        if done >= self.at and self.act is not None:
            act, self.act = self.act, None
            act()


def interrupt():
    raise KeyboardInterrupt


@pytest.fixture(params=["flat", "langchain"])
def store(request, small_parts, folder):
    victims.prepare(request.param, folder, 1_500)
    return folder / "source"


def translate(store, **options):
    stitch = load_stitch(store.parent / "stitch")
    return migrate.translate(open_store(store), stitch, store.parent / "output", **options)


def touch(path):
    os.utime(path, ns=(1, 1))


def swap(path):
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("act", [touch, swap])
def test_a_source_that_changes_during_a_run_leaves_nothing(store, act):
    for path in sorted(store.iterdir()):
        with pytest.raises(StoreError, match=r"changed.*run"):
            translate(store, progress=Disturb(800, lambda path=path: act(path)))
        assert not any((store.parent / name).exists() for name in ("output", ".output.work"))


def test_a_source_that_changed_between_two_runs_is_refused(store):
    for path in sorted(store.iterdir()):
        with pytest.raises(KeyboardInterrupt):
            translate(store, restart=True, progress=Disturb(1_200, interrupt))
        touch(path)
        with pytest.raises(StoreError, match="`restart=True`"):
            translate(store)
    assert translate(store, restart=True).count == 1_500


@pytest.mark.parametrize("change", ["text", "id", "fewer"])
def test_documents_that_changed_between_two_runs_are_refused(small_parts, folder, change):
    documents = list(victims.documents(600))
    embedder = victims.CountingEmbedder(folder / "bill")
    with pytest.raises(KeyboardInterrupt):
        embed_interrupted(documents, embedder, folder / "out")
    changed = documents.copy()
    if change == "fewer":
        del changed[200:]
    else:
        changed[3] = Document("x", changed[3].text) if change == "id" else Document(changed[3].id, "other")
    with pytest.raises(StoreError, match=r"changed since .*`restart=True`"):
        migrate.embed.embed_corpus(lambda: changed, embedder, folder / "out")
    migrate.embed.embed_corpus(lambda: documents, embedder, folder / "out")
    assert embedder.bill.stat().st_size == 600


def embed_interrupted(documents, embedder, output):
    """A run that is interrupted while it reads the documents after the second part."""

    def read():
        for number, document in enumerate(documents):
            if number == 520:
                raise KeyboardInterrupt
            yield document

    reads = iter([documents, read()])
    migrate.embed.embed_corpus(lambda: next(reads), embedder, output)
