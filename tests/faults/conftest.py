import shutil
from contextlib import ExitStack

import pytest
from fault_place import Place

import migrate
from migrate.embedders import load_embedder
from migrate.stores import open_store


@pytest.fixture(scope="module")
def stitch_folder(source_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stitches") / "stitch"
    migrate.fit(open_store(source_folder), load_embedder("tfidf:24"), kind="ridge", sample=60).save(folder)
    return folder


@pytest.fixture
def place(source_folder, stitch_folder, beir, tmp_path):
    """A folder with a good store, stitch and BEIR set, to be spoiled."""
    for name, folder in (("store", source_folder), ("stitch", stitch_folder), ("beir", beir)):
        shutil.copytree(folder, tmp_path / name)
    # The vectors of the store from somewhere else: what an audit of it is held against
    shutil.copytree(source_folder, tmp_path / "right")
    (tmp_path / "right/lead-migrate.json").unlink()
    with pytest.MonkeyPatch.context() as outer:
        outer.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        outer.setenv("SOURCE_DATE_EPOCH", "1700000000")
        outer.setenv("OPENAI_API_KEY", "sk-test")
        outer.chdir(tmp_path)
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
            yield Place(tmp_path, patch, stack)
