"""Documents in a `.json`, `.jsonl`, `.csv` or `.tsv` of the user's own beside an index, told by its fields.

A JSON file is a list of texts, a list of objects, or an object of texts or objects by id; in the others a record is a
line or a row. Each is scanned once: only places and hashes are kept, and texts are read when they are needed, as of a
docs.jsonl. A JSON file is held whole while it is scanned.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from migrate.errors import OutputError, StoreError
from migrate.files import is_endless
from migrate.reading import MalformedError, parse_json
from migrate.stores.binary_reader import malformed, read_errors
from migrate.stores.documents.base import LOOKED_AT, DocumentSource, Labels, longest_first, sidecar_files, without_texts
from migrate.stores.documents.json_file import AGAIN, read_whole
from migrate.stores.documents.jsonl import Form, JsonlDocuments, Read, RepeatedIdError, lines_of
from migrate.stores.records import ID_NAMES, TEXT_NAMES, is_id_name
from migrate.stores.switching import BESIDE
from migrate.vectors import Document

Found = tuple[int, int, bytes]
Record = dict[str, Any]

PATTERNS: Final = ("*.json", "*.jsonl", "*.csv", "*.tsv")
_KEY: Final = ""
"""The field of a record that has its key in an object of JSON."""
_TEXT: Final = "text"
_TITLE: Final = "title"
_LABEL: Final = "faiss_id"
_METADATA: Final = "metadata"
_VECTORS: Final = ("embedding", "embeddings", "vector", "vectors", "values")
_NO_TEXTS: Final = re.compile(r"(.*[^a-z])?(ids?|keys?|labels?|urls?|titles?|names?|sources?)", re.IGNORECASE)
"""The name of a file whose list of texts is none of documents."""

_MOST_FILES: Final = 20
_LONGEST_CELL: Final = 1 << 28
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_CORRECT: Final = "correct the file"


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields of a record are what; without `id` they are numbered; `titled` puts the title before the text."""

    id: str | None = None
    text: str = _TEXT
    titled: bool = False

    def read(self, record: Record, number: int, place: Callable[[str, object], StoreError]) -> Read:
        """The document of a record; `place` makes the error of what was expected and what was found."""
        doc_id = str(number - 1) if self.id is None else record.get(self.id)
        if self.id is not None and not _is_id(doc_id):
            raise place(f"a text or a whole number as {self.id!r}", _shown(doc_id))
        text = record.get(self.text)
        if text is not None and not isinstance(text, str):
            raise place(f"a text as {self.text!r}", _shown(text))
        left_out = {_KEY, self.id, self.text, _LABEL, _METADATA, *_VECTORS}
        metadata = {name: value for name, value in record.items() if name not in left_out} | _metadata(record)
        title = record.get(_TITLE) if self.titled else None
        whole = f"{title} {text or ''}".strip() if title and isinstance(title, str) else text
        label = record.get(_LABEL)
        if isinstance(label, str) and label.isdecimal() and len(label) < 19:  # a cell
            label = int(label)
        return Read(Document(str(doc_id), whole or "", metadata), label if type(label) is int else None, bool(whole))


def _metadata(record: Record) -> Record:
    """What is in a field `metadata`, which may be an object, or one that is written as a text."""
    inner = record.get(_METADATA)
    if isinstance(inner, str) and inner.lstrip().startswith("{"):
        try:
            inner = parse_json(inner)
        except MalformedError:
            return {_METADATA: inner}
    if isinstance(inner, dict):
        return inner
    return {_METADATA: inner} if _METADATA in record else {}


def _is_id(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and value != "")


def _shown(value: object) -> str:
    return "none" if value is None else f"{type(value).__name__} {value!r:.40}"


@dataclass(frozen=True, slots=True)
class _OwnForm(Form):
    """Records of at most `count` documents: a JSON value a line, where a subclass says nothing else."""

    count: int
    fields: Fields = Fields()

    def cut(self, file: Any, path: Path) -> Iterator[Found]:
        """Each record, as a part of the file."""
        for number, (offset, content) in enumerate(self.parts(file, path), start=1):
            if number > self.count:
                raise StoreError(
                    f"{path}: has more than {self.count} documents for {self.count} vectors; write the file and the "
                    "index from the same documents"
                )
            yield number, offset, content

    def parts(self, file: Any, path: Path) -> Iterator[tuple[int, bytes]]:
        """Offset and bytes of each record."""
        return ((offset, line) for _, offset, line in lines_of(file, path))

    def record(self, content: bytes) -> Any:
        """The record of some bytes, by the names of its fields.

        Raises
        ------
        MalformedError
            They are no record.
        """
        value = parse_json(content.decode())
        return {_TEXT: value} if isinstance(value, str) else value

    def parse(self, content: bytes, path: Path, number: int) -> Read:
        """The document of a record."""
        return self.fields.read(self.read_record(content, path, number), number, _place(path, number))

    def read_record(self, content: bytes, path: Path, number: int) -> Record:
        """The record; raises StoreError where it is none."""
        try:
            record = self.record(content)
        except UnicodeError as error:
            raise _place(path, number)("UTF-8", error) from error
        except (MalformedError, csv.Error) as error:
            raise _place(path, number)("a record", f"other ({error})") from error
        if not isinstance(record, dict):
            raise _place(path, number)("an object or a text", _shown(record))
        return record


