"""Several collections of a place read as one store, by a location with a pattern, and written as such again.

In `KIND:PLACE#PATTERN` and `FOLDER/PATTERN`, a `*` stands for any characters. Rows are those of one collection after
the other, and a document is called NAME#ID, by what the `*` stands for. What differs from most in dimension, metric or
model is left out, by name. A translation is one work folder, from which all collections are written at the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.locations import Address, options_text
from migrate.manifest import Manifest, find_manifest
from migrate.stores.base import BATCH_SIZE, Hits, SearchSetting, Snapshot, Store, StoreInfo
from migrate.stores.database import DatabaseStore
from migrate.stores.driver import Driver
from migrate.stores.joined.writer import JoinedWriter
from migrate.stores.serving import as_hits
from migrate.stores.switching import BESIDE, Exchange, Folders
from migrate.vectors import Batch, Document, Vectors
from migrate.work.writer import StoreWriter

_MOST_OPEN: Final = 32
"""Collections whose files stay open."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for the names of collections, at a place.

    `location` is as it was typed, `noun` the word for a collection, `text` what their names match, with `options`.
    `names` lists those that match now, `meant` returns what the `*` stands for in one. `folder` has what lies beside
    all of them, where they are in a folder.
    """

    location: str
    noun: str
    text: str
    names: Callable[[], Iterable[str]]
    meant: Callable[[str], str]
    folder: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A collection that is not read, and why."""

    info: StoreInfo
    reason: str


def _label(name: str) -> str:
    """Return a name to stand before the # of an id, with any # of its own as %23, so that no two ids are one.

    >>> _label("docs"), _label("x#y"), _label("x%23y")
    ('docs', 'x%23y', 'x%2523y')
    """
    return re.sub("%(?=2[35])", "%25", name).replace("#", "%23")


