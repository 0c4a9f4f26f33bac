"""The four steps of a private translation, and the folders that travel.

`make_keyring` and `encrypt_store` are for who holds the vectors, `translate_ciphertext` is for who holds the stitch,
and `decrypt_store` for the former again. The keyring stays at home. A ciphertext goes out with the keys for turning and
the number of vectors, their dimension, a bound of their norms and their model's name; no ids, no texts, no secret key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from migrate.digests import function_name, hash_file, is_hash_of
from migrate.errors import InputError, ManifestError, StitchError, StoreError, VectorError
from migrate.files import atomic_folder, canonical_json, copy_file, read_file
from migrate.lab.private.ckks import GROUP, LARGEST, SECRET_NAME, TURNS_NAME, EncryptedMap, Holder, Scheme, blocks_of
from migrate.manifest import CiphertextFacts, KeyringFacts, Manifest, StoreFacts, read_manifest
from migrate.stitch.affine import AffineMap
from migrate.stitch.fitted import DOCUMENT, FittedStitch, input_dim, require_direction
from migrate.stitch.scores import Sphere
from migrate.stores.base import Store
from migrate.stores.binary_reader import read_errors
from migrate.stores.file_store import check_files, hash_written
from migrate.vectors import Progress, Vectors, check_vectors, no_progress
from migrate.work.writer import write_rows


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The output of a step: `path` with `count` vectors of dimension `dim`, in `bytes`."""

    path: Path
    count: int
    dim: int
    bytes: int


def make_keyring(output: Path, *, force: bool = False) -> Path:
    """Draw a secret key and the keys for turning that belong to it, and write both to the folder `output`."""
    scheme = Scheme()
    with atomic_folder(output, force=force) as folder:
        scheme.make_keys(folder)
        # A name at random: by it keyring and ciphertexts know each other, and it tells nothing of the secret key
        keys = KeyringFacts(key=secrets.token_hex(16), files=_hashes(folder))
        Manifest(kind="keyring", details=keys.as_details()).write(folder)
    return output


def encrypt_store(
    store: Store, keyring: Path, output: Path, *, force: bool = False, progress: Progress = no_progress
) -> Exchanged:
    """Encrypt all vectors of `store` into the folder `output`, which may be given away.

    Raises `InputError` where the keyring is none or damaged, or a vector is zero, not finite, or too long.
    """
    scheme = Scheme()
    keys = _read_keyring(keyring)
    holder = Holder(scheme, keyring / SECRET_NAME)
    check_files(store)
    snapshot = store.snapshot()
    info = store.info
    longest = 0.0
    with atomic_folder(output, force=force) as folder:
        copy_file(keyring / TURNS_NAME, folder / TURNS_NAME)
        for group, batch in enumerate(store.scan(batch_size=GROUP)):
            squares = check_vectors(batch.ids, batch.vectors, source=info.location)
            longest = max(longest, float(np.sqrt(squares.max())))
            if longest > LARGEST:
                raise VectorError(
                    f"{info.location}: a vector has the norm {longest:,.0f}, and encryption takes {LARGEST:,.0f}; "
                    "scale them down"
                )
            holder.encrypt(batch.vectors, _paths(folder, group, range(blocks_of(info.dim))))
            progress("encrypt", group * GROUP + len(batch), info.count)
        store.check_unchanged(snapshot)
        sent = CiphertextFacts(
            key=keys.key,
            store=_seal_of(store, keyring),
            # A power of two, as the folder is given away: the norm itself would say more of the vectors
            norm_bound=float(2.0 ** np.ceil(np.log2(longest))),
            files=_hashes(folder),
        )
        Manifest(
            kind="ciphertext",
            model=info.recorded_model,
            counts={"vectors": info.count, "dim": info.dim},
            details=sent.as_details(),
        ).write(folder)
    return Exchanged(output, info.count, info.dim, _size(output))


