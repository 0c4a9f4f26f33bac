"""Stitches: fitted maps from the source space to the target space."""
