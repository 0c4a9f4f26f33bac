"""Texts in a file of the user's own beside a FAISS index: told by its fields, copied as it is."""

import csv
import functools
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from faiss_tools import COUNT, build, read, rewrite, save
from sync_tools import Hashed

import migrate
from migrate.cli.main import run
from migrate.errors import StoreError, UsageError
from migrate.manifest import find_manifest
from migrate.stores import open_store
from migrate.stores.documents import names
from migrate.testing.stores import awkward_documents
from migrate.vectors import Document

AWKWARD = awkward_documents()
IDS, TEXTS = [document.id for document in AWKWARD], [document.text for document in AWKWARD]
SOME = [f"text {row}: bread number {row % 7}" for row in range(COUNT)]


def table(rows, delimiter=",", ending="\r\n"):
    content = io.StringIO(newline="")
    csv.writer(content, delimiter=delimiter, lineterminator=ending).writerows(rows)
    return content.getvalue()


def objects(**columns):
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def lines(records, **dumps):
    return "\n".join(json.dumps(record, **dumps) for record in records)


def place(folder, vectors, name, content, *, factory="Flat", labels=None):
    save(build(factory, vectors, labels=labels), folder, "my.faiss")
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def place_records(folder, vectors, ending, records):
    if ending == "parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        place(folder, vectors, "unused.txt", "")
        parquet.write_table(pyarrow.Table.from_pylist(records), folder / "items.parquet")
        return folder
    if ending == "csv":
        content = table([tuple(records[0]), *(record.values() for record in records)])
    else:
        content = json.dumps(records) if ending == "json" else lines(records)
    return place(folder, vectors, f"items.{ending}", content)


@pytest.fixture
def few(vectors):
    return vectors[: len(AWKWARD)]


NUMBERED = [str(row) for row in range(len(AWKWARD))]
FORMS = {
    "list of texts": ("texts.json", json.dumps(TEXTS), NUMBERED),
    "list of texts, indented, in UTF-8 with a mark": (
        "texts.json",
        b"\xef\xbb\xbf" + json.dumps(TEXTS, ensure_ascii=False, indent=2).encode(),
        NUMBERED,
    ),
    "texts by id": ("docs.json", json.dumps(dict(zip(IDS, TEXTS, strict=True)), ensure_ascii=False), IDS),
    "objects by id": ("docs.json", json.dumps({i: {"body": t} for i, t in zip(IDS, TEXTS, strict=True)}), IDS),
    "list of objects": ("docs.json", json.dumps(objects(_id=IDS, content=TEXTS), ensure_ascii=False), IDS),
    "lines of objects": ("chunks.jsonl", "\n\n" + lines(objects(doc_id=IDS, chunk=TEXTS)) + "\n", IDS),
    "lines of texts": ("texts.jsonl", lines(TEXTS, ensure_ascii=False), NUMBERED),
    "commas": ("docs.csv", table([("id", "text"), *zip(IDS, TEXTS, strict=True)]), IDS),
    "commas, with a mark": (
        "docs.csv",
        "\ufeff" + table([("page_content", "id"), *zip(TEXTS, IDS, strict=True)], ending="\n"),
        IDS,
    ),
    "semicolons": ("docs.csv", table([("id", "body"), *zip(IDS, TEXTS, strict=True)], ";"), IDS),
    "tabs": ("docs.tsv", table([("uuid", "passage"), *zip(IDS, TEXTS, strict=True)], "\t"), IDS),
    "a column of any name": ("docs.csv", table([("passage",), *((t or '""',) for t in TEXTS)]), NUMBERED),
}


@pytest.mark.parametrize("form", FORMS)
def test_ids_and_texts_come_back_to_the_byte(form, few, tmp_path):
    name, content, ids = FORMS[form]
    store = open_store(place(tmp_path, few, name, content))
    documents = list(store.documents())
    assert [document.id for document in documents] == ids
    texts = [text or '""' for text in TEXTS] if form == "a column of any name" else TEXTS
    assert [document.text for document in documents] == texts
    assert np.array_equal(read(store)[1], few)
    mixed = np.array([7, 0, 9, 3])
    assert list(store.documents(mixed)) == [documents[row] for row in mixed]
    assert store.get(mixed).ids == [ids[row] for row in mixed]
    assert store.info.details["documents_file"] == name


