"""A suite that every kind of embedder keeps to.

A test module inherits it:

    from migrate.testing.embedders import EmbedderTests

    class TestMyKind(EmbedderTests):
        @pytest.fixture
        def make(self):
            return lambda: load_embedder("mykind:small")

`make` gives an embedder that is ready, a new one at each call, as two runs of a command would have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from migrate.cost.meter import put_meter
from migrate.embedders.abilities import needs_texts, state_of, token_table_of, variants_of, with_prefixes
from migrate.embedders.base import Embedder, Role
from migrate.embedders.cache import CachedEmbedder, are_cached
from migrate.embedders.profile import Profile
from migrate.embedders.tokens import WORD_PIECES, EstimateCounter
from migrate.errors import LeadMigrateError, VectorError
from migrate.vectors import Document, Query, Text, Vectors

Make = Callable[[], Embedder]

NOT_CACHEABLE = "its vectors depend on more than model, role and text"

TEXTS = (
    "The cat sat on the mat.",
    "Vector stores keep embeddings beside their texts.",
    "Naïve café, 東京の天気, Привет мир, 🧵🪡",
    "A stitch in time saves nine.\nA second line follows.",
    "The cat sat on the mat!",
)
"""Five texts, one of them in many scripts and one of two lines."""


class EmbedderTests:
    """Inherit from it, and give a fixture `make` that returns what makes the embedder under test.

    Attributes
    ----------
    texts
        Texts that the embedder can embed, five or more, all different. A kind that only has vectors for certain texts
        names those.
    tolerance
        How far two vectors of one text may be apart where it is embedded in other company.
    """

    texts: Sequence[str] = TEXTS
    tolerance: float = 1e-5

    @pytest.fixture
    def embedder(self, make: Make) -> Embedder:
        """One embedder."""
        return make()

    @pytest.fixture(params=["plain", "cached", "metered", "both"])
    def wrapped(self, request: pytest.FixtureRequest, make: Make, tmp_path: Path) -> Embedder:
        """The embedder by itself, behind the cache, with a meter, and with both."""
        embedder = make()
        if request.param in ("cached", "both"):
            if not embedder.cacheable:
                pytest.skip(NOT_CACHEABLE)
            embedder = CachedEmbedder(embedder, tmp_path / "cache.sqlite")
        return (
            put_meter(embedder, EstimateCounter(WORD_PIECES), 1.0)[0]
            if request.param in ("metered", "both")
            else embedder
        )

    def documents(self) -> list[Document]:
        """The texts as documents."""
        return [Document(f"d{number}", text) for number, text in enumerate(self.texts)]

    def inputs(self, role: Role) -> list[Text]:
        """The texts in a role."""
        if role == "document":
            return list(self.documents())
        return [Query(f"q{number}", text) for number, text in enumerate(self.texts)]

    @pytest.mark.parametrize("role", ["document", "query"])
    def test_vectors_are_float32_contiguous_and_finite(self, wrapped: Embedder, role: Role) -> None:
        vectors = wrapped.embed(self.inputs(role), role)
        assert vectors.shape == (len(self.texts), wrapped.identity.dim), f"shape {vectors.shape}"
        assert vectors.dtype == np.float32, f"dtype {vectors.dtype}"
        assert vectors.flags.c_contiguous, "not C-contiguous"
        assert np.isfinite(vectors).all(), "not finite"
        assert (np.linalg.norm(vectors, axis=1) > 0).all(), "a zero vector"

    @pytest.mark.parametrize("role", ["document", "query"])
    def test_no_texts_give_no_vectors(self, wrapped: Embedder, role: Role) -> None:
        vectors = wrapped.embed([], role)
        assert vectors.shape == (0, wrapped.identity.dim), f"shape {vectors.shape}"
        assert vectors.dtype == np.float32, f"dtype {vectors.dtype}"

    def test_vectors_tell_texts_apart(self, embedder: Embedder) -> None:
        vectors = embedder.embed_documents(self.documents())
        assert len(np.unique(vectors, axis=0)) > 1, "one vector for all texts"

    @pytest.mark.parametrize("role", ["document", "query"])
    def test_order_and_company_do_not_matter(self, wrapped: Embedder, role: Role) -> None:
        texts = self.inputs(role)
        together = wrapped.embed(texts, role)
        self.same(wrapped.embed(texts[::-1], role)[::-1], together)
        self.same(np.concatenate([wrapped.embed([text], role) for text in texts]), together)

    def test_one_text_has_one_vector(self, wrapped: Embedder) -> None:
        first = self.documents()[0]
        vectors = wrapped.embed_documents([first, self.documents()[1], first])
        self.same(vectors[0], vectors[2])

    def test_vectors_come_in_parts_and_all_of_them_once(self, wrapped: Embedder) -> None:
        documents = self.documents()
        vectors_at: dict[int, Vectors] = {}

        def keep(positions: Sequence[int], vectors: Vectors) -> None:
            assert not vectors_at.keys() & set(positions), "a position twice"
            vectors_at.update(zip(positions, vectors, strict=True))

        wrapped.embed_each(documents, "document", keep)
        assert sorted(vectors_at) == list(range(len(documents))), f"positions {sorted(vectors_at)}"
        self.same(np.stack([vectors_at[row] for row in range(len(documents))]), wrapped.embed_documents(documents))

    def test_progress_ends_at_the_total(self, wrapped: Embedder) -> None:
        calls: list[tuple[int, int | None]] = []
        wrapped.embed_documents(self.documents(), progress=lambda _stage, done, total: calls.append((done, total)))
        assert bool(calls) and calls[-1] == (len(self.texts), len(self.texts)), f"progress {calls}"

    def test_the_identity_is_stable_and_the_same_after_a_reload(self, embedder: Embedder, make: Make) -> None:
        identity = embedder.identity
        vectors = embedder.embed_documents(self.documents())
        reloaded = make()
        assert embedder.identity == identity, f"{embedder.identity} after embedding, {identity} before"
        assert reloaded.identity == identity, f"{reloaded.identity} after a reload, {identity} before"
        assert reloaded.quick_identity() == identity, f"quick identity {reloaded.quick_identity()}, identity {identity}"
        assert identity.dim == vectors.shape[1], f"identity of dimension {identity.dim}, vectors of {vectors.shape[1]}"
        unit = bool(np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3))
        assert unit == identity.normalized, f"normalized {identity.normalized}, norms {np.linalg.norm(vectors, axis=1)}"
        self.same(reloaded.embed_documents(self.documents()), vectors)

    def test_another_dimension_is_refused(self, wrapped: Embedder) -> None:
        dim = wrapped.identity.dim
        wrapped.expect_dim(dim, "a store")
        with pytest.raises(VectorError, match="a store"):
            wrapped.expect_dim(dim + 1, "a store")

    def test_the_profile_is_of_the_model(self, embedder: Embedder) -> None:
        profile, identity = embedder.profile, embedder.identity
        assert isinstance(profile, Profile), f"{profile!r}"
        assert profile.dim in (None, identity.dim), f"dimension {profile.dim}, identity {identity.dim}"
        assert profile.document_prefix == identity.document_prefix, "another document prefix than the identity's"
        assert profile.query_prefix == identity.query_prefix, "another query prefix than the identity's"
        counts = profile.count(self.documents())
        assert counts.shape == (len(self.texts),) and bool((counts > 0).all()), f"counts {counts}"
        assert profile.max_tokens is None or bool((profile.read(self.documents()) <= profile.max_tokens).all()), "cut"

    def test_wrappers_are_transparent(self, wrapped: Embedder, make: Make) -> None:
        plain = make()
        self.same(wrapped.embed_documents(self.documents()), plain.embed_documents(self.documents()))
        self.same(wrapped.embed(self.inputs("query"), "query"), plain.embed(self.inputs("query"), "query"))
        assert wrapped.identity == plain.identity, "another identity"
        assert wrapped.profile == plain.profile, "another profile"
        assert needs_texts(wrapped) == needs_texts(plain), "needs_texts differs"
        for role in _roles():
            assert wrapped.cache_scope(role) == plain.cache_scope(role), "another cache scope"
        assert (token_table_of(wrapped) is None) == (token_table_of(plain) is None), "token tables differ"
        assert (with_prefixes(wrapped, "a ", "b ") is None) == (with_prefixes(plain, "a ", "b ") is None), "prefixes"
        kinds = [variant.meaning for variant in variants_of(plain)]
        assert [variant.meaning for variant in variants_of(wrapped)] == kinds, "variants differ"
        assert dict(state_of(wrapped)) == dict(state_of(plain)), "states differ"

    def test_a_cache_is_asked_before_the_model(self, make: Make, tmp_path: Path) -> None:
        embedder = make()
        if not embedder.cacheable:
            pytest.skip(NOT_CACHEABLE)
        cached = CachedEmbedder(embedder, tmp_path / "cache.sqlite")
        assert are_cached(cached, self.documents(), "document") == [False] * len(self.texts), (
            "an empty cache knows texts"
        )
        vectors = cached.embed_documents(self.documents())
        reopened = CachedEmbedder(make(), tmp_path / "cache.sqlite")
        assert all(are_cached(reopened, self.documents(), "document")), "a text was not kept"
        assert (reopened.embed_documents(self.documents()) == vectors).all(), "another vector than was kept"
        assert reopened.misses == 0, f"{reopened.misses} texts embedded again"

    def test_a_cache_keeps_prefixes_apart(self, embedder: Embedder) -> None:
        identity = embedder.identity
        prefixed = with_prefixes(embedder, "passage: ", "query: ")
        if prefixed is None:
            pytest.skip("it takes no prefixes")
        assert embedder.identity == identity, "the first embedder has other prefixes now"
        assert prefixed.identity.document_prefix == "passage: ", "the identity has another document prefix"
        assert prefixed.identity.query_prefix == "query: ", "the identity has another query prefix"
        for role in _roles():
            assert prefixed.cache_scope(role) != embedder.cache_scope(role), "one cache scope for two prefixes"

    def test_errors_are_of_the_tree(self, embedder: Embedder) -> None:
        """A text that nothing can embed is embedded all the same, or refused in one line."""
        for text in ("", "\ud800"):
            try:
                vectors = embedder.embed_documents([Document("odd", text)])
            except LeadMigrateError as error:
                assert "\n" not in str(error), f"more than one line: {error}"
            else:
                assert np.isfinite(vectors).all(), f"a vector that is not finite for {text!r}"

    def same(self, vectors: Vectors, expected: Vectors) -> None:
        """Hold vectors against others of the same texts."""
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=self.tolerance)


def _roles() -> Iterator[Role]:
    yield "document"
    yield "query"
