"""A LangChain app before and after: its FAISS folder is moved to another model, and LangChain opens the result.

pip install langchain-community 'lead-migrate[demo]'
python examples/langchain_app.py OUTPUT
"""

import sys
from pathlib import Path

from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document as LangchainDocument
from langchain_core.embeddings import Embeddings

import migrate

TOPICS = {
    "tea": "Green tea is brewed below boiling point; black tea takes water that just boiled.",
    "bread": "Sourdough rises by wild yeast and bacteria, and needs a night in a cool place.",
    "bicycle": "A bicycle stays upright because its front wheel steers into the fall.",
    "violin": "The bow of a violin is strung with horse hair and rubbed with rosin.",
    "glacier": "A glacier is ice that flows under its own weight and grinds the rock below.",
    "compiler": "A compiler turns source code into machine code, and complains on the way.",
}
TEXTS = [f"{name}, note {number}: {text}" for name, text in TOPICS.items() for number in range(1, 11)]


class ModelEmbeddings(Embeddings):
    """A model of lead-migrate as LangChain wants it."""

    def __init__(self, embedder: migrate.Embedder) -> None:
        self.embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector for each document."""
        documents = [migrate.Document(str(number), text) for number, text in enumerate(texts)]
        vectors: list[list[float]] = self.embedder.embed_documents(documents).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        vector: list[float] = self.embedder.embed_queries([migrate.Query("query", text)])[0].tolist()
        return vector


def main(output: str) -> None:
    """Build an app's folder with the old model, move it, and ask the new one."""
    folder = Path(output)
    old, new = migrate.load_embedder("tfidf:24"), migrate.load_embedder("packaged:all-MiniLM-L6-v2")
    old.fit([migrate.Document(str(number), text) for number, text in enumerate(TEXTS)])
    documents = [LangchainDocument(page_content=text, metadata={"topic": text.partition(",")[0]}) for text in TEXTS]
    FAISS.from_documents(documents, ModelEmbeddings(old)).save_local(str(folder / "old"))

    store = migrate.open_store(folder / "old")
    migrate.translate(store, migrate.fit(store, new, sample=30), folder / "new")

    # The pickle in the folder was written a moment ago, by this program.
    app = FAISS.load_local(str(folder / "new"), ModelEmbeddings(new), allow_dangerous_deserialization=True)
    for found in app.similarity_search("Why does a bike not fall over?", k=3):
        print(f"{found.metadata['topic']}: {found.page_content}")


if __name__ == "__main__":
    main(*sys.argv[1:])
