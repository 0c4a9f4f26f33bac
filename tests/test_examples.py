"""The examples run as their docstrings say."""

import ast
import json
import os
import re
from pathlib import Path

import pytest
from children import call_in_child, run_script
from openai_server import OpenAIServer

import migrate
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"
MOVED = '(folder / "demo" / "source").rename(folder / "old")'
"""The line of the notebook after which the demo's folder is no longer whole."""
LIBRARY = EXAMPLES.parent / "docs" / "library.md"


@pytest.fixture
def run_example(tmp_path):
    """Runs an example, and returns what it prints."""

    def run(name, *arguments):
        output, errors = tmp_path / "printed", tmp_path / "errors"
        done = call_in_child(run_script, EXAMPLES / name, [str(one) for one in arguments], output, errors)
        assert done, errors.read_text()
        return output.read_text()

    return run


def test_the_library_in_a_few_lines(run_example, source_folder, beir, tmp_path):
    out = run_example("library.py", source_folder, beir, "tfidf:24", tmp_path / "out")
    assert "\nfull re-embed " in out
    assert (tmp_path / "out" / "store" / "index.faiss").is_file()


def test_an_openai_target(run_example, corpus, tmp_path, monkeypatch):
    few = corpus.documents[:80]  # so few that no local model is tried beside it
    embed_corpus(lambda: few, load_embedder("tfidf:16"), tmp_path / "source")
    with OpenAIServer() as server:
        arguments = (tmp_path / "source", tmp_path / "out", "text-embedding-3-small", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        out = run_example("openai_target.py", *arguments)
    assert "80 pairs" in out
    assert "dimension 1536, 80 of them true ones" in out


def test_a_langchain_app(run_example, tmp_path):
    out = run_example("langchain_app.py", tmp_path / "out")
    assert out.startswith("bicycle: ")
    assert (tmp_path / "out" / "new" / "index.pkl").is_file()


def test_a_live_switch(run_example, tmp_path):
    out = run_example("live_switch.py", tmp_path / "out")
    counts = {
        name: int(count) for count, name in re.findall(r"^(\d+) questions answered from (.+)$", out, re.MULTILINE)
    }
    assert counts.keys() == {"the old store", "the new store"}
    assert min(counts.values()) > 25
    assert "\n0 questions failed\n" in out
    assert re.match(r"over the bridge: bicycle, note", out)
    assert "\ntranslated: bicycle, note" in out


def test_a_live_vector_store_of_langchain(run_example, tmp_path):
    lines = run_example("live_langchain.py", tmp_path / "out").splitlines()
    assert re.match(r"Why .*\? bicycle, bicycle, bicycle; \d+ of ", lines[0])
    assert re.match(r"How .*\? tea, tea, tea; \d+ of ", lines[1])
    assert len(lines) == 3


def test_a_live_retriever_of_llamaindex(run_example, tmp_path):
    pytest.importorskip("llama_index.core")
    lines = run_example("live_llamaindex.py", tmp_path / "out").splitlines()
    assert re.fullmatch(r"Why .* over\? bicycle \(0\.\d\d\), bicycle \(.*", lines[0])
    assert len(lines) == 3


def test_the_notebook_runs_and_shows_its_results(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "strip the outputs: figures get old"
    seeded = "from packaged_demo import cache_packaged; cache_packaged(demo, demo / 'embeddings.sqlite')"
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert MOVED in first.source
    first.source = first.source.replace(MOVED, f"demo = folder / 'demo'; {seeded}\n{MOVED}")
    client = nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": tmp_path}})
    paths = os.pathsep.join([str(Path(__file__).parent / "embedders"), os.environ.get("PYTHONPATH", "")])
    client.execute(env={**os.environ, "PYTHONPATH": paths, "IPYTHONDIR": str(tmp_path / "ipython")})
    results = [
        (cell.source, output.data)
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    shown = {source.splitlines()[-1].split("(")[0]: data for source, data in results}
    assert "count=300" in shown["store.info"]["text/plain"]
    pages = {name: data.get("text/html", "") for name, data in shown.items()}
    assert "not compatible with sentence-transformers:" in pages["migrate.check"]
    assert ">* " in pages["stitch"], "the stitch that was chosen"
    assert ">300</th>" in pages["translation"]
    assert re.search("<p>(SAFE|NOT SAFE|INCONCLUSIVE): retention ", pages["report"])
    assert all(f">{arm}</th>" in pages["report"] for arm in ("full re-embed", "translated", "stay"))
    assert re.search(r"<th[^>]*>CKA</th>|<th[^>]*>.{,40}CKA", pages["migrate.compare"])
    assert all(f">{pair}</th>" in pages["migrate.compare"] for pair in ("old–new", "new–full"))
    assert "<table" in pages["report.to_pandas"]


def code_of(path):
    """The Python of an example."""
    if path.suffix == ".py":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("path", [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.ipynb")], ids=lambda path: path.name)
def test_an_example_imports_public_names_alone(path):
    (said,) = re.findall(
        r"^The public names are those of `migrate`.*?(?=\n\n|\Z)", LIBRARY.read_text(), re.MULTILINE | re.DOTALL
    )
    modules = set(re.findall(r"`(migrate[\w.]*)`", said))
    tree = ast.parse(code_of(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {name.name for name in node.names if name.name.startswith("migrate.")} == set()
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "migrate":
            assert node.module in modules
            names = [alias.name for alias in node.names]
            assert not any(name.startswith("_") for name in names)
            assert node.module != "migrate" or set(names) <= set(migrate.__all__)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "migrate":
            assert node.attr in migrate.__all__


def test_every_example_is_tested():
    tested = Path(__file__).read_text()
    assert all(path.name in tested for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.ipynb")])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_an_example_says_how_it_is_run(path):
    assert f"python examples/{path.name}" in path.read_text()
