"""A LangChain app over a store that was translated a moment ago: the new model from the first query on.

pip install 'lead-migrate[demo]'
python examples/live_langchain.py OUTPUT
"""

import sys
from pathlib import Path

import migrate
from migrate.live.langchain import LiveVectorStore

TOPICS = {
    "tea": "Green tea is brewed below boiling point; black tea takes water that just boiled.",
    "bread": "Sourdough rises by wild yeast and bacteria, and needs a night in a cool place.",
    "bicycle": "A bicycle stays upright because its front wheel steers into the fall.",
    "violin": "The bow of a violin is strung with horse hair and rubbed with rosin.",
    "glacier": "A glacier is ice that flows under its own weight and grinds the rock below.",
    "compiler": "A compiler turns source code into machine code, and complains on the way.",
}
NOTES = [
    migrate.Document(f"{name} {number}", f"{name}, note {number}: {text}", {"topic": name})
    for name, text in TOPICS.items()
    for number in range(1, 11)
]
QUESTIONS = ("Why does a bike not fall over?", "How hot is the water for tea?", "What makes dough rise?")


def main(output: str) -> None:
    """Make a store of an old model, translate it, and ask it by the new one while it becomes true."""
    folder, new = Path(output), migrate.load_embedder("packaged:all-MiniLM-L6-v2")
    migrate.embed(NOTES, "tfidf:24", folder / "old")
    store = migrate.open_store(folder / "old")
    migrate.translate(store, migrate.fit(store, new, sample=30), folder / "new")

    # In the place of what FAISS.load_local gave for the old folder:
    searcher = migrate.LiveSearcher(folder / "new", new, cache=folder / "cache.sqlite")
    app = LiveVectorStore(searcher)
    retriever = app.as_retriever(search_kwargs={"k": 3})
    for question in QUESTIONS:
        topics = [found.metadata["topic"] for found in retriever.invoke(question)]
        untrue = searcher.search(question).untrue
        print(f"{question} {', '.join(topics)}; {untrue} of those it was chosen from have no true vector yet")
    searcher.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
