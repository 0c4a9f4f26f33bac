from stitch_contract import StitchContract

from migrate.lab.stitches.mlp import Mlp, Training


class TestStitchesOfTheLab(StitchContract):
    specs = ("kernel", "kernel+text", "lowrank", "lowrank:2", "mlp:2", "ols")

    def made(self, spec):
        return Mlp(2, training=Training(steps=30, min_epochs=5)) if spec == "mlp:2" else super().made(spec)