class JoinedStore(Store):
    """Several collections as one store.

    `members` are those that are read, by name, and `left_out` the others that match.
    """

    def __init__(self, pattern: Pattern, members: Mapping[str, Store], left_out: Mapping[str, LeftOut]) -> None:
        self.pattern, self.members, self.left_out = pattern, dict(members), dict(left_out)
        counts = [store.info.count for store in self.members.values()]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        stores = self._filled
        self.opened_as = f"{pattern.text}{options_text(self._noted_options(stores[0]))}"
        self.switches = self._driver is not None
        self.notices_vectors = all(store.notices_vectors for store in stores)
        self.without_vector = sum(store.without_vector for store in stores)
        self.is_copy = any(store.is_copy for store in stores)
        self.info = self._describe([store.info for store in stores])

    @property
    def _filled(self) -> list[Store]:
        """The collections that hold something; the first one where none does."""
        stores = list(self.members.values())
        return [store for store in stores if store.info.count] or stores[:1]

    def _noted_options(self, store: Store) -> dict[str, str]:
        """Return the options that a copy is opened with: those of any collection, as they stand beside the pattern."""
        options = Address.parse(f"#{(store.opened_as or '').rpartition('#')[2]}").options
        return {key: self.pattern.options.get(key, value) for key, value in options.items()}

    def _describe(self, infos: Sequence[StoreInfo]) -> StoreInfo:
        pattern, first = self.pattern, infos[0]
        empty = [name for name, store in self.members.items() if not store.info.count]
        times = Counter(note for info in infos for note in dict.fromkeys(info.notes))
        notes = [note if n == len(infos) else f"{note} ({n:,} of {len(infos):,})" for note, n in times.items()]
        notes += [f"left out: {name}, {skipped.reason}" for name, skipped in self.left_out.items()]
        if empty:
            notes.append(f"empty, and copied as such: {', '.join(empty)}")
        return StoreInfo(
            pattern.location,
            first.kind,
            " and ".join(dict.fromkeys(info.index_type for info in infos)),
            int(self._starts[-1]),
            first.dim,
            first.metric,
            all(info.exact for info in infos),
            all(info.has_texts for info in infos),
            manifest=self._manifest(),
            notes=tuple(notes),
            details={"collections": len(self.members)},
        )

    def joined_stores(self) -> Sequence[Store]:
        """Return the collections."""
        return list(self.members.values())

    def _manifest(self) -> Manifest | None:
        """Return the manifest of all together; else what the collections' own have in common."""
        whole = None if self.pattern.folder is None else find_manifest(self.pattern.folder, "store")
        if whole is not None and whole.store.pattern == self.pattern.text:
            return whole
        manifests = [store.info.manifest for store in self._filled]
        present = [manifest for manifest in manifests if manifest is not None]
        if len(present) < len(manifests) or len({manifest.model for manifest in present}) > 1:
            return None
        return _common(present)

    @property
    def folder(self) -> Path | None:
        """The folder with what lies beside all of them."""
        manifest = self.info.manifest
        return self.pattern.folder if manifest is not None and manifest.store.pattern else None

    @property
    def model_folder(self) -> Path | None:
        """The folder with the state of their model: that of all, or of any one where they say the same model."""
        if self.folder is not None or self.info.manifest is None:
            return self.folder
        return self._filled[0].model_folder

    def collections(self) -> Mapping[str, NDArray[np.int64]]:
        """Return the rows of each."""
        return {
            name: np.arange(start, start + store.info.count)
            for (name, store), start in zip(self.members.items(), self._starts.tolist(), strict=False)
        }

    # Reading.

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """Read the vectors of rows `start` to `stop`, those of several small collections in one batch."""
        stop = self.info.count if stop is None else min(stop, self.info.count)
        ids: list[str] = []
        vectors: list[Vectors] = []
        for batch in self._scan_each(start, stop, batch_size):
            ids += batch.ids
            vectors.append(batch.vectors.copy())
            if len(ids) >= batch_size:
                joined = np.concatenate(vectors)
                yield Batch(ids[:batch_size], joined[:batch_size])
                ids, vectors = ids[batch_size:], [joined[batch_size:]]
        if ids:
            yield Batch(ids, np.concatenate(vectors))

    def _scan_each(self, start: int, stop: int, batch_size: int) -> Iterator[Batch]:
        for (name, store), first in zip(self.members.items(), self._starts.tolist(), strict=False):
            begin, end = max(start - first, 0), min(stop - first, store.info.count)
            if begin < end:
                for batch in store.scan(begin, end, batch_size=batch_size):
                    yield Batch(self._joined_ids(name, batch.ids), batch.vectors)
                self._release(store)

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """Return the vectors and ids of some rows."""
        rows = np.asarray(rows, np.int64)
        vectors, ids = np.empty((len(rows), self.info.dim), np.float32), [""] * len(rows)
        for name, store, positions, own_rows in self._by_collection(rows):
            batch = store.get(own_rows)
            vectors[positions] = batch.vectors
            _put(ids, positions, self._joined_ids(name, batch.ids))
        return Batch(ids, vectors)

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows; no vector is read."""
        ids = [""] * len(rows)
        for name, store, positions, own_rows in self._by_collection(np.asarray(rows, np.int64)):
            _put(ids, positions, self._joined_ids(name, store.ids(own_rows)))
        return ids

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Read the documents of some rows, or of all."""
        if not self.info.has_texts:
            bare = next(store.info for store in self._filled if not store.info.has_texts)
            raise StoreError(f"{bare.location}: the store holds no texts; {bare.way_to_texts}")
        return self._documents(np.arange(self.info.count) if rows is None else np.asarray(rows, np.int64))

    def _documents(self, rows: NDArray[np.int64]) -> Iterator[Document]:
        for first in range(0, len(rows), 4_096):
            chunk = rows[first : first + 4_096]
            documents: list[Any] = [None] * len(chunk)
            for name, store, positions, own_rows in self._by_collection(chunk):
                read = list(store.documents(own_rows))
                ids = self._joined_ids(name, (document.id for document in read))
                named = (replace(document, id=doc_id) for document, doc_id in zip(read, ids, strict=True))
                _put(documents, positions, named)
            yield from documents

    def _by_collection(
        self, rows: NDArray[np.int64]
    ) -> Iterator[tuple[str, Store, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the collections that some rows are of: name, store, positions among the rows, and rows there."""
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        names = list(self.members)
        for number in np.unique(numbers).tolist():
            positions = np.flatnonzero(numbers == number)
            store = self.members[names[number]]
            yield names[number], store, positions, rows[positions] - self._starts[number]
            self._release(store)

    def _release(self, store: Store) -> None:
        """Close a collection's file, where those of all may be more than a process can have open."""
        if len(self.members) > _MOST_OPEN and isinstance(store, DatabaseStore):
            store.release()

    def _joined_ids(self, name: str, ids: Iterable[str]) -> list[str]:
        """Return ids of a collection as they are among all: the same in a copy under other names."""
        label = _label(self.pattern.meant(name))
        return [f"{label}#{doc_id}" for doc_id in ids]

    def copied_name(self, name: str) -> str:
        """Return the name of a copy in a folder: that of a collection, without the quotes of a location."""
        pattern = self.pattern
        return pattern.text.replace("*", pattern.meant(name)) if pattern.text.count("*") == 1 else name

    # Search.

    @property
    def has_own_index(self) -> bool:
        """True if one of the collections has one."""
        return any(store.has_own_index for store in self._filled)

    @property
    def setting(self) -> SearchSetting | None:
        """The setting that all collections have, with the same value."""
        settings = {store.setting for store in self._filled}
        return settings.pop() if len(settings) == 1 else None

    def search_index(self, queries: Vectors, k: int, effort: int | None = None) -> list[Hits]:
        """Search each collection by its own index, and return the nearest of all."""
        pairs_of: list[list[tuple[float, str]]] = [[] for _ in queries]
        sign = -1 if self.info.metric == "ip" else 1
        for name, store in self.members.items():
            if not store.info.count:
                continue
            for pairs, hits in zip(pairs_of, store.search_index(queries, k, effort), strict=True):
                pairs += zip((sign * hits.scores).tolist(), self._joined_ids(name, hits.ids), strict=True)
            self._release(store)
        nearest = [sorted(pairs)[:k] for pairs in pairs_of]
        return [as_hits([doc_id for _, doc_id in pairs], [sign * score for score, _ in pairs]) for pairs in nearest]

    # What changed.

    def verify(self) -> tuple[str, ...]:
        """Hold the files of each against its manifest."""
        return tuple(f"{name}/{file}" for name, store in self.members.items() for file in store.verify())

    def is_as_opened(self) -> bool:
        """Return whether no collection came or went, and none was written to."""
        return not self._new_or_gone() and all(store.is_as_opened() for store in self.members.values())

    def _new_or_gone(self) -> list[str]:
        return sorted({*self.pattern.names()} ^ {*self.members, *self.left_out})

    def refresh(self) -> None:
        """Forget what was read."""
        for store in self.members.values():
            store.refresh()

    def check_unchanged(self, earlier: Snapshot) -> None:
        """Make sure that all are still what they were, and no others came."""
        if names := self._new_or_gone():
            raise StoreError(
                f"{self.info.location}: the store changed while it was read ({self.pattern.noun} {names[0]} came or "
                "went); nothing was written, run again"
            )
        self.refresh()
        for store in self.members.values():
            if not store.is_as_opened():
                store.check_unchanged(store.snapshot())  # which says what changed
        super().check_unchanged(earlier)

    def _versions(self) -> tuple[Any, ...]:
        return tuple([name, *store._versions()] for name, store in self.members.items())

    # Writing.

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Return a writer of all of them: into one folder of a database, or else into a folder each."""

        def open_writer(name: str, folder: Path) -> StoreWriter:
            return self.members[name].destination(folder, dim)

        is_in_database = all(isinstance(store, DatabaseStore) and not store.driver.urls for store in self._filled)
        return JoinedWriter(
            self, location, dim, open_writer, in_one_folder=is_in_database, unwritten=self._empty_without_folder()
        )

    def _empty_without_folder(self) -> list[str]:
        """Return the empty collections of a database that lies in no folder: an index is of one document at least."""
        return [
            name
            for name, store in self.members.items()
            if not store.info.count and isinstance(store, DatabaseStore) and store.driver.urls
        ]

    def strangers(self) -> list[str]:
        """Return what is in the folder beside them, and in the folders of those that have one each."""
        folder, stores = self.pattern.folder, self.members
        if folder is None or self._driver is not None:
            return sorted(set.intersection(*({*store.strangers()} for store in stores.values())) - stores.keys())
        beside = {path.name for path in folder.iterdir()} - {*BESIDE, *stores}
        inside = []
        for name, store in stores.items():
            if (folder / name).is_dir():
                inside += [f"{name}/{stranger}" for stranger in store.strangers()]
            else:
                beside &= {*store.strangers()}
        return sorted(beside) + inside

    def exchange(self, new: Store) -> Exchange:
        """Return how two folders of a database trade places; each has to hold these collections and no others."""
        if not isinstance(new, JoinedStore) or None in (self._driver, new._driver):
            raise UsageError(
                f"{self.info.location}: only whole folders of a database with all their {self.pattern.noun}s are "
                f"switched at once; name one, such as {self.example}"
            )
        if lacking := [*self._unread_names, *new._unread_names, *sorted(self.members.keys() ^ new.members.keys())]:
            raise UsageError(
                f"{new.info.location}: whole folders are switched, and {lacking[0]} is not in both; translate all of "
                "the folder, or change in your programs where they look"
            )
        drivers = list(zip(self._drivers, new._drivers, strict=True))
        for old_driver, new_driver in drivers:
            with old_driver.errors():
                old_driver.refuse_folders(new_driver)
        old_driver, new_driver = drivers[0]
        files = {file for driver in self._drivers for file in driver.files()}
        exchange = Folders.exchange(old_driver.folder, new_driver.folder, excluded=files)

        def prepare() -> None:
            for old_one, new_one in drivers:
                with new_one.errors():
                    new_one.prepare_switch(old_one)

        exchange.prepare = prepare
        return exchange

    @property
    def _driver(self) -> Driver | None:
        """The driver of a collection, where all are in one folder of a database."""
        store = next(iter(self.members.values()))
        return store.driver if isinstance(store, DatabaseStore) and not store.driver.is_server else None

    @property
    def _drivers(self) -> list[Driver]:
        """The drivers of collections of a database, in the order of their names."""
        stores = (store for _, store in sorted(self.members.items()))
        return [store.driver for store in stores if isinstance(store, DatabaseStore)]

    @property
    def _unread_names(self) -> list[str]:
        """The collections of the folder that are not read, and in no copy."""
        if self._driver is None or self._driver.copies_place:
            return []
        return sorted({*self._driver.names()} - self.members.keys())

    @property
    def adds_fields(self) -> bool:
        """True if each of them can get a further vector."""
        stores = self.members.values()
        return all(isinstance(store, DatabaseStore) and store.driver.fields is not None for store in stores)

    @property
    def example(self) -> str:
        """The location of one of them."""
        return next(iter(self.members.values())).info.location


def _common(manifests: Sequence[Manifest]) -> Manifest:
    """Return a manifest with all that several say alike, and with the sums of their counts."""
    first = manifests[0]
    counts = {name: sum(manifest.counts.get(name, 0) for manifest in manifests) for name in first.counts}
    if any(manifest.inputs != first.inputs or manifest.source_model != first.source_model for manifest in manifests):
        return Manifest("store", first.model)
    singular = ("index", "beside_sha256", "content")
    details = {
        key: value
        for key, value in first.details.items()
        if key not in singular and all(manifest.details.get(key) == value for manifest in manifests)
    }
    return replace(first, counts=counts, details=details)


def _put(target: list[Any], positions: NDArray[np.int64], values: Iterable[Any]) -> None:
    for position, value in zip(positions.tolist(), values, strict=True):
        target[position] = value


def require_one(store: Store) -> Store:
    """Return a store; raises a UsageError where it is several collections."""
    if isinstance(store, JoinedStore):
        noun = store.pattern.noun
        raise UsageError(
            f"{store.info.location}: this command takes one {noun}, and these are {len(store.members):,}; name one, "
            f"such as {store.example}"
        )
    return store
