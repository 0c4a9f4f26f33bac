"""FAISS indexes, found at a path, with what is known of their documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from migrate.errors import StoreError, UsageError
from migrate.files import FileStamp, real_path
from migrate.locations import Address, options_text
from migrate.stores.base import KindSupport, Store, StoreInfo, StoreWriter
from migrate.stores.binary_reader import read_errors, read_head
from migrate.stores.child import run_job
from migrate.stores.documents.base import DocumentSource, check_labels
from migrate.stores.documents.beside import documents_beside
from migrate.stores.documents.by_row import files_by_row, notes_beside
from migrate.stores.documents.huggingface import DatasetDocuments, find_datasets
from migrate.stores.documents.jsonl import DOCS_NAME
from migrate.stores.documents.langchain import LangchainDocuments
from migrate.stores.documents.langchainjs import is_langchainjs, langchainjs_documents
from migrate.stores.documents.llamaindex import VECTORS_NAME, is_llamaindex, llamaindex_documents
from migrate.stores.documents.matching import ROWS_OPTION, Labels, Numbering
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.reader import QUERIES, FaissFile, read_job
from migrate.stores.faiss.search import FaissSearcher
from migrate.stores.faiss.writer import open_writer
from migrate.stores.file_store import RowFileStore, own_manifest
from migrate.stores.frames import DONE
from migrate.stores.outputs import Output
from migrate.stores.pairing import settle_rows
from migrate.stores.records import check_options
from migrate.work.outputs import why_missing


class FaissKind:
    """FAISS files and the folders around them, as the registry knows them."""

    name = "faiss"
    support = KindSupport(
        "FAISS, also inside a LangChain, LlamaIndex or `datasets` folder",
        ("FOLDER", "FILE"),
        "",
        "ids, texts, metadata, kind and parameters of the index",
        "codes are approximate, some refused: see [indexes](indexes.md)",
        "bounded for flat indexes",
    )

    def recognises(self, path: Path) -> bool:
        """Return whether it is a FAISS file, or a folder with a file that is one or is named as one."""
        with read_errors(path):
            if path.is_dir():
                files = _visible_files(path)
            else:
                files = [path]
        return any(
            file.suffix in (".faiss", ".index") or fourcc.is_index(read_head(file, fourcc.HEAD_BYTES)) for file in files
        )

    def output(self, location: str) -> Output:
        """Return a folder for an index and a docs.jsonl; `FOLDER#?index=IVF1024,Flat` names one that is not flat."""
        from migrate.stores.create import faiss_output

        if "#?" in location:
            address = Address.parse(location)
        else:
            address = Address(location)
        check_options(f"{self.name}:{location}", address.options, ("index",))
        if "?index=" in address.place or (address.name and address.options):
            raise UsageError(
                f"{self.name}:{location}: an index is named after #?; write {self.name}:FOLDER#?index=IVF1024,Flat"
            )
        return faiss_output(Path(address.place), address.options.get("index", ""))

    def open(self, location: str) -> FaissStore:
        """Open a FAISS file, or a folder with exactly one; `PATH#?text=FIELD&id=FIELD` names what a file beside it has.

        `rows=order` or `rows=id` says how its records belong to rows, where both is possible.

        `<name>.faiss` with `<name>.pkl` beside it is a LangChain store; for others, files beside the index hold the
        ids and texts, and without any the ids are the labels of the index.

        Raises
        ------
        StoreError
            There is no such path, no index or more than one; or the store is malformed.
        UnsupportedStoreError
            The index is of a kind that is not read.
        ManifestError
            The folder has a manifest that is not one of a store.
        OutputError
            The operating system refused.
        """
        address = Address.of_path(location)
        check_options(f"{self.name}:{location}", address.options, ("text", "id", ROWS_OPTION))
        path = Path(address.place)
        with read_errors(path):
            try:
                path.stat()
            except (FileNotFoundError, NotADirectoryError, ValueError) as error:
                raise StoreError(f"{path}: {why_missing(path)}") from error
            if path.is_dir():
                index = _find_index(path)
            else:
                index = path
        # LangChain names both files alike, whatever the name: a pickle of another one is somebody else's.
        pickled = index.with_suffix(".pkl")
        is_langchain = index.suffix == ".faiss" and pickled.is_file()
        return FaissStore(path, index, pickled if is_langchain else None, address.options)


class FaissStore(RowFileStore):
    """A FAISS index alone, with a docs.jsonl beside it, or in a LangChain folder.

    IVF indexes are read in the order of their lists. Ids of batches are read when they are looked at. `path` is what
    the user gave, `pickled` the LangChain pickle of the index, `fields` are the options of its location: the fields of
    a file beside it that are `text` and `id`, and how its records belong to `rows`; those of the manifest count too.
    """

    _file: FaissFile

    def __init__(
        self,
        path: Path,
        index: Path,
        pickled: Path | None = None,
        fields: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(index)
        file = self._file = FaissFile(index)
        labels = self._labels = check_labels(file.labels, index)
        manifest, foreign = own_manifest(index)
        # What the user names now counts before what was named when the store was made.
        options = {**((manifest and manifest.store.fields) or {}), **fields}
        named = {name: field for name, field in options.items() if name != ROWS_OPTION}
        self.source = _find_documents(index, pickled, Numbering(labels, file.added, file.count), named)
        settled = settle_rows(
            self.source,
            file,
            f"faiss:{path}" + (f"#{options_text(named)}" if named else ""),
            requested=options.get(ROWS_OPTION),
        )
        self.named_fields = {**named, **settled}
        files = (index, self.source.info.file, *self.source.info.also_read)
        self.source.by_row = files_by_row(index, file.count, files)
        file_notes = notes_beside(index, self.source.by_row, files)
        files += self.source.by_row
        info = _describe(path, file, self.source, labels)
        self.info = replace(
            info,
            manifest=manifest,
            notes=(*info.notes, *file_notes, *foreign),
            unread_by_row=tuple(file.name for file in self.source.by_row),
        )
        self.stamps = tuple(FileStamp.of(file) for file in files if file is not None)

    def searcher(self) -> FaissSearcher:
        """Return the search by its own index, which is in memory from the first one on."""
        return FaissSearcher(self, self.index_path, self._labels)

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Return a writer of a store of the same kind, under the same file names.

        Flat indexes are streamed. Others are built anew, in memory, when the writer finishes.
        """
        remarks = tuple(_links_out(self.index_path.parent))
        return open_writer(location / self.index_path.name, self._file, dim, self.source, remarks)


