"""A live app changes its model without downtime: first the queries, over a bridge, then the store, in one assignment.

pip install langchain-community 'lead-migrate[demo]'
python examples/live_switch.py OUTPUT
"""

import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from langchain_app import TEXTS, ModelEmbeddings
from langchain_community.vectorstores import FAISS
from langchain_core.embeddings import Embeddings

import migrate
from migrate.langchain import TranslatedEmbeddings

QUESTIONS = (
    "Why does a bike not fall over?",
    "How hot must the water for green tea be?",
    "What makes the dough rise?",
    "What does ice do to the rock below it?",
)
ENOUGH = 25
"""Answers to wait for before and after the switch, so that both are seen to serve."""


class App:
    """Answers questions. What it searches is one attribute, so that each answer comes from one store."""

    def __init__(self, name: str, folder: Path, embeddings: Embeddings) -> None:
        self.failures = 0
        self.answered: Counter[str] = Counter()
        self.switch(name, folder, embeddings)

    def switch(self, name: str, folder: Path, embeddings: Embeddings) -> None:
        """Open a store, which takes as long as it takes, and search it from the next question on."""
        # The pickle in the folder was written a moment ago, by this program.
        opened = FAISS.load_local(str(folder), embeddings, allow_dangerous_deserialization=True)
        self.serving = (name, opened)

    def answer(self, question: str) -> str:
        """The document nearest to a question."""
        name, store = self.serving
        found: str = store.similarity_search(question, k=1)[0].page_content
        self.answered[name] += 1
        return found


@contextmanager
def customers(app: App) -> Iterator[None]:
    """Somebody who asks one question after another, from a thread, as long as the block lasts."""
    closed = Event()

    def ask() -> None:
        for question in itertools.cycle(QUESTIONS):
            if closed.is_set():
                return
            try:
                app.answer(question)
            except Exception as error:  # whatever goes wrong, the customer sees it
                app.failures += 1
                print(f"{type(error).__name__}: {error}", file=sys.stderr)

    thread = Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        thread.join()


def wait_for_answers(app: App, name: str) -> None:
    """Let the customers be served by a store for a while."""
    while app.answered[name] < ENOUGH and not app.failures:
        time.sleep(0.01)


def main(output: str) -> None:
    """Build the app's folder with the old model, then serve it by the new one until the new store is there."""
    folder = Path(output)
    old = migrate.load_embedder("tfidf:24")
    new = migrate.load_embedder("packaged:all-MiniLM-L6-v2", cache=folder / "embeddings.sqlite")
    old.fit([migrate.Document(str(number), text) for number, text in enumerate(TEXTS)])
    FAISS.from_texts(TEXTS, ModelEmbeddings(old)).save_local(str(folder / "old"))

    # One sample serves both stitches: the second finds its embeddings in the cache.
    store = migrate.open_store(folder / "old")
    bridge = migrate.fit(store, new, direction="query", sample=30)
    stitch = migrate.fit(store, new, sample=30)

    # From here on the old model is not needed any more.
    app = App("the old store", folder / "old", TranslatedEmbeddings(ModelEmbeddings(new), bridge))
    print(f"over the bridge: {app.answer(QUESTIONS[0])}")
    with customers(app):
        migrate.translate(store, stitch, folder / "new")
        wait_for_answers(app, "the old store")
        app.switch("the new store", folder / "new", ModelEmbeddings(new))
        wait_for_answers(app, "the new store")
    print(f"translated: {app.answer(QUESTIONS[0])}")
    for name, count in app.answered.items():
        print(f"{count} questions answered from {name}")
    print(f"{app.failures} questions failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
