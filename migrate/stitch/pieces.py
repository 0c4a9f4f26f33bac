"""The target model's word pieces and its input vectors of them: what a local model knows of words, for a look-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import TokenTable
from migrate.stitch.text_rows import Sparse
from migrate.vectors import Vectors, unit_rows

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces that a store's texts use, out of a model's vocabulary.

    Attributes
    ----------
    tokenizer : as the tokenizers library writes it, JSON
    kept : (t,) int32, ascending: the token ids that the texts use
    vectors : (t, d) float32, unit rows: the model's input vectors of these
    limit : tokens of a text that the model reads, None where it reads all
    """

    tokenizer: str
    kept: NDArray[np.int32]
    vectors: Vectors
    limit: int | None

    @classmethod
    def of(cls, table: TokenTable) -> Pieces:
        """The whole vocabulary of a model."""
        ids = np.arange(len(table.vectors), dtype=np.int32)
        return cls(table.tokenizer, ids, unit_rows(table.vectors), table.limit)

    def only(self, used: NDArray[np.bool_]) -> Pieces:
        """Those that are used, (t,)."""
        return Pieces(self.tokenizer, self.kept[used], self.vectors[used], self.limit)

    def counts(self, words: Sequence[str]) -> tuple[Sparse, NDArray[np.int64]]:
        """How often each kept piece stands in each word, (w, t), and how many tokens a word has, (w,)."""
        from scipy.sparse import coo_array

        rows = [encoding.ids for encoding in self._encode([self._lead + word for word in words])]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        ids = np.fromiter((token for row in rows for token in row), dtype=np.int32, count=int(lengths.sum()))
        places = np.searchsorted(self.kept, ids).clip(max=max(len(self.kept) - 1, 0))
        known = self.kept[places] == ids if len(self.kept) else np.zeros(len(ids), dtype=bool)
        owners = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)[known]
        ones = np.ones(len(owners), dtype=np.float32)
        shape = (len(words), len(self.kept))
        return coo_array((ones, (owners, places[known])), shape=shape).tocsr(), lengths

    @cached_property
    def _model(self) -> Tokenizer:
        from tokenizers import Tokenizer

        try:
            return Tokenizer.from_str(self.tokenizer)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"expected a tokenizer as JSON, found something else: {error}") from error

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        return list(self._model.encode_batch(list(texts), add_special_tokens=False))

    @cached_property
    def _lead(self) -> str:
        """What a word must begin with to be cut as it is inside a text: byte-level tokenizers want the space."""
        first, word, spaced, both = (encoding.ids for encoding in self._encode(["a", "b", " b", "a b"]))
        return " " if both == first + spaced and both != first + word else ""
