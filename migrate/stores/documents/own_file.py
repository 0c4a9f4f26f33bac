"""Documents in a `.json`, `.jsonl`, `.csv` or `.tsv` of the user's own beside an index, told by its fields.

A JSON file is a list of texts, a list of objects, or an object of texts or objects by id, and is held in memory while
it is read; in the others a record is a line or a row. The documents are written to a temporary file as a docs.jsonl,
and read there when they are needed.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from migrate.errors import OutputError, StoreError
from migrate.files import open_file
from migrate.reading import MalformedError, parse_json, read_json
from migrate.stores.binary_reader import malformed, read_errors
from migrate.stores.child import temporary_file, write_all
from migrate.stores.documents.base import (
    LOOKED_AT,
    MOST_BYTES,
    DocumentSource,
    Labels,
    longest_first,
    sidecar_files,
    without_texts,
)
from migrate.stores.documents.columns import ID_NAMES, LABEL, VECTOR_NAMES, is_id_name
from migrate.stores.documents.jsonl import JsonlDocuments, RepeatedIdError, lines_of, shown_type
from migrate.stores.records import TEXT_NAMES, choose
from migrate.stores.switching import BESIDE

PATTERNS: Final = ("*.json", "*.jsonl", "*.csv", "*.tsv")
_KEY: Final = ""
"""The field of a record that has its key in an object of JSON."""
_TEXT, _TITLE, _METADATA = "text", "title", "metadata"

Record = dict[str, Any]


def _bad_record(path: Path, number: int, problem: str) -> StoreError:
    return malformed(path, f"record {number} {problem}", "correct the file")


def _records(path: Path) -> Iterator[Record]:
    """Yield the records of a file, by the names of their fields; raises StoreError where one is none."""
    values = {".json": _json_values, ".jsonl": _line_values}.get(path.suffix, _rows)
    number = 0
    with read_errors(path), open_file(path, buffering=1 << 20) as file:
        try:
            for number, value in enumerate(values(path, file), start=1):
                record = {_TEXT: value} if isinstance(value, str) else value
                if not isinstance(record, dict):
                    raise _bad_record(path, number, f"is {shown_type(record)}, neither an object nor text")
                yield record
        except (MalformedError, UnicodeError, csv.Error) as error:
            raise _bad_record(path, number + 1, f"cannot be read ({error})") from error


def _json_values(path: Path, file: BinaryIO) -> Iterator[Any]:  # noqa: ARG001
    """Yield the values of a list, or those of an object with their keys."""
    try:
        value = read_json(path, MOST_BYTES)
    except MalformedError as error:
        raise malformed(path, f"not JSON that can be read ({error})", "correct the file") from error
    if not isinstance(value, list | dict):
        raise malformed(path, f"neither a list nor an object but {shown_type(value)}", "put the documents in one")
    if isinstance(value, list):
        yield from value
        return
    for key, entry in value.items():
        record = {_TEXT: entry} if isinstance(entry, str) else entry
        yield record | {_KEY: key} if isinstance(record, dict) else record


def _line_values(path: Path, file: BinaryIO) -> Iterator[Any]:
    """Yield the value of each line."""
    return (parse_json(line.decode()) for _, _, line in lines_of(file, path))


def _rows(path: Path, file: BinaryIO) -> Iterator[Record]:
    """Yield the cells of each row of a table that are not empty, by the names in its header."""
    first = next((line for _, _, line in lines_of(file, path)), b"").decode(errors="replace")
    delimiter = "\t" if path.suffix == ".tsv" else max((",", ";", "\t"), key=first.count)
    file.seek(0)
    csv.field_size_limit(1 << 28)  # of the whole process; its own limit is less than a long text
    lines = (line.decode() for _, _, line in lines_of(file, path, blank=True))
    rows = filter(None, csv.reader(lines, delimiter=delimiter, strict=True))
    header = next(rows, [])
    if len(set(header)) < len(header):
        raise malformed(path, f"two columns have one name: {header}"[:200], "name them differently")
    for cells in rows:
        if len(cells) != len(header):
            raise MalformedError(f"{len(cells)} cells below {len(header)} names")
        yield {name: cell for name, cell in zip(header, cells, strict=True) if cell}


def _is_id(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and value != "")


def _line_of(path: Path, number: int, record: Record, doc_id: str | None, text: str, *, titled: bool) -> bytes:
    """Return a record as a line of a docs.jsonl; without `doc_id` it is numbered, and a title may precede the text."""
    own_id = str(number - 1) if doc_id is None else record.get(doc_id)
    if not _is_id(own_id):
        raise _bad_record(path, number, f"has as {doc_id!r} no text or whole number but {shown_type(own_id)}")
    content = record.get(text)
    if not isinstance(content, str | None):
        raise _bad_record(path, number, f"has as {text!r} no text but {shown_type(content)}")
    left_out = {_KEY, doc_id, text, LABEL, _METADATA, *VECTOR_NAMES}
    metadata = {name: value for name, value in record.items() if name not in left_out}
    inner = record.get(_METADATA)
    if isinstance(inner, str) and inner.lstrip().startswith("{"):
        with suppress(MalformedError):
            inner = parse_json(inner)
    if _METADATA in record:
        metadata |= inner if isinstance(inner, dict) else {_METADATA: inner}
    title = record.get(_TITLE) if titled else None
    if title and isinstance(title, str):
        content = f"{title} {content or ''}".strip()
    label = record.get(LABEL)
    if isinstance(label, str) and label.isdecimal() and len(label) < 19:  # a cell
        label = int(label)
    fields = {"id": str(own_id), "text": content or None, "metadata": metadata, "faiss_id": label}
    return (json.dumps(fields, ensure_ascii=False) + "\n").encode()


def _choose_ids(path: Path, columns: Mapping[str, Sequence[Any]], named: str | None) -> list[str | None]:
    """Return each field that could be the id, the likeliest first; None, at the end, for the number of a record."""
    if named is not None:
        names = [name for name in columns if name != _KEY]
        return [choose(path, "field of ids", names, named, "name one of these")]
    usual = (*ID_NAMES, "docid", "document_id", "chunk_id", "uuid", "key")
    likely = dict.fromkeys((*usual, *filter(is_id_name, columns)))
    ids = [name for name in likely if name in columns and all(map(_is_id, columns[name]))]
    return [*([_KEY] if any(columns[_KEY]) else []), *ids, None]


def _choose_text(path: Path, names: Sequence[str], texts: Sequence[str], named: str | None, index: Path) -> str:
    """Return the field that holds the texts."""
    if named is not None:
        return choose(path, "field of texts", texts, named, "name one of these")
    usual = [name for name in TEXT_NAMES if name in texts]
    candidates = [name for name in names if name != LABEL and not is_id_name(name)]
    if not usual and (len(candidates) != 1 or candidates[0] not in texts):
        raise without_texts(path, names, index, texts[0] if texts else "FIELD")
    return (usual or candidates)[0]


class OwnFileDocuments(JsonlDocuments):
    """Records of a file by row, matched as `match_rows` says.

    Raises a StoreError where the file is malformed, has no field of texts, or is not of this index.
    """

    def __init__(self, path: Path, index: Path, labels: Labels, count: int, named: Mapping[str, str]) -> None:
        first = list(islice(_records(path), LOOKED_AT))
        names = [name for name in dict.fromkeys(name for record in first for name in record) if name != _KEY]
        columns = {name: [record.get(name) for record in first] for name in (_KEY, *names)}
        ids = _choose_ids(path, columns, named.get("id"))
        texts = [
            name for name in names
            if any(columns[name]) and all(isinstance(value, str | None) for value in columns[name])
        ]  # fmt: skip
        text = _choose_text(path, names, longest_first(texts, first), named.get(_TEXT), index)
        # as in the corpora of BEIR
        titled = text == _TEXT and _TITLE in texts and _TEXT not in named
        notes = []
        if titled:
            notes.append(f"the texts are {_TITLE} and {_TEXT} of {path.name}; say ?text={_TEXT} for these alone")
        if vectors := ", ".join(name for name in VECTOR_NAMES if name in names):
            notes.append(f"{path.name} also holds vectors ({vectors}); a new store has them as they are, untranslated")
        for doc_id in ids:
            lines = (
                _line_of(path, number, record, doc_id, text, titled=titled)
                for number, record in enumerate(_records(path), start=1)
            )
            try:
                super().__init__(path, labels, count, written=_written(path, lines, count))
                break
            except RepeatedIdError:
                if doc_id is ids[-1]:
                    raise
                notes.insert(0, f"several records of {path.name} have one {doc_id}, so that is no id of theirs")
        source = "keys" if doc_id == _KEY else doc_id or "numbers of records"
        self.kind = f"{self.kind}; text: {f'{_TITLE} and {text}' if titled else text}, ids: {source}"
        self.notes = (*notes, *self.notes)
        # a list of texts may be one of ids, titles or names, if it is called so
        called = re.fullmatch(
            r"(.*[^a-z])?(ids?|keys?|labels?|urls?|titles?|names?|sources?)", path.stem, re.IGNORECASE
        )
        if called and path.stem != index.stem and not named:
            with read_errors(path), open_file(path) as file:
                if re.match(rb'(\xef\xbb\xbf)?\s*\[\s*"', file.read(64)):
                    raise StoreError(f"{path}: the name is that of a list of other texts; put the documents beside it")


def _written(path: Path, lines: Iterator[bytes], most: int) -> BinaryIO:
    """Write lines to a temporary file; no more than `most` are read."""
    with read_errors(path):
        file = temporary_file(path, path.stat().st_size)
    remaining = most
    with ExitStack() as stack:
        stack.callback(file.close)
        while chunk := list(islice(lines, 256)):
            remaining -= len(chunk)
            if remaining < 0:
                raise StoreError(
                    f"{path}: has more than {most} documents for {most} vectors; write the file and the index from the "
                    "same documents"
                )
            write_all(file, b"".join(chunk))
        stack.pop_all()
    return file


def find_own_file(
    index: Path, labels: Labels, count: int, named: Mapping[str, str]
) -> tuple[DocumentSource | None, str]:
    """Return the documents of the one file beside an index that fits it; else none, and why.

    A file of the index's own name comes first. One that does not fit may be anything, and is no error unless fields are
    `named`: then a StoreError is raised where no file has them, or more than one.
    """
    files = [file for file in sidecar_files(index, *PATTERNS) if file.name not in BESIDE]
    files.sort(key=lambda file: file.stem != index.stem)
    fitting: dict[Path, DocumentSource] = {}
    why = ""
    for file in files[:20]:
        try:
            fitting[file] = OwnFileDocuments(file, index, labels, count, named)
        except (StoreError, OutputError) as error:
            why = why or str(error)
            continue
        if file.stem == index.stem:
            break
    if len(fitting) == 1:
        return next(iter(fitting.values())), ""
    if fitting:
        first, names = next(iter(fitting)), ", ".join(file.name for file in fitting)
        why = (
            f"{index.parent}: has {len(fitting)} files that could be the documents ({names}); give the right one the "
            f"name of the index, as {index.stem}{first.suffix}"
        )
    if named:
        fields = " and ".join(f"{option} {name!r}" for option, name in named.items())
        raise StoreError(why or f"{index.parent}: no file {', '.join(PATTERNS)} is there to have {fields}; add it")
    return None, why
