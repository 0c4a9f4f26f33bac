"""The options of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.audit.judged import JudgedOptions
from migrate.steps.base import RANKED_QUERIES, RESTART, argument, option, parameter
from migrate.steps.fit.options import KIND, LOG, SAMPLE, SOURCE_MODEL, STRATEGY, TARGET, WORDS

if TYPE_CHECKING:
    from migrate.embedders.base import Embedder
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.vectors import Query


@dataclass(frozen=True, eq=False)
class RunOptions(JudgedOptions):
    """The store, the models and the folder, as they are named, and what the translated store is compared with."""

    store: StoreLike = field(metadata=argument("A store with texts, or its path.", "store"))
    target: ModelLike = field(metadata=TARGET)
    output: str | Path = field(metadata=option("Folder to write.", "path", flags=("--output", "-o")))
    _: KW_ONLY
    reference: str = field(
        default="auto",
        metadata=option(
            "What to compare with: a `pool` of documents that are embedded now, or every document (`build`); `auto` "
            "uses a pool, or, if the pool would be all documents, makes a full re-embed without an audit.",
            choices=("auto", "pool", "build"),
        ),
    )
    kind: str | Sequence[str] = field(default=("auto",), metadata=KIND)
    sample: int = field(default=1_000, metadata=SAMPLE)
    strategy: str | None = field(default=None, metadata=STRATEGY)
    query_log: Path | str | Sequence[Query] | None = field(default=None, metadata=parameter(LOG["help"]))
    source_model: ModelLike | None = field(default=None, metadata=SOURCE_MODEL)
    ranked_queries: int | None = field(default=None, metadata=RANKED_QUERIES)
    words: int = field(default=20_000, metadata=WORDS)
    restart: bool = field(default=False, metadata=RESTART)

    @property
    def folder(self) -> Path:
        """The folder that everything is left in."""
        return Path(self.output)


@dataclass(frozen=True, eq=False)
class ChooseOptions(JudgedOptions):
    """The store, and the models to choose among, as they are named."""

    store: StoreLike = field(metadata=argument("A store with texts, or its path.", "store"))
    targets: Sequence[ModelLike] | Mapping[str, Embedder] = field(
        metadata=parameter("Models to choose among; or a name for each.")
    )
    _: KW_ONLY
    source_model: ModelLike | None = field(default=None, metadata=SOURCE_MODEL)
    sample: int = field(default=1_000, metadata=SAMPLE)
