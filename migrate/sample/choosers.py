"""The queries that chose documents to embed: remembered as hashes, so that an audit can keep them from judging.

A document that is embedded because a query finds it answers that query as the target model would, whatever becomes of
all others: judged by such queries, a store looks better than it is. Stitch and store remember them, and not what they
ask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from migrate.documents import Query, query_key
from migrate.errors import ManifestError
from migrate.manifest import Manifest

CHOSEN_BY = "chosen by queries"
"""Detail of a manifest: the digests of all queries that chose documents; absent where none did."""

_DIGITS = 16


def digest_of(query: Query) -> str:
    """16 hexadecimal digits of SHA-256; equal for queries that ask the same."""
    return hashlib.sha256(query_key(query.text).encode(errors="surrogatepass")).hexdigest()[:_DIGITS]


def digests_of(queries: Iterable[Query]) -> frozenset[str]:
    """The digests of queries that choose."""
    return frozenset(map(digest_of, queries))


def choosers_of(*manifests: Manifest | None) -> frozenset[str]:
    """The digests of the queries that chose documents for any of some stitches and stores.

    Raises
    ------
    ManifestError
        A manifest holds something else under that name.
    """
    found: set[str] = set()
    for manifest in filter(None, manifests):
        known = manifest.details.get(CHOSEN_BY, [])
        if not isinstance(known, list) or not all(isinstance(digest, str) for digest in known):
            raise ManifestError(
                f"expected hashes of queries under {CHOSEN_BY!r} in the manifest of a {manifest.kind}, found something "
                "else; the file is damaged, copy or make it again"
            )
        found.update(known)
    return frozenset(found)


def chosen_by(digests: frozenset[str]) -> dict[str, list[str]]:
    """The detail for a manifest; empty where no query chose."""
    return {CHOSEN_BY: sorted(digests)} if digests else {}
