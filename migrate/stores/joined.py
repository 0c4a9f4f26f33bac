"""Several collections of a place read as one store, by a location with a pattern, and written as such again.

In `KIND:PLACE#PATTERN` and `FOLDER/PATTERN`, a `*` stands for any characters. Rows are those of one collection after
the other, and a document is called NAME#ID, by what the `*` stands for. What differs from most in dimension, metric or
model is left out, by name. A translation is one work folder, from which all collections are written at the end.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import output_errors, sha256_file, write_json
from migrate.locations import Address, fits, meant_by, options_text
from migrate.manifest import MANIFEST_NAME, Manifest, StoreFacts, find_manifest, read_manifest
from migrate.stores.base import BATCH_SIZE, Snapshot, Store, StoreInfo
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.database import DatabaseFolder, DatabaseKind, DatabaseServer, DatabaseStore, DatabaseWriter
from migrate.stores.driver import Driver
from migrate.stores.file_store import Sha256
from migrate.stores.kept import sync_tree, token_in
from migrate.stores.outputs import Output, ServerOutput
from migrate.stores.records import differing
from migrate.stores.switching import BESIDE, Exchange, Folders
from migrate.vectors import Batch, Document, Vectors
from migrate.work.rows import Rows
from migrate.work.writer import StoreWriter, write_rows

_MOST_OPEN: Final = 32
"""Collections whose files stay open."""
_PARTS: Final = "parts.json"
"""The list of the collections in a work folder, with the rows of each."""
_OPEN_WEBUI: Final = "embedding_config"
"""The field of metadata in which Open WebUI notes the model of a chunk, as JSON."""


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
        label = self.pattern.meant(name)
        return [f"{label}#{doc_id}" for doc_id in ids]

    def copied_name(self, name: str) -> str:
        """Return the name of a copy in a folder: that of a collection, without the quotes of a location."""
        pattern = self.pattern
        return pattern.text.replace("*", pattern.meant(name)) if pattern.text.count("*") == 1 else name

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
        return all(isinstance(store, DatabaseStore) and store.driver.adds_fields for store in self.members.values())

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


# Opening.


def _noted_address(manifest: Manifest) -> Address:
    """Return name and options of the store that a manifest is of."""
    return Address.parse(f"#{(manifest.store.index or '').rpartition('#')[2]}")


def open_pattern(kind: DatabaseKind, location: str) -> JoinedStore | None:
    """Open the collections that a location of a database means by a pattern, or that its folder was written with.

    None where it means a single one.
    """
    driver = kind.driver_of(location)
    if driver.address.name in ("", "*") and not driver.is_server and driver.folder.is_dir():
        manifest = find_manifest(driver.folder, "store")
        if manifest is not None and manifest.store.pattern and _all_fit(driver, manifest.store.pattern):
            recorded = _noted_address(manifest)
            address = replace(
                driver.address, name=recorded.name, options={**recorded.options, **driver.address.options}
            )
            driver = type(driver)(driver.location, address)
    if not driver.is_pattern:
        return None
    with driver.errors():
        drivers = driver.expand()
        if not drivers:
            raise _nothing_matches(driver.location, driver.collection, driver.address.name, driver.names())
    folder = None if driver.is_server else driver.folder
    address = driver.address
    noun, text = driver.collection, address.name
    pattern = Pattern(driver.location, noun, text, driver.expand, driver.meant, folder, address.options)
    return join(pattern, {name: DatabaseStore(one_driver, one_driver.location) for name, one_driver in drivers.items()})


def _all_fit(driver: Driver, pattern: str) -> bool:
    """Return whether all collections of a folder are those that it was written with."""
    with driver.errors():
        return driver.address.name == "" or all(fits(name, pattern) for name in driver.names())


def _nothing_matches(location: str, noun: str, pattern: str, names: Iterable[str]) -> StoreError:
    have = ", ".join(names) or "none"
    return StoreError(f"{location}: no {noun} matches {pattern!r}; there are {have}: write a pattern that some match")


def open_folder(
    folder: Path, pattern: str, location: str, open_path: Callable[[Path], Store], is_store: Callable[[Path], bool]
) -> JoinedStore:
    """Open the stores in a folder whose names match a pattern."""

    def paths() -> dict[str, Path]:
        with output_errors(folder):
            inside = sorted(folder.iterdir())
        listed = (path for path in inside if not path.name.startswith(".") and path.name not in BESIDE)
        return {path.name: path for path in listed if (path.is_file() or path.is_dir()) and is_store(path)}

    def matching() -> dict[str, Path]:
        return {name: path for name, path in paths().items() if fits(name, pattern)}

    stores = {name: open_path(path) for name, path in matching().items()}
    if not stores:
        raise _nothing_matches(location, "store", pattern, paths())
    return join(Pattern(location, "store", pattern, matching, partial(meant_by, pattern=pattern), folder), stores)


def join(pattern: Pattern, stores: Mapping[str, Store]) -> JoinedStore:
    """Join those of some collections that agree with most, in the order of their names, whatever lists them."""
    stores = dict(sorted(stores.items()))
    filled = {name: store for name, store in stores.items() if store.info.count}
    translated = [name for name, store in stores.items() if pattern.folder is None and _is_translation(store)]
    left_out: dict[str, LeftOut] = {}
    if not {*translated} >= (filled.keys() or stores.keys()):  # a server has the old ones beside the new ones
        left_out = {name: LeftOut(stores[name].info, "made of an older store by lead-migrate") for name in translated}
        filled = {name: store for name, store in filled.items() if name not in left_out}
    whole = None if pattern.folder is None else find_manifest(pattern.folder, "store")
    # what was translated together is of one model, whatever its records say
    is_translated = whole is not None and bool(whole.store.pattern)
    for trait in (*_TRAITS, *(() if is_translated else (_Trait(recorded_model, "of {}"),))):
        values = {name: value for name, store in filled.items() if (value := trait.of(store)) is not None}
        sizes = {name: store.info.count for name, store in filled.items()}
        for name, reason in differing(pattern.location, trait.template, values, sizes).items():
            left_out[name] = LeftOut(stores[name].info, reason)
        filled = {name: store for name, store in filled.items() if name not in left_out}
    return JoinedStore(pattern, {name: store for name, store in stores.items() if name not in left_out}, left_out)


@dataclass(frozen=True, slots=True)
class _Trait:
    """A trait in which collections have to agree; None is not known, and goes with any."""

    of: Callable[[Store], Any]
    template: str


def recorded_model(store: Store) -> str | None:
    """Return the model that a collection says its vectors are of: by a manifest, or as Open WebUI notes it."""
    if store.info.manifest is not None and store.info.manifest.model is not None:
        return store.info.manifest.model.spec
    if not store.info.has_texts:
        return None
    metadata = next(iter(store.documents(np.zeros(1, np.int64)))).metadata
    with suppress(ValueError, TypeError, KeyError):
        config = json.loads(metadata[_OPEN_WEBUI])
        return ":".join(filter(None, (config["engine"], config["model"])))
    return None


def _is_translation(store: Store) -> bool:
    return store.info.manifest is not None and "source rows" in store.info.manifest.inputs


_TRAITS: Final = (
    _Trait(lambda store: store.info.dim, "of {:,} dimensions"),
    _Trait(lambda store: store.info.metric, "compared by {}"),
)


# Writing.


class JoinedWriter(StoreWriter):
    """Writes one collection after the other once all rows are there.

    `open_writer` returns the writer of a collection, by its name, into a folder: one for all, or one for each. Those
    that are `unwritten`, by name, are left out.
    """

    def __init__(
        self,
        source: JoinedStore,
        folder: Path,
        dim: int,
        open_writer: Callable[[str, Path], StoreWriter],
        *,
        in_one_folder: bool,
        unwritten: Sequence[str] = (),
    ) -> None:
        self.source, self.folder, self.dim = source, folder, dim
        self._open, self._in_one_folder = open_writer, in_one_folder
        self._orders: list[NDArray[np.int64]] | None = None
        self._unwritten = unwritten
        for name in (
            source.members if in_one_folder else ()
        ):  # what cannot be written is refused before anything is made
            open_writer(name, folder)

    @property
    def order(self) -> NDArray[np.int64] | None:
        """The orders of the collections, one after the other."""
        return None if self._orders is None else np.concatenate(self._orders)

    def finish(self, rows: Rows) -> None:
        """Write all, in the place of what a killed run left."""
        with output_errors(self.folder):
            for path in self.folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        orders, remarks, has_order = dict[str, NDArray[np.int64]](), Counter[str](), False
        for name, own_rows in self.source.collections().items():
            if name in self._unwritten:
                continue
            start, stop = (int(own_rows[0]), int(own_rows[-1]) + 1) if len(own_rows) else (0, 0)
            writer, vectors = self._writer(name), rows.part(start, stop)
            if isinstance(writer, DatabaseWriter):
                writer.finish(vectors)
            else:
                write_rows(writer, vectors.batches(), len(vectors), self.folder.parent)
            order = writer.order
            has_order = has_order or order is not None
            orders[name] = own_rows if order is None else own_rows[order]
            remarks.update(writer.remarks)
            if writer.recall is not None:
                self.recall = min(writer.recall, writer.recall if self.recall is None else self.recall)
        as_listed = sorted(orders, key=self._listed_as)
        self._orders = [orders[name] for name in as_listed] if has_order or as_listed != [*orders] else None
        written = len(self.source.members) - len(self._unwritten)
        self.remarks = tuple(text if n == written else f"{text} ({n:,} of {written:,})" for text, n in remarks.items())
        if self._unwritten:
            self.remarks += (f"empty, and not written: {', '.join(self._unwritten)}",)
        sync_tree(self.folder)

    def folder_of(self, name: str) -> Path:
        """Return the folder that a collection is written into: one of its name, in which no path has a slash."""
        return self.folder if self._in_one_folder else self.folder / self.source.copied_name(name).replace("/", "%2F")

    def _listed_as(self, name: str) -> str:
        """Return the name by which a collection has its place among those that were written."""
        return self.source.copied_name(name) if self._in_one_folder else self.folder_of(name).name

    def _writer(self, name: str) -> StoreWriter:
        folder = self.folder_of(name)
        folder.mkdir(exist_ok=True)
        writer = self._open(name, folder)
        if isinstance(writer, DatabaseWriter) and self._in_one_folder:
            writer.share_folder()
        return writer


class JoinedFolder(Output):
    """A new folder of a database with a collection for each of the source."""

    def __init__(self, driver: type[Driver], location: str, address: Address) -> None:
        super().__init__(Path(address.place))
        self.location, self._driver = location, driver

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """Return a writer of all collections."""
        if not isinstance(source, JoinedStore):
            raise UsageError(f"{self.location}: {source.info.location} is one store; name the new one after the #")
        return JoinedWriter(source, content, dim, partial(self._open, source, dim), in_one_folder=True)

    def _open(self, source: JoinedStore, dim: int, name: str, folder: Path) -> StoreWriter:
        output = DatabaseFolder(self._driver, self.location, Address(str(folder), source.copied_name(name)))
        return output.writer(source.members[name], folder, dim)

    def store_facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """Return the pattern, with the options that the source is opened with where it is of the same database."""
        is_like = isinstance(source, JoinedStore) and any(
            isinstance(store, DatabaseStore) and type(store.driver) is self._driver for store in source.members.values()
        )
        pattern, mark, options = (source.opened_as or "*").rpartition("#")[2].partition("?")
        index = f"{pattern}{mark}{options}" if is_like else pattern
        return StoreFacts(index=index).as_details()


class JoinedServer(ServerOutput):
    """New tables or collections of a server, one for each of the source: a `*` in the name is what it is there.

    Each is published as one alone is, with its part of what lies beside all of them. Where a run was killed meanwhile,
    the next one publishes the others.
    """

    def __init__(self, driver: type[Driver], location: str, address: Address) -> None:
        super().__init__(location, address.name)
        self._class, self._address = driver, address

    def output_of(self, name: str) -> DatabaseServer:
        """Return the place of one of them."""
        options = {key: value for key, value in self._address.options.items() if key in self._class.options}
        location = f"{self.location.rpartition('#')[0]}#{name}{options_text(options)}"
        return DatabaseServer(self._class, location, replace(self._address, name=name))

    def name_of(self, source: JoinedStore, name: str) -> str:
        """Return the new name of a collection of the source."""
        meant = source.pattern.meant(name)
        if source.pattern.text.count("*") > 1:
            return self._address.name.replace("*", meant)
        return self._class.fill_in(self._address.name, meant)

    def _outputs(self, content: Path) -> dict[Path, DatabaseServer]:
        """Return the places of all that a complete work folder has, by their folders in it."""
        listed = [content / entry["folder"] for entry in _read_parts(content)]
        return {folder: self.output_of(unquote(folder.name)) for folder in listed}

    def _existing_names(self) -> list[str]:
        """Return the names on the server that such outputs have."""
        driver = self._class(self.location, self._address)
        with driver.errors():
            return list(driver.expand())

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """Return a writer of all of them."""
        if not isinstance(source, JoinedStore):
            raise UsageError(f"{self.location}: {source.info.location} is one store; name the new one after the #")
        for name, store in source.members.items():  # what cannot be written is refused before anything is made
            self.output_of(self.name_of(source, name)).writer(store, content, dim)
        return _ServerWriter(self, source, content, dim)

    def store_facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """Return the pattern; what each is opened with stands in its own manifest."""
        return StoreFacts(index=self._address.name).as_details()

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that no name is taken, but by what this run has published."""
        content = self.work_path / "content"
        published = {output.location for folder, output in self._outputs(content).items()
                     if token_in(folder) and output.is_published(folder)}  # fmt: skip
        for output in map(self.output_of, self._existing_names()):
            if output.location not in published:
                output.refuse_existing(force=force)

    def is_published(self, content: Path) -> bool:
        """Return whether all of them have their names."""
        outputs = self._outputs(content)
        if not content.is_dir():
            outputs = {content / name: self.output_of(name) for name in self._existing_names()}
        return bool(outputs) and all(output.is_published(folder) for folder, output in outputs.items())

    def publish(self, content: Path, *, force: bool) -> None:
        """Give each its name, with its part of what lies beside all; those of the same old store that it lacks go."""
        if force:
            for output in self._obsolete(content):
                output.drop()
        for entry in _read_parts(content):
            folder = content / entry["folder"]
            output = self.output_of(unquote(folder.name))
            if not output.is_published(folder):
                _write_beside(content, folder, entry)
                output.publish(folder, force=force)

    def _obsolete(self, content: Path) -> list[DatabaseServer]:
        """Return those that were made together with others that are replaced, and are not in the work folder."""
        outputs = self._outputs(content)
        replaced = [output.made_of() for folder, output in outputs.items() if not output.is_published(folder)]
        written = {output.location for output in outputs.values()}
        others = [output for output in map(self.output_of, self._existing_names()) if output.location not in written]
        return [output for output in others if (made_of := output.made_of()) is not None and made_of in replaced]

    def discard(self) -> None:
        """Drop what killed runs left."""
        for output in self._outputs(self.work_path / "content").values():
            output.discard()


