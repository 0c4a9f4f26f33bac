"""Small stores with given ids and vectors."""

from migrate.stores import create_store, open_store
from migrate.vectors import Document


def make_store(folder, ids, vectors):
    folder.mkdir(parents=True)
    writer = create_store(folder, format="faiss", dim=vectors.shape[1])
    writer.append([Document(doc_id, f"text of {doc_id}") for doc_id in ids], vectors)
    writer.finish()
    return open_store(folder)
