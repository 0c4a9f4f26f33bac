from __future__ import annotations

import random
import re

import numpy as np
import pytest

from migrate.errors import DatasetError, UsageError
from migrate.lab.embed.chunking import chunk_documents
from migrate.vectors import Document


def prose(n_words: int, seed: int, *, vocabulary: int = 1_000) -> str:
    """Words, sentences and paragraphs with all kinds of white space between them."""
    rng = random.Random(seed)
    gaps = [" "] * 20 + ["\n", "\n\n", "  ", ". ", "\n\n\n", "\t"]
    return "".join(f"w{rng.randrange(vocabulary)}{rng.choice(gaps)}" for _ in range(n_words))


def words(texts) -> np.ndarray:
    return np.array([len(re.findall(r"\w+|[^\w\s]", text)) for text in texts], dtype=np.int64)


def letters(texts) -> np.ndarray:
    return np.array(list(map(len, texts)), dtype=np.int64)


SIZES = {"chunk_tokens": 256, "chunk_overlap": 25, "count_tokens": words}


def chunks_of(text: str, **options) -> list[Document]:
    return list(chunk_documents([Document("d", text)], **(SIZES | options)))


def whole_more(texts) -> np.ndarray:
    """A counter to which words weigh more together than alone, some more than others."""
    together = [len(text.split()) + text.count("1") * text.count(" ") // 20 for text in texts]
    return np.array(together) + letters(texts) // 9


def whole_less(texts) -> np.ndarray:
    """A counter to which words weigh less together than alone."""
    return np.ceil(letters(texts) / 5 + 0.3).astype(np.int64)


def characters_not_covered(text: str, chunks: list[Document]) -> str:
    covered = set()
    for chunk in chunks:
        covered.update(range(chunk.metadata["start"], chunk.metadata["start"] + len(chunk.text)))
    return "".join(letter for place, letter in enumerate(text) if place not in covered)


TEXTS = {
    "prose": prose(2_000, 0),
    "few words, often": prose(2_000, 1, vocabulary=3),
    "equal paragraphs": "the same paragraph again and again\n\n" * 100,
    "one long word": "x" * 3_000,
    "many short lines": "\n".join(f"line {i}" for i in range(500)),
    "no spaces": "漢字かな、" * 300,
    "white space first": "\n \n\t" + prose(300, 2),
    "a long word among others": prose(100, 3) + "a-b_c/" * 200 + " " + prose(100, 4),
    "other white space": "one two three\u3000four\tfive\r\nsix\x0c" * 60,
}


# All sizes for one who counts, and all who count for one size
@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(
    ("chunk_tokens", "chunk_overlap", "count"),
    [(256, 25, words), (20, 19, words), *((40, 0, count) for count in (words, letters, whole_more, whole_less))],
)
def test_offsets_are_true_and_ids_unique_and_parents_named(kind, chunk_tokens, chunk_overlap, count):
    text = TEXTS[kind]
    chunks = chunks_of(text, chunk_tokens=chunk_tokens, chunk_overlap=chunk_overlap, count_tokens=count)
    assert max(count([chunk.text for chunk in chunks])) <= chunk_tokens
    assert characters_not_covered(text, chunks).strip() == ""
    starts = [chunk.metadata["start"] for chunk in chunks]
    assert [text[start : start + len(chunk.text)] for start, chunk in zip(starts, chunks, strict=True)] == [
        chunk.text for chunk in chunks
    ]
    assert len(set(starts)) == len(starts) and starts == sorted(starts)
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    assert [chunk.metadata["chunk"] for chunk in chunks] == list(range(len(chunks)))
    assert {chunk.metadata["parent_id"] for chunk in chunks} == {"d"}


def test_the_splitter_is_langchains_own():
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    splitter = RecursiveCharacterTextSplitter(
        chunk_size=60, chunk_overlap=12, length_function=lambda text: int(words([text])[0])
    )
    numbers = " ".join(f"w{i}" for i in range(1_000))
    for text in (numbers, TEXTS["few words, often"], TEXTS["equal paragraphs"], TEXTS["many short lines"]):
        ours = [chunk.text for chunk in chunks_of(text, chunk_tokens=60, chunk_overlap=12)]
        assert ours == splitter.split_text(text)


def test_cuts_are_made_between_words():
    for kind in ("prose", "equal paragraphs", "many short lines", "other white space"):
        for chunk in chunks_of(TEXTS[kind], chunk_tokens=20, chunk_overlap=3):
            start, stop = chunk.metadata["start"], chunk.metadata["start"] + len(chunk.text)
            around = TEXTS[kind][max(start - 1, 0) : start] + TEXTS[kind][stop : stop + 1]
            assert around.strip() == ""


def test_a_word_longer_than_a_chunk_is_cut_and_its_neighbours_are_not():
    chunks = chunks_of(TEXTS["a long word among others"], chunk_tokens=60, chunk_overlap=0)
    cut = [chunk for chunk in chunks if "a-b_c/" in chunk.text]
    assert len(cut) > 10 and min(words([chunk.text for chunk in cut[1:-1]])) > 30
    assert all(re.fullmatch(r"(w\d+\W+)*w\d+\W*", chunk.text) for chunk in chunks if chunk not in cut)


def test_a_character_with_more_tokens_than_a_chunk_stays_whole():
    chunks = chunks_of("x" * 9, chunk_tokens=2, chunk_overlap=1, count_tokens=lambda texts: 3 * letters(texts))
    assert [chunk.text for chunk in chunks] == ["x"] * 9


def test_the_same_text_is_cut_alike_whatever_came_before():
    alone = chunks_of(TEXTS["prose"], chunk_tokens=40, chunk_overlap=5)
    documents = [Document(kind, text) for kind, text in TEXTS.items()] + [Document("d", TEXTS["prose"])]
    after = list(chunk_documents(documents, chunk_tokens=40, chunk_overlap=5, count_tokens=words))
    assert after[-len(alone) :] == alone


def test_a_text_longer_than_the_alphabet_of_marks_is_located_too(monkeypatch):
    monkeypatch.setattr("migrate.lab.embed.chunking._N_MARKS", 1_000)
    text = TEXTS["equal paragraphs"]
    chunks = chunks_of(text, chunk_tokens=40, chunk_overlap=5)
    assert all(text.startswith(chunk.text, chunk.metadata["start"]) for chunk in chunks)
    assert characters_not_covered(text, chunks).strip() == ""
    starts = {chunk.metadata["start"] for chunk in chunks_of("x" * 2_500, count_tokens=letters)}
    assert {0, 1_000, 2_000} <= starts


def test_a_document_that_fits_keeps_its_id_and_metadata():
    document = Document("d", " a few words ", {"title": "T", "start": "replaced"})
    (chunk,) = chunk_documents([document], **SIZES)
    assert chunk == Document("d", "a few words", {"title": "T", "parent_id": "d", "chunk": 0, "start": 1})
    assert document.metadata == {"title": "T", "start": "replaced"}


@pytest.mark.parametrize("text", ["", " \n "])
def test_a_document_without_text_stays_one_empty_chunk(text):
    (chunk,) = chunks_of(text)
    assert (chunk.id, chunk.text, chunk.metadata["start"]) == ("d", "", 0)


@pytest.mark.parametrize(
    ("ids", "twice"),
    [(("d#0", "d"), "d#0"), (("d", "d#1"), "d#1"), (("a", "b", "a"), "a")],
    ids=["before", "after", "documents"],
)
def test_an_id_that_stands_for_two_things_is_refused(ids, twice):
    documents = [Document(name, prose(100, 0)) for name in ids]
    with pytest.raises(DatasetError, match=f"the id '{twice}' appears twice"):
        list(chunk_documents(documents, chunk_tokens=60, chunk_overlap=0, count_tokens=words))


def test_documents_are_streamed():
    def documents():
        for number in range(1_000):
            yield Document(str(number), "x")
        raise RuntimeError("asked for more than was needed")

    assert next(chunk_documents(documents(), **SIZES)).id == "0"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_tokens": 0}, "chunk_tokens: 0 is too few"),
        ({"chunk_tokens": 25}, "chunk_overlap: 25 is not from 0 to 24"),
        ({"chunk_overlap": -1}, "chunk_overlap: -1 is not from 0 to 255"),
    ],
)
def test_impossible_settings_are_refused_at_once(options, message):
    with pytest.raises(UsageError, match=message):
        chunk_documents([], **(SIZES | options))
