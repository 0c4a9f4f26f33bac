"""What LlamaIndex persists of a `FaissVectorStore`."""

import shutil

import faiss
import faiss_tools
from kind_base import Kind, vectors_of
from kind_faiss import describe_index, vectors_by_label

INDEX = "default__vector_store.json"


class LlamaIndex(Kind):
    """Nodes in a docstore, and which row is whose in an index store."""

    def make(self, folder, records):
        from llama_index.core.data_structs import IndexDict
        from llama_index.core.storage.docstore import SimpleDocumentStore
        from llama_index.core.storage.index_store import SimpleIndexStore

        shutil.rmtree(folder, ignore_errors=True)
        nodes = [node_of(document) for document, _ in records.values()]
        faiss_tools.save(faiss_tools.build("Flat", vectors_of(records)), folder, INDEX)
        documents, indexes = SimpleDocumentStore(), SimpleIndexStore()
        documents.add_documents(nodes)
        named = {str(row): node.node_id for row, node in enumerate(nodes)}
        indexes.add_index_struct(IndexDict(index_id="golden", nodes_dict=named))
        documents.persist(str(folder / "docstore.json"))
        indexes.persist(str(folder / "index_store.json"))
        return str(folder)

    def read(self, location):
        from llama_index.core.storage.docstore import SimpleDocumentStore
        from llama_index.core.storage.index_store import SimpleIndexStore

        documents = SimpleDocumentStore.from_persist_path(f"{location}/docstore.json").docs
        (struct,) = SimpleIndexStore.from_persist_path(f"{location}/index_store.json").index_structs()
        index = faiss.read_index(f"{location}/{INDEX}")
        vectors = vectors_by_label(index)
        found = [
            (node_id, {"text": documents[node_id].text, "metadata": documents[node_id].metadata}, vectors[int(row)])
            for row, node_id in struct.nodes_dict.items()
        ]
        return found, {"index": describe_index(index), "struct": struct.index_id}


def node_of(document):
    from llama_index.core.schema import TextNode

    return TextNode(id_=document.id, text=document.text, metadata=dict(document.metadata))


def embedded_text(document):
    """What LlamaIndex embeds of a document: its metadata too."""
    from llama_index.core.schema import MetadataMode

    return node_of(document).get_content(MetadataMode.EMBED)
