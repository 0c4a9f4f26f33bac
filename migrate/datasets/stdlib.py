"""The demo corpus: docstrings of Python's own standard library, read from its sources, offline.

A document is a module, class or function: its qualified name and the body of its docstring. A query is the
first line of the docstring, which was removed from the document; that document alone is relevant to it. The corpus
differs a little between Python versions, and is the same on every run of one installation.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from migrate.errors import DatasetError, UsageError
from migrate.vectors import Document, Query

MAX_DOCS = 1_500
"""Documents of the demo: enough queries for a verdict, and about a minute of a small model on two cores."""
MAX_BODY_CHARS = 1_000
_MIN_BODY_CHARS = 80
_MAX_SUMMARY_CHARS = 300
_MIN_SUMMARY_WORDS = 3
_SKIPPED = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "distutils", "turtledemo", "encodings", "pydoc_data", "site-packages"}
)
_SIGNATURE = re.compile(r"\W|[\w.]+\(")


@dataclass(frozen=True, slots=True)
class DemoSet:
    """A BEIR set in memory: `documents[i]` answers `queries[i]`."""

    documents: tuple[Document, ...]
    queries: tuple[Query, ...]

    @property
    def qrels(self) -> Mapping[str, Mapping[str, int]]:
        """query_id -> doc_id -> 1."""
        pairs = zip(self.queries, self.documents, strict=True)
        return {query.id: {document.id: 1} for query, document in pairs}


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    summary: str
    body: str


def stdlib_beir(*, max_docs: int = MAX_DOCS, seed: int = 0) -> DemoSet:
    """Documents and queries from the docstrings of this Python's standard library.

    Sources are parsed, never imported. Private names, tests and tables are left out, and so are docstrings with
    a summary or a body that another one has, a summary of fewer than 3 words, or a body of fewer than 80
    characters. Bodies are cut after 1,000 characters.

    Parameters
    ----------
    max_docs
        The most documents (and queries), drawn without replacement; they keep the order of their names.
    seed
        Draws the sample.

    Raises
    ------
    UsageError
        `max_docs` is below 1.
    DatasetError
        This installation has no sources of the standard library.
    """
    if max_docs < 1:
        raise UsageError(f"max_docs: {max_docs} is too few; give at least 1")
    root = Path(sysconfig.get_path("stdlib"))
    entries = _distinct(root)
    if not entries:
        raise DatasetError(f"{root}: the sources of Python's standard library are not there; install them")
    drawn = np.random.default_rng(seed).choice(len(entries), size=min(max_docs, len(entries)), replace=False)
    chosen = [entries[position] for position in sorted(drawn)]
    return DemoSet(
        documents=tuple(Document(entry.name, f"{entry.name}\n{entry.body}") for entry in chosen),
        queries=tuple(Query(f"q:{entry.name}", entry.summary) for entry in chosen),
    )


@cache  # thousands of files are parsed, and they do not change while Python runs
def _distinct(root: Path) -> list[_Entry]:
    """Entries sorted by name, without any whose summary or body is not its own: several answers would be right."""
    named = {entry.name: entry for entry in _entries(root)}
    summaries = Counter(_plain(entry.summary) for entry in named.values())
    bodies = Counter(_plain(entry.body) for entry in named.values())
    return [
        entry
        for _, entry in sorted(named.items())
        if summaries[_plain(entry.summary)] == bodies[_plain(entry.body)] == 1
    ]


def _entries(root: Path) -> Iterator[_Entry]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] in sys.stdlib_module_names and not _SKIPPED.intersection(parts):
            module = ".".join(parts).removesuffix(".__init__")
            for name, docstring in _docstrings(path, module):
                entry = _entry(name, docstring)
                if entry and _is_public(name):
                    yield entry


def _docstrings(path: Path, module: str) -> Iterator[tuple[str, str]]:
    """Qualified name and docstring of a module, its functions, its classes, their methods, and so on."""
    with warnings.catch_warnings(action="ignore"):  # old escapes in the sources are not the user's concern
        tree = ast.parse(path.read_bytes())
    pending: list[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]] = [(module, tree)]
    while pending:
        name, node = pending.pop()
        docstring = ast.get_docstring(node)
        if docstring:
            yield name, docstring
        if isinstance(node, ast.Module | ast.ClassDef):
            inner = [
                child for child in node.body if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            pending += [(f"{name}.{child.name}", child) for child in inner]


def _is_public(name: str) -> bool:
    return not any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def _entry(name: str, docstring: str) -> _Entry | None:
    """Summary and body of a docstring; None where they make no good question and answer."""
    first, _, details = docstring.partition("\n\n")
    summary, body = " ".join(first.split()), details.strip()[:MAX_BODY_CHARS].rstrip()
    is_question = (
        len(summary) <= _MAX_SUMMARY_CHARS
        and sum(any(map(str.isalpha, word)) for word in summary.split()) >= _MIN_SUMMARY_WORDS
        and not _SIGNATURE.match(summary)
    )
    if is_question and len(body) >= _MIN_BODY_CHARS and _plain(summary) not in _plain(body):
        return _Entry(name, summary, body)
    return None


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
