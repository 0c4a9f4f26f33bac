"""The options of `embed`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from migrate.steps.base import FORCE, PRICE, RESTART, SEED, SPLIT, PaidOptions, argument, option, parameter

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike
    from migrate.vectors import Document

_CHUNKS, _CORPUS = {"section": "Chunks"}, {"section": "Corpus"}


@dataclass(frozen=True, eq=False)
class EmbedOptions(PaidOptions):
    """The documents and the model, as they are named, the chunks, and the store to write."""

    corpus: Sequence[Document] | str | Path = field(
        metadata=argument("Documents, or a BEIR folder, the name of a BEIR set, or a JSONL file.", "text")
    )
    model: ModelLike = field(metadata=option("Model to embed with.", "text", metavar="SPEC"))
    output: str | Path = field(metadata=option("Folder to write.", "path", flags=("--output", "-o")))
    _: KW_ONLY
    chunk_tokens: int | None = field(
        default=None,
        metadata=option(
            "Longest chunk, in tokens of the model, without its prefix and special tokens.  [default: what the model "
            "reads, up to 256]",
            "count",
            is_seldom=True,
            **_CHUNKS,
        ),
    )
    chunk_overlap: int | None = field(
        default=None,
        metadata=option(
            "Tokens that neighbouring chunks share at most.  [default: a tenth of the longest chunk]",
            "number",
            is_seldom=True,
            **_CHUNKS,
        ),
    )
    no_chunks: bool = field(
        default=False, metadata=option("One vector for each document, however long.", is_seldom=True, **_CHUNKS)
    )
    format: Literal["faiss", "langchain"] = field(
        default="faiss", metadata=option("Store to write.", choices=("faiss", "langchain"), is_seldom=True)
    )
    metric: Literal["ip", "l2"] = field(default="ip", metadata=parameter("How the index compares vectors: ip or l2."))
    max_docs: int | None = field(
        default=None, metadata=parameter("Cap of a BEIR corpus; relevant documents come first.")
    )
    split: str = field(default="test", metadata=SPLIT)
    skip_bad: bool = field(
        default=False,
        metadata=option("Drop documents without text, and list them, instead of failing.", is_seldom=True, **_CORPUS),
    )
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=FORCE)
    restart: bool = field(default=False, metadata=RESTART)