def _place(path: Path, number: int) -> Callable[[str, object], StoreError]:
    return lambda expected, found: malformed(path, f"{expected} in record {number}", found, _CORRECT)


class _Json(_OwnForm):
    """The values of a list, or the entries of an object."""

    def parts(self, file: Any, path: Path) -> Iterator[tuple[int, bytes]]:
        try:
            content = read_whole(path)
            offset = len(_BYTE_ORDER_MARK) if content.startswith(_BYTE_ORDER_MARK) else 0
            text = content.decode("utf-8-sig")
            del content
            done = 0
            for start, stop in _values(text):
                part = text[start:stop].encode()
                offset += len(text[done:start].encode())
                yield offset, part
                offset, done = offset + len(part), stop
        except UnicodeError as error:
            raise malformed(path, "JSON", f"text that is not UTF-8 ({error})", AGAIN) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise malformed(path, "a JSON list, or an object, of documents", f"other ({error})", AGAIN) from error

    def record(self, content: bytes) -> Any:
        if not _is_entry(content):
            return super().record(content)
        ((key, value),) = parse_json("{" + content.decode() + "}").items()
        record = {_TEXT: value} if isinstance(value, str) else value
        return record | {_KEY: key} if isinstance(record, dict) else record


def _is_entry(content: bytes) -> bool:
    """Whether some bytes are an entry of an object, and no value."""
    text = content.decode()
    return text.startswith('"') and json.JSONDecoder().raw_decode(text)[1] < len(text)


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Where each value of a JSON list, or entry of an object, begins and ends."""
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
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


@dataclass(frozen=True, slots=True)
class _Cells(_OwnForm):
    """The rows of a table below its header."""

    header: tuple[str, ...] = ()
    delimiter: str = ","

    def parts(self, file: Any, path: Path) -> Iterator[tuple[int, bytes]]:
        """Each row but the first, which may be of several lines."""
        rows = _rows(file, path, self.delimiter)
        next(rows, None)
        return rows

    def record(self, content: bytes) -> Any:
        cells = _cells(content.decode(), self.delimiter)
        if len(cells) != len(self.header):
            raise MalformedError(f"{len(cells)} cells below {len(self.header)} names")
        return {name: cell for name, cell in zip(self.header, cells, strict=True) if cell}


def _cells(text: str, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), [])


def _rows(file: Any, path: Path, delimiter: str) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each row; the header is the first."""
    taken: list[tuple[int, bytes]] = []

    def lines() -> Iterator[str]:
        for _, offset, line in lines_of(file, path, blank=True):
            taken.append((offset, line))
            yield line.decode()

    csv.field_size_limit(_LONGEST_CELL)  # of the whole process; its own limit is less than a long text
    reader, number = csv.reader(lines(), delimiter=delimiter, strict=True), 0
    try:
        for cells in reader:
            content = b"".join(line for _, line in taken)
            if cells:
                yield taken[0][0], content
                number += 1
            taken.clear()
    except UnicodeError as error:
        raise _place(path, number)("UTF-8", error) from error
    except csv.Error as error:
        raise _place(path, number)("a row of cells", f"other ({error})") from error


def _form_of(path: Path, count: int) -> _OwnForm:
    if path.suffix == ".json":
        return _Json(count)
    if path.suffix == ".jsonl":
        return _OwnForm(count)
    with read_errors(path), path.open("rb") as file:
        first = next((line for _, _, line in lines_of(file, path)), b"").decode(errors="replace")
        delimiter = "\t" if path.suffix == ".tsv" else max((",", ";", "\t"), key=first.count)
        file.seek(0)
        _, content = next(_rows(file, path, delimiter), (0, b""))
        header = tuple(_cells(content.decode(), delimiter)) if content else ()
    if len(set(header)) < len(header):
        raise malformed(path, "columns with different names", f"{header}"[:200], "name them differently")
    return _Cells(count, header=header, delimiter=delimiter)


