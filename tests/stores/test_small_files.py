"""Small files as public repositories have them, by the library that writes each, and opened by it again.

The ids, texts and vectors are odd on purpose; the table of `docs/stores.md` has a row for each kind.
"""

import json
import pickle
from pathlib import Path

import faiss
import numpy as np
import pytest
from faiss_tools import read, rewrite

from migrate.errors import StoreError
from migrate.stores import open_store

PAGE = (Path(__file__).parents[2] / "docs" / "stores.md").read_text(encoding="utf-8")
TEXTS = ["빵과 물", "面包 😀🥖", 'tab\t, "quoted"', "two\nlines"]
VECTORS = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
NAN = float("nan")
METADATA = [{"page": 1, "tags": ["a", None]}, {"page": None}, {"score": NAN}, {}]


def records(vectors):
    rows = zip(range(10, 14), TEXTS, METADATA, vectors, strict=True)
    return [{"id": i, "text": text, "metadata": metadata, "embedding": vector} for i, text, metadata, vector in rows]


def of_records(found):
    ids = [str(record["id"]) for record in found]
    return ids, [record["text"] for record in found], np.array([record["embedding"] for record in found])


class Json:
    """A list of objects, ids as numbers, NaN among the metadata, numbers of float64."""

    file = "embeddings.json"

    def make(self, path):
        path.write_text(json.dumps(records(VECTORS.astype(float).tolist()), ensure_ascii=False), encoding="utf-8")

    def load(self, path):
        return of_records(json.loads(path.read_text(encoding="utf-8")))


class Lines:
    """A line for each object, one of them without a vector."""

    file = "chunks.jsonl"

    def make(self, path):
        without = {"id": 99, "text": "none", "embedding": None}
        found = [*records(VECTORS.tolist()), without]
        path.write_text("".join(json.dumps(record) + "\n" for record in found))

    def load(self, path):
        found = [json.loads(line) for line in path.read_text().splitlines()]
        assert found.pop()["embedding"] is None
        return of_records(found)


class Csv:
    """What `to_csv` writes of lists, and `read_csv` reads."""

    file = "embeddings.csv"

    def make(self, path):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"id": range(10, 14), "text": TEXTS, "embedding": VECTORS.tolist()})
        frame.to_csv(path)

    def load(self, path):
        import pandas

        frame = pandas.read_csv(path)
        return (
            frame["id"].astype(str).tolist(),
            frame["text"].tolist(),
            np.array(frame["embedding"].map(json.loads).tolist()),
        )


class Nano:
    """What nano-vectordb saves, of vectors of unit length."""

    file = "vdb_chunks.json"

    def make(self, path):
        nano = pytest.importorskip("nano_vectordb")
        client = nano.NanoVectorDB(6, storage_file=str(path))
        rows = zip("abcd", TEXTS, VECTORS, strict=True)
        client.upsert([{"__id__": i, "content": text, "__vector__": vector} for i, text, vector in rows])
        client.save()

    def load(self, path):
        import nano_vectordb

        dim = json.loads(path.read_text())["embedding_dim"]
        client = nano_vectordb.NanoVectorDB(dim, storage_file=str(path))
        found = client.get(list("abcd"))
        return (
            [row["__id__"] for row in found],
            [row["content"] for row in found],
            client._NanoVectorDB__storage["matrix"],
        )


class Pickle:
    """A dictionary of lists and an array of float64, with scalars of NumPy and NaN."""

    file = "embeddings.pkl"

    def make(self, path):
        found = {"ids": [np.int64(i) for i in range(10, 14)], "sentences": TEXTS, "embeddings": VECTORS.astype(float)}
        path.write_bytes(pickle.dumps({**found, "metadatas": METADATA}))

    def load(self, path):
        found = pickle.loads(path.read_bytes())
        assert repr(found["metadatas"]) == repr(METADATA) and found["embeddings"].dtype == np.float64
        return [str(i) for i in found["ids"]], found["sentences"], found["embeddings"]


class Frame:
    """A data frame with an index of its own, and a column with NaN."""

    file = "frame.pkl"

    def make(self, path):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(
            {"text": TEXTS, "embedding": list(VECTORS), "score": [1.5, NAN, 2, 3]}, index=list("wxyz")
        )
        frame.to_pickle(path)

    def load(self, path):
        import pandas

        frame = pandas.read_pickle(path)
        return frame.index.tolist(), frame["text"].tolist(), np.array(frame["embedding"].tolist())