SOME_BY_ID = {f"d{row}": text for row, text in enumerate(SOME)}


# Each kind of file, and each index that has rows in another way
@pytest.mark.parametrize(
    ("name", "content", "factory"),
    [
        ("texts.json", json.dumps(SOME), "Flat"),
        ("docs.csv", table([("id", "text"), *SOME_BY_ID.items()]), "Flat"),
        ("docs.json", json.dumps(SOME_BY_ID), "IVF8,Flat"),
        ("texts.json", json.dumps(SOME), "IVF8,Flat"),
        ("docs.jsonl", "\r\n\n".join(json.dumps(record) for record in objects(id=SOME_BY_ID, text=SOME)), "HNSW8,Flat"),
    ],
    ids=["list of texts", "commas", "texts by id, lists", "list of texts, lists", "lines, graph"],
)
def test_a_copy_has_the_same_file_and_each_row_its_text(name, content, factory, vectors, tmp_path):
    old = open_store(place(tmp_path / "old", vectors, name, content, factory=factory))
    new = rewrite(old, tmp_path / "new")
    assert (tmp_path / "new" / name).read_bytes() == (tmp_path / "old" / name).read_bytes()
    for store in (old, new):
        text_of = {document.id: document.text for document in store.documents()}
        for doc_id, vector in zip(*read(store), strict=True):
            row = int(doc_id.removeprefix("d"))
            assert text_of[doc_id] == SOME[row]
            assert np.array_equal(vector, vectors[row])


def test_the_ids_of_an_id_map_are_found_in_any_order(vectors, tmp_path):
    labels = np.random.default_rng(5).permutation(COUNT) * 3 + 1000
    order = sorted(range(COUNT), key=lambda row: labels[row])
    records = [{"id": int(labels[row]), "text": SOME[row]} for row in order]
    contents = {"a.json": json.dumps(records), "b.csv": table([("id", "text"), *(r.values() for r in records)])}
    for name, content in contents.items():
        store = open_store(place(tmp_path / name, vectors, name, content, factory="IDMap2,Flat", labels=labels))
        assert list(store.documents()) == [Document(str(label), text) for label, text in zip(labels, SOME, strict=True)]
        assert "matched by id" in store.info.details["documents"]


def test_metadata_is_the_rest(few, tmp_path):
    records = objects(id=IDS, text=TEXTS, page=range(10), metadata=[{"tags": ["a", None]}] * 10, embedding=[[0.5]] * 10)
    store = open_store(place(tmp_path / "json", few, "docs.json", json.dumps(records)))
    assert [d.metadata for d in store.documents()] == [{"page": row, "tags": ["a", None]} for row in range(10)]
    assert any("embedding" in note for note in store.info.notes)
    rows = [("id", "text", "page", "note", "metadata"), *((i, "t", 7, "", '{"a": [1]}') for i in IDS)]
    store = open_store(place(tmp_path / "csv", few, "docs.csv", table(rows)))
    assert next(store.documents()).metadata == {"page": "7", "a": [1]}


def test_exported_rows_of_pgvector_have_their_metadata_in_a_column_of_their_own(few, tmp_path):
    records = objects(uuid=IDS, document=TEXTS, cmetadata=[{"page": row} for row in range(10)])
    wanted = [Document(*pair, {"page": row}) for row, pair in enumerate(zip(IDS, TEXTS, strict=True))]
    assert list(open_store(place(tmp_path / "json", few, "rows.json", json.dumps(records))).documents()) == wanted
    parquet = pytest.importorskip("pyarrow.parquet")
    table_of = pytest.importorskip("pyarrow").Table.from_pylist
    rows = [{**record, "embedding": vector} for record, vector in zip(records, few.tolist(), strict=True)]
    parquet.write_table(table_of(rows), tmp_path / "rows.parquet")
    documents = open_store(f"parquet:{tmp_path / 'rows.parquet'}#?id=uuid").documents()
    assert [document.metadata for document in documents] == [{"page": row} for row in range(10)]