def _choose_fields(
    path: Path, form: _OwnForm, asked: Mapping[str, str], index: Path
) -> tuple[list[Fields], tuple[str, ...]]:
    """The fields of the first records that could be id and text, the likeliest first, and what to say of them."""
    with read_errors(path), path.open("rb") as file:
        first = [form.read_record(part, path, number) for number, _, part in islice(form.cut(file, path), LOOKED_AT)]
    names = [name for name in dict.fromkeys(name for record in first for name in record) if name != _KEY]
    texts = [
        name for name in names
        if any(record.get(name) for record in first)
        and all(isinstance(record.get(name), str | None) for record in first)
    ]  # fmt: skip
    ids = [_KEY] if any(_KEY in record for record in first) else []
    named = [*ID_NAMES, *(name for name in names if name not in ID_NAMES and is_id_name(name))]
    ids += [name for name in named if all(_is_id(record.get(name)) for record in first)]
    if "id" in asked:
        if asked["id"] not in names:
            raise malformed(path, f"a field of ids {asked['id']!r}", ", ".join(names), "name one of these")
        ids = [asked["id"]]
    text, titled = _choose_text(path, names, longest_first(texts, first), asked.get(_TEXT), index)
    notes = [f"the texts are {_TITLE} and {_TEXT} of {path.name}; say ?text={_TEXT} for these alone"] if titled else []
    vectors = ", ".join(name for name in _VECTORS if name in names)
    if vectors:
        notes.append(f"{path.name} also holds vectors ({vectors}); a new store has them as they are, untranslated")
    unnamed: list[str | None] = [] if "id" in asked else [None]
    return [Fields(name, text, titled) for name in [*ids, *unnamed]], tuple(notes)


def _choose_text(
    path: Path, names: Sequence[str], texts: Sequence[str], asked: str | None, index: Path
) -> tuple[str, bool]:
    """The field of texts, and whether a title goes before them, as in the corpora of BEIR."""
    others = [name for name in names if name != _LABEL and not is_id_name(name)]
    usual = [name for name in TEXT_NAMES if name in texts]
    if asked is not None and asked in texts:
        return asked, False
    if asked is not None:
        have = ", ".join(texts) or "none"
        raise malformed(path, f"a field of texts {asked!r}", have, "name one of these")
    if usual:
        return usual[0], usual[0] == _TEXT and _TITLE in texts
    if len(others) == 1 and others[0] in texts:
        return others[0], False
    raise without_texts(path, names, index, texts[0] if texts else "FIELD")


class OwnFileDocuments(JsonlDocuments):
    """Records of a file by row, matched as `match_rows` says.

    Parameters
    ----------
    path
        The file.
    index
        The FAISS file.
    labels
        The label of each row.
    count
        How many rows the index has.
    asked
        The fields that are named `text` and `id`, where any are.

    Raises
    ------
    StoreError
        The file is malformed, has no field of texts, or is not of this index.
    """

    def __init__(self, path: Path, index: Path, labels: Labels, count: int, asked: Mapping[str, str]) -> None:
        if is_endless(path):
            raise malformed(path, "a file", "a pipe or a device", "write the documents to a file")
        form = _form_of(path, count)
        choices, notes = _choose_fields(path, form, asked, index)
        for fields in choices:
            try:
                super().__init__(path, labels, count, form=replace(form, fields=fields))
            except RepeatedIdError:
                if fields is choices[-1]:
                    raise
                notes = (f"several records of {path.name} have one {fields.id}, so that is no id of theirs", *notes)
            else:
                break
        named = "keys" if fields.id == _KEY else fields.id or "numbers of records"
        text = f"{_TITLE} and {fields.text}" if fields.titled else fields.text
        self.kind = f"{self.kind}; text: {text}, ids: {named}"
        self.notes = (*notes, *self.notes)


def find_own_file(
    index: Path, labels: Labels, count: int, asked: Mapping[str, str]
) -> tuple[DocumentSource | None, str]:
    """The documents of the one file beside an index that fits it; else none, and why.

    A file of the index's own name comes first. One that does not fit may be anything, and is no error unless fields
    are `asked` for.

    Raises
    ------
    StoreError
        Fields are asked for, and no file has them, or more than one.
    """
    files = [file for file in sidecar_files(index, *PATTERNS) if file.name not in BESIDE]
    files.sort(key=lambda file: file.stem != index.stem)
    fitting: list[DocumentSource] = []
    why = ""
    for file in files[:_MOST_FILES]:
        try:
            fitting.append(_open(file, index, labels, count, asked))
        except (StoreError, OutputError) as error:
            why = why or str(error)
            continue
        if file.stem == index.stem:
            break
    if len(fitting) == 1:
        return fitting[0], ""
    if fitting:
        names = ", ".join(str(source.file and source.file.name) for source in fitting)
        first = fitting[0].file or index
        why = (
            f"{index.parent}: has {len(fitting)} files that could be the documents ({names}); give the right one the "
            f"name of the index, as {index.stem}{first.suffix}"
        )
    if asked:
        named = " and ".join(f"{option} {name!r}" for option, name in asked.items())
        raise StoreError(why or f"{index.parent}: expected a file with {named}, found none of {', '.join(PATTERNS)}")
    return None, why


def _open(file: Path, index: Path, labels: Labels, count: int, asked: Mapping[str, str]) -> DocumentSource:
    source = OwnFileDocuments(file, index, labels, count, asked)
    if _NO_TEXTS.fullmatch(file.stem) and file.stem != index.stem and not asked and _is_list_of_texts(file):
        raise StoreError(f"{file}: expected documents, found what their names are; put the texts beside it")
    return source


def _is_list_of_texts(file: Path) -> bool:
    with read_errors(file), file.open("rb") as opened:
        head = opened.read(64)
    return re.match(rb'(\xef\xbb\xbf)?\s*\[\s*"', head) is not None
