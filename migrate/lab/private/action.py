"""`lead-migrate private`: translation where neither side shows the other what it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.cli.inputs import local_paths
from migrate.cli.next_step import JUDGED, KEYS, STITCH, STORE, advise_next
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import advise, show, show_json
from migrate.files import is_of_killed_run, refuse_output
from migrate.lab.private.exchange import decrypt_store, encrypt_store, make_keyring, translate_ciphertext
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store

if TYPE_CHECKING:
    from migrate.lab.private.exchange import Exchanged
    from migrate.vectors import Progress


def keygen(output: Path, force: bool, as_json: bool) -> None:
    """Draw a secret key, and keys to compute with."""
    refuse_output(output, force=force)
    # Keys that a killed run has drawn are not drawn again: something may be encrypted with them by now
    if is_of_killed_run(output) and not force:
        path = output
    else:
        path = make_keyring(output, force=force)
    if as_json:
        show_json({"path": path}, kind="private keygen")
    else:
        show(f"keyring: {path}; never give it away: its secret key opens everything that is encrypted with it")
        advise_next("private encrypt", STORE, "--keys", output, "-o", "to-translate")


def encrypt(store: str, keys: Path, output: Path, force: bool, as_json: bool) -> None:
    """Encrypt all vectors of STORE."""
    refuse_output(output, *local_paths(store, keys), force=force)
    opened = open_store(store)
    _step(
        "encrypt",
        lambda progress: encrypt_store(opened, keys, output, force=force, progress=progress),
        "encrypted",
        "give this folder to the holder of the stitch, who translates it; keep the keyring to yourself",
        ["private translate", output, STITCH, "-o", "to-decrypt"],
        as_json=as_json,
    )


def translate(encrypted: Path, stitch: Path | str, output: Path, force: bool, as_json: bool) -> None:
    """Translate encrypted vectors by an affine STITCH."""
    refuse_output(output, encrypted, *local_paths(stitch), force=force)
    fitted = load_stitch(stitch)
    _step(
        "translate",
        lambda progress: translate_ciphertext(encrypted, fitted, output, force=force, progress=progress),
        "translated, still encrypted",
        "give this folder back to the holder of the keyring, who decrypts it",
        ["private decrypt", output, STORE, "--keys", KEYS, "-o", "new-store"],
        as_json=as_json,
    )


def decrypt(translated: Path, store: str, keys: Path, output: Path, force: bool, as_json: bool) -> None:
    """Decrypt translated vectors into a store like STORE."""
    refuse_output(output, translated, *local_paths(store, keys), force=force)
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