def test_a_name_in_the_metadata_and_beside_it_loses_neither_value(few, tmp_path):
    records = objects(id=IDS, text=TEXTS, page=[1] * 10, metadata=[{"page": 2}] * 10)
    store = open_store(place(tmp_path, few, "docs.json", json.dumps(records)))
    assert next(store.documents()).metadata == {"page": 1, "metadata": {"page": 2}}


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("id_name", "text_name"), [*(("id", name) for name in names.TEXTS), *((name, "text") for name in names.IDS)]
)
def test_every_format_consults_the_one_table_of_names(ending, id_name, text_name, few, tmp_path):
    # columns that could be either, were it not for the names
    columns = {"page": [f"p. {row}" for row in range(10)], id_name: IDS, "passage": SOME[10:20], text_name: SOME[:10]}
    store = open_store(place_records(tmp_path, few, ending, objects(**columns)))
    assert [(document.id, document.text) for document in store.documents()] == [*zip(IDS, SOME[:10], strict=True)]
    assert {"page", "passage"} == set(next(store.documents()).metadata)


def test_a_title_goes_before_the_text_unless_the_text_is_named(few, tmp_path):
    records = objects(_id=IDS, title=["On bread"] * 10, text=TEXTS)
    folder = place(tmp_path, few, "docs.json", json.dumps(records))
    store = open_store(folder)
    assert [d.text for d in store.documents()] == [f"On bread {text}".strip() for text in TEXTS]
    assert next(store.documents()).metadata == {"title": "On bread"}
    assert any("?text=text" in note for note in store.info.notes)
    assert [d.text for d in open_store(f"faiss:{folder}#?text=text").documents()] == TEXTS


def test_an_id_of_several_records_is_none_of_theirs(few, tmp_path):
    store = open_store(place(tmp_path, few, "docs.json", json.dumps(objects(doc_id=["a", "b"] * 5, chunk=TEXTS))))
    assert [d.id for d in store.documents()] == NUMBERED
    assert next(store.documents()).metadata == {"doc_id": "a"}
    assert any("docs.json have one doc_id" in note for note in store.info.notes)


DEEP = functools.reduce(lambda inner, _: [inner], range(200), [])
NO_DOCUMENTS = {
    "no field of texts": (json.dumps(objects(title=IDS, url=IDS)), "it has title, url; name it, as in"),
    "too few": (json.dumps(TEXTS[1:]), "has 9 documents for 10 vectors"),
    "too many": (json.dumps([*TEXTS, "x"]), "has 11 documents for 10 vectors"),
    "a configuration": (json.dumps({"name": "x", "dims": 12}), "record 2"),
    "no records": ("[]", "no records"),
    "nothing": ("", "Expecting value"),
    "a number": ("7", "neither a list nor an object but int 7"),
    "not closed": ('["a"', "not JSON that can be read"),
    "no comma": ('["a" "b"]', "Expecting ',' delimiter"),
    "two values": ("[] []", "Extra data"),
    "no key": ('{7: "a"}', "not JSON that can be read"),
    "deep": ("[" * 100_000, "not JSON that can be read"),
    "deeper than is of use": (json.dumps([*TEXTS[1:], DEEP]), "nested more than"),
    "a huge number": (f'[{{"text": "a", "n": {"9" * 4000}}}]', "more than 1,000 bits"),
    "half of a character": ('["\\ud800"]', "half of a character"),
    "no UTF-8": (b'["\xff"]', "text in another encoding"),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_DOCUMENTS)
