"""Whether queries judge that should not: those that are documents, and those that chose what has true vectors.

    python benchmarks/independence.py DATA [--pairs 1000]

DATA is laid out as for `retrieval.py`; the source space is `mpnet`, the target `minilm`.

documents     how much of a document the queries of people have, by words and by vectors, and how many are taken for one
              (`migrate.audit.document_queries`); then the same of documents with words around them, or others in them
chosen        a sample by a query log, as `fit --query-log` draws it: which share of all documents has true vectors, and
              which share of the log's own queries, of other people's, and of those in the other half of the log looks
              for one (`migrate.selection.choosers`). Halves are those of `--hold-out 50%`
verdicts      a store whose sample a log chose, judged by the log in other words, and by others: what the audit says
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from retrieval import TARGET_MODEL, Collection, Space, load_space, run_over
from sampling import write_store

import migrate
from migrate.audit.document_queries import is_copy, runs
from migrate.audit.query_set import QuerySet, hold_out
from migrate.audit.report import AuditReport
from migrate.datasets.beir import BeirSet, load_beir
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.report.terminal import table
from migrate.selection import QueryLog
from migrate.selection.query_log import query_log_rows
from migrate.vectors import Query, query_key

SOURCE, TARGET = "mpnet", "minilm"
SETS = ("scifact", "nfcorpus")
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)

FILLERS = ("thing", "some", "kind", "of", "maybe", "part")


def changed(nth: int, text: str) -> str:
    """Every nth word is another one."""
    words = enumerate(text.split())
    return " ".join(FILLERS[at % len(FILLERS)] if at % nth == 0 else word for at, word in words)


def without(nth: int, text: str) -> str:
    """Every nth word is gone."""
    return " ".join(word for at, word in enumerate(text.split(), start=1) if at % nth)


def typos(text: str) -> str:
    """Two neighbouring letters of every fourth word change places."""
    words = text.split()
    for at in range(0, len(words), 4):
        middle = len(words[at]) // 2
        if middle:
            word = words[at]
            words[at] = word[: middle - 1] + word[middle - 1 : middle + 1][::-1] + word[middle + 1 :]
    return " ".join(words)


DOCUMENTS: Mapping[str, Callable[[str], str]] = {
    "the document and please": "{} please".format,
    "without every fifth word": lambda text: without(5, text),
    "every fifth word changed": lambda text: changed(5, text),
    "every third word changed": lambda text: changed(3, text),
    "its first 70 %": lambda text: text[: 7 * len(text) // 10],
    "its second sentence": lambda text: [*text.split(". "), text, text][1],
}

WORDINGS: Mapping[str, Callable[[str], str]] = {
    "is it true that": "Is it true that {}".format,
    "two words dropped": lambda text: " ".join(text.split()[1:-1]) or text,
    "typos": typos,
}


def load(data: Path, name: str, split: str = "test") -> tuple[Collection, Space, Space]:
    """A set, and its spaces of the source and the target model."""
    found: BeirSet = load_beir(data / name, split=split)
    collection = Collection(found, tuple(found.documents()))
    return collection, load_space(data, name, SOURCE, collection), load_space(data, name, TARGET, collection)


def documents(data: Path) -> None:
    """Print how much of their documents queries have."""
    rows = []
    for name in SETS:
        collection, _, target = load(data, name)
        texts = {document.id: document.text for document in collection.documents}
        own = [(query, doc) for query in collection.queries for doc in _relevant(collection, query.id) if doc in texts]
        cases = {"queries of people": [(query.id, query.text, texts[doc]) for query, doc in own]}
        some = list(dict.fromkeys(doc for _, doc in own))[:200]
        cases |= {kind: [(doc, change(texts[doc]), texts[doc]) for doc in some] for kind, change in DOCUMENTS.items()}
        for kind, pairs in cases.items():
            most: dict[str, float] = {}
            copies = set()
            for asking, query, text in pairs:
                of_query, of_document = runs(query_key(query)), runs(query_key(text))
                most[asking] = max(most.get(asking, 0.0), len(of_query & of_document) / len(of_document))
                copies |= {asking} if is_copy(of_query, of_document) else set()
            low, middle, high = np.quantile(list(most.values()), [0.01, 0.5, 1])
            rows.append(
                [name, kind, f"{len(most):,}", f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}", f"{len(copies):,}"]
            )
        run = run_over(collection, np.arange(len(texts)), target.documents, target.queries)
        near = np.sort([(1 - scores[0]) / (1 - scores[1]) for scores in run.scores.values()])
        print(f"{name}: distance to the first document, in those to the second: least {near[0]:.2f}, {near[1]:.2f}")
    head = ["set", "queries", "", "1 %", "median", "most", "taken for documents"]
    print(f"\nshare of a document that queries have\n\n{table([head, *rows])}", flush=True)


def _relevant(collection: Collection, query_id: str) -> list[str]:
    return [doc for doc, grade in collection.qrels.get(query_id, {}).items() if grade > 0]


def logs(data: Path, name: str) -> dict[str, tuple[QuerySet, QuerySet]]:
    """Queries that choose, and others that judge: by the parts of the set if it has two, and by halves."""
    parts = [split for split in ("train", "test") if (data / name / "qrels" / f"{split}.tsv").exists()]
    sets = [QuerySet((found := load_beir(data / name, split=split)).queries, found.qrels, name) for split in parts]
    queries = [query for one in sets for query in one.queries]
    qrels = {query_id: grades for one in sets for query_id, grades in (one.qrels or {}).items()}
    chosen = hold_out(QuerySet(queries, qrels, name), 0.5)
    ids = set(chosen.query_ids)
    others = QuerySet([query for query in queries if query.id not in ids], qrels, name)
    pairs = {f"{name}, halves": (chosen, others)}
    if len(sets) == 2:
        pairs[f"{name}, train and test"] = (sets[0], sets[1])
    return pairs


def chosen(data: Path, folder: Path) -> None:
    """Print how often choosers, and others, look for what was chosen."""
    rows = []
    for name in SETS:
        collection, source, target = load(data, name)
        store = write_store(folder / name, collection, source.documents)
        embedder = load_embedder(f"file:{data / 'pairs' / f'{name}.{SOURCE}.npz'}")
        judge = load_embedder(f"file:{data / 'pairs' / f'{name}.{TARGET}.npz'}")
        for kind, (choosers, others) in logs(data, name).items():
            order = query_log_rows(store, QueryLog(choosers.queries, embedder))
            subjects = [
                _subjects(one, collection, target, judge.embed_queries(one.queries)) for one in (choosers, others)
            ]
            for share in SHARES:
                true = {collection.documents[row].id for row in order[: round(share * store.info.count)].tolist()}
                found = [np.mean([subject in true for subject in some]) for some in subjects]
                rows.append([kind, f"{len(true) / store.info.count:.2f}", *(f"{one:.2f}" for one in found)])
    head = ["log and others", "true of all", "found by the log", "by others"]
    print(f"\nqueries that look for a document with a true vector\n\n{table([head, *rows])}", flush=True)


def _subjects(queries: QuerySet, collection: Collection, target: Space, vectors: np.ndarray) -> list[str]:
    """The relevant document of each query that the full re-embed ranks first."""
    from dataclasses import replace

    asked = Collection(replace(collection.data, queries=tuple(queries.queries)), collection.documents)
    run = run_over(asked, np.arange(len(collection.documents)), target.documents, vectors)
    found = []
    for query in queries.queries:
        relevant = queries.relevant_to(query.id)
        first = next((doc for doc in run.rankings.get(query.id, ()) if doc in relevant), None)
        found += [first or min(relevant)] if relevant else []
    return found


def verdicts(data: Path, folder: Path, pairs: int) -> None:
    """Print what the audit says by choosers in other words, and by others."""
    rows = []
    for name in SETS:
        collection, source, _ = load(data, name)
        store = write_store(folder / f"{name} to move", collection, source.documents)
        source_model = load_embedder(f"file:{data / 'pairs' / f'{name}.{SOURCE}.npz'}")
        for number, (kind, (choosers, others)) in enumerate(logs(data, name).items()):
            judges = {wording: _reworded(choosers, wording, change) for wording, change in WORDINGS.items()}
            place = folder / f"{name} {number}"
            place.mkdir()
            path = data / "pairs" / f"{name}.{TARGET}.npz"
            target = load_embedder(f"file:{_knowing(path, place / f'{TARGET}.npz', judges.values())}")
            fitted = migrate.fit(
                store, target, kind="ridge", sample=pairs, query_log=choosers.queries, source_model=source_model
            )
            moved = place / "moved"
            migrate.translate(store, fitted, moved)
            for wording, asked in {**judges, "others": others}.items():
                report = _audited(moved, asked, target)
                bounds, held_out = report.verdict.retention, report.held_out
                kept = "" if held_out is None else f"{held_out.verdict.retention.estimate:.3f}"
                figures = [f"{bounds.estimate:.3f}", f"{bounds.lower:.3f}", kept, report.verdict.outcome.value]
                rows.append([kind, wording, f"{report.verdict.n_queries:,}", *figures])
    head = ["log and others", "judges", "queries", "retention", "lower", "without true vectors", "verdict"]
    print(f"\n{pairs:,} documents that a log chose\n\n{table([head, *rows])}", flush=True)


def _reworded(choosers: QuerySet, wording: str, change: Callable[[str], str]) -> QuerySet:
    asked = [Query(f"{wording}: {query.id}", change(query.text)) for query in choosers.queries]
    qrels = {f"{wording}: {query.id}": choosers.grades(query.id) for query in choosers.queries}
    return QuerySet(asked, qrels, choosers.name)


def _knowing(path: Path, output: Path, asked: Iterable[QuerySet]) -> Path:
    """The target's file with more queries, as the model embeds them."""
    queries = [query for some in asked for query in some.queries]
    with np.load(path) as arrays:
        known = dict(arrays)
    vectors = load_embedder(TARGET_MODEL).embed_queries(queries)
    known["query_ids"] = np.concatenate([known["query_ids"], [query.id for query in queries]])
    known["queries"] = np.concatenate([known["queries"], vectors.astype(known["queries"].dtype)])
    np.savez(output, **known)
    return output


def _audited(moved: Path, asked: QuerySet, target: Embedder) -> AuditReport:
    return migrate.audit(moved, "build", judged=asked, target=target, two_stage="none")


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=1_000)
    arguments = parser.parse_args()
    documents(arguments.data)
    with tempfile.TemporaryDirectory() as folder:
        chosen(arguments.data, Path(folder))
        verdicts(arguments.data, Path(folder), arguments.pairs)


if __name__ == "__main__":
    main()
