"""Creates a stitch from the spec that a user writes, such as `ridge` or `lowrank:64`."""

from __future__ import annotations

from migrate.errors import UsageError
from migrate.stitch.base import Stitch
from migrate.stitch.kernel_ridge import Kernel, KernelText, RidgeText, Text
from migrate.stitch.linear import Adjoint, Identity, LowRank, Mean, OrdinaryLeastSquares, Procrustes, Ridge
from migrate.stitch.mlp import MAX_LAYERS, Mlp

KINDS: dict[str, type[Stitch]] = {
    kind.kind: kind
    for kind in (
        Identity, Mean, Procrustes, OrdinaryLeastSquares, Ridge, LowRank, Adjoint, Kernel, Text, RidgeText, KernelText,
    )
}  # fmt: skip


def new_stitch(spec: str) -> Stitch:
    """An unfitted stitch from its spec: `KIND`, `lowrank:RANK`, `mlp:LAYERS` or `adjoint:procrustes`.

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
    if kind == Mlp.kind and option in map(str, range(1, MAX_LAYERS + 1)):
        return Mlp(int(option))
    if kind not in KINDS or colon:
        names = f"auto, {', '.join(KINDS)}, lowrank:RANK, mlp:1 to mlp:{MAX_LAYERS}"
        raise UsageError(f"unknown stitch {spec!r}; choose one of {names}")
    return KINDS[kind]()