class _ServerWriter(JoinedWriter):
    """Writes the collections under names that nobody uses, and lists them with their rows."""

    def __init__(self, output: JoinedServer, source: JoinedStore, content: Path, dim: int) -> None:
        self._output = output
        super().__init__(source, content, dim, self._open_writer, in_one_folder=False)

    def _open_writer(self, name: str, folder: Path) -> StoreWriter:
        output = self._output.output_of(self._output.name_of(self.source, name))
        return output.writer(self.source.members[name], folder, self.dim)

    def folder_of(self, name: str) -> Path:
        """Return a folder that is called as the new collection."""
        return self.folder / quote(self._output.name_of(self.source, name), safe=" ")

    def finish(self, rows: Rows) -> None:
        """Write all, and the list."""
        super().finish(rows)
        entries = []
        for name, own_rows in self.source.collections().items():
            folder, store = self.folder_of(name), self.source.members[name]
            details = self._output.output_of(self._output.name_of(self.source, name)).store_facts(store, folder)
            start = int(own_rows[0]) if len(own_rows) else 0
            entries.append({"folder": folder.name, "start": start, "count": len(own_rows), "facts": dict(details)})
        write_json(self.folder / _PARTS, {"parts": entries})


def _read_parts(content: Path) -> list[dict[str, Any]]:
    """Return the list of the collections in a complete work folder; none of one that is not complete."""
    path = content / _PARTS
    return list(json.loads(path.read_bytes())["parts"]) if path.is_file() else []


