"""A LlamaIndex retriever over a store that was translated a moment ago: the new model from the first query on.

pip install llama-index-core 'lead-migrate[demo]'
python examples/live_llamaindex.py OUTPUT
"""

import asyncio
import sys
from pathlib import Path

from live_langchain import NOTES, QUESTIONS

import migrate
from migrate.live.llamaindex import LiveRetriever


async def ask(retriever: LiveRetriever) -> None:
    """Ask all questions at once."""
    answers = await asyncio.gather(*(retriever.aretrieve(question) for question in QUESTIONS))
    for question, nodes in zip(QUESTIONS, answers, strict=True):
        print(question, ", ".join(f"{found.node.metadata['topic']} ({found.score:.2f})" for found in nodes))


def main(output: str) -> None:
    """Make a store of an old model, translate it, and ask it by the new one."""
    folder, new = Path(output), migrate.load_embedder("packaged:all-MiniLM-L6-v2")
    migrate.embed(NOTES, "tfidf:24", folder / "old")
    store = migrate.open_store(folder / "old")
    migrate.translate(store, migrate.fit(store, new, sample=30), folder / "new")

    # In the place of what as_retriever of the old index gave:
    searcher = migrate.LiveSearcher(folder / "new", new, cache=folder / "cache.sqlite")
    retriever = LiveRetriever(searcher, similarity_top_k=3)
    asyncio.run(ask(retriever))
    searcher.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
