"""Every kind of stitch by the spec that a user writes."""

from __future__ import annotations

from migrate.errors import UsageError
from migrate.stitch.additive import Kernel, KernelText, RidgeText, Text
from migrate.stitch.adjoint import Adjoint
from migrate.stitch.base import Stitch
from migrate.stitch.linear import Identity, LowRank, Mean, OrdinaryLeastSquares, Procrustes, Ridge

KINDS: dict[str, type[Stitch]] = {
    kind.kind: kind
    for kind in (
        Identity, Mean, Procrustes, OrdinaryLeastSquares, Ridge, LowRank, Adjoint, Kernel, Text, RidgeText, KernelText,
    )
}  # fmt: skip


def new_stitch(spec: str) -> Stitch:
    """An unfitted stitch from its spec: `KIND`, `lowrank:RANK` or `adjoint:procrustes`.

    Raises
    ------
    UsageError
        No such stitch.
    """
    kind, colon, option = spec.partition(":")
    if kind == LowRank.kind and option.isdecimal() and int(option) > 0:
        return LowRank(int(option))
    if spec == f"{Adjoint.kind}:{Procrustes.kind}":
        return Adjoint(option)
    if kind not in KINDS or colon:
        raise UsageError(f"expected a stitch among auto, {', '.join(KINDS)}, lowrank:RANK; found {spec!r}")
    return KINDS[kind]()
