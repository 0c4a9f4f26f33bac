"""What makes a query a document, by the words of both: copies do not judge, and questions do."""

import random
import re

import pytest
from topics import DOCUMENTS, QRELS, QUERIES, TARGET, audit, make_store, shown

from migrate.audit.bounds import Outcome
from migrate.audit.document_queries import Likeness, likeness
from migrate.audit.query_set import QuerySet
from migrate.datasets.stdlib import stdlib_beir
from migrate.errors import InconclusiveError
from migrate.vectors import Document, Query

DOCSTRINGS = stdlib_beir()
PROSE = [" ".join(document.text.split()) for document in DOCSTRINGS.documents]
TEXTS = [text for text in PROSE if len(text) > 700 and sum(map(str.isalpha, text)) > 0.78 * len(text)][:60]
INSTRUCTION = (
    "Given a question that somebody has typed into the search box of a handbook for programmers, retrieve the passages "
    "that answer it best, and rank those first that treat of the very same subject:"
)


def other(text):
    return TEXTS[TEXTS.index(text) - 1]


def chance(text):
    return random.Random(text)


def replaced(by):
    """Three words of ten are others."""

    def change(text):
        drawn = chance(text)
        others = by(text)
        words = (drawn.choice(others) if drawn.random() < 0.3 else word for word in text.split())
        return " ".join(words)

    return change


def piece(text):
    start = chance(text).randrange(len(text) - 150)
    return text[start : start + 150]


def words_of(text, count):
    return " ".join(text.split()[:count])


def sentences_in_another_order(text):
    sentences = re.split(r"(?<=[.:;])\s+", text)
    return " ".join(chance(text).sample(sentences, len(sentences)))


def accented(text):
    return " ".join(f"{word[:2]}\u0301{word[2:].swapcase()}" for word in text.split())


def hyphenated(text):
    return " ".join(f"{word[:3]}-\n{word[3:]}" if len(word) > 5 else word for word in text.split())


COPIES = {
    "behind an instruction": lambda text: f"{INSTRUCTION} {text[:400]}",
    "behind thirty other words": lambda text: f"{words_of(other(text), 30)} {text[:400]}",
    "a piece behind an instruction": lambda text: f"{INSTRUCTION} {piece(text)}",
    "a piece between sixty other words": lambda text: (
        f"{words_of(other(text), 60)} {piece(text)} {words_of(other(other(text)), 60)}"
    ),
    "a piece": piece,
    "between two others": lambda text: f"{other(text)} {text} {other(other(text))}",
    "half of it and half of another": lambda text: f"{text[: len(text) // 2]} {other(text)[len(text) // 2 :]}",
    "three words of ten are foo": replaced(lambda text: ["foo"]),
    "three words of ten are of another": replaced(lambda text: other(text).split()),
    "three words of ten are gone": replaced(lambda text: [""]),
    "sentences in another order": sentences_in_another_order,
    "accents and capitals": accented,
    "hyphens": hyphenated,
    "look-alike letters": lambda text: text.translate(str.maketrans("aceop", "\u0430\u0441\u0435\u03bf\u0440")),
    "emoji between words": lambda text: " \U0001f44d\U0001f3fd\ufe0f ".join(text.split()),
    "variation selectors": "\ufe0f".join,
}


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES)
def test_a_long_part_of_a_document_is_a_copy_whatever_surrounds_it(change):
    queries = {str(row): change(text) for row, text in enumerate(TEXTS)}
    found = likeness(queries, [(text, [str(row)]) for row, text in enumerate(TEXTS)])
    assert set(found.values()) == {Likeness.COPY}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: " ".join(text.split()[::2]),
        lambda text: " ".join(chance(text).sample(text.split(), len(text.split()))),
        lambda text: f"{words_of(other(text), 30)} {replaced(lambda _: other(text).split())(text[:400])}",
    ],
    ids=["every second word is gone", "words in another order", "three words of ten of 400 letters are of another"],
)
def test_nearly_all_are_copies_with_hardly_two_words_that_follow_each_other(change):
    queries = {str(row): change(text) for row, text in enumerate(TEXTS)}
    found = list(likeness(queries, [(text, [str(row)]) for row, text in enumerate(TEXTS)]).values())
    assert found.count(Likeness.COPY) >= 0.95 * len(TEXTS)


@pytest.mark.slow
def test_no_first_line_of_a_docstring_is_a_copy_and_next_to_none_a_quote():
    texts = {document.id: document.text for document in DOCSTRINGS.documents}
    asked = {query.id: query.text for query in DOCSTRINGS.queries}
    documents = [(texts[query_id.removeprefix("q:")], [query_id]) for query_id in asked]
    found = list(likeness(asked, documents).values())
    assert found.count(Likeness.COPY) == 0
    assert found.count(Likeness.QUOTE) <= 0.01 * len(found)


@pytest.mark.parametrize("count", [8, 12])
def test_lists_of_the_keywords_of_documents_are_quotes(count):
    keywords = {}
    for row, text in enumerate(TEXTS):
        words = dict.fromkeys(word for word in re.findall(r"\w+", text.lower()) if len(word) >= 6)
        if len(words) >= count:
            keywords[str(row)] = " ".join(list(words)[:count])
    documents = [(text, [str(row)] if str(row) in keywords else []) for row, text in enumerate(TEXTS)]
    found = list(likeness(keywords, documents).values())
    assert len(found) >= 20
    assert found.count(Likeness.NONE) <= 0.5 * len(found)


