"""Kinds that other packages bring by entry point, good and bad."""

import pytest

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.errors import UsageError

GOOD = """
from migrate.embedders.kinds import EmbedderKind
from migrate.embedders.langchain import LangChainEmbedder
from langchain_core.embeddings import DeterministicFakeEmbedding

def load(name, options):
    return LangChainEmbedder(DeterministicFakeEmbedding(size=int(name)), spec=f"theirs:{name}")

KIND = EmbedderKind(load, "24")
"""


CANCELLING = """
import numpy as np
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import EmbedderKind
from migrate.embedders.profile import Profile
from migrate.manifest import ModelIdentity

class Signs(Embedder):
    identity = ModelIdentity("theirs:2", 2, normalized=False)
    profile = Profile("theirs:2", kind="theirs", dim=2)

    def embed(self, texts, role, *, progress=None):
        return np.array([[text.text.count("up") - text.text.count("down")] * 2 for text in texts], dtype=np.float32)

KIND = EmbedderKind(lambda name, options: Signs(), "2")
"""

KIND = ("embedders", "theirs")


def test_a_kind_of_another_package_is_loaded_by_its_name(install):
    install("good_plugin", GOOD, *KIND)
    assert load_embedder("theirs:24").identity.dim == 24
    with pytest.raises(UsageError, match=r"'theirs:' .* theirs:24"):
        load_embedder("theirs:")
    with pytest.raises(UsageError, match=r"gemini:, theirs: - "):
        load_embedder("amazon:embed")
    with pytest.raises(UsageError, match="takes no prefixes"):
        load_embedder("theirs:24", document_prefix="passage: ")


@pytest.mark.parametrize(
    ("package", "code", "message"),
    [
        ("raising_plugin", "raise OSError('no\\nlicence')", "failed with OSError: no; update or uninstall it"),
        ("typed_plugin", "KIND = 7", "should be of type EmbedderKind and is int; update or uninstall it"),
        ("empty_plugin", "", "failed with AttributeError"),
    ],
)
def test_a_broken_package_is_one_line_that_names_it(package, code, message, install, source_folder, capsys):
    install(package, code, *KIND)
    assert run(["check", str(source_folder), "--model", "theirs:1"]) == 2
    said = capsys.readouterr().err
    assert f"{package}: " in said and message in said and said.count("\n") == 1


def test_two_packages_of_one_kind_are_named_and_a_built_in_kind_stays(install):
    install("first_plugin", GOOD, *KIND)
    install("second_plugin", GOOD, *KIND)
    with pytest.raises(UsageError, match="first_plugin and second_plugin"):
        load_embedder("theirs:24")
    install("tfidf_plugin", "raise OSError", "embedders", "tfidf")
    assert load_embedder("tfidf:8").identity.spec == "tfidf:8"


def test_a_zero_vector_of_another_package_is_refused_and_no_store_is_written(install, tmp_path, capsys):
    install("signs_plugin", CANCELLING, *KIND)
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "store"
    corpus.write_text('{"id": "a", "text": "up"}\n{"id": "b", "text": "up down"}\n{"id": "c", "text": "down up"}\n')
    command = ["embed", str(corpus), "--model", "theirs:2", "--cache", "none", "--no-chunks", "-o", str(output)]
    assert run(command) == 4
    said = capsys.readouterr().err
    assert f"{output}: " in said and "'b' (2 bad of 3" in said
    assert "not known if theirs:2 costs money" in said
    assert not output.exists()
    corpus.write_text('{"id": "a", "text": "up"}\n{"id": "b", "text": "up up"}\n')
    assert run(command) == 0 and output.is_dir()
