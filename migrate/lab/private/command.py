"""`lead-migrate private`: translation where neither side shows the other what it holds."""

from __future__ import annotations

import click

from migrate.cli import options

_keys = options.option(
    "--keys", type=options.PATH, required=True, help="Keyring of `private keygen`; it never leaves this side."
)


@click.group("private", cls=options.OrderedGroup, short_help="Translate encrypted vectors.")
def command() -> None:
    """Translate vectors by a stitch that somebody else holds; neither side shows the other what it has.

    Who holds the vectors makes a keyring and encrypts; who holds the stitch translates what is encrypted; the former
    decrypts. The stitch must be affine (--kind ridge, procrustes, ols, lowrank). Answers to more vectors than there
    are dimensions give it away; decrypted results that go back can give away the key. Needs TenSEAL: pip install
    'lead-migrate[private]'.
    """


@command.add_command
@options.command(
    "keygen", "Make a keyring, on the side of the vectors.", example="lead-migrate private keygen -o my-keys"
)
@options.output
@options.force
@options.as_json
@options.done_by("migrate.lab.private.action:keygen")
def keygen() -> None:
    """Draw a secret key, and keys to compute with.

    With these the other side can compute, but not read. One keyring serves any number of stores of any dimension.
    """


@command.add_command
@options.command(
    "encrypt",
    "Encrypt the vectors of a store.",
    example="lead-migrate private encrypt my-store --keys my-keys -o to-translate",
)
@click.argument("store", type=options.STORE)
@_keys
@options.output
@options.force
@options.as_json
@options.progress
@options.done_by("migrate.lab.private.action:encrypt")
def encrypt() -> None:
    """Encrypt all vectors of STORE.

    The folder is for the holder of the stitch. It tells how many vectors there are, their dimension, the power of 2
    above their norms, and the name of their model; not their ids nor texts, and no secret key is in it.
    """


@command.add_command
@options.command(
    "translate",
    "Translate encrypted vectors, on the side of the stitch.",
    example="lead-migrate private translate to-translate my-stitch -o to-decrypt",
)
@click.argument("encrypted", type=options.PATH)
@click.argument("stitch", type=options.STITCH)
@options.output
@options.force
@options.as_json
@options.progress
@options.done_by("migrate.lab.private.action:translate")
def translate() -> None:
    """Translate encrypted vectors by an affine STITCH.

    They are those that `private encrypt` has written, and stay unreadable here.
    """


@command.add_command
@options.command(
    "decrypt",
    "Decrypt translated vectors into a store.",
    example="lead-migrate private decrypt to-decrypt my-store --keys my-keys -o new-store",
)
@click.argument("translated", type=options.PATH)
@click.argument("store", type=options.STORE)
@_keys
@options.output
@options.force
@options.as_json
@options.progress
@options.done_by("migrate.lab.private.action:decrypt")
def decrypt() -> None:
    """Decrypt translated vectors into a store like STORE.

    They are those that `private translate` has written, STORE is the one that was encrypted.


    Ids, texts, metric and format are those of STORE; the vectors have the norm of the new model's.
    """