def translate_ciphertext(
    ciphertext: Path, fitted: FittedStitch, output: Path, *, force: bool = False, progress: Progress = no_progress
) -> Exchanged:
    """Translate encrypted vectors by an affine stitch, without a key to read them, into the folder `output`.

    True vectors of the stitch's sample are not put in: nobody here knows whose vectors these are. Raises `StitchError`
    where the stitch does not fit, `InputError` where the ciphertext is none, is damaged, or was translated already.
    """
    scheme = Scheme()
    manifest, sent = _read_ciphertext(ciphertext)
    if sent.norm is not None:
        raise InputError(f"{ciphertext}: these vectors are translated already; `private decrypt` them where the key is")
    count = manifest.counts["vectors"]
    dim = manifest.counts["dim"]
    affine = _check_stitch(fitted, manifest, sent)
    encrypted = EncryptedMap(scheme, affine.matrix, affine.offset, ciphertext / TURNS_NAME)
    groups = -(-count // GROUP)
    with atomic_folder(output, force=force) as folder:
        # Strip by strip, though each reads the input anew: the encoded matrix of all would not fit into memory
        for done, blocks in enumerate(encrypted.strips):
            files = (
                (_paths(ciphertext, group, range(blocks_of(dim))), _paths(folder, group, blocks))
                for group in range(groups)
            )
            for group, _ in enumerate(encrypted.apply(blocks, files), start=1):
                progress("translate", done * groups + group, len(encrypted.strips) * groups)
        mean = None
        if fitted.sample.sphere.radius is not None:
            mean = fitted.sample.sphere.mean.tolist()
        answer = replace(
            sent,
            norm=fitted.norm,
            mean=mean,
            stitch=fitted.stitch.spec,
            files=_hashes(folder),
        )
        Manifest(
            kind="ciphertext",
            model=fitted.manifest.model,
            source_model=fitted.manifest.source_model,
            counts={"vectors": count, "dim": fitted.dim},
            details=answer.as_details(),
        ).write(folder)
    return Exchanged(output, count, fitted.dim, _size(output))


def decrypt_store(
    ciphertext: Path,
    store: Store,
    keyring: Path,
    output: Path,
    *,
    force: bool = False,
    progress: Progress = no_progress,
) -> Exchanged:
    """Decrypt translated vectors, bring them to the new model's norm, and write a store like `store` of them.

    The new store has the ids, texts and metric of `store`. Raises `InputError` where keyring, ciphertext and store do
    not belong together, are damaged, or nothing was translated yet.
    """
    scheme = Scheme()
    keys = _read_keyring(keyring)
    manifest, answer = _read_ciphertext(ciphertext)
    if answer.key != keys.key:
        raise InputError(
            f"{ciphertext}: these vectors were encrypted with another keyring than {keyring}; give the keyring that "
            "they were encrypted with"
        )
    if answer.norm is None:
        raise InputError(f"{ciphertext}: these vectors are not translated yet; that is `private translate`")
    check_files(store)
    snapshot = store.snapshot()
    if answer.store != _seal_of(store, keyring):
        raise StoreError(
            f"{store.info.location}: this is not the store that was encrypted, or it has changed; give that one, or "
            "encrypt this one"
        )
    holder = Holder(scheme, keyring / SECRET_NAME)
    dim = manifest.counts["dim"]
    sphere = _sphere(ciphertext, answer, dim)
    norm = answer.norm
    with atomic_folder(output, force=force) as folder:
        writer = store.destination(folder, dim)

        def decrypted() -> Iterator[tuple[int, Vectors]]:
            start = 0
            for group, batch in enumerate(store.scan(batch_size=GROUP)):
                vectors = holder.decrypt(_paths(ciphertext, group, range(blocks_of(dim))), len(batch), dim)
                squares = check_vectors(batch.ids, vectors, source=f"{ciphertext} after decryption")
                yield start, sphere.of(vectors, norm=norm, squares=squares)
                start += len(batch)
                progress("decrypt", start, store.info.count)

        write_rows(writer, decrypted(), store.info.count, folder)
        store.check_unchanged(snapshot)
        Manifest(
            kind="store",
            model=manifest.model,
            source_model=manifest.source_model or store.info.recorded_model,
            inputs={"source rows": snapshot.rows_sha256},
            counts={"documents": store.info.count, "true vectors": 0},
            details={
                **StoreFacts(made_by="private decrypt", stitch=answer.stitch).as_details(),
                **hash_written(store, folder),
            },
        ).write(folder)
    return Exchanged(output, store.info.count, dim, _size(output))


def _sphere(ciphertext: Path, answer: CiphertextFacts, dim: int) -> Sphere:
    """Return the sphere of the new model's vectors, as far as the answer names it."""
    mean = np.asarray(answer.mean or np.zeros(dim), dtype=np.float32)
    if len(mean) != dim or not np.isfinite(mean).all():
        raise ManifestError(f"{ciphertext}: the mean in the manifest is not of {dim} finite numbers; translate again")
    return Sphere(mean, None if answer.mean is None else answer.norm)


def _paths(folder: Path, group: int, blocks: Sequence[int]) -> list[Path]:
    return [folder / f"{group:07}-{block:03}.seal" for block in blocks]


def _hashes(folder: Path) -> dict[str, str]:
    return {path.name: hash_file(path) for path in sorted(folder.iterdir())}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _read_keyring(folder: Path) -> KeyringFacts:
    keys = read_manifest(folder, "keyring").keyring
    if keys.key is None or keys.files is None or keys.files.keys() != {SECRET_NAME, TURNS_NAME}:
        raise ManifestError(f"{folder}: the manifest of the keyring lacks a key; make a new one, and encrypt again")
    _check_files(folder, keys.files)
    return keys


def _read_ciphertext(folder: Path) -> tuple[Manifest, CiphertextFacts]:
    """Return the manifest and its facts, after making sure that all files are there and whole."""
    manifest = read_manifest(folder, "ciphertext")
    details = manifest.ciphertext
    count, dim = (manifest.counts.get(name, 0) for name in ("vectors", "dim"))
    if count < 1 or dim < 1 or None in (details.key, details.norm_bound) or details.files is None:
        raise ManifestError(f"{folder}: the manifest of the ciphertext says too little; encrypt the store again")
    if details.norm is not None and not 0 < details.norm < np.inf:
        raise ManifestError(f"{folder}: the norm in the manifest, {details.norm}, is not above 0; translate again")
    names = {path.name for group in range(-(-count // GROUP)) for path in _paths(folder, group, range(blocks_of(dim)))}
    # The keys for turning travel there, and not back
    if details.norm is None:
        names.add(TURNS_NAME)
    # Neither fewer nor more: a file that is not read would not be missed, and one too many comes from elsewhere
    if details.files.keys() != names:
        raise ManifestError(
            f"{folder}: the manifest names {len(details.files)} files, and {count:,} vectors of dimension {dim} have "
            f"{len(names)}; copy the folder again"
        )
    _check_files(folder, details.files)
    return manifest, details


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, recorded in files.items():
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path}: the manifest names this file, and it is not there; copy the folder again")
        with read_errors(path):
            is_sound = is_hash_of(recorded, path, f"{path}: the manifest")
        if not is_sound:
            raise InputError(
                f"{path}: its {function_name(recorded)} is not the one in the manifest; it was cut or damaged, copy it "
                "again"
            )


def _check_stitch(fitted: FittedStitch, manifest: Manifest, sent: CiphertextFacts) -> AffineMap:
    """Return the map of the stitch, after making sure that it may be applied to these vectors."""
    require_direction(fitted.manifest, DOCUMENT, source="private translate")
    if fitted.reads_texts:
        raise StitchError(
            f"the {fitted.stitch.spec} stitch reads texts, which are not there under encryption; fit one of vectors "
            "alone, such as --kind ridge"
        )
    affine = fitted.stitch.affine(fitted.dim)
    if affine is None:
        raise StitchError(
            f"the {fitted.stitch.spec} stitch is not affine, and only affine ones can be applied under encryption; fit "
            "one with --kind ridge, procrustes, ols or lowrank"
        )
    own_dim, dim = input_dim(fitted.manifest), manifest.counts["dim"]
    if own_dim != dim:
        raise StitchError(f"the stitch takes vectors of dimension {own_dim}, not encrypted ones of {dim}; take another")
    names = [None if model is None else model.spec for model in (fitted.manifest.source_model, manifest.model)]
    if None not in names and names[0] != names[1]:
        raise StitchError(
            f"the stitch is for vectors of {names[0]}, and those here are of {names[1]}; take a stitch of that model"
        )
    # By Cauchy and Schwarz no value is larger than the norm of the vector times that of its column
    reach = float(sent.norm_bound or 0) * float(np.linalg.norm(affine.matrix, axis=0).max())
    if reach + float(np.abs(affine.offset).max()) > LARGEST:
        raise StitchError("the stitch makes values larger than encryption has room for; scale the vectors down")
    return affine


def _seal_of(store: Store, keyring: Path) -> str:
    """Return a mark by which the store is known later, which tells nobody without the secret key anything of it."""
    fingerprint = {name: value for name, value in store.snapshot().fingerprint.items() if name != "texts_hash"}
    secret = read_file(keyring / SECRET_NAME)
    return hmac.new(hashlib.sha256(secret).digest(), canonical_json(fingerprint).encode(), hashlib.sha256).hexdigest()
