"""Small stores of given documents and vectors."""

from migrate.stores import create_store, open_store
from migrate.vectors import Document


def make_store(folder, documents, vectors):
    """An index of inner products of documents, or of ids with a text each."""
    folder.mkdir(parents=True)
    writer = create_store(folder, format="faiss", dim=vectors.shape[1])
    documents = [one if isinstance(one, Document) else Document(one, f"text of {one}") for one in documents]
    writer.append(documents, vectors)
    writer.finish()
    return open_store(folder)
