"""One stitch for many collections: a sample with some of each, embedded under one cap, and one fit on all of it.

What is saved is a stitch for each collection, with the same map: its own fingerprint and its own true vectors, as two
collections may use one id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from migrate.audit.verdict import FEWEST_DOCUMENTS
from migrate.cost.spending import PlannedModel
from migrate.embedders.abilities import state_of, token_table_of
from migrate.files import atomic_folder
from migrate.manifest import Manifest, StitchFacts
from migrate.selection import Pairs, draw_sample, embed_all_pairs, random_order
from migrate.selection.choosers import choosers_of_source
from migrate.selection.model_match import ASKED_AGAIN
from migrate.steps.base import Job, RunContext
from migrate.steps.fit.inputs import check_texts, named_stitches, require_texts
from migrate.steps.fit.job import fit_pairs
from migrate.stitch.fitted import DOCUMENT, TrueVectors
from migrate.stitch.mixture import find_mixture
from migrate.stitch.text_reader import CORPUS_SIZE, TextReader
from migrate.vectors import check_vectors

if TYPE_CHECKING:
    from migrate.collections.members import Collection, Collections
    from migrate.collections.options import CollectionsOptions
    from migrate.embedders.base import Embedder
    from migrate.selection import Sample
    from migrate.stitch.fitted import FittedStitch
    from migrate.vectors import Document

_FLOOR = 4
"""A collection has at least a fourth of an even share of the sample, as far as it holds so many documents."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CollectionsFitJob(Job[dict[str, "FittedStitch"]]):
    """One stitch on a sample of all collections, which are open; the result has it for each, by name.

    Attributes
    ----------
    embedder
        The target model, which spends under the cap.
    specs
        The stitches to choose among.
    samples
        The documents of each collection that are embedded.
    """

    options: CollectionsOptions
    collections: Collections
    embedder: Embedder
    specs: tuple[str, ...]
    samples: Mapping[str, Sample]

    def execute(self) -> dict[str, FittedStitch]:
        """Embed the samples, fit on all pairs, and return the stitch as it is for each collection."""
        members = self.collections.members
        # Before anything is paid for
        for member in members:
            for batch in member.store.scan():
                check_vectors(batch.ids, batch.vectors, source=member.location)
        # From the texts of all: a model that is made from texts, such as tfidf, is one model for all collections then
        self.embedder.fit(chain.from_iterable(it.store.documents() for it in members if it.store.info.has_texts))
        samples = [(member.store, self.samples[member.name]) for member in members]
        embedded = embed_all_pairs(
            samples, self.embedder, source=self.collections.pattern, progress=self.context.progress
        )
        pairs = {member.name: own_pairs for member, own_pairs in zip(members, embedded, strict=True)}
        fitted = self._fit(pairs)
        return {
            member.name: replace(
                fitted,
                manifest=self._manifest(member, pairs),
                sample=TrueVectors(pairs[member.name].ids, pairs[member.name].target, pairs[member.name].copies),
            )
            for member in members
        }

    def _fit(self, pairs: Mapping[str, Pairs]) -> FittedStitch:
        """Fit on the pairs of all collections."""
        together = Pairs(
            # Two collections may use one id
            tuple(f"{name}#{doc_id}" for name, own_pairs in pairs.items() for doc_id in own_pairs.ids),
            np.concatenate([own_pairs.source for own_pairs in pairs.values()]),
            np.concatenate([own_pairs.target for own_pairs in pairs.values()]),
        )
        fitted = fit_pairs(
            together,
            self.specs,
            manifest=self._manifest(self.collections.members[0], pairs),
            state=dict(state_of(self.embedder)),
            seed=self.options.seed,
            texts=[document.text for document in _documents_of(self.samples)],
            reader=self._reader(),
            progress=self.context.progress,
        )
        mixture = find_mixture(together.source, together.target, seed=self.options.seed)
        return replace(fitted, selection=replace(fitted.selection, mixture=mixture))

    def _reader(self) -> TextReader | None:
        """Learn what stitches need that read texts, from some of each collection."""
        members = self.collections.members
        if not all(member.store.info.has_texts for member in members):
            return None
        sizes = share_out([member.store.info.count for member in members], CORPUS_SIZE)
        texts = [
            document.text
            for member, size in zip(members, sizes, strict=True)
            for document in islice(member.store.documents(random_order(member.store, self.options.seed)[:size]), size)
        ]
        return TextReader.fit(texts, token_table_of(self.embedder), models={}, seed=self.options.seed)

    def _manifest(self, member: Collection, pairs: Mapping[str, Pairs]) -> Manifest:
        store = member.store
        own_pairs = pairs[member.name]
        return Manifest(
            kind="stitch",
            model=self.embedder.identity,
            source_model=store.info.recorded_model,
            seed=self.options.seed,
            counts={"pairs": sum(map(len, pairs.values())), "documents": store.info.count},
            details=StitchFacts(
                fingerprint=store.snapshot().fingerprint,
                direction="document",
                sample={"strategy": self.samples[member.name].strategy, "from query log": 0},
                texts=store.info.has_texts,
                chosen_by=tuple(sorted(choosers_of_source(store, self.embedder, own_pairs.source, own_pairs.target))),
            ).as_details(),
        )


