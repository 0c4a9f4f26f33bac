"""Documents in a `.json`, `.jsonl`, `.csv` or `.tsv` of the user's own beside an index, told by its fields.

A JSON file is a list of texts, a list of objects, or an object of texts or objects by id; in the others a record is a
line or a row. Each is scanned once: only places and hashes are kept, and texts are read when they are needed, as of a
docs.jsonl. A JSON file is held whole while it is scanned.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from migrate.errors import OutputError, StoreError
from migrate.files import is_endless
from migrate.reading import MalformedError, parse_json
from migrate.stores.binary_reader import malformed, read_errors
from migrate.stores.documents.base import LOOKED_AT, DocumentSource, Labels, longest_first, sidecar_files, without_texts
from migrate.stores.documents.columns import ID_NAMES, LABEL, VECTOR_NAMES, is_id_name
from migrate.stores.documents.json_file import AGAIN, read_whole
from migrate.stores.documents.jsonl import Form, JsonlDocuments, Read, RepeatedIdError, lines_of, shown_type
from migrate.stores.records import TEXT_NAMES
from migrate.stores.switching import BESIDE
from migrate.vectors import Document

PATTERNS: Final = ("*.json", "*.jsonl", "*.csv", "*.tsv")
_ID_NAMES: Final = (*ID_NAMES, "docid", "document_id", "chunk_id", "uuid", "key")
_KEY: Final = ""
"""The field of a record that has its key in an object of JSON."""
_TEXT: Final = "text"
_TITLE: Final = "title"
_METADATA: Final = "metadata"


def _bad_record(path: Path, number: int, expected: str, found: object) -> StoreError:
    return malformed(path, f"{expected} in record {number}", found, "correct the file")


@dataclass(frozen=True, slots=True)
class _JsonLines(Form):
    """Records of JSON, one a line; the fields that are the id and the text of a record.

    Without `id` records are numbered; `titled` puts the title before the text.
    """

    id: str | None = None
    text: str = _TEXT
    titled: bool = False

    def cut(self, file: Any, path: Path) -> Iterator[tuple[int, int, bytes]]:
        """Yield each record."""
        return ((number, *part) for number, part in enumerate(self.parts(file, path), start=1))

    def parts(self, file: Any, path: Path) -> Iterator[tuple[int, bytes]]:
        """Yield offset and bytes of each record."""
        return ((offset, line) for _, offset, line in lines_of(file, path))

    def values(self, content: bytes) -> Any:
        """Return the record of some bytes, by the names of its fields; raises MalformedError if they are none."""
        value = parse_json(content.decode())
        return {_TEXT: value} if isinstance(value, str) else value

    def record(self, content: bytes, path: Path, number: int) -> dict[str, Any]:
        """Return the record of some bytes; raises StoreError if they are none."""
        try:
            record = self.values(content)
        except UnicodeError as error:
            raise _bad_record(path, number, "UTF-8", error) from error
        except (MalformedError, csv.Error) as error:
            raise _bad_record(path, number, "a record", f"other ({error})") from error
        if not isinstance(record, dict):
            raise _bad_record(path, number, "an object or a text", shown_type(record))
        return record

    def parse(self, content: bytes, path: Path, number: int) -> Read:
        """Return the document of a record."""
        record = self.record(content, path, number)
        doc_id = str(number - 1) if self.id is None else record.get(self.id)
        if self.id is not None and not _is_id(doc_id):
            raise _bad_record(path, number, f"a text or a whole number as {self.id!r}", shown_type(doc_id))
        text = record.get(self.text)
        if not isinstance(text, str | None):
            raise _bad_record(path, number, f"a text as {self.text!r}", shown_type(text))
        left_out = {_KEY, self.id, self.text, LABEL, _METADATA, *VECTOR_NAMES}
        metadata = {name: value for name, value in record.items() if name not in left_out}
        inner = record.get(_METADATA)
        if isinstance(inner, str) and inner.lstrip().startswith("{"):
            with suppress(MalformedError):
                inner = parse_json(inner)
        if _METADATA in record:
            metadata |= inner if isinstance(inner, dict) else {_METADATA: inner}
        title = record.get(_TITLE) if self.titled else None
        whole = f"{title} {text or ''}".strip() if title and isinstance(title, str) else text
        label = record.get(LABEL)
        if isinstance(label, str) and label.isdecimal() and len(label) < 19:  # a cell
            label = int(label)
        return Read(Document(str(doc_id), whole or "", metadata), label if type(label) is int else None, bool(whole))


def _is_id(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and value != "")


class _Json(_JsonLines):
    """The values of a list, or the entries of an object."""

    def parts(self, file: Any, path: Path) -> Iterator[tuple[int, bytes]]:
        try:
            content = read_whole(path)
            offset = len(codecs.BOM_UTF8) if content.startswith(codecs.BOM_UTF8) else 0
            text, done = content.decode("utf-8-sig"), 0
            del content
            for start, stop in _values(text):
                part = text[start:stop].encode()
                offset += len(text[done:start].encode())
                yield offset, part
                offset, done = offset + len(part), stop
        except UnicodeError as error:
            raise malformed(path, "JSON", f"text that is not UTF-8 ({error})", AGAIN) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise malformed(path, "a JSON list, or an object, of documents", f"other ({error})", AGAIN) from error

    def values(self, content: bytes) -> Any:
        if not _is_entry(content):
            return super().values(content)
        ((key, value),) = parse_json("{" + content.decode() + "}").items()
        record = {_TEXT: value} if isinstance(value, str) else value
        return record | {_KEY: key} if isinstance(record, dict) else record


def _is_entry(content: bytes) -> bool:
    """Return whether some bytes are an entry of an object, and no value."""
    text = content.decode()
    return text.startswith('"') and json.JSONDecoder().raw_decode(text)[1] < len(text)


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of each value of a JSON list, or entry of an object."""
    decoder, at = json.JSONDecoder(), _after_space(text, 0)
    closing = {"[": "]", "{": "}"}.get(text[at : at + 1])
    if closing is None:
        raise ValueError("neither a list nor an object")
    at = _after_space(text, at + 1)
    while text[at : at + 1] != closing:
        start = at
        value, at = decoder.raw_decode(text, at)
        if closing == "}":
            colon = _after_space(text, at)
            if not isinstance(value, str) or text[colon : colon + 1] != ":":
                raise ValueError(f"no key at character {start}")
            _, at = decoder.raw_decode(text, _after_space(text, colon + 1))
        yield start, at
        at = _after_space(text, at)
        if text[at : at + 1] == ",":
            at = _after_space(text, at + 1)
        elif text[at : at + 1] != closing:
            raise ValueError(f"no comma at character {at}")
    if _after_space(text, at + 1) != len(text):
        raise ValueError(f"more than one value, at character {at + 1}")


