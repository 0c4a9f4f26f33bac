from stitch_contract import StitchContract

from migrate.stitch.registry import KINDS


class TestBuiltInStitches(StitchContract):
    specs = ("adjoint:procrustes", *sorted(KINDS))
