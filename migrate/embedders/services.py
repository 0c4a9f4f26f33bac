"""Embeddings APIs: where they are, whose key they take, what they limit, and the form of requests and answers.

Requests of all of them go through the openai library, which retries them; what is not of OpenAI's form is translated
here. Limits are those of docs.voyageai.com, docs.cohere.com and ai.google.dev.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Service:
    """An API that is of OpenAI's form, or of one that a subclass translates.

    Attributes
    ----------
    kind, title
        The kind of its models in specs, and its name in messages.
    base_url
        Its address; None for the openai library's own.
    max_texts, max_tokens
        The most in one request.
    tasks
        What it is told of a document and of a query, where the registry does not say it; None for nothing.
    """

    kind: str
    title: str
    base_url: str | None
    max_texts: int
    max_tokens: int
    tasks: tuple[str, str] | None = None

    @property
    def key_variable(self) -> str:
        """The environment variable of the key."""
        return f"{self.kind.upper()}_API_KEY"

    @property
    def url_variable(self) -> str:
        """The environment variable of another address."""
        return f"{self.kind.upper()}_BASE_URL"

    def task(self, role: Literal["document", "query"]) -> str | None:
        """Return what it is told of a text in this role."""
        if self.tasks is None:
            return None
        return self.tasks[role == "query"]

    def path(self, model: str) -> str:
        """Return the path of requests."""
        return "/embeddings"

    def headers(self, key: str) -> Mapping[str, Any]:
        """Return further headers of requests; those with None for a value are left out."""
        return {}

    def body(
        self, inputs: Sequence[str], model: str, encoding: str, dimensions: int | None, task: str | None
    ) -> dict[str, Any]:
        """Return the content of a request; vectors may come in `encoding`, base64 or float."""
        return {"input": inputs, "model": model, "encoding_format": encoding, **_given(dimensions=dimensions)}

    def as_openai(self, answer: Any) -> Any:
        """Return an answer in OpenAI's form; raises KeyError or TypeError for what is no answer."""
        return answer


class VoyageService(Service):
    """Voyage AI, which is of OpenAI's form but for the names of two options. Texts that are too long are refused."""

    __slots__ = ()

    def body(
        self, inputs: Sequence[str], model: str, encoding: str, dimensions: int | None, task: str | None
    ) -> dict[str, Any]:
        """Return the content of a request."""
        content = {"input": inputs, "model": model, "encoding_format": encoding, "truncation": False}
        return {**content, **_given(input_type=task, output_dimension=dimensions)}


class CohereService(Service):
    """Cohere's API v2. Texts that are too long are refused."""

    __slots__ = ()

    def path(self, model: str) -> str:
        """Return the path of requests."""
        return "/embed"

    def body(
        self, inputs: Sequence[str], model: str, encoding: str, dimensions: int | None, task: str | None
    ) -> dict[str, Any]:
        """Return the content of a request."""
        # Cohere would cut a long text without a word, and the vector would be of another text.
        content = {"model": model, "texts": inputs, "embedding_types": ["float"], "truncate": "NONE"}
        return {**content, **_given(input_type=task, output_dimension=dimensions)}

    def as_openai(self, answer: Any) -> Any:
        """Return an answer in OpenAI's form."""
        units = answer.get("meta", {}).get("billed_units", {})
        return _answer(answer["embeddings"]["float"], units.get("input_tokens"))


class GeminiService(Service):
    """Google's Gemini API."""

    __slots__ = ()

    def path(self, model: str) -> str:
        """Return the path of requests."""
        return f"/models/{model}:batchEmbedContents"

    def headers(self, key: str) -> Mapping[str, Any]:
        """Return the key in the header that the API wants, and none in the usual one."""
        return {"x-goog-api-key": key, "Authorization": None}

    def body(
        self, inputs: Sequence[str], model: str, encoding: str, dimensions: int | None, task: str | None
    ) -> dict[str, Any]:
        """Return the content of a request."""
        shared = {"model": f"models/{model}", **_given(taskType=task, outputDimensionality=dimensions)}
        return {"requests": [{**shared, "content": {"parts": [{"text": text}]}} for text in inputs]}

    def as_openai(self, answer: Any) -> Any:
        """Return an answer in OpenAI's form; how many tokens it is charged for, the API need not say."""
        rows = [item["values"] for item in answer["embeddings"]]
        return _answer(rows, answer.get("usageMetadata", {}).get("promptTokenCount"))


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None: an API's own defaults hold for these."""
    return {name: value for name, value in options.items() if value is not None}


def _answer(rows: Sequence[Any], tokens: Any) -> dict[str, Any]:
    data = [{"index": number, "embedding": row} for number, row in enumerate(rows)]
    return {"data": data, "usage": {"total_tokens": tokens}}


# The most texts and tokens of a request, as each API documents them.
OPENAI = Service("openai", "OpenAI", None, 2_048, 300_000)
VOYAGE = VoyageService("voyage", "Voyage AI", "https://api.voyageai.com/v1", 1_000, 120_000, ("document", "query"))
COHERE = CohereService(
    "cohere", "Cohere", "https://api.cohere.com/v2", 96, 120_000, ("search_document", "search_query")
)
GEMINI = GeminiService(
    "gemini",
    "Gemini",
    "https://generativelanguage.googleapis.com/v1beta",
    100,
    200_000,
    ("RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"),
)
