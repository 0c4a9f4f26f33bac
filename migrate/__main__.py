"""The start of the command line, by the console script and by `python -m migrate`, where that is not on the path."""

import signal
from typing import NoReturn


def start(program: str = "lead-migrate") -> NoReturn:
    """Load the command line and run it; an interruption before that ends the process without a word."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from migrate.cli.main import main

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main(program=program)


if __name__ == "__main__":
    start("python -m migrate")
