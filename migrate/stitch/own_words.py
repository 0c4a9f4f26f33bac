"""The words of a store with the vectors that the target makes of each alone, as a view of texts.

Where the target is behind an API, its tokenizer and its input vectors are not at hand; what it makes of a word is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from migrate.stitch.base import Arrays
from migrate.stitch.text_features import Sparse, TermView
from migrate.vectors import Vectors, unit_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

WORDS_FILE = "reader.words"

VIEW = "words"
"""Name of the view."""


@dataclass(frozen=True, eq=False, slots=True)
class OwnWords:
    """Words and what the target makes of them.

    Attributes
    ----------
    vocabulary : t words, none twice
    idf : (t,) float32, their inverse document frequency
    vectors : (t, d) float32, unit rows
    """

    vocabulary: Sequence[str]
    idf: Vectors
    vectors: Vectors

    @classmethod
    def of(cls, vocabulary: Sequence[str], idf: Vectors, embedded: Vectors) -> Self:
        """Make it of the target's vectors, (t, d), less their mean: what all short texts have in common says nothing.

        So does model2vec begin (Tulkens & van Dongen 2024, "Model2Vec: Fast State-of-the-Art Static Embeddings").
        """
        return cls(vocabulary, idf, unit_rows(embedded - embedded.mean(axis=0)))

    def view(self, occurrences: Sparse, terms: Sequence[str]) -> TermView:
        """Return the view of m texts by how much of each of w `terms` is in each, (m, w); others are left out."""
        number_of = {word: number for number, word in enumerate(self.vocabulary)}
        numbers = np.array([number_of.get(word, -1) for word in terms], dtype=np.int64)
        known = np.flatnonzero(numbers >= 0)
        counted = occurrences.tocsc()[:, known].tocoo()
        columns = numbers[known][counted.col]
        shape = (occurrences.shape[0], len(self.vocabulary))
        weighted = type(counted)((counted.data * self.idf[columns], (counted.row, columns)), shape=shape)
        return TermView(weighted.tocsr(), self.vectors)

    def arrays(self) -> Arrays:
        """Return the arrays to save; the words are text."""
        return {"words.idf": self.idf, "words.vectors": self.vectors}

    def state(self) -> Mapping[str, bytes]:
        """Return the words as a file, one a line."""
        return {WORDS_FILE: "\n".join(self.vocabulary).encode("utf-8", "surrogatepass")}

    @classmethod
    def restore(cls, arrays: Arrays, state: Mapping[str, bytes]) -> Self | None:
        """Restore what `arrays` and `state` returned; None where no words were saved, ValueError where they differ."""
        if "words.vectors" not in arrays:
            return None
        vocabulary = state[WORDS_FILE].decode("utf-8", "surrogatepass").split("\n")
        restored = cls(vocabulary, arrays["words.idf"], arrays["words.vectors"])
        if restored.idf.shape != (len(vocabulary),) or len(restored.vectors) != len(vocabulary):
            raise ValueError("the words of the store and their vectors do not fit together")
        return restored
