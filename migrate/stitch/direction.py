"""Which way a stitch goes: the store's documents forth into the target space, or new queries back into the old one.

In both directions the manifest names the models of the migration, not those of the map: `model` is the one that is
moved to, `source_model` the one that the store was built with. So a stitch for documents maps from `source_model` to
`model`, and a stitch for queries from `model` to `source_model`; the fingerprint is that of the old store in both.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from migrate.errors import StitchError
from migrate.manifest import Manifest

Direction: TypeAlias = Literal["document", "query"]

DOCUMENT: Direction = "document"
QUERY: Direction = "query"
DIRECTIONS = (DOCUMENT, QUERY)

DIRECTION = "direction"
"""Detail of a stitch's manifest; absent in those from before there were two directions."""

_MAPS = {
    DOCUMENT: "maps the store's documents into the new space",
    QUERY: "maps new queries into the old space",
}


def direction_of(manifest: Manifest, *, source: str = "stitch") -> Direction:
    """Which way the stitch with this manifest goes; `source` is where it was read.

    Raises
    ------
    StitchError
        The manifest says something that is neither.
    """
    found: Direction = manifest.details.get(DIRECTION, DOCUMENT)
    if found not in DIRECTIONS:
        raise StitchError(
            f"{source}: expected a direction among {', '.join(DIRECTIONS)}; found {found!r}; fit it again"
        )
    return found


def require_direction(manifest: Manifest, wanted: Direction, *, source: str) -> None:
    """Make sure that the stitch with this manifest goes the way that it is used; `source` is what it is used on.

    Raises
    ------
    StitchError
        It goes the other way.
    """
    found = direction_of(manifest)
    if found != wanted:
        raise StitchError(
            f"{source}: expected a stitch that {_MAPS[wanted]}, found one that {_MAPS[found]}; "
            f"fit one with --direction {wanted}"
        )


def input_dim(manifest: Manifest, *, source: str = "stitch") -> int:
    """Dimension of the vectors that the stitch with this manifest takes; `source` is where it was read.

    Raises
    ------
    StitchError
        A stitch for queries does not say whose.
    """
    if direction_of(manifest, source=source) == DOCUMENT:
        return int(manifest.details["fingerprint"]["dim"])
    if manifest.model is None:
        raise StitchError(f"{source}: expected the model whose queries the stitch takes, found none; fit it again")
    return manifest.model.dim
