"""LangChain embeddings that let an app use the new model while its index is still in the old space.

`TranslatedEmbeddings` replaces the app's embeddings as long as the old index serves. Its vectors are of the old space,
so use them with the old index only; search the translated store with the new model's own embeddings.

    bridge = TranslatedEmbeddings(OpenAIEmbeddings(model="text-embedding-3-small"), "my-bridge")
    app = FAISS.load_local("my-store", bridge, allow_dangerous_deserialization=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from langchain_core.embeddings import Embeddings

from migrate.stitch.fitted import QUERY, FittedStitch, require_direction
from migrate.stitch.persistence import load_stitch


class TranslatedEmbeddings(Embeddings):
    """Embeddings of a new model, mapped into the space of the old one.

    Documents are mapped as queries are: what is added while the old index serves has to be of the old space too, and
    the stitch was fitted on document vectors. Such a document is of the quality of a mapped query; when the app has
    switched to a translated store, add it again with the new model's own embeddings.

    Parameters
    ----------
    embeddings
        The new model; anything with the four methods of LangChain's `Embeddings`.
    stitch
        A stitch that was fitted with the direction `query`, or its folder.

    Raises
    ------
    StitchError
        The stitch maps documents, or its folder is damaged.
    ManifestError
        The folder holds no stitch.
    """

    def __init__(self, embeddings: Embeddings, stitch: FittedStitch | Path | str) -> None:
        self.embeddings = embeddings
        if isinstance(stitch, FittedStitch):
            self.fitted = stitch
        else:
            self.fitted = load_stitch(Path(stitch))
        require_direction(self.fitted.manifest, QUERY, source=type(self).__name__)

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query in the old space; VectorError for one that is not of the stitch's model."""
        return self._mapped([self.embeddings.embed_query(text)])[0]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of documents in the old space; errors as of `embed_query`."""
        return self._mapped(self.embeddings.embed_documents(texts))

    async def aembed_query(self, text: str) -> list[float]:
        """Await the new model, and map as `embed_query`: a few vectors take no time worth awaiting."""
        return self._mapped([await self.embeddings.aembed_query(text)])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Await the new model, and map as `embed_documents`."""
        return self._mapped(await self.embeddings.aembed_documents(texts))

    def _mapped(self, vectors: Sequence[Sequence[float]]) -> list[list[float]]:
        if not len(vectors):
            return []
        mapped: list[list[float]] = self.fitted.map_queries(vectors, source="the new model").tolist()
        return mapped