def test_a_file_that_does_not_fit_is_told_and_changes_nothing(case, few, tmp_path):
    content, says = NO_DOCUMENTS[case]
    info = open_store(place(tmp_path, few, "things.json", content)).info
    assert not info.has_texts
    note, *others = info.notes
    assert all("with an entry for each row, but not read" in other for other in others)
    assert note.startswith("no texts: ") and "things.json" in note and says in note and "\n" not in note, note
    assert len(note) < 600
    with pytest.raises(StoreError, match="the store has no texts") as error:
        migrate.fit(open_store(tmp_path), Hashed(dim=4))
    assert info.way_to_texts in str(error.value)


@pytest.mark.parametrize(
    "content",
    ['id,text\n1,"abc', "id,text\n1,a,b\n", "id,id\n1,2\n", b"id,text\n1,\xff\n", "", "\n\n", 'a"b,c\n"x"y,z\n'],
)
def test_a_table_that_does_not_fit_is_told_too(content, few, tmp_path):
    info = open_store(place(tmp_path, few, "things.csv", content)).info
    assert not info.has_texts
    assert "things.csv" in info.notes[0]


COUNTERS = Path("/proc/self/io")


def number_of_reads():
    """How often this process has asked the system to read."""
    return int(re.search(r"^syscr: (\d+)$", COUNTERS.read_text(), re.MULTILINE)[1])


def test_a_long_text_in_a_table_is_whole_and_not_read_by_the_byte(few, tmp_path):
    long = ["very " * 60_000 + str(row) for row in range(10)]
    folder = place(tmp_path, few, "docs.csv", table([("text",), *((text,) for text in long)]))
    before = number_of_reads() if COUNTERS.exists() else None
    store = open_store(folder)
    assert before is None or number_of_reads() - before < len(long[0])
    assert [d.text for d in store.documents()] == long


def test_an_index_alone_has_no_note_and_what_is_known_comes_first(few, tmp_path):
    folder = place(tmp_path, few, "docs.jsonl", lines({"id": f"d{row}", "text": "right"} for row in range(10)))
    (folder / "texts.json").write_text(json.dumps(TEXTS))
    assert {d.text for d in open_store(folder).documents()} == {"right"}
    (folder / "docs.jsonl").unlink()
    (folder / "texts.json").unlink()
    assert open_store(folder).info.notes == ()


def test_of_several_files_the_only_one_that_fits_or_the_one_of_the_same_name_is_taken(few, tmp_path):
    folder = place(tmp_path, few, "texts.json", json.dumps(TEXTS))
    (folder / "config.json").write_text('{"dims": 12}')
    (folder / "ids.json").write_text(json.dumps(IDS))
    assert [d.text for d in open_store(folder).documents()] == TEXTS
    (folder / "chunks.json").write_text(json.dumps(TEXTS[::-1]))
    info = open_store(folder).info
    assert not info.has_texts
    assert "2 files" in info.notes[0] and "(chunks.json, texts.json)" in info.notes[0]
    assert "as my.json" in info.notes[0]
    (folder / "chunks.json").rename(folder / "my.json")
    assert [d.text for d in open_store(folder).documents()] == TEXTS[::-1]


def test_fields_are_named_in_the_location_and_the_new_store_knows_them(vectors, tmp_path, monkeypatch):
    records = objects(headline=SOME, link=[f"https://example.com/{row}" for row in range(COUNT)])
    folder = place(tmp_path / "old", vectors, "items.json", json.dumps(records))
    assert not open_store(folder).info.has_texts
    location = f"faiss:{folder}#?text=headline&id=link"
    old = open_store(location)
    assert old.info.location == location and open_store(old.info.location).info == old.info
    assert next(old.documents()) == Document("https://example.com/0", SOME[0])
    stitch = migrate.fit(old, Hashed(dim=8), sample=60, kind="ridge")
    migrate.translate(old, stitch, tmp_path / "new")
    new = open_store(tmp_path / "new", verify=True)
    assert list(new.documents()) == list(old.documents())
    manifest = find_manifest(tmp_path / "new", "store")
    assert manifest.store.fields == {"text": "headline", "id": "link"}
    back = migrate.fit(new, Hashed("another", dim=6), sample=60, kind="ridge")
    assert migrate.translate(new, back, tmp_path / "newer").count == COUNT
    assert open_store(tmp_path / "newer").info.has_texts


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ("text=nope", StoreError, "there are headline, link: name one"),
        ("text=headline&id=nope", StoreError, "'nope'"),
        ("text=headline&id=same", StoreError, "duplicate id"),
        ("column=headline", UsageError, "no option column.* id, rows, text"),
    ],
)
def test_fields_that_are_not_there_are_refused(options, error, says, few, tmp_path):
    records = objects(headline=TEXTS, link=IDS, same=[1] * 10)
    folder = place(tmp_path, few, "items.json", json.dumps(records))
    with pytest.raises(error, match=says):
        open_store(f"faiss:{folder}#?{options}")