def test_pieces_of_eight_words_are_quotes():
    pieces = {str(row): " ".join(text.split()[10:18]) for row, text in enumerate(TEXTS)}
    found = likeness(pieces, [(text, [str(row)]) for row, text in enumerate(TEXTS)])
    assert Likeness.NONE not in found.values()


TITLE = "On the care of old wooden boats in salt water"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("old wooden boats", Likeness.NONE),
        ("care of old boats", Likeness.NONE),
        ("care of old wooden boats in salt water", Likeness.QUOTE),
        (f"please find {TITLE}", Likeness.NONE),
    ],
)
def test_a_title_that_somebody_types_looks_for_its_document_and_judges(query, expected):
    document = f"{TITLE}. {TEXTS[0]}"
    assert likeness({"q": query}, [(document, ["q"])]) == {"q": expected}


@pytest.mark.parametrize(
    ("query", "document", "expected"),
    [
        ("where can I buy red shoes", "red shoes", Likeness.NONE),
        ("the red shoes?", "red shoes", Likeness.COPY),
        (f"{INSTRUCTION} {TITLE}, if there is anything", f"{TITLE} of the north", Likeness.NONE),
        (f"{INSTRUCTION} {TITLE} of the north", f"{TITLE} of the north", Likeness.COPY),
    ],
)
def test_a_short_document_is_a_copy_with_all_its_words_and_alone_or_longer_than_people_repeat(
    query, document, expected
):
    assert likeness({"q": query}, [(document, ["q"])]) == {"q": expected}


def test_what_many_documents_have_in_common_is_nobodys_copy():
    """All but the number is the same in every document, and in the question."""
    documents = [f"Page {row} of the handbook of the warehouse in the harbour" for row in range(100, 150)]
    question = "What is on page 7 of the handbook of the warehouse in the harbour?"
    copies = {text: f"{text}, please" for text in documents}
    found = likeness({"q": question, **copies}, [(text, ["q", text]) for text in documents])
    assert found.pop("q") == Likeness.NONE
    assert set(found.values()) == {Likeness.COPY}
    terms = f"{INSTRUCTION} {INSTRUCTION[::-1]}"  # some 300 letters
    long = [f"{terms} {text}" for text in TEXTS]
    asked = {"q": f"What do you think of this: {terms[:200]}"}
    assert likeness(asked, [(text, ["q"]) for text in long]) == {"q": Likeness.NONE}
    assert likeness(asked, [(long[0], ["q"])]) == {"q": Likeness.COPY}, "of one document it is"


def stores(folder, texts):
    documents = [Document(one.id, f"{one.text} {text}") for one, text in zip(DOCUMENTS, texts, strict=True)]
    return [make_store(folder / name, documents=documents) for name in ("new", "full")]


@pytest.mark.slow
@pytest.mark.parametrize("is_judged", [True, False])
def test_queries_of_a_line_of_a_document_leave_nothing_safe(is_judged, tmp_path):
    """A line is too short for a copy; that so many have one shows where they come from."""
    texts = [text for text in DOCSTRINGS.documents if len(text.text) > 400][:150]
    new, full = stores(tmp_path, [text.text for text in texts])
    lines = [Query(one.id, f"{one.text} {text.text[200:285]}") for one, text in zip(DOCUMENTS, texts, strict=True)]
    qrels = {query.id: {query.id: 1} for query in lines} if is_judged else None
    report = audit(new, full, QuerySet(lines, qrels, "lines"), margin=0.5)
    assert report.verdict.observations.queries == 150
    assert report.outcome is Outcome.INCONCLUSIVE
    assert any("or have 60 letters or more of it" in doubt for doubt in report.examination.doubts)


@pytest.mark.parametrize(("n_copies", "outcome"), [(100, "INCONCLUSIVE"), (50, "SAFE")])
def test_what_is_left_of_a_set_of_copies_judges_but_makes_nothing_safe(n_copies, outcome, tmp_path):
    new, full = (make_store(tmp_path / name) for name in ("new", "full"))
    copies = [Query(document.id, f"{document.text}, please") for document in DOCUMENTS[:n_copies]]
    qrels = {**QRELS, **{query.id: {query.id: 1} for query in copies}}
    report = audit(new, full, QuerySet([*copies, *QUERIES], qrels, "log"), margin=0.5)
    assert report.verdict.observations.queries == len(QUERIES)
    assert report.verdict.outcome.value == outcome
    told = f"{n_copies} of {n_copies + 60} queries are a stored document, whole or nearly, so that the others may"
    assert (told in shown(report)) == (outcome != "SAFE")


@pytest.mark.slow
@pytest.mark.parametrize("is_judged", [True, False])
def test_copies_alone_judge_nothing(is_judged, tmp_path):
    texts = [text for text in DOCSTRINGS.documents if len(text.text) > 400][:150]
    new, full = stores(tmp_path, [text.text for text in texts])
    pieces = [
        Query(one.id, f"{one.text} {INSTRUCTION} {text.text[100:400]}")
        for one, text in zip(DOCUMENTS, texts, strict=True)
    ]
    qrels = {query.id: {query.id: 1} for query in pieces} if is_judged else None
    with pytest.raises(InconclusiveError, match=r"are a stored document, whole or nearly"):
        audit(new, full, QuerySet(pieces, qrels, "pieces"), TARGET)
