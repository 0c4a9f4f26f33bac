"""The kinds of stitches: built-in ones, and those of other packages; an unfitted one from its spec.

A package adds a kind with an entry point in the group `lead_migrate.stitches` whose name is the kind's and whose object
is a subclass of `Stitch`.
"""

from __future__ import annotations

from typing import Final

from migrate.errors import UsageError
from migrate.plugins import installed, load_plugin
from migrate.stitch.base import Stitch
from migrate.stitch.kernel_ridge import RidgeNear, RidgeText, TextAlone
from migrate.stitch.linear import Adjoint, Identity, MeanVector, Procrustes, Ridge

ENTRY_POINTS: Final = "lead_migrate.stitches"
KINDS: Final[dict[str, type[Stitch]]] = {
    kind.kind: kind for kind in (Identity, MeanVector, Procrustes, Ridge, Adjoint, RidgeNear, TextAlone, RidgeText)
}
"""The built-in kinds by name."""


REMOVED: Final = frozenset({"prefix", "prefix+text"})
"""Kinds that this version does not read any more."""


def new_stitch(spec: str) -> Stitch:
    """An unfitted stitch from its spec: `KIND`, or `KIND:OPTION` such as `adjoint:procrustes`.

    Raises UsageError: no such stitch, or it cannot be loaded.
    """
    kind, colon, option = spec.partition(":")
    stitch_class = find_kind(kind)
    stitch = None
    if stitch_class is not None:
        # `ridge:` names an option, the empty one, and is refused
        stitch = stitch_class.from_option(option if colon else None)
    if stitch is None:
        raise UsageError(f"unknown stitch {spec!r}; choose one of {', '.join(['auto', *_specs()])}")
    return stitch


def find_kind(spec: str) -> type[Stitch] | None:
    """The class of a spec's kind; None where there is none.

    Raises UsageError: it is another package's, and cannot be loaded.
    """
    name = spec.partition(":")[0]
    if name in KINDS:
        return KINDS[name]
    point = installed(ENTRY_POINTS).get(name)
    if point is None:
        return None
    kind: type[Stitch] = load_plugin(point, Stitch)
    return kind


def _specs() -> list[str]:
    """Return the specs to choose from: those without an option first, and of them the built-in ones."""
    plain = []
    options: list[str] = []
    for name in [*KINDS, *(name for name in installed(ENTRY_POINTS) if name not in KINDS)]:
        try:
            kind = find_kind(name)
        except UsageError:  # it is told when it is asked for
            kind = None
        if kind is None or kind.from_option(None) is not None:
            plain.append(name)
        if kind is not None:
            options += kind.options
    return [*plain, *options]
