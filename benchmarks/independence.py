"""Whether queries judge that should not: those that are documents, and those that chose what has true vectors.

    python benchmarks/independence.py DATA [--pairs 1000] [--copies 100]

DATA is laid out as for `retrieval.py`; the source space is `mpnet`, the target `minilm`.

documents     how many queries of people, all of the set's, are taken for documents, or quote one, judged and unjudged
              (`migrate.audit.document_queries`), and how much nearer to their first document than to the next they are
copies        documents in disguise: how many of 500 stay, of the first 30 documents by the words of their own; and how
              many of `--copies` stay and what the audit of a poor store says, judged and unjudged
chosen        a sample by a query log, as `fit --query-log` draws it: which share of all documents has true vectors, and
              which share of the log's own queries, of other people's, and of those in the other half of the log looks
              for one (`migrate.selection.choosers`). Halves are those of `--hold-out 50%`
verdicts      a store whose sample a log chose, judged by the log in other words, and by others: what the audit says
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from retrieval import TARGET_MODEL, Collection, Space, load_space, run_over

import migrate
from migrate.audit.audit import run_audit
from migrate.audit.document import sentence_of
from migrate.audit.document_queries import Likeness, likeness
from migrate.audit.query_set import QuerySet, hold_out
from migrate.audit.result import AuditResult
from migrate.audit.step import Audit
from migrate.datasets.beir import BeirSet, load_beir
from migrate.datasets.stdlib import stdlib_beir
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.errors import InconclusiveError
from migrate.report.terminal import table
from migrate.selection import QueryLog
from migrate.selection.query_log import query_log_rows
from migrate.stores import create_store, open_store
from migrate.stores.base import Store
from migrate.vectors import Query, Vectors

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


LOOK_ALIKES = str.maketrans(
    "aceopxyiABEKMOPTX",
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0391\u0412\u0415\u041a\u041c\u041e\u0420\u0422\u03a7",
)
"""Cyrillic and Greek letters that look like Latin ones."""

FULL_WIDTH = {code: code + 0xFEE0 for code in range(ord("!"), ord("~") + 1)}
LEET = str.maketrans("oieast", "013457")
TYPESET = {"ffi": "\ufb03", "fi": "\ufb01", "fl": "\ufb02", "ff": "\ufb00", '"': "\u201d", "'": "\u2019", "-": "\u2013"}


def typeset(text: str) -> str:
    """Ligatures, dashes and quotation marks as printers set them."""
    for typed, printed in TYPESET.items():
        text = text.replace(typed, printed)
    return f"\u00bf{text}\u2026?"


def other_number(text: str) -> str:
    """Plurals become singulars, and the other way round."""
    words = text.split()
    return " ".join(word[:-1] if word.endswith("s") else f"{word}s" if len(word) > 3 else word for word in words)


INSTRUCTION = (
    "Given a question that a user has typed into the search box of a library, retrieve the passages that answer it "
    "best, and rank those first that treat of the very same subject:"
)


class Disguises:
    """Documents that are made to look like queries."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.words = sorted({word for text in texts for word in text.split()})
        self.chance = random.Random(0)

    def other(self) -> str:
        """Another document."""
        return self.chance.choice(self.texts)

    def others(self, count: int) -> str:
        """The first words of another document."""
        return " ".join(self.other().split()[:count])

    def piece(self, text: str) -> str:
        """Some 150 characters."""
        return "".join(self.part(text, 150))

    def part(self, whole: Sequence[str], length: int) -> Sequence[str]:
        """So many letters or words in one go, from anywhere."""
        start = self.chance.randrange(max(len(whole) - length, 1))
        return whole[start : start + length]

    def replaced(self, text: str, by: Callable[[], str]) -> str:
        """Three words of ten are other ones."""
        return " ".join(by() if self.chance.random() < 0.3 else word for word in text.split())

    def in_runs(self, text: str) -> list[str]:
        """Sentences, or fifteen words each where there are none."""
        sentences, words = re.split(r"(?<=[.!?]) +", text), text.split()
        return sentences if len(sentences) > 2 else [" ".join(words[at : at + 15]) for at in range(0, len(words), 15)]

    def shuffled(self, parts: Sequence[str]) -> str:
        """The parts in another order."""
        return " ".join(self.chance.sample(parts, len(parts)))

    def accented(self, text: str) -> str:
        """Another case, and an accent in every word."""
        return " ".join(f"{word[:2]}\u0301{word[2:]}".swapcase() for word in text.split())

    def hyphenated(self, text: str) -> str:
        """Long words are broken."""
        return " ".join(f"{word[:3]}-\n{word[3:]}" if len(word) > 5 else word for word in text.split())

    @property
    def all(self) -> Mapping[str, Callable[[str], str]]:
        """What is made of a document, by name."""
        foo, word = (lambda: "foo"), (lambda: self.chance.choice(self.words))
        return {
            "the document and please": "{} please".format,
            "instruction, first 400 characters": lambda text: f"{INSTRUCTION} {text[:400]}",
            "30 other words, first 400 characters": lambda text: f"{self.others(30)} {text[:400]}",
            "instruction, 150 characters": lambda text: f"{INSTRUCTION} {self.piece(text)}",
            "150 characters between 60 other words": lambda text: (
                f"{self.others(60)} {self.piece(text)} {self.others(60)}"
            ),
            "150 characters": self.piece,
            "between two documents": lambda text: f"{self.other()} {text} {self.other()}",
            "half of it, half of another": lambda text: (
                f"{text[: len(text) // 2]} {(o := self.other())[len(o) // 2 :]}"
            ),
            "30 % foo": lambda text: self.replaced(text, foo),
            "30 % words of the store": lambda text: self.replaced(text, word),
            "30 % words of one other": lambda text: self.replaced(
                text, partial(self.chance.choice, self.other().split())
            ),
            "30 % of the words gone": lambda text: self.replaced(text, str),
            "every third word changed": partial(changed, 3),
            "sentences shuffled": lambda text: self.shuffled(self.in_runs(text)),
            "words shuffled": lambda text: self.shuffled(text.split()),
            "accents and case": self.accented,
            "hyphens": self.hyphenated,
            "30 % words of the store in 400 characters": lambda text: (
                f"{self.others(30)} {self.replaced(text[:400], word)}"
            ),
            "30 % words of the store in its first 400 characters": lambda text: self.replaced(text[:400], word),
            "half of the words": lambda text: " ".join(text.split()[::2]),
            "words in reverse": lambda text: " ".join(text.split()[::-1]),
            "look-alike letters": lambda text: text.translate(LOOK_ALIKES),
            "full-width letters": lambda text: text.translate(FULL_WIDTH),
            "zero-width characters": "\u200b".join,
            "soft hyphens": lambda text: " ".join("\u00ad".join(word) for word in text.split()),
            "marks on all letters": "\u0336".join,
            "ligatures and quotation marks": typeset,
            "emoji between words": lambda text: " \U0001f600\ufe0f ".join(text.split()),
            "digits for letters": lambda text: text.lower().translate(LEET),
            "doubled letters": lambda text: "".join(2 * letter if letter.isalpha() else letter for letter in text),
            "spaces between letters": " ".join,
            "words glued together": lambda text: "".join(text.split()),
            "plural and singular": other_number,
            "words cut to 5 letters": lambda text: " ".join(word[:5] for word in text.split()),
            "55 characters": lambda text: text[(at := self.chance.randrange(max(len(text) - 55, 1))) : at + 55],
            "8 words": lambda text: " ".join(
                (w := text.split())[(at := self.chance.randrange(max(len(w) - 8, 1))) : at + 8]
            ),
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


def write_store(folder: Path, collection: Collection, vectors: Vectors) -> Store:
    """A store of a collection."""
    folder.mkdir()
    writer = create_store(folder, format="faiss", dim=vectors.shape[1], metric="ip")
    writer.append(collection.documents, vectors)
    writer.finish()
    return open_store(folder)


def documents(data: Path) -> None:
    """Print how many queries of people are taken for documents."""
    rows = []
    for name, split in (("nfcorpus", "test"), ("scifact", "test"), ("scifact", "train")):
        collection, _, target = load(data, name, split)
        texts = {document.id: document.text for document in collection.documents}
        run = run_over(collection, np.arange(len(texts)), target.documents, target.queries)
        judged = {
            query.id: [doc for doc in _relevant(collection, query.id) if doc in texts] for query in collection.queries
        }
        unjudged = {query.id: list(run.rankings[query.id]) for query in collection.queries}
        asked = {query.id: query.text for query in collection.queries}
        rows += [
            [f"{name}, {split}", kind, *_counts(asked, texts, found)]
            for kind, found in {"judged": judged, "unjudged": unjudged}.items()
        ]
        near = np.sort([(1 - scores[0]) / (1 - scores[1]) for scores in run.scores.values()])
        print(
            f"{name}, {split}: distance to the first document, in those to the second: least {near[0]:.2f}, "
            f"then {near[1]:.2f}"
        )
    docstrings = stdlib_beir()
    texts = {document.id: document.text for document in docstrings.documents}
    judged = {query_id: list(grades) for query_id, grades in docstrings.qrels.items()}
    asked = {query.id: query.text for query in docstrings.queries}
    rows.append(["the demo", "judged", *_counts(asked, texts, judged)])
    head = ["queries of people", "", "", "dropped as documents", "quote a line"]
    print(f"\n{table([head, *rows])}", flush=True)


def _counts(asked: Mapping[str, str], texts: Mapping[str, str], own: Mapping[str, Sequence[str]]) -> list[str]:
    """How many queries there are, are taken for one of their documents, or quote one."""
    queries_of: dict[str, list[str]] = {}
    for query_id, found in own.items():
        for document in found:
            queries_of.setdefault(document, []).append(query_id)
    kinds = likeness(asked, [(texts[document], queries) for document, queries in queries_of.items()]).values()
    return [f"{len(asked):,}", *(f"{sum(kind is one for kind in kinds):,}" for one in (Likeness.COPY, Likeness.QUOTE))]


def copies(data: Path, folder: Path, count: int) -> None:
    """Print how many documents in disguise stay, and what an audit of a poor store says by them."""
    rows = []
    for name in SETS:
        collection, source, _ = load(data, name)
        path = data / "pairs" / f"{name}.{TARGET}.npz"
        target = load_embedder(f"file:{path}")
        store = write_store(folder / f"{name} with copies", collection, source.documents)
        moved = folder / f"{name} poor"
        migrate.translate(store, migrate.fit(store, target, kind="ridge", sample=200), moved)
        drawn = random.Random(1).sample(collection.documents, 500)
        texts = {document.id: document.text for document in drawn}
        for kind, disguise in Disguises([document.text for document in collection.documents]).all.items():
            asked = [Query(f"{kind}: {document.id}", disguise(document.text)) for document in drawn]
            of_text = {query.id: query.text for query in asked}
            own = {query.id: [document.id] for query, document in zip(asked, drawn, strict=True)}
            row = [name, kind, f"{500 - int(_counts(of_text, texts, own)[1].replace(',', ''))}"]
            qrels = {query_id: dict.fromkeys(found, 1) for query_id, found in own.items()}
            some = asked[:count]
            judged = QuerySet(some, {query.id: qrels[query.id] for query in some}, kind)
            known = load_embedder(f"file:{_knowing(path, folder / f'{name}.npz', [judged])}") if count else target
            for query_set in (judged, replace(judged, qrels=None)) if count else ():
                try:
                    report = _audited(moved, query_set, known)
                    row += [f"{report.verdict.observations.queries:,}", sentence_of(report).split(":")[0]]
                except InconclusiveError as error:
                    left = re.search(r"(\d+) others are left", str(error))
                    row += [left[1] if left else "", "INCONCLUSIVE"]
            rows.append(row)
            print(*row, sep=" | ", flush=True)
    head = ["set", "queries", "of 500 stay"]
    head += [f"of {count} judged stay", "verdict", f"of {count} unjudged stay", "verdict"] if count else []
    print(f"\n{table([head, *rows])}", flush=True)


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
                bounds, held_out = report.verdict.retention, report.examination.held_out
                kept = "" if held_out is None else f"{held_out.verdict.retention.estimate:.3f}"
                figures = [f"{bounds.estimate:.3f}", f"{bounds.lower:.3f}", kept, report.verdict.outcome.value]
                rows.append([kind, wording, f"{report.verdict.observations.queries:,}", *figures])
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


def _audited(moved: Path, asked: QuerySet, target: Embedder) -> AuditResult:
    audit = Audit(moved, "build", judged=asked, target=target, two_stage="none")
    return run_audit(audit.open().inputs)


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--copies", type=int, default=100, help="documents in disguise to judge by; 0 for no audit")
    arguments = parser.parse_args()
    documents(arguments.data)
    with tempfile.TemporaryDirectory() as folder:
        copies(arguments.data, Path(folder), arguments.copies)
        chosen(arguments.data, Path(folder))
        verdicts(arguments.data, Path(folder), arguments.pairs)


if __name__ == "__main__":
    main()
