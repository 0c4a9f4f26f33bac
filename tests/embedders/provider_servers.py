"""Local servers that speak the protocols of Voyage, Cohere and Gemini, and misbehave as `OpenAIServer` does."""

from __future__ import annotations

import json
import re
from typing import Any

from openai_server import OpenAIServer, Request, _Handler


class _Voyage(_Handler):
    """docs.voyageai.com/reference/embeddings-api."""

    max_texts = 1_000

    def read_request(self) -> Request:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert content["truncation"] is False and "dimensions" not in content
        how = content.get("output_dimension"), content["encoding_format"]
        authorization = self.headers["Authorization"]
        return Request(content["input"], content["model"], *how, authorization, content.get("input_type"))


class _Cohere(_Handler):
    """docs.cohere.com/reference/embed."""

    endpoint, max_texts = "/embed", 96

    def read_request(self) -> Request:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert content["truncate"] == "NONE" and content["embedding_types"] == ["float"]
        how = content.get("output_dimension"), "float"
        authorization = self.headers["Authorization"]
        return Request(content["texts"], content["model"], *how, authorization, content["input_type"])

    def in_its_form(self, answer: Any) -> Any:
        if not isinstance(answer, dict):
            return answer
        rows = [item["embedding"] for item in answer["data"]]
        units = {"input_tokens": answer["usage"]["total_tokens"]}
        return {"id": "1", "embeddings": {"float": rows}, "texts": [], "meta": {"billed_units": units}}


class _Gemini(_Handler):
    """ai.google.dev/api/embeddings."""

    endpoint, max_texts = ":batchEmbedContents", 100

    def read_request(self) -> Request:
        requests = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["requests"]
        assert "Authorization" not in self.headers, "a key is no token of OAuth"
        (model,) = {one["model"] for one in requests}
        assert re.fullmatch(rf"/v1/{model}:batchEmbedContents", self.path)
        ((task, dim),) = {(one.get("taskType"), one.get("outputDimensionality")) for one in requests}
        texts = [part["text"] for one in requests for part in one["content"]["parts"]]
        key = f"Bearer {self.headers['x-goog-api-key']}"
        return Request(texts, model.removeprefix("models/"), dim, "float", key, task)

    def in_its_form(self, answer: Any) -> Any:
        if not isinstance(answer, dict):
            return answer
        return {"embeddings": [{"values": item["embedding"]} for item in answer["data"]]}


HANDLERS = {"voyage": _Voyage, "cohere": _Cohere, "gemini": _Gemini}


def provider_server(kind: str, **options: Any) -> OpenAIServer:
    """The server of a kind of models."""
    return OpenAIServer(handler=HANDLERS[kind], **options)
