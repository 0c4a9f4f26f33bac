"""Stitches of LEAD's experiment and of comparisons: mlp:1 to mlp:7, ols, lowrank, kernel and kernel+text."""
