"""An embedding of LlamaIndex, of a module that can be imported where it is unpickled."""

from llama_index.core.base.embeddings.base import BaseEmbedding
from openai_server import vector_of


class Model(BaseEmbedding):
    """Vectors by the hash of a text, of one model or another."""

    salt: str = ""

    def _get_text_embedding(self, text):
        return vector_of(self.salt + text).tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query):
        return self._get_query_embedding(query)