def _after_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\r", "\n"):
        at += 1
    return at


@dataclass(frozen=True, slots=True)
class _Cells(_JsonLines):
    """The rows of a table below its header."""

    header: tuple[str, ...] = ()
    delimiter: str = ","

    def parts(self, file: Any, path: Path) -> Iterator[tuple[int, bytes]]:
        """Yield each row but the first, which may be of several lines."""
        rows = _rows(file, path, self.delimiter)
        next(rows, None)
        return rows

    def values(self, content: bytes) -> Any:
        """Return the cells of a row that are not empty."""
        cells = _cells(content, self.delimiter)
        if len(cells) != len(self.header):
            raise MalformedError(f"{len(cells)} cells below {len(self.header)} names")
        return {name: cell for name, cell in zip(self.header, cells, strict=True) if cell}


def _cells(row: bytes, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(row.decode(), newline=""), delimiter=delimiter, strict=True), [])


def _rows(file: Any, path: Path, delimiter: str) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each row; the header is the first."""
    taken: list[tuple[int, bytes]] = []

    def lines() -> Iterator[str]:
        for _, offset, line in lines_of(file, path, blank=True):
            taken.append((offset, line))
            yield line.decode()

    csv.field_size_limit(1 << 28)  # of the whole process; its own limit is less than a long text
    reader, number = csv.reader(lines(), delimiter=delimiter, strict=True), 0
    try:
        for cells in reader:
            if cells:
                yield taken[0][0], b"".join(line for _, line in taken)
                number += 1
            taken.clear()
    except UnicodeError as error:
        raise _bad_record(path, number, "UTF-8", error) from error
    except csv.Error as error:
        raise _bad_record(path, number, "a row of cells", f"other ({error})") from error


def _form_of(path: Path) -> _JsonLines:
    if path.suffix in (".json", ".jsonl"):
        return _Json() if path.suffix == ".json" else _JsonLines()
    with read_errors(path), path.open("rb") as file:
        first = next((line for _, _, line in lines_of(file, path)), b"").decode(errors="replace")
        delimiter = "\t" if path.suffix == ".tsv" else max((",", ";", "\t"), key=first.count)
        file.seek(0)
        _, content = next(_rows(file, path, delimiter), (0, b""))
    header = tuple(_cells(content, delimiter))
    if len(set(header)) < len(header):
        raise malformed(path, "columns with different names", f"{header}"[:200], "name them differently")
    return _Cells(header=header, delimiter=delimiter)


def _forms_of(path: Path, named: Mapping[str, str], index: Path) -> tuple[list[_JsonLines], list[str]]:
    """Return the file's form with each field of the first records that could be the id, the likeliest first; notes."""
    form = _form_of(path)
    with read_errors(path), path.open("rb") as file:
        first = [form.record(part, path, number) for number, _, part in islice(form.cut(file, path), LOOKED_AT)]
    names = [name for name in dict.fromkeys(name for record in first for name in record) if name != _KEY]
    columns = {name: [record.get(name) for record in first] for name in (_KEY, *names)}
    texts = [
        name for name in names
        if any(columns[name]) and all(isinstance(value, str | None) for value in columns[name])
    ]  # fmt: skip
    ids: list[str | None] = [_KEY] if any(_KEY in record for record in first) else []
    likely = dict.fromkeys((*_ID_NAMES, *filter(is_id_name, names)))
    ids += [name for name in likely if name in columns and all(map(_is_id, columns[name]))]
    if "id" in named:
        if named["id"] not in names:
            raise malformed(path, f"a field of ids {named['id']!r}", ", ".join(names), "name one of these")
        ids = [named["id"]]
    else:
        ids.append(None)
    text = _choose_text(path, names, longest_first(texts, first), named.get(_TEXT), index)
    # as in the corpora of BEIR
    titled = text == _TEXT and _TITLE in texts and _TEXT not in named
    notes = [f"the texts are {_TITLE} and {_TEXT} of {path.name}; say ?text={_TEXT} for these alone"] if titled else []
    vectors = ", ".join(name for name in VECTOR_NAMES if name in names)
    if vectors:
        notes.append(f"{path.name} also holds vectors ({vectors}); a new store has them as they are, untranslated")
    return [replace(form, id=name, text=text, titled=titled) for name in ids], notes