def test_fields_are_named_where_no_file_is(few, tmp_path):
    save(build("Flat", few), tmp_path)
    with pytest.raises(StoreError, match="is there to have text 'body'"):
        open_store(f"faiss:{tmp_path}#?text=body")


def test_columns_of_parquet_beside_an_index_are_named_in_the_same_way(few, tmp_path):
    folder = place_records(tmp_path, few, "parquet", objects(headline=TEXTS, link=IDS))
    info = open_store(folder).info
    assert not info.has_texts
    assert f"it has headline, link; name it, as in faiss:{folder}" in info.way_to_texts.replace("'", "")
    documents = open_store(f"faiss:{folder}#?text=headline&id=link").documents()
    assert [(d.id, d.text) for d in documents] == list(zip(IDS, TEXTS, strict=True))
    with pytest.raises(StoreError, match="'nope'; there are headline, link"):
        open_store(f"faiss:{folder}#?text=nope")


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ({"pmid": range(9_000, 9_000 + len(IDS)), "abstract": TEXTS}, "pmid"),
        ({"year": [2_000] * len(IDS), "articleId": IDS, "text": TEXTS}, "articleId"),
        ({"group_id": ["same"] * len(IDS), "page_id": IDS, "text": TEXTS}, "page_id"),
        ({"group_id": ["same"] * len(IDS), "text": TEXTS}, None),
        ({"year": range(len(IDS)), "text": TEXTS}, None),
    ],
)
def test_a_column_of_ids_is_found_by_its_name_and_its_values(columns, chosen, ending, few, tmp_path):
    store = open_store(place_records(tmp_path, few, ending, objects(**columns)))
    expected = [str(value) for value in columns[chosen]] if chosen else NUMBERED
    assert [document.id for document in store.documents()] == expected
    if ending == "parquet":
        said = [note for note in store.info.notes if "another column is named as in" in note]
        assert bool(said) is (chosen is None)


def test_a_file_that_was_changed_is_noticed(few, tmp_path):
    store = open_store(place(tmp_path, few, "texts.json", json.dumps(TEXTS)))
    before = store.snapshot()
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS[::-1]))
    with pytest.raises(StoreError):
        list(store.documents())
    with pytest.raises(StoreError):
        store.check_unchanged(before)


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_the_field_that_is_named_as_an_example_is_the_longest(ending, few, tmp_path):
    folder = place_records(tmp_path, few, ending, objects(number=IDS, abstract=TEXTS))
    assert "?text=abstract'" in open_store(folder).info.way_to_texts


def test_commands_name_what_makes_it_fit(few, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place(tmp_path / "store", few, "items.json", json.dumps(objects(headline=TEXTS, link=IDS)))
    hint = "'faiss:store/my.faiss#?text=headline'"
    assert run(["fit", "store", "--target", "tfidf:4", "-o", "stitch"]) == 4
    assert hint in capsys.readouterr().err
    assert run(["inspect", "store"]) == 0
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"as in {hint}")
    assert run(["inspect", hint.strip("'")]) == 0
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"assess {hint} --target SPEC")
