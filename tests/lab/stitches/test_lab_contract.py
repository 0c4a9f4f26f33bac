import pytest
from stitch_contract import StitchContract

from migrate.lab.stitches.mlp import Mlp, Training


class TestStitchesOfTheLab(StitchContract):
    specs = ("kernel", "kernel+text", "lowrank", "lowrank:2", "ols")


@pytest.mark.slow
class TestNetworks(StitchContract):
    specs = ("mlp:2",)

    def made(self, spec):
        return Mlp(2, training=Training(steps=30, min_epochs=5))
