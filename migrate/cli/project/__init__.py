"""A migration that a file names once: its settings, the command that writes them, and the one that says what is next."""
