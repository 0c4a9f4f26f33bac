"""`lead-migrate private`: translation where neither side shows the other what it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.next_step import JUDGED, KEYS, STITCH, STORE, advise_next
from migrate.cli.options import option
from migrate.cli.terminal import advise, progress_bar, show, show_json
from migrate.files import is_of_killed_run, refuse_output

if TYPE_CHECKING:
    from migrate.lab.private.exchange import Exchanged
    from migrate.vectors import Progress


@click.group("private", cls=options.OrderedGroup, short_help="Translate encrypted vectors.")
def command() -> None:
    """Translate vectors by a stitch that somebody else holds; neither side shows the other what it has.

    Who holds the vectors makes a keyring and encrypts; who holds the stitch translates what is encrypted; the former
    decrypts. The stitch must be affine (--kind ridge, procrustes, ols, lowrank). Answers to more vectors than there
    are dimensions give it away; decrypted results that go back can give away the key. Needs TenSEAL: pip install
    'lead-migrate[private]'.
    """


_keys = option(
    "--keys", type=options.PATH, required=True, help="Keyring of `private keygen`; it never leaves this side."
)


@command.add_command
@options.command(
    "keygen", "Make a keyring, on the side of the vectors.", example="lead-migrate private keygen -o my-keys"
)
@options.output
@options.force
@options.as_json
def keygen(output: Path, force: bool, as_json: bool) -> None:
    """Draw a secret key, and keys to compute with.

    With these the other side can compute, but not read. One keyring serves any number of stores of any dimension.
    """
    from migrate.lab.private.exchange import make_keyring

    refuse_output(output, force=force)
    # keys that a killed run has drawn are not drawn again: something may be encrypted with them by now
    path = output if is_of_killed_run(output) and not force else make_keyring(output, force=force)
    if as_json:
        show_json({"path": path}, kind="private keygen")
    else:
        show(f"keyring: {path}; never give it away: its secret key opens everything that is encrypted with it")
        advise_next("private encrypt", STORE, "--keys", output, "-o", "to-translate")


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
@options.quiet
def encrypt(store: str, keys: Path, output: Path, force: bool, as_json: bool) -> None:
    """Encrypt all vectors of STORE.

    The folder is for the holder of the stitch. It tells how many vectors there are, their dimension, the power of 2
    above their norms, and the name of their model; not their ids nor texts, and no secret key is in it.
    """
    from migrate.lab.private.exchange import encrypt_store
    from migrate.stores import open_store

    refuse_output(output, *options.local_paths(store, keys), force=force)
    opened = open_store(store)
    _step(
        "encrypt",
        lambda progress: encrypt_store(opened, keys, output, force=force, progress=progress),
        "encrypted",
        "give this folder to the holder of the stitch, who translates it; keep the keyring to yourself",
        ["private translate", output, STITCH, "-o", "to-decrypt"],
        as_json=as_json,
    )


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
@options.quiet
def translate(encrypted: Path, stitch: Path | str, output: Path, force: bool, as_json: bool) -> None:
    """Translate encrypted vectors by an affine STITCH.

    They are those that `private encrypt` has written, and stay unreadable here.
    """
    from migrate.lab.private.exchange import translate_ciphertext
    from migrate.stitch.persistence import load_stitch

    refuse_output(output, encrypted, *options.local_paths(stitch), force=force)
    fitted = load_stitch(stitch)
    _step(
        "translate",
        lambda progress: translate_ciphertext(encrypted, fitted, output, force=force, progress=progress),
        "translated, still encrypted",
        "give this folder back to the holder of the keyring, who decrypts it",
        ["private decrypt", output, STORE, "--keys", KEYS, "-o", "new-store"],
        as_json=as_json,
    )


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
@options.quiet
def decrypt(translated: Path, store: str, keys: Path, output: Path, force: bool, as_json: bool) -> None:
    """Decrypt translated vectors into a store like STORE.

    They are those that `private translate` has written, STORE is the one that was encrypted.


    Ids, texts, metric and format are those of STORE; the vectors have the norm of the new model's.
    """
    from migrate.lab.private.exchange import decrypt_store
    from migrate.stores import open_store

    refuse_output(output, translated, *options.local_paths(store, keys), force=force)
    opened = open_store(store)
    _step(
        "decrypt",
        lambda progress: decrypt_store(translated, opened, keys, output, force=force, progress=progress),
        "decrypted",
        "keep it on this side: decrypted results sent back can give away the secret key",
        ["audit", output, "--reference", "pool", "--source", store, "--judged", JUDGED],
        as_json=as_json,
    )


def _step(
    step: str,
    work: Callable[[Progress], Exchanged],
    result: str,
    destination: str,
    then: Sequence[str | Path],
    *,
    as_json: bool,
) -> None:
    """Do the work of a step; say what its result is, what to do with it, and the next command."""
    with progress_bar() as progress:
        done = work(progress)
    if as_json:
        size = {"vectors": done.count, "dimension": done.dim, "bytes": done.bytes}
        show_json({"path": done.path, **size}, kind=f"private {step}")
        return
    size_text = f"{done.bytes / 1e6:,.1f} MB, {done.bytes / done.count:,.0f} bytes a vector"
    show(f"{result}: {done.count:,} vectors, {done.dim:,} dimensions, in {done.path} ({size_text})")
    advise(destination)
    advise_next(*map(str, then))
