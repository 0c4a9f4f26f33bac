"""The device that computes the matrix products of stitches and of exact search: NumPy's processor, or a GPU by torch.

`LEAD_MIGRATE_DEVICE` names it, and worker processes inherit it; the command line sets it where `pyproject.toml` names
one. What torch computes is float32 throughout, in parts that fit into the memory of the device. The rest stays with
NumPy.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from migrate.errors import OutputError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

DEVICE: Final = "LEAD_MIGRATE_DEVICE"
"""Environment variable with the name of the device."""

_TORCH_ON_PROCESSOR: Final = "cpu:0"
"""Name by which torch, and not NumPy, computes on the processor: the code of a GPU where there is none."""

Tensor: TypeAlias = Any
"""A `torch.Tensor`; or an array of NumPy, in functions that are written for either."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """A device of torch, by torch's name for it."""

    name: str

    def tensor(self, array: Array) -> Tensor:
        """Return a copy of an array on the device."""
        import torch

        return torch.tensor(array, device=self.name)

    def map_rows(self, function: Callable[..., Tensor], rows: Array, *operands: Array) -> Array:
        """Return `function(rows, *operands)`, computed on the device; each of its rows is made of that row alone."""
        import numpy as np

        def compute(block: slice) -> Array:
            result: Array = function(self.tensor(rows[block]), *map(self.tensor, operands)).cpu().numpy()
            return result

        results = list(self.in_parts(compute, len(rows)))
        return results[0] if len(results) == 1 else np.concatenate(results)

    def in_parts(self, compute: Callable[[slice], Result], count: int, *, most: int | None = None) -> Iterator[Result]:
        """Yield what `compute` returns for `count` rows, in parts, halved where they do not fit into the memory.

        A part has at most `most` rows, where that is given.

        Raises OutputError: one row alone does not fit, or the device fails.
        """
        import torch

        start, size = 0, max(count if most is None else min(count, most), 1)
        while start < max(count, 1):
            block = slice(start, min(start + size, count))
            try:
                with torch.inference_mode(), _full_precision():
                    result = compute(block)
            except torch.cuda.OutOfMemoryError as error:
                if size == 1:
                    raise OutputError(
                        f"the memory of device {self.name} is full ({_first_line(error)}); end what else uses it, or "
                        f"start over with {DEVICE}=cpu"
                    ) from error
                size = -(-size // 2)
                continue
            except RuntimeError as error:
                if "CUDA" not in str(error):
                    raise
                raise OutputError(
                    f"device {self.name} failed ({_first_line(error)}); run the command again, or start over with "
                    f"{DEVICE}=cpu"
                ) from error
            yield result
            start += size


def device_name() -> str | None:
    """Return torch's name of the device that the environment names; None where NumPy computes.

    Models may run where stitches and search do not: `auto` and `mps` say nothing of these.
    """
    name = os.environ.get(DEVICE, "")
    return name if name.partition(":")[0] == "cuda" or name == _TORCH_ON_PROCESSOR else None


def chosen_device() -> TorchDevice | None:
    """Return the device of torch that computes; None for NumPy. Raises a UsageError where it cannot be used."""
    name = device_name()
    return None if name is None else _usable(name)


def check_device() -> None:
    """Make sure, before anything is spent, that the device that the environment names can be used.

    Raises UsageError: there is no such device.
    """
    name = os.environ.get(DEVICE, "")
    if name not in ("", "auto", "cpu"):
        _check_name(name)
        chosen_device()


def map_rows(function: Callable[..., Tensor], rows: Array, *operands: Array) -> Array:
    """Return `function(rows, *operands)` by the chosen device; each of its rows is made of that row of `rows` alone.

    The function gets arrays of NumPy or tensors of torch, and uses what both have.
    """
    device = chosen_device()
    if device is not None:
        return device.map_rows(function, rows, *operands)
    result: Array = function(rows, *operands)
    return result


def _check_name(name: str) -> None:
    import torch

    try:
        torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"{name!r} is not a device; name one such as auto, cpu, cuda, cuda:1 or mps") from error


@cache
def _usable(name: str) -> TorchDevice:
    """Return the device of a name after something was put there, which is the only proof."""
    _check_name(name)
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a driver that is missing or too old, which the error tells
            torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"device {name!r} is not usable here for stitches and search ({_first_line(error)}); set {DEVICE}=cpu"
        ) from error
    return TorchDevice(name)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Compute float32 products in float32, whatever a program has set: TF32 has but ten bits after the point."""
    import torch

    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by the newer interface, which this one reads only where nothing but the default is set
        precision = "high"
    if precision == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