class Array:
    """An array, with the texts of its rows as objects a line."""

    file = "embeddings.npy"

    def make(self, path):
        np.save(path, VECTORS)
        lines = [json.dumps({"chunk_id": i, "content": text, "page": None}) for i, text in enumerate(TEXTS)]
        path.with_name("chunks.jsonl").write_text("\n".join(lines))

    def load(self, path):
        found = [json.loads(line) for line in path.with_name("chunks.jsonl").read_text().splitlines()]
        return [str(record["chunk_id"]) for record in found], [record["content"] for record in found], np.load(path)


class ArrayAndLines:
    """An array, with a text a line."""

    file = "vectors.npy"
    texts = ("빵과 물", "面包 😀🥖", "", "of salt")

    def make(self, path):
        np.save(path, VECTORS)
        path.with_name("texts.txt").write_text("\n".join(self.texts), encoding="utf-8")

    def load(self, path):
        texts = path.with_name("texts.txt").read_text(encoding="utf-8").split("\n")
        return [str(row) for row in range(4)], texts, np.load(path)


class Index:
    """A flat index, with the texts of its rows in JSON."""

    file = "faiss.index"

    def make(self, path):
        index = faiss.IndexFlatIP(6)
        index.add(VECTORS)
        faiss.write_index(index, str(path))
        found = [{"text": text, **metadata} for text, metadata in zip(TEXTS, METADATA, strict=True)]
        path.with_name("metadata.json").write_text(json.dumps(found))

    def load(self, path):
        index = faiss.read_index(str(path))
        texts = [record["text"] for record in json.loads(path.with_name("metadata.json").read_text())]
        return [str(row) for row in range(4)], texts, index.reconstruct_n(0, index.ntotal)


class Parquet:
    """What `to_parquet` writes of a data frame."""

    file = "embeddings.parquet"

    def make(self, path):
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        frame = pandas.DataFrame(
            {"id": range(10, 14), "text": TEXTS, "embedding": list(VECTORS), "score": [1, NAN, 2, 3]}
        )
        frame.to_parquet(path)

    def load(self, path):
        import pandas

        frame = pandas.read_parquet(path)
        return frame["id"].astype(str).tolist(), frame["text"].tolist(), np.array(frame["embedding"].tolist())


FILES = [Json, Lines, Csv, Nano, Pickle, Frame, Array, ArrayAndLines, Index, Parquet]


@pytest.mark.parametrize("kind", FILES)
def test_a_small_file_is_read_as_its_library_does_and_opened_by_it_again(kind, tmp_path):
    path = tmp_path / "store" / kind.file
    path.parent.mkdir()
    kind().make(path)
    ids, texts, vectors = kind().load(path)
    store = open_store(path.parent)
    found = list(store.documents())
    assert ([document.id for document in found], [document.text for document in found]) == (ids, list(texts))
    np.testing.assert_allclose(read(store)[1], vectors, rtol=1e-6)
    facts = f"`{store.info.kind}`, {store.info.index_type}"
    assert f"| `{kind.file}` | {facts} |" in PAGE, facts
    rewrite(store, tmp_path / "new", lambda old: np.hstack([0.6 * old, 0.8 * old]), 12)
    (new,) = (tmp_path / "new").rglob(kind.file)
    new_ids, new_texts, new_vectors = kind().load(new)
    assert (new_ids, list(new_texts)) == (ids, list(texts))
    np.testing.assert_allclose(new_vectors, np.hstack([0.6 * vectors, 0.8 * vectors]), rtol=1e-5)


def test_a_field_that_is_no_text_is_not_taken_for_one(tmp_path):
    vectors = {text: {"embedding": VECTORS[0].tolist(), "model": "ada"} for text in TEXTS}
    (tmp_path / "cache.json").write_text(json.dumps(vectors))
    store = open_store(tmp_path)
    assert read(store)[0] == TEXTS and not store.info.has_texts


def test_ids_that_are_named_count_where_there_are_no_texts_too(tmp_path):
    path = tmp_path / "vectors.csv"
    rows = [f'{row},{i},"{vector.tolist()}"' for row, (i, vector) in enumerate(zip("wxyz", VECTORS, strict=True))]
    path.write_text("\n".join([",slug,embedding", *rows]))
    assert read(open_store(path))[0] == ["0", "1", "2", "3"]
    assert read(open_store(f"records:{path}#?id=slug"))[0] == list("wxyz")
    with pytest.raises(StoreError, match="'slog'"):
        open_store(f"records:{path}#?id=slog")
