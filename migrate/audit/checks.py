"""What must hold of the stores before an audit can compare them, and what a reader should know of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from migrate.audit.questions import Keys, Questions
from migrate.backfill import FILLED_IN
from migrate.documents import Document, query_key
from migrate.errors import InputError, StoreError
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside

_ECHOES = 0.1


def check_same_documents(stores: Mapping[str, Store], keys: Mapping[str, Keys], *, standard: str) -> None:
    """Make sure that every store holds the documents of the store called `standard`.

    Raises
    ------
    StoreError
        One does not.
    """
    expected = set(keys[standard].values())
    for name, store in stores.items():
        strange = expected.symmetric_difference(keys[name].values())
        if strange:
            raise StoreError(
                f"{store.info.path}: expected the documents of {stores[standard].info.path}, found {len(strange)} "
                f"that only one of them has, such as {min(strange)!r}; audit stores of the same corpus"
            )


def remarks(questions: Questions, keys: Keys, translated: Store) -> tuple[str, ...]:
    """What is known of the judgements and of the translated store before it is searched.

    Raises
    ------
    InputError
        None of the relevant documents is in the stores.
    """
    known = (*_repeated(questions), *_coverage(questions, keys), *_true_vectors(translated), *_outside(translated))
    return (*questions.notes, *known)


def echoes(questions: Questions, keys: Keys, documents: Iterable[Document]) -> tuple[str, ...]:
    """A doubt where more than a tenth of the queries are, word for word, a document that they look for.

    Every model finds the text that it is asked with, however many vectors are wrong.
    """
    wanted: dict[str, set[str]] = {}
    for query in questions.queries:
        grades = (questions.qrels or {}).get(query.id, {})
        wanted.setdefault(query_key(query.text), set()).update(d for d, grade in grades.items() if grade > 0)
    same = {key for one in documents if keys[one.id] in wanted.get(key := query_key(one.text), ())}
    if len(same) <= _ECHOES * len(questions.distinct):
        return ()
    return (
        f"{len(same):,} of {len(questions.distinct):,} queries are word for word the document that they look for, "
        "which every model finds: ask what users ask",
    )


def _repeated(questions: Questions) -> tuple[str, ...]:
    repeated = len(questions.queries) - len(questions.distinct)
    if not repeated:
        return ()
    return (
        f"{repeated:,} of {len(questions.queries):,} queries repeat the text of another, but for case and white space; "
        f"each of the {len(questions.distinct):,} texts counts once, by the mean of its scores",
    )


def _coverage(questions: Questions, keys: Keys) -> tuple[str, ...]:
    """What the judgements say of documents that the stores do not hold."""
    relevant = {d for grades in (questions.qrels or {}).values() for d, grade in grades.items() if grade > 0}
    missing = relevant.difference(keys.values())
    if relevant and missing == relevant:
        raise InputError(
            f"{questions.name}: expected judgements of the documents in the stores, found none ({min(relevant)!r} is "
            f"relevant, the stores have {next(iter(keys.values()), 'nothing')!r}); is it the right BEIR set, and "
            "--parent-field the right field?"
        )
    if not missing:
        return ()
    return (f"{len(missing):,} of {len(relevant):,} relevant documents are not in the stores; no arm can find them",)


def _outside(translated: Store) -> tuple[str, ...]:
    why = distrust(translated)
    if why is not None:
        return (f"{why}; nothing is sliced by it, nor is it said which documents lie outside what the sample covers",)
    found = find_outside(translated)
    return () if found is None else (found.sentence,)


def _true_vectors(translated: Store) -> tuple[str, ...]:
    known = translated.info.manifest
    n_true = known.counts.get("true vectors", 0) if known else 0
    if not n_true:
        return ()
    origin = "" if known and known.details.get(FILLED_IN) else ": the sample the stitch was fitted on"
    return (f"{n_true:,} of {translated.info.count:,} vectors are true ones{origin}",)
