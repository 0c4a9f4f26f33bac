"""The BEIR sets by name: downloaded once, checked by hash, unpacked into a cache. Reading them is in `beir.py`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from migrate.datasets.archive import unpack_archive
from migrate.datasets.transfer import download
from migrate.errors import DatasetError, RemoteError
from migrate.files import atomic_folder, cache_folder, output_errors, output_lock
from migrate.vectors import Progress, no_progress

OFFICIAL_URL = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets"
URL_VARIABLE = "LEAD_MIGRATE_BEIR_URL"
"""Environment variable with another base URL: a mirror with the same archives."""

BEIR_MD5 = {
    "arguana": "8ad3e3c2a5867cdced806d6503f29b99",
    "climate-fever": "8b66f0a9126c521bae2bde127b4dc99d",
    "dbpedia-entity": "c2a39eb420a3164af735795df012ac2c",
    "fever": "5a818580227bfb4b35bb6fa46d9b6c03",
    "fiqa": "17918ed23cd04fb15047f73e6c3bd9d9",
    "hotpotqa": "f412724f78b0d91183a0e86805e16114",
    "msmarco": "444067daf65d982533ea17ebd59501e4",
    "nfcorpus": "a89dba18a62ef92f7d323ec890a0d38d",
    "nq": "d4d3d2e48787a744b6f6e691ff534307",
    "quora": "18fb154900ba42a600f84b839c173167",
    "scidocs": "38121350fc3a4d2f48850f6aff52e4a9",
    "scifact": "5f7d1de60b170fc8027bb7898e2efca1",
    "trec-covid": "ce62140cb23feb9becf6270d0d1fe6d1",
    "webis-touche2020": "46f650ba5a527fc69e0a6521c5a23563",
}
"""MD5 of each archive, from the table "Available Datasets" in the README of https://github.com/beir-cellar/beir.

MD5 is what BEIR publishes: it guards against cuts and mix-ups, not against forgery. `cqadupstack` is missing
because its archive holds twelve collections, each a BEIR folder of its own.
"""


def resolve_beir(
    name_or_path: str, *, cache: Path | None = None, base_url: str | None = None, progress: Progress = no_progress
) -> Path:
    """The BEIR folder that somebody means: an existing folder, or a set of BEIR by name, fetched if need be.

    Raises
    ------
    DatasetError
        It is neither; or see `fetch_beir`.
    RemoteError, OutputError, LockedError
        See `fetch_beir`.
    """
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    if name_or_path not in BEIR_MD5:
        raise DatasetError(f"expected a BEIR folder or one of {', '.join(BEIR_MD5)}, found {name_or_path!r}")
    return fetch_beir(name_or_path, cache=cache or cache_folder() / "beir", base_url=base_url, progress=progress)


def fetch_beir(
    name: str, *, cache: Path, base_url: str | None = None, progress: Progress = no_progress, wait_s: float = 1.0
) -> Path:
    """The folder `cache/name` with a BEIR set, downloaded and unpacked if it is not there.

    A cut download is kept as `name.zip.part` and resumed by the next run. The folder appears when it is complete.

    Parameters
    ----------
    name
        A key of `BEIR_MD5`.
    base_url
        Where `name.zip` is; by default $LEAD_MIGRATE_BEIR_URL, or the official server.
    progress
        Called with bytes while downloading.
    wait_s
        Seconds before the second attempt; doubles with every further one.

    Raises
    ------
    DatasetError
        No such set; the archive is damaged or hostile; or `cache/name` is something else.
    RemoteError
        The server refused or did not deliver, or what it sent has another hash and was removed.
    LockedError
        Another run is fetching the same set.
    OutputError
        The operating system refused to write.
    """
    if name not in BEIR_MD5:
        raise DatasetError(f"expected one of {', '.join(BEIR_MD5)}, found {name!r}")
    folder = cache / name
    if not folder.exists():
        with output_lock(folder.with_name(f"{name}.zip")):  # the folder's own lock is for unpacking
            if not folder.exists():  # another run may have finished while this one took the lock
                _fetch(name, folder, base_url or os.environ.get(URL_VARIABLE) or OFFICIAL_URL, progress, wait_s)
    if not (folder / "corpus.jsonl").is_file():
        raise DatasetError(f"{folder}: expected a BEIR folder in the cache, found something else; remove it")
    return folder


def _fetch(name: str, folder: Path, base_url: str, progress: Progress, wait_s: float) -> None:
    part = folder.parent / f"{name}.zip.part"
    download(f"{base_url.rstrip('/')}/{name}.zip", part, progress=progress, wait_s=wait_s)
    try:
        _check_hash(part, name)
        _unpack(part, folder, name)
    except (RemoteError, DatasetError):
        part.unlink()  # going on from these bytes would never end well
        raise
    part.unlink()


def _check_hash(part: Path, name: str) -> None:
    with output_errors(part), part.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != BEIR_MD5[name]:
        raise RemoteError(
            f"{name}.zip: expected MD5 {BEIR_MD5[name]}, found {found}; it was removed: "
            "run again, and if that does not help, check the base URL"
        )


def _unpack(part: Path, folder: Path, name: str) -> None:
    with atomic_folder(folder) as aside:
        unpack_archive(part, aside, root=name)
        if not (aside / "corpus.jsonl").is_file():
            raise DatasetError(f"{name}.zip: expected {name}/corpus.jsonl, found none; get it anew")