def _write_beside(content: Path, folder: Path, entry: Mapping[str, Any]) -> None:
    """Write the part of one collection of what lies beside all of them: numbers, state of the model, manifest."""
    manifest, rows = read_manifest(content, "store"), slice(entry["start"], entry["start"] + entry["count"])
    hashes, counts = {}, {"documents": entry["count"]}
    with output_errors(folder):
        for path in content.iterdir():
            if path.suffix == ".npy":
                values = np.load(path, allow_pickle=False)[rows]
                np.save(folder / path.name, values, allow_pickle=False)
                hashes[path.name] = sha256_file(folder / path.name)
                if path.name == CONFIDENCE_NAME:
                    counts["true vectors"] = int(np.count_nonzero(values == 1))
            elif path.is_file() and path.name not in (_PARTS, MANIFEST_NAME):
                shutil.copyfile(path, folder / path.name)
        details = {**entry["facts"], **StoreFacts(beside_sha256=hashes or None).as_details()}
        replace(manifest, counts=counts, details={**manifest.details, **details}).write(folder)
        sync_tree(folder)


def output_of_pattern(kind: DatabaseKind, location: str) -> Output | None:
    """Return where the collections of a source are written, by a location with a `*` for their names; None without."""
    address = kind.address_of(location)
    if "*" not in address.name:
        return None
    if "://" in address.place:
        opens, named = kind.checked_output(location)
        return JoinedServer(kind.driver, opens, named)
    if address.name != "*" or address.options:
        raise UsageError(
            f"{kind.name}:{location}: new {kind.driver.collection}s have the names of the old ones, in a new folder; "
            f"write {kind.name}:FOLDER#*"
        )
    return JoinedFolder(kind.driver, f"{kind.name}:{location}", address)
