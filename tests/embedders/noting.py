"""The command in a process of its own, which notes what it embeds again: there no fixture can look on."""

import json

from migrate.cli.main import main
from migrate.embedders.base import Embedder


def main_noting(path, command):
    """Run a command. A line of JSON in the file is the texts that are about to be embedded again, to prove a model."""
    real = Embedder.embed_again

    def noted(self, texts, role):
        with path.open("a") as file:
            file.write(json.dumps([text.text for text in texts]) + "\n")
        return real(self, texts, role)

    Embedder.embed_again = noted
    main(command)


def noted_in(path):
    return [text for line in path.read_text().splitlines() for text in json.loads(line)] if path.exists() else []
