"""Daft: `--engine daft` on this machine, `daft:ray` or `daft:ray://HOST:10001` on a cluster of Ray."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from migrate.engines.base import Engine
from migrate.engines.parts import Part
from migrate.errors import UsageError


class DaftEngine(Engine):
    """Maps the parts as a column, in processes of their own."""

    name = "daft"
    library = "daft"
    package = "daft"

    def __init__(self, address: str = "") -> None:
        super().__init__(address)
        if address and not address.startswith("ray"):
            raise UsageError(
                f"--engine daft:{address}: Daft runs here, or on Ray; name daft, daft:ray or daft:ray://HOST"
            )

    def map(self, function: Callable[[Part], str], parts: Sequence[Part]) -> Generator[str, None, None]:
        """Yield what the tasks return, once all have ended."""
        import daft

        if self.address:
            daft.set_runner_ray(None if self.address == "ray" else self.address)

        @daft.func(return_dtype=daft.DataType.string(), use_process=True)
        def answer(number: int) -> str:
            return function(parts[number])

        numbers = daft.from_pydict({"number": list(range(len(parts)))}).into_partitions(len(parts))
        yield from numbers.select(answer(numbers["number"]).alias("answer")).to_pydict()["answer"]
