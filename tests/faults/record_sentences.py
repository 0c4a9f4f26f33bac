"""Plays the table of faults and compares what the tool says with the golden file, `sentences.json`.

    python tests/faults/record_sentences.py [--write] [WORD ...]

The faults whose names have one of the words, all by default. With `--write` the sentences that differ are written anew.
"""

import argparse
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


class Recording:
    """Makes the test of each fault note what is said, rather than compare it."""

    def pytest_configure(self, config):
        config.recorded_sentences = {}

    def pytest_unconfigure(self, config):
        from fault_table import FAULTS
        from sentences import golden, write

        found = golden() | config.recorded_sentences
        write({name: found[name] for name in FAULTS if name in found})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of the names of faults")
    parser.add_argument("--write", action="store_true", help="write the golden file anew")
    arguments = parser.parse_args()
    chosen = ["-k", " or ".join(arguments.words)] if arguments.words else []
    plugins = [Recording()] if arguments.write else []
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *chosen, str(HERE / "test_faults.py")], plugins=plugins))


if __name__ == "__main__":
    main()
