"""Faults in what a user hands over, one row each: the command ends with this exit code and says this, in one line.

The rows go through the command line, as a user would; every run must leave the faulty source as it was, no traceback,
and nothing under the name of the output.
"""

import hashlib
import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import faiss
import numpy as np
import pytest

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.fit import fit_stitch
from migrate.stores import open_store

HEADER_BYTES = 45
ROW_BYTES = 32 * 4


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def stitch_folder(source_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stitches") / "stitch"
    fit_stitch(open_store(source_folder), load_embedder("tfidf:24"), stitch="ridge", size=60).save(folder)
    return folder


@pytest.fixture
def place(source_folder, stitch_folder, beir, tmp_path):
    """A folder with a good store, stitch and BEIR set, to be spoiled."""
    shutil.copytree(source_folder, tmp_path / "store")
    shutil.copytree(stitch_folder, tmp_path / "stitch")
    shutil.copytree(beir, tmp_path / "beir")
    return tmp_path


def index_bytes(place):
    return bytearray((place / "store" / "index.faiss").read_bytes())


def put_index(place, content):
    (place / "store" / "index.faiss").write_bytes(bytes(content))


def forget_the_checksum(place):
    path = place / "store" / "lead-migrate.json"
    facts = json.loads(path.read_text())
    del facts["details"]["index_sha256"]
    path.write_text(json.dumps(facts))


def put_row(place, row, values):
    raw = index_bytes(place)
    start = HEADER_BYTES + row * ROW_BYTES
    raw[start : start + ROW_BYTES] = np.broadcast_to(values, 32).astype("<f4").tobytes()
    put_index(place, raw)


def patch(offset, layout, value):
    def spoil(place):
        raw = index_bytes(place)
        struct.pack_into(layout, raw, offset, value)
        put_index(place, raw)

    return spoil


def put_faiss(make):
    """Replace the index by one that FAISS writes, and take the documents away."""

    def spoil(place):
        rows = np.random.default_rng(0).normal(size=(150, 32)).astype(np.float32)
        (place / "store" / "docs.jsonl").unlink()
        forget_the_checksum(place)
        made = make(rows)
        write = faiss.write_index_binary if isinstance(made, faiss.IndexBinary) else faiss.write_index
        write(made, str(place / "store" / "index.faiss"))

    return spoil


def binary(rows):
    index = faiss.IndexBinaryFlat(64)
    index.add(np.packbits(rows[:, :1].repeat(64, axis=1) > 0, axis=1))
    return index


def other_metric(rows):
    index = faiss.IndexFlat(32, faiss.METRIC_L1)
    index.add(rows)
    return index


def twice_the_same_id(rows):
    index = faiss.IndexIDMap2(faiss.IndexFlatIP(32))
    index.add_with_ids(rows, np.r_[np.arange(149), 3])
    return index


def ivf(rows):
    index = faiss.index_factory(32, "IVF4,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(rows)
    index.add(rows)
    return index


def ivf_that_lost_a_row(rows):
    rows[7] = np.nan
    index = ivf(np.nan_to_num(rows))
    index.reset()
    index.add(rows)
    return index


def untrained(_rows):
    return faiss.index_factory(32, "IVF4,Flat")


def empty(_rows):
    return faiss.IndexFlatIP(32)


def direct_codes(rows):
    index = faiss.index_factory(32, "SQ8_direct")
    index.train(rows)
    index.add(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return index


def decoded(factory):
    def make(rows):
        index = faiss.index_factory(32, factory, faiss.METRIC_L2)
        index.train(np.tile(rows, (4, 1)))
        index.add(rows)
        return index

    return make


def without_storage(place):
    rows = np.random.default_rng(0).normal(size=(150, 32)).astype(np.float32)
    index = faiss.IndexHNSWFlat(32, 8)
    index.add(rows)
    (place / "store" / "docs.jsonl").unlink()
    faiss.write_index(index, str(place / "store" / "index.faiss"), faiss.IO_FLAG_SKIP_STORAGE)


def lines(place):
    return (place / "store" / "docs.jsonl").read_text().splitlines()


def put_lines(place, content):
    (place / "store" / "docs.jsonl").write_text("\n".join(content))


def edit_line(number, **changes):
    def spoil(place):
        content = lines(place)
        content[number] = json.dumps({**json.loads(content[number]), **changes})
        put_lines(place, content)

    return spoil


def raw_line(number, content):
    def spoil(place):
        kept = (place / "store" / "docs.jsonl").read_bytes().split(b"\n")
        kept[number] = content
        (place / "store" / "docs.jsonl").write_bytes(b"\n".join(kept))

    return spoil


def write(name, content):
    def spoil(place):
        path = place / name
        if path.is_dir():
            shutil.rmtree(path)
        path.write_bytes(content)

    return spoil


class Payload:
    def __reduce__(self):
        return os.system, ("touch executed",)


def langchain_pickle(content):
    def spoil(place):
        (place / "store" / "docs.jsonl").unlink()
        (place / "store" / "index.pkl").write_bytes(content)

    return spoil


def edit_stitch(**changes):
    def spoil(place):
        path = place / "stitch" / "lead-migrate.json"
        facts = json.loads(path.read_text())
        facts["details"].update(changes)
        path.write_text(json.dumps(facts))

    return spoil


def stitch_of_another_store(place):
    other = place / "other"
    shutil.copytree(place / "store", other)
    raw = bytearray((other / "index.faiss").read_bytes())
    raw[HEADER_BYTES:] = np.random.default_rng(5).normal(size=(150, 32)).astype("<f4").tobytes()
    (other / "index.faiss").write_bytes(raw)
    shutil.rmtree(place / "stitch")
    fit_stitch(open_store(other), load_embedder("tfidf:24"), stitch="ridge", size=60).save(place / "stitch")


def fifo(place):
    (place / "store" / "index.faiss").unlink()
    os.mkfifo(place / "store" / "index.faiss")


def link_to_the_source(place):
    (place / "out").symlink_to(place / "store")


def many_indexes(place):
    put = place / "store" / "second.faiss"
    put.write_bytes(bytes(index_bytes(place)))


def vectors_of_16_dimensions(place):
    ids = {name: [json.loads(line)["_id"] for line in (place / "beir" / f"{name}.jsonl").read_text().splitlines()]
           for name in ("corpus", "queries")}  # fmt: skip
    tables = {name: np.ones((len(found), 16), np.float32) for name, found in ids.items()}
    np.savez(place / "x.npz", doc_ids=ids["corpus"], docs=tables["corpus"], query_ids=ids["queries"],
             queries=tables["queries"])  # fmt: skip


def qrels(text):
    return write("beir/qrels/test.tsv", text.encode())


HEADER = "query-id\tcorpus-id\tscore\n"

INSPECT = ["inspect", "store"]
FIT = ["fit", "store", "--target", "tfidf:8", "--sample", "50", "-o", "out"]
TRANSLATE = ["translate", "store", "stitch", "-o", "out"]
AUDIT = ["audit", "store", "--reference", "store", "--beir", "beir", "--no-bm25", "--report", "out"]
EMBED = ["embed", "beir", "--model", "tfidf:8", "-o", "out"]

FAULTS = {
    # the index
    "missing": (lambda p: shutil.rmtree(p / "store"), INSPECT, 4, "no such file or folder"),
    "empty folder": (lambda p: [f.unlink() for f in (p / "store").iterdir()], INSPECT, 4, "an empty folder"),
    "no index in the folder": (lambda p: (p / "store/index.faiss").unlink(), INSPECT, 4, "expected a FAISS index"),
    "two indexes": (many_indexes, INSPECT, 4, "expected one FAISS index, found 2"),
    "empty file": (lambda p: put_index(p, b""), INSPECT, 4, "empty"),
    "git lfs pointer": (lambda p: put_index(p, b"version https://git-lfs.github.com/spec/v1\n"), INSPECT, 4, "git lfs"),
    "web page": (lambda p: put_index(p, b"<!doctype html><html></html>"), INSPECT, 4, "web page"),
    "zip": (lambda p: put_index(p, b"PK\x03\x04" + bytes(60)), INSPECT, 4, "expected a FAISS index"),
    "gzip": (lambda p: put_index(p, b"\x1f\x8b" + bytes(60)), INSPECT, 4, "expected a FAISS index"),
    "json": (lambda p: put_index(p, b'{"a": 1}'), INSPECT, 4, "expected a FAISS index"),
    "trailing garbage": (lambda p: put_index(p, index_bytes(p) + b"x"), INSPECT, 4, "expected"),
    "dimension 0": (patch(4, "<i", 0), INSPECT, 4, "dimension"),
    "dimension -1": (patch(4, "<i", -1), INSPECT, 4, "dimension"),
    "dimension 2^30": (patch(4, "<i", 1 << 30), INSPECT, 4, "expected"),
    "2^60 vectors": (patch(8, "<q", 1 << 60), INSPECT, 4, "expected"),
    "-1 vectors": (patch(8, "<q", -1), INSPECT, 4, "expected"),
    "2^61 codes": (patch(37, "<Q", 1 << 61), INSPECT, 4, "expected"),
    "not trained": (put_faiss(untrained), INSPECT, 4, "train"),
    "unknown fourcc": (lambda p: put_index(p, b"IxZZ" + index_bytes(p)[4:]), INSPECT, 4, "expected a FAISS index"),
    "binary": (put_faiss(binary), INSPECT, 4, "binary"),
    "metric L1": (put_faiss(other_metric), INSPECT, 4, "L1"),
    "duplicate labels": (put_faiss(twice_the_same_id), TRANSLATE, 4, "3"),
    "ivf lost a row": (put_faiss(ivf_that_lost_a_row), INSPECT, 4, "149"),
    "no vectors": (put_faiss(empty), FIT, 4, "expected"),
    "codes of fractions": (put_faiss(direct_codes), INSPECT, 4, "expected"),
    "codes cut": (
        lambda p: (put_faiss(decoded("SQ8"))(p), put_index(p, index_bytes(p)[:-9])), INSPECT, 4, "expected"
    ),
    "codes of 2^40 vectors": (
        lambda p: (put_faiss(decoded("SQ8"))(p), patch(8, "<q", 1 << 40)(p)), INSPECT, 4, "expected"
    ),
    "codes that cannot be undone": (put_faiss(decoded("ITQ16,LSH")), INSPECT, 4, "ITQ"),
    "graph without vectors": (without_storage, INSPECT, 4, "expected"),
    "a bit flipped among the vectors": (
        lambda p: put_index(p, bytes(byte ^ (place == 9_999) for place, byte in enumerate(index_bytes(p)))),
        INSPECT, 4, "damaged or replaced"
    ),
    "pipe": (fifo, ["inspect", "store/index.faiss"], 4, "pipe"),
    "output is the source": (link_to_the_source, TRANSLATE, 2, "--force"),
    # vectors
    "NaN": (lambda p: put_row(p, 99, np.nan), [*TRANSLATE, "--any-store"], 4, "NaN"),
    "one NaN": (lambda p: put_row(p, 99, np.r_[np.ones(31), np.nan]), [*TRANSLATE, "--any-store"], 4, "NaN"),
    "Inf": (lambda p: put_row(p, 99, -np.inf), [*TRANSLATE, "--any-store"], 4, "NaN, Inf"),
    "zero": (lambda p: put_row(p, 99, 0), [*TRANSLATE, "--any-store"], 4, "zero vector"),
    "denormal": (lambda p: put_row(p, 99, 1e-42), [*TRANSLATE, "--any-store"], 4, "zero vector"),
    "overflow": (lambda p: put_row(p, 99, 3e38), [*TRANSLATE, "--any-store"], 4, "overflow"),
    "NaN in an audit": (lambda p: put_row(p, 99, np.nan), AUDIT, 4, "NaN"),
    # documents
    "a line too few": (lambda p: put_lines(p, lines(p)[:-1]), INSPECT, 4, "149"),
    "a line too many": (lambda p: put_lines(p, [*lines(p), '{"id": "x"}']), INSPECT, 4, "151"),
    "same id twice": (lambda p: put_lines(p, [*lines(p)[:-1], lines(p)[0]]), INSPECT, 4, "expected a new id"),
    "id is a number": (edit_line(5, id=17), INSPECT, 4, "docs.jsonl"),
    "no id": (raw_line(5, b'{"text": "x"}'), INSPECT, 4, "docs.jsonl"),
    "text is a list": (edit_line(5, text=["x"]), FIT, 4, "docs.jsonl"),
    "not JSON": (raw_line(5, b"{"), INSPECT, 4, "line 6"),
    "not UTF-8": (raw_line(5, b'{"id": "\xff"}'), INSPECT, 4, "line 6"),
    "not an object": (raw_line(5, b"[]"), INSPECT, 4, "line 6"),
    "pickle of a command": (langchain_pickle(pickle.dumps(Payload())), INSPECT, 4, "system"),
    "pickle cut": (langchain_pickle(pickle.dumps(({}, {}))[:-2]), INSPECT, 4, "pickle"),
    "pickle of something": (langchain_pickle(pickle.dumps({"a": 1})), INSPECT, 4, "LangChain"),
    # the manifest and the stitch
    "manifest is not JSON": (write("store/lead-migrate.json", b"{"), INSPECT, 4, "expected JSON"),
    "manifest of a stitch": (write("store/lead-migrate.json", b'{"kind": "stitch"}'), INSPECT, 4, "expected a store"),
    "manifest from the future": (
        write("store/lead-migrate.json", b'{"kind": "store", "format_version": 99}'), INSPECT, 4, "format version"
    ),
    "no stitch": (lambda p: shutil.rmtree(p / "stitch"), TRANSLATE, 4, "expected a stitch"),
    "a store for a stitch": (lambda p: None, ["translate", "store", "store", "-o", "out"], 4, "found a store"),
    "stitch weights cut": (
        lambda p: os.truncate(p / "stitch/weights.safetensors", 500), TRANSLATE, 4, "SHA-256"
    ),
    "stitch of another store": (stitch_of_another_store, TRANSLATE, 4, "fitted on another store"),
    "stitch norm NaN": (edit_stitch(norm="NaN"), TRANSLATE, 4, "fit the stitch again"),
    "stitch of a new kind": (edit_stitch(stitch="magic"), TRANSLATE, 4, "damaged"),
    "stitch with a path": (edit_stitch(files={"../store/docs.jsonl": "0"}), TRANSLATE, 4, "do not trust"),
    "wrong direction": (
        lambda p: run(["translate", "store", "stitch", "-o", "new", "-q"]), ["translate", "new", "stitch", "-o", "out"],
        4, "expects vectors of dimension 32, found 24"
    ),
    # BEIR
    "no queries": (lambda p: (p / "beir/queries.jsonl").unlink(), AUDIT, 4, "queries.jsonl"),
    "empty queries": (write("beir/queries.jsonl", b""), AUDIT, 4, "quer"),
    "query not JSON": (write("beir/queries.jsonl", b"{\n"), AUDIT, 4, "queries.jsonl"),
    "query not UTF-8": (write("beir/queries.jsonl", b'{"_id": "1", "text": "\xff"}'), AUDIT, 4, "UTF-8"),
    "empty qrels": (qrels(HEADER), AUDIT, 4, "test.tsv"),
    "qrels with two columns": (qrels(HEADER + "q\td\n"), AUDIT, 4, "test.tsv"),
    "qrels grade is a word": (qrels(HEADER + "q\td\thigh\n"), AUDIT, 4, "test.tsv"),
    "qrels for unknown queries": (qrels(HEADER + "nobody\td\t1\n"), AUDIT, 4, "quer"),
    "no such split": (lambda p: None, [*AUDIT, "--split", "dev"], 4, "dev"),
    "empty corpus": (write("beir/corpus.jsonl", b""), EMBED, 4, "expected"),
    "corpus with one id twice": (
        write("beir/corpus.jsonl", b'{"_id": "a", "text": "green tea"}\n' * 2), EMBED, 4, "a"
    ),
    "corpus not UTF-8": (write("beir/corpus.jsonl", b'{"_id": "a", "text": "\xff"}'), EMBED, 4, "UTF-8"),
    "one document": (
        lambda p: (write("one.jsonl", b'{"id": "a", "text": "green tea"}')(p),
                   run(["embed", "one.jsonl", "--model", "tfidf:1", "-o", "one", "-q"])),
        ["fit", "one", "--target", "tfidf:1", "-o", "out"], 4, "at least 2 pairs"
    ),
    "blank document": (
        write("beir/corpus.jsonl", b'{"_id": "a", "text": " "}'), EMBED, 4, "document 'a'"
    ),
    # models
    "unknown model": (lambda p: None, ["fit", "store", "--target", "magic", "-o", "out"], 2, "unknown model"),
    "dimension is a word": (lambda p: None, ["fit", "store", "--target", "tfidf:many", "-o", "out"], 2, "tfidf"),
    "no such vectors": (lambda p: None, ["fit", "store", "--target", "file:x.npz", "-o", "out"], 4, "x.npz"),
    "vectors are no npz": (
        write("x.npz", b"PK\x03\x04nothing"), ["fit", "store", "--target", "file:x.npz", "-o", "out"], 4, "x.npz"
    ),
    "target model of another dimension": (
        vectors_of_16_dimensions, [*AUDIT, "--target", "file:x.npz"], 4, "expected vectors of dimension 16"
    ),
}  # fmt: skip


def digests(folder):
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_in_one_line(fault, place, capsys):
    spoil, arguments, code, part = FAULTS[fault]
    spoil(place)
    before = digests(place / "store")
    capsys.readouterr()
    found = run(list(arguments))
    captured = capsys.readouterr()
    complaints = [line for line in captured.err.splitlines() if line.startswith("lead-migrate: ")]
    assert (found, len(complaints)) == (code, 1), captured.err
    assert part in complaints[0], complaints[0]
    assert captured.out == "" and "Traceback" not in captured.err
    assert digests(place / "store") == before
    assert not (place / "out").is_dir() or (place / "out").is_symlink()
    assert not (place / "executed").exists()


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 8, 16, 24, 32, 33, 36, 37, 40, 44, 45, 46, 10_000, 45 + 150 * 128 - 1])
def test_a_truncated_index_is_told_at_every_boundary(cut, place, capsys):
    put_index(place, index_bytes(place)[:cut])
    assert run(INSPECT) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


WELL = {
    "a byte order mark": lambda p: raw_line(0, b"\xef\xbb\xbf" + lines(p)[0].encode())(p),
    "DOS line ends": lambda p: (p / "store/docs.jsonl").write_bytes("\r\n".join(lines(p)).encode()),
    "blank lines": lambda p: put_lines(p, ["", *lines(p)[:7], "", *lines(p)[7:], "", ""]),
    "a document of 10 MB": edit_line(3, text="tea " * 2_500_000),
    "a read-only source": lambda p: [f.chmod(0o444) for f in (p / "store").iterdir()] + [(p / "store").chmod(0o555)],
    "not of unit length": lambda p: (put_row(p, 9, 3.5), forget_the_checksum(p)),
    "another file in the folder": write("store/notes.txt", b"mine"),
}


@pytest.mark.parametrize("oddity", WELL)
def test_what_is_odd_but_harmless_is_taken(oddity, place, capsys):
    WELL[oddity](place)
    assert run(INSPECT) == 0, capsys.readouterr().err
    assert run(FIT) == 0, capsys.readouterr().err


def test_a_small_sample_of_equal_vectors_can_be_fitted(place, capsys):
    raw = index_bytes(place)
    raw[HEADER_BYTES:] = np.ones((150, 32), dtype="<f4").tobytes()
    put_index(place, raw)
    assert run(FIT) == 0, capsys.readouterr().err


@pytest.mark.parametrize("factory", ["SQ8", "PQ8x4", "IVF4,PQ8x4", "IVF4,PQ8x4fs", "LSH", "PCA16,Flat", "HNSW8,SQ8"])
def test_an_index_of_codes_is_read_and_called_approximate(factory, place, capsys):
    put_faiss(decoded(factory))(place)
    assert run([*INSPECT, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["vectors"], facts["read_back"]) == (150, "approximate")


def test_without_judgements_the_verdict_is_provisional(place, capsys):
    shutil.rmtree(place / "beir/qrels")
    assert run(AUDIT) in (0, 1, 3)
    assert "provisional" in capsys.readouterr().out


def test_fewer_documents_than_are_ranked(place, capsys):
    corpus = (place / "beir/corpus.jsonl").read_text().splitlines()[:30]
    (place / "beir/corpus.jsonl").write_text("\n".join(corpus))
    assert run(["embed", "beir", "--model", "tfidf:8", "--no-chunks", "-o", "small", "-q"]) == 0
    audit = ["audit", "small", "--reference", "small", "--beir", "beir", "--no-bm25", "--json"]
    capsys.readouterr()
    run(audit)
    arms = json.loads(capsys.readouterr().out)["arms"]
    assert arms[1]["means"]["overlap@100"] == 1.0


def test_few_queries_are_inconclusive(place, capsys):
    kept = (place / "beir/qrels/test.tsv").read_text().splitlines()[:6]
    (place / "beir/qrels/test.tsv").write_text("\n".join(kept) + "\n")
    assert run(AUDIT) == 3
    assert "too few for a verdict" in capsys.readouterr().out


def test_unknown_documents_and_queries_without_relevance_are_counted(place, capsys):
    path = place / "beir/qrels/test.tsv"
    first = json.loads((place / "beir/queries.jsonl").read_text().splitlines()[0])["_id"]
    path.write_text(path.read_text() + f"nobody\tnothing\t1\n{first}\tnowhere\t2\n")
    run(AUDIT)
    out = capsys.readouterr().out
    assert "1 judged queries have no text" in out
    assert "1 of 151 relevant documents are not in the stores" in out
