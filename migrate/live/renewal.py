"""The stitch fitted again on true vectors that a live store has gained, and the translations that are left, renewed."""

from __future__ import annotations

import shutil
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import Embedder
from migrate.embedders.prefix import whole_model
from migrate.errors import StitchError, StoreError, UsageError
from migrate.live.generation import model_of
from migrate.live.options import WorkerOptions
from migrate.live.state import text_hash
from migrate.live.writing import FolderWriter, RecordWriter, VectorWriter
from migrate.manifest import StitchFacts
from migrate.selection.choosers import choosers_of
from migrate.selection.sample import MOST_PAIRS
from migrate.steps.translate import Translate
from migrate.steps.translate.choice import Budget
from migrate.steps.translate.refit import extended, refit
from migrate.stitch.fitted import DOCUMENT, FittedStitch, input_dim, require_direction
from migrate.stitch.persistence import load_stitch
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.registry import absolute_location, open_store
from migrate.translate import batch_rows, translated_batches
from migrate.vectors import Vectors


@dataclass(frozen=True)
class Renewal:
    """The source and the stitch of a translated store; at which `shares` of true vectors, 0-1, that is done again."""

    source: Store
    fitted: FittedStitch
    shares: tuple[float, ...]

    @classmethod
    def of(cls, options: WorkerOptions) -> Renewal | None:
        """Open the source and the stitch that the options name; None where they name none."""
        if options.stitch is None and options.source is None:
            return None
        if options.stitch is None or options.source is None:
            raise UsageError("--stitch and --source belong together: the stitch, and the store that it was fitted on")
        budgets = [Budget.parse(part) for part in options.refit_at.split(",")]
        if not all(budget.unit == "share" and 0 < budget.amount < 1 for budget in budgets):
            raise UsageError(
                f"--refit-at {options.refit_at}: these are no shares of the store between 0 and 100 %; write them such "
                "as 10%,30%"
            )
        source, stitch = open_store(absolute_location(options.source)), str(options.stitch)
        fitted = load_stitch(stitch)
        if fitted.reader is not None and any(
            view.profile.is_paid is not False for view in fitted.reader.models.values()
        ):
            raise UsageError(
                f"{stitch}: it reads vectors of a model that may cost money; `translate --reembed` fits it"
            )
        if not source.info.has_texts:
            raise StitchError(f"{source.info.location}: the source has no texts; name one with texts")
        return cls(source, fitted, tuple(sorted(budget.amount for budget in budgets)))

    def due(self, share: float, done: tuple[float, ...]) -> tuple[float, ...]:
        """Return the shares that are reached and were not acted on."""
        return tuple(one for one in self.shares if one <= share and one not in done)

    def require_of(self, store: Store) -> None:
        """Make sure, before anything is embedded, that the stitch leads from the source to the model of a store."""
        source, manifest, model = self.source.info, self.fitted.manifest, model_of(store)
        if source.location == store.info.location:
            raise UsageError(f"{source.location}: this is the translated store itself; name the one it was made from")
        require_direction(manifest, DOCUMENT, source=source.location)
        if manifest.model is None or whole_model(manifest.model) != model:
            target = "a model without a name" if manifest.model is None else manifest.model.spec
            raise StitchError(
                f"{store.info.location}: the stitch leads to {target}, the store is of {model.spec}; name the stitch "
                "that it was translated by"
            )
        if input_dim(manifest) != source.dim:
            raise StitchError(
                f"{source.location}: its vectors have {source.dim} dimensions, and the stitch takes "
                f"{input_dim(manifest)}; name the store that the stitch was fitted on"
            )

    def require_documents(self, store: Store, embedder: Embedder, texts: Mapping[str, bytes]) -> None:
        """Make sure, before anything is embedded, that source and stitch are of a store's documents.

        `embedder` is the model of the store behind its cache, `texts` are as for `check`.
        """
        location, known = self.source.info.location, self.fitted.sample
        if self._shared(texts) < len(self._texts) / 2:
            raise StitchError(
                f"{location}: its documents are not those of {store.info.location}; name the store that it was "
                "translated from, and its stitch"
            )
        documents = list(self.source.documents(_rows_of(self.source, known.row_of)[:64]))
        same = [
            np.allclose(vector, known.vectors[known.row_of[documents[place].id]], atol=1e-3)
            for place, vector in embedder.find(documents, "document").items()
        ]
        if not documents or sum(same) < len(same) / 2:
            raise StitchError(
                f"{location}: the stitch was fitted on other documents; name the one that {store.info.location} was "
                "translated by"
            )

    def check(self, store: Store, texts: Mapping[str, bytes]) -> None:
        """Make sure that a store has the documents of the source: all of them in files, most of them in a database.

        `texts` are the hashes of the texts of its documents, by id.
        """
        own, is_in_files = len(self._texts), as_files(store) is not None
        if self._shared(texts) < (own if is_in_files else own / 2) or (is_in_files and len(texts) != own):
            raise StoreError(
                f"{store.info.location}: its documents are not those of {self.source.info.location} any more; the "
                "translations stay as they are"
            )

    def _shared(self, texts: Mapping[str, bytes]) -> int:
        return len(self._texts.items() & texts.items())

    @cached_property
    def _texts(self) -> dict[str, bytes]:
        return {document.id: text_hash(document.text) for document in self.source.documents()}

    def refitted(self, embedder: Embedder, *, seed: int) -> FittedStitch:
        """Return the stitch of all pairs that the cache has, up to as many as a fit takes."""
        known, new_rows, documents_of = self.fitted.sample, list[int](), self.source.documents()
        for start in range(0, self.source.info.count, batch_rows(self.source.info.dim)):
            block = list(islice(documents_of, batch_rows(self.source.info.dim)))
            cached = embedder.find(block, "document")
            new_rows += [start + row for row in cached if block[row].id not in known.row_of]
        chosen = np.sort(np.random.default_rng(seed).permutation(np.array(new_rows, dtype=np.int64))[:MOST_PAIRS])
        documents = list(self.source.documents(chosen))
        vectors: Vectors = embedder.embed_documents(documents)  # all of them from the cache
        pairs = extended(self.source, known, documents, vectors)
        fitted = refit(self.source, self.fitted, pairs, _rows_of(self.source, pairs.row_of), seed=seed)
        choices = [choice for choice in embedder.choices(documents, "document") if choice is not None]
        chosen_by = choosers_of(fitted.manifest, self.fitted.manifest) | embedder.choosers(set(choices))
        facts = StitchFacts(chosen_by=tuple(sorted(chosen_by)))
        details = {**fitted.manifest.details, **facts.as_details()}
        return replace(fitted, manifest=replace(fitted.manifest, details=details))

    def renew(self, store: Store, fitted: FittedStitch, writer: VectorWriter, texts: Mapping[str, bytes]) -> None:
        """Write the translations of the documents of the store that are to have them.

        `texts` are the hashes of the texts of these documents, by id. A folder is published by `writer` then.
        """
        if isinstance(writer, FolderWriter):
            folder = writer.state.path.parent / "renewed"
            shutil.rmtree(folder, ignore_errors=True)
            Translate(self.source, fitted, folder, force=True, restart=True).execute()
            writer.renewed = folder
            return
        assert isinstance(writer, RecordWriter)  # noqa: S101 - the only other
        for batch in translated_batches(self.source, fitted, batch_rows(self.source.info.dim), patch=False):
            rows = [row for row, doc_id in enumerate(batch.ids) if texts.get(doc_id) == self._texts[doc_id]]
            writer.replace(store, {batch.ids[row]: self._texts[batch.ids[row]] for row in rows}, batch.vectors[rows])


def _rows_of(store: Store, ids: Container[str]) -> NDArray[np.int64]:
    """Return the rows of a store whose ids are among some, (n,)."""
    everyone = (doc_id for batch in store.scan() for doc_id in batch.ids)
    return np.array([row for row, doc_id in enumerate(everyone) if doc_id in ids], dtype=np.int64)