def _find_index(folder: Path) -> Path:
    files = _visible_files(folder)
    heads = {file: _head(file) for file in files}
    indexes = [file for file, head in heads.items() if fourcc.is_index(head)]
    if len(indexes) == 1:
        return indexes[0]
    if folder / VECTORS_NAME in indexes:
        # the others are its further namespaces, images for example
        return folder / VECTORS_NAME
    if indexes:
        raise StoreError(
            f"{folder}: has {len(indexes)} FAISS indexes ({_names([file.name for file in indexes])}); give one of these"
        )
    for file in files:
        if fourcc.is_named_as_index(file):
            raise fourcc.not_an_index(file, heads[file])
    contents = "an empty folder"
    if files:
        contents = _names([file.name for file in files])
    raise StoreError(f"{folder}: no vectors are found here, only {contents}; give the file or folder that holds them")


def _visible_files(folder: Path) -> list[Path]:
    with read_errors(folder):
        return sorted(file for file in folder.iterdir() if not file.name.startswith(".") and file.is_file())


def _head(file: Path) -> bytes:
    return read_head(file, fourcc.HEAD_BYTES)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _find_documents(index: Path, pickled: Path | None, rows: Numbering, named: Mapping[str, str]) -> DocumentSource:
    """Return the documents of an index; labels alone where no file beside it has any.

    `named` are the fields that hold `text` and `id` in a file of the user's own; if there are any, only such files are
    read.
    """
    if not named:  # frameworks by their own file names before files of any name
        if pickled is not None:
            return LangchainDocuments(pickled, rows.labels, rows.count)
        if is_llamaindex(index):
            return llamaindex_documents(index, rows.labels, rows.count)
        if is_langchainjs(index):
            return langchainjs_documents(index, rows.labels, rows.count)
        if not index.with_name(DOCS_NAME).exists() and find_datasets(index.parent):
            return DatasetDocuments(index, rows.labels, rows.count)
    return documents_beside(index, rows, named)


def _describe(path: Path, file: FaissFile, source: DocumentSource, labels: Labels) -> StoreInfo:
    return StoreInfo(
        location=str(path),
        kind=source.info.format,
        index_type=file.chain,
        count=file.count,
        dim=file.dim,
        metric=file.metric,
        exact=file.exact,
        has_texts=source.info.has_texts,
        notes=(*_remarks(file, labels), *source.info.notes, *_links_out(file.path.parent)),
        details=_details(file, source),
    )


def _details(file: FaissFile, source: DocumentSource) -> Mapping[str, str | int]:
    details: dict[str, str | int] = {
        "index": file.path.name,
        "index_bytes": file.stamp.size,
        "fourcc": file.code,
        "factory": file.recipe.factory or file.chain,
        "reading": "exact" if file.exact else "approximate",
        **file.recipe.shown,
        "documents": source.info.kind,
    }
    if source.info.file is not None:
        details |= {"documents_file": source.info.file.name, "documents_bytes": source.info.file.stat().st_size}
    return details


def _remarks(file: FaissFile, labels: Labels) -> Iterator[str]:
    yield from file.remarks
    if labels is not None and (labels == -1).any():
        yield "a document has the id -1, with which FAISS also says that it found nothing"


def _links_out(folder: Path) -> Iterator[str]:
    """Name what is read, and copied, from elsewhere: the cache of a hub is made of such links, and so is a trap."""
    with read_errors(folder):
        links = [path for path in sorted(folder.iterdir()) if path.is_symlink() and not path.name.startswith(".")]
        out = [path.name for path in links if real_path(folder) not in real_path(path).parents]
    if out:
        yield f"read and copied through links out of the folder: {_names(out)}"


def index_recall(store: Store, *, queries: int = QUERIES) -> float | None:
    """Measure recall@10 of the index of a store against exact search, so that nobody blames the stitch for it.

    The truth is exact search over the vectors as they are read back. Where these are approximate, what coding lost is
    not in the figure: the originals are not there to compare with. At most `queries` rows, spread evenly, are looked
    up. None for a flat index, whose search is exact, and for stores of other kinds.
    """
    if not isinstance(store, FaissStore) or not store.info.count:
        return None
    if not store.searcher().has_own_index:
        return None
    path = store.index_path
    frames = dict(run_job(path, read_job("recall", path, queries=queries), file_bytes=path.stat().st_size))
    recall: float = json.loads(frames[DONE])["recall"]
    return recall
