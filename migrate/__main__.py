"""`python -m migrate`: the command line, where the console script is not on the path."""

from migrate.cli.main import main

if __name__ == "__main__":
    main(program="python -m migrate")