def _choose_text(path: Path, names: Sequence[str], texts: Sequence[str], named: str | None, index: Path) -> str:
    """Return the field that holds the texts."""
    if named is not None:
        if named not in texts:
            have = ", ".join(texts) or "none"
            raise malformed(path, f"a field of texts {named!r}", have, "name one of these")
        return named
    usual = [name for name in TEXT_NAMES if name in texts]
    others = [name for name in names if name != LABEL and not is_id_name(name)]
    if not usual and (len(others) != 1 or others[0] not in texts):
        raise without_texts(path, names, index, texts[0] if texts else "FIELD")
    return (usual or others)[0]


class OwnFileDocuments(JsonlDocuments):
    """Records of a file by row, matched as `match_rows` says.

    Raises
    ------
    StoreError
        The file is malformed, has no field of texts, or is not of this index.
    """

    def __init__(self, path: Path, index: Path, labels: Labels, count: int, named: Mapping[str, str]) -> None:
        if is_endless(path):
            raise malformed(path, "a file", "a pipe or a device", "write the documents to a file")
        forms, notes = _forms_of(path, named, index)
        for form in forms:
            try:
                super().__init__(path, labels, count, form=form, most=count)
                break
            except RepeatedIdError:
                if form is forms[-1]:
                    raise
                notes.insert(0, f"several records of {path.name} have one {form.id}, so that is no id of theirs")
        ids = "keys" if form.id == _KEY else form.id or "numbers of records"
        text = f"{_TITLE} and {form.text}" if form.titled else form.text
        self.kind = f"{self.kind}; text: {text}, ids: {ids}"
        self.notes = (*notes, *self.notes)
        # a list of texts may be one of ids, titles or names, if it is called so
        called = re.fullmatch(
            r"(.*[^a-z])?(ids?|keys?|labels?|urls?|titles?|names?|sources?)", path.stem, re.IGNORECASE
        )
        if called and path.stem != index.stem and not named:
            with read_errors(path), path.open("rb") as file:
                if re.match(rb'(\xef\xbb\xbf)?\s*\[\s*"', file.read(64)):
                    raise StoreError(f"{path}: the name is that of a list of other texts; put the documents beside it")


def find_own_file(
    index: Path, labels: Labels, count: int, named: Mapping[str, str]
) -> tuple[DocumentSource | None, str]:
    """Return the documents of the one file beside an index that fits it; else none, and why.

    A file of the index's own name comes first. One that does not fit may be anything, and is no error unless fields
    are `named`.

    Raises
    ------
    StoreError
        Fields are named, and no file has them, or more than one.
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
        raise StoreError(why or f"{index.parent}: expected a file with {fields}, found none of {', '.join(PATTERNS)}")
    return None, why
