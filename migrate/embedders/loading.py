"""Loading a model through sentence-transformers and torch, without a word on the terminal and in float32."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrate.embedders.weights import ModelSource
from migrate.errors import InputError, LeadMigrateError, RemoteError, UsageError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_NOISY_LOGGERS = ("transformers", "sentence_transformers", "huggingface_hub", "torch", "httpx", "httpx2")


def pick_device(device: str) -> str:
    """Resolve "auto": cuda, or else mps, or else cpu; any other name is kept, if torch knows it.

    Raises
    ------
    UsageError
        torch knows no such device.
    """
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"expected a device such as auto, cpu, cuda, cuda:1 or mps, found {device!r}") from error
    return device


def load_model(source: ModelSource, device: str) -> SentenceTransformer:
    """Load a model in float32: some weights are stored in half precision, which few processors compute well in."""
    with quiet():
        from sentence_transformers import SentenceTransformer

        try:
            model = SentenceTransformer(
                str(source.folder or source.name),
                device="cpu",
                local_files_only=source.offline,
            )
        except Exception as error:  # three libraries below it raise whatever they please
            raise _loading_error(source, error) from error
        try:
            return model.float().to(device).eval()
        except (RuntimeError, AssertionError) as error:
            raise UsageError(
                f"device {device!r} is not usable here ({_first_line(error)}); try --device cpu"
            ) from error


def _loading_error(source: ModelSource, error: Exception) -> LeadMigrateError:
    if source.folder is not None or source.offline:
        place = source.folder or source.name
        return InputError(f"{place}: expected a sentence-transformers model, cannot load it: {_first_line(error)}")
    return RemoteError(f"cannot load {source.name} from the hub: {_first_line(error)}; try again, or give a folder")


def encoding_error(error: Exception, pass_size: int) -> LeadMigrateError:
    """The error of ours for a forward pass that failed with `pass_size` texts."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return UsageError(f"out of memory with {pass_size} texts at a time; choose a smaller --batch-size")
    return InputError(f"the model failed on these texts: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def dimension_of(model: SentenceTransformer) -> int:
    """`get_embedding_dimension` came with sentence-transformers 6, which deprecates the older name."""
    ask = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
    dim = ask()
    if dim is None:
        raise InputError("the model does not tell its dimension; it is not one that embeds texts")
    return int(dim)


def is_normalizing(model: SentenceTransformer) -> bool:
    """Whether the last module is Normalize: the model's own word, which outranks any table."""
    modules = list(model)
    return bool(modules) and type(modules[-1]).__name__ == "Normalize"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the warnings, log lines and progress bars of the libraries below off the user's terminal."""
    from transformers.utils import logging as transformers_logging

    levels = {name: logging.getLogger(name).level for name in _NOISY_LOGGERS}
    bars = transformers_logging.is_progress_bar_enabled()
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