def open_fit(
    options: CollectionsOptions, collections: Collections, target: Embedder, context: RunContext
) -> CollectionsFitJob:
    """Draw the documents to embed: all of a small collection, and of the others some of each.

    Raises UsageError, InputError: a collection lacks what the model or a stitch reads.
    """
    specs = (options.kind,) if isinstance(options.kind, str) else tuple(options.kind)
    stitches = named_stitches(specs, DOCUMENT)
    for member in collections.members:
        require_texts(member.store, target)
        check_texts(member.store, stitches)
    counts = [member.store.info.count for member in collections.members]
    sizes = sample_sizes(counts, options.sample, whole=FEWEST_DOCUMENTS)
    samples = {
        member.name: draw_sample(member.store, size, seed=options.seed)
        for member, size in zip(collections.members, sizes, strict=True)
    }
    embedder = context.cap.meter(target, options.price)
    documents = partial(_documents_of, samples)
    return CollectionsFitJob(
        options=options,
        context=context,
        models=(PlannedModel(embedder, context.cap, documents=documents, again=ASKED_AGAIN),),
        collections=collections,
        embedder=embedder,
        specs=specs,
        samples=samples,
    )


def _documents_of(samples: Mapping[str, Sample]) -> Iterator[Document]:
    for sample in samples.values():
        yield from sample.documents


def sample_sizes(counts: Sequence[int], size: int, *, whole: int) -> list[int]:
    """Return how many of each collection are embedded: all of one with fewer than `whole`, and `size` of the others.

    >>> sample_sizes([99, 5_000, 20], 1_000, whole=100)
    [99, 1000, 20]
    """
    shares = iter(share_out([count for count in counts if count >= whole], size))
    return [count if count < whole else next(shares) for count in counts]


def share_out(counts: Sequence[int], size: int) -> list[int]:
    """Return how many of each collection are drawn: in proportion, and of a small one more.

    >>> share_out([900, 20, 3], 240)
    [217, 20, 3]
    """
    floor = max(size // (_FLOOR * max(len(counts), 1)), 1)
    shares = [min(count, floor) for count in counts]
    remaining = max(size - sum(shares), 0)
    beyond = [count - share for count, share in zip(counts, shares, strict=True)]
    total = sum(beyond)
    drawn = 0
    counted = 0
    for number, count in enumerate(beyond):
        counted += count
        # The sum so far is rounded, not each share, so that no document is lost to rounding
        up_to_here = min(remaining, total) * counted // max(total, 1)
        shares[number] += up_to_here - drawn
        drawn = up_to_here
    return shares


def save_stitches(stitches: Mapping[str, FittedStitch], collections: Collections, output: Path, *, force: bool) -> None:
    """Write the stitch of each collection into a new folder, which appears when all are there."""
    with atomic_folder(output, force=force) as unfinished:
        for member in collections.members:
            stitches[member.name].save(unfinished / member.file_name)
