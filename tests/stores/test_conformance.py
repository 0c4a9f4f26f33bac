"""Every kind of store passes the suite that other packages inherit."""

import json

import faiss
import numpy as np
import pytest
from faiss_tools import build, save, write_docs
from kind_base import records_of
from kind_langchain import Langchain

from migrate.testing.stores import StoreTests


def columns(documents):
    names = {name: None for document in documents for name in document.metadata}
    return {
        "id": [document.id for document in documents],
        "text": [document.text for document in documents],
        **{name: [document.metadata[name] for document in documents] for name in names},
    }


class TestFaiss(StoreTests):
    def make_store(self, folder, documents, vectors, metric):
        save(build("Flat", vectors, metric=metric), folder)
        write_docs(folder, documents, faiss_id=int)
        return folder


class TestFaissLists(StoreTests):
    """Inverted lists that hold the documents in the order of their ids, which k-means would not give: those of a new
    store hold them in another order.
    """

    has_rows = False
    can_be_empty = False

    def make_store(self, folder, documents, vectors, metric):
        index = build("IVF2,Flat", vectors, metric=metric)
        index.reset()
        index.nprobe = index.nlist
        rows = np.array(sorted(range(len(documents)), key=lambda row: documents[row].id), np.int64)
        for number, part in enumerate(np.array_split(rows, index.nlist)):
            codes = np.ascontiguousarray(vectors[part]).view(np.uint8)
            index.invlists.add_entries(number, len(part), faiss.swig_ptr(part), faiss.swig_ptr(codes))
        index.ntotal = len(rows)
        save(index, folder)
        write_docs(folder, documents, faiss_id=int)
        return folder


class TestOwnJson(StoreTests):
    can_be_empty = False  # no record says which field is the text

    def make_store(self, folder, documents, vectors, metric):
        save(build("Flat", vectors, metric=metric), folder)
        records = [{"_id": document.id, "body": document.text, **document.metadata} for document in documents]
        (folder / "docs.json").write_text(json.dumps(records, ensure_ascii=False, indent=1), encoding="utf-8")
        return folder


class TestLangChain(StoreTests):
    can_be_empty = False

    def make_store(self, folder, documents, vectors, metric):
        return Langchain().make(folder, records_of(documents, vectors), metric)


class TestParquetBesideFaiss(StoreTests):
    can_be_empty = False  # a column of nothing has no type

    def make_store(self, folder, documents, vectors, metric):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        save(build("Flat", vectors, metric=metric), folder)
        table = columns(documents) | {"faiss_id": list(range(len(documents)))}
        parquet.write_table(pyarrow.table(table), folder / "docs.parquet")
        return folder


class TestHuggingFace(StoreTests):
    can_be_empty = False  # a column of nothing has no type

    def make_store(self, folder, documents, vectors, metric):
        pyarrow = pytest.importorskip("pyarrow")
        ipc = pytest.importorskip("pyarrow.ipc")
        save(build("Flat", vectors, metric=metric), folder, "my.faiss")
        table = pyarrow.table(columns(documents))
        with ipc.new_stream(str(folder / "data.arrow"), table.schema) as stream:
            stream.write_table(table, max_chunksize=30)
        state = {"_data_files": [{"filename": "data.arrow"}], "_fingerprint": "0", "_split": None}
        (folder / "state.json").write_text(json.dumps(state))
        (folder / "dataset_info.json").write_text(json.dumps({"citation": "", "features": {}}))
        return folder


class TestNpy(StoreTests):
    metrics = ("ip",)

    def make_store(self, folder, documents, vectors, metric):
        np.save(folder / "vectors.npy", vectors)
        write_docs(folder, documents)
        return folder


class TestLlamaIndex(StoreTests):
    """What llama-index-core 0.14 persists."""

    can_be_empty = False

    def make_store(self, folder, documents, vectors, metric):
        from test_llamaindex import INDEX, node, write_index_store, write_nodes

        save(build("Flat", vectors, metric=metric), folder, INDEX)
        # metadata is part of what LlamaIndex embeds unless it is left out by name
        nodes = (node(d.id, d.text, dict(d.metadata), excluded_embed_metadata_keys=list(d.metadata)) for d in documents)
        write_nodes(folder, dict(zip((document.id for document in documents), nodes, strict=True)))
        write_index_store(folder, {str(row): document.id for row, document in enumerate(documents)})
        return folder
