"""What LangChain's `save_local` writes."""

import shutil

import faiss_tools
from kind_base import Kind, vectors_of
from kind_faiss import describe_index, vectors_by_label


class Langchain(Kind):
    """A folder around an index of any factory."""

    def __init__(self, factory="Flat"):
        self.factory = factory

    def make(self, folder, records, metric="l2"):
        from langchain_tools import FAISS, Document, InMemoryDocstore

        shutil.rmtree(folder, ignore_errors=True)
        index = faiss_tools.build(self.factory, vectors_of(records), metric=metric)
        kept = {d.id: Document(d.text, id=d.id, metadata=dict(d.metadata)) for d, _ in records.values()}
        FAISS(None, index, InMemoryDocstore(kept), dict(enumerate(kept))).save_local(str(folder))
        return str(folder)

    def read(self, location):
        import langchain_tools

        store = langchain_tools.load(location, 0)
        facts = {"index": describe_index(store.index), "normalize": store._normalize_L2}
        facts["strategy"] = str(store.distance_strategy)
        vectors = vectors_by_label(store.index)
        found = []
        for row, doc_id in store.index_to_docstore_id.items():
            document = store.docstore.search(doc_id)
            fields = {"text": document.page_content, "metadata": document.metadata, "own id": document.id}
            found.append((doc_id, fields, vectors[row]))
        return found, facts
