"""A model of which nobody knows whether it is behind an API, and what it answers by now."""

from dataclasses import replace

import numpy as np

from migrate.embedders.base import Embedder
from migrate.manifest import ModelIdentity

VECTORS = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)


class Answering(Embedder):
    """Answers text `dN` with row N of `answers`; its cache has the rows `cached` as they were at first."""

    def __init__(self, answers=VECTORS, *, is_paid=None, cached=()):
        self.answers, self.is_paid, self.cached, self.asked = answers, is_paid, cached, []

    @property
    def identity(self):
        return ModelIdentity("answering", self.answers.shape[1], False)

    @property
    def profile(self):
        return replace(super().profile, is_paid=self.is_paid)

    @property
    def rows_asked(self):
        return [row for request in self.asked for row in request]

    def embed(self, texts, role, *, progress=None):
        self.asked.append([int(text.id[1:]) for text in texts])
        return self.answers[self.asked[-1]]

    def find(self, texts, role):
        rows = [int(text.id[1:]) for text in texts]
        return {place: VECTORS[row] for place, row in enumerate(rows) if row in self.cached}
