"""Guards a program's own embedding client: a model that is not the store's is found out before its answer is used.

    embeddings = migrate.guard(OpenAIEmbeddings(model="text-embedding-3-small"), "new-store")
    client = migrate.guard(OpenAI(), "new-store")

The first call, and then one in `every`, is preceded by one for a few texts of the store whose vectors are known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from migrate.check.guard.known import KnownRows
from migrate.check.guard.watch import Watch
from migrate.errors import UsageError
from migrate.stores.base import Store

Client = TypeVar("Client")


def guard(
    client: Client, store: Store | str | Path, *, every: int = 1_000, mismatch: Literal["raise", "log"] = "raise"
) -> Client:
    """Return a client that is used as this one is, and checks that its model is the one of the store's vectors.

    A few texts of the store are embedded as documents and compared with their vectors: before the first call, before
    one in `every` after that, and before each call as long as they differ. Of a translated store they are those that
    have true vectors. Files that were replaced at their place since are read anew; of a database what was read first
    counts. Lengths of vectors are not compared, nor is how queries are embedded; of an index of short codes only a
    model is told that is far from its own.

    Parameters
    ----------
    client
        A LangChain `Embeddings`, a LlamaIndex `BaseEmbedding`, or a client of the `openai` package, asynchronous or
        not, of whose `embeddings.create` each pair of model and dimensions is checked by itself.
    store
        The store that the program searches, or its location.
    every
        Number of calls from one check to the next.
    mismatch
        "raise" a `VectorError` where the model is another; or "log" a warning to the logger `migrate`, and go on.

    Raises UsageError: the client is of another kind, or the store has no text of a vector that is known to be its
    model's. StoreError: as `open_store`.

    >>> import migrate
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> migrate.guard(DeterministicFakeEmbedding(size=24), "my-store").embed_query("a question")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    migrate.errors.VectorError: my-store: DeterministicFakeEmbedding gives vectors of 24 dimensions, and the ...
    """
    if not isinstance(every, int) or every < 1 or mismatch not in ("raise", "log"):
        raise UsageError(f'every={every!r} is a whole number from 1, and mismatch={mismatch!r} is "raise" or "log"')
    watch = Watch(KnownRows(store), every=every, raises=mismatch == "raise")
    return cast("Client", _guarded(client, watch))


def _guarded(client: Any, watch: Watch) -> Any:
    """Put the watch in front of a client; which library it is of is known by the classes it comes from."""
    libraries = {base.__module__.partition(".")[0] for base in type(client).__mro__}
    if "langchain_core" in libraries:
        from langchain_core.embeddings import Embeddings

        from migrate.check.guard.langchain import GuardedEmbeddings

        if isinstance(client, Embeddings):
            return GuardedEmbeddings(client, watch)
    if "llama_index" in libraries:
        from llama_index.core.base.embeddings.base import BaseEmbedding

        from migrate.check.guard.llamaindex import guarded_embedding

        if isinstance(client, BaseEmbedding):
            return guarded_embedding(client, watch)
    if "openai" in libraries and hasattr(client, "embeddings"):
        from migrate.check.guard.openai import guarded_client

        return guarded_client(client, watch)
    raise UsageError(
        f"{type(client).__module__}.{type(client).__qualname__} cannot be guarded; give a LangChain Embeddings, a "
        "LlamaIndex BaseEmbedding or a client of the openai package"
    )
