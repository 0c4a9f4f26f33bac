"""A migration that a file names once: its settings, `init`, which writes them, and `status`."""
