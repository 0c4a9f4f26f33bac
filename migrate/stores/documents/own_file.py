"""Documents in a `.json`, `.jsonl`, `.csv`, `.tsv` or `.txt` of the user's own beside an index, told by its fields.

A JSON file has one of the shapes of `json_shapes.py`, and is held in memory while it is read; in the others a record is
a line or a row, and a `.txt` has a text a line. The documents are written to a temporary file as a docs.jsonl, and
read there when they are needed.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from migrate.errors import OutputError, StoreError
from migrate.files import open_file
from migrate.reading import MalformedError, parse_json, read_json
from migrate.stores.binary_reader import malformed, read_errors, read_head
from migrate.stores.child import temporary_file, write_all
from migrate.stores.documents.base import (
    LOOKED_AT,
    MOST_BYTES,
    DocumentSource,
    documents_differ,
    longest_first,
    sidecar_files,
    without_texts,
)
from migrate.stores.documents.json_shapes import KEY, records_in
from migrate.stores.documents.jsonl import JsonlDocuments, RepeatedIdError, lines_of, shown_type
from migrate.stores.documents.matching import Numbering
from migrate.stores.documents.names import (
    LABEL,
    LIKELY_IDS,
    METADATA,
    TEXTS,
    TITLE,
    VECTORS,
    field_of,
    first_of,
    is_id_name,
)
from migrate.stores.foreign import PICKLE_TO_JSON, SAVE_BY_LANGCHAIN, for_path, is_langchain_store
from migrate.stores.records import choose, with_nested
from migrate.stores.switching import BESIDE

PATTERNS: Final = ("*.json", "*.jsonl", "*.ndjson", "*.csv", "*.tsv", "*.txt")
_TEXT_LINES: Final = ".txt"
_NAMED_AS_TEXTS: Final = re.compile(
    r"(?:.*[^a-z])?(?:texts?|chunks?|docs?|documents?|sentences?|passages?|paragraphs?|corpus)", re.IGNORECASE
)
"""Names of files with a text a line: any other `.txt` may hold ids, notes or requirements."""

_OF_OTHER_TEXTS: Final = re.compile(
    r"(?:.*[^a-z])?(?:id|key|label|url|title|name|source|file|path|model|type|kind|object|language|lang|status|date)s?",
    re.IGNORECASE,
)
"""Names of lists and fields of other texts than documents."""

_HEAD_BYTES: Final = 512
_MOST_COUNTED: Final = 1_000_000
"""Records too many that are counted, for a message."""
_PICKLES: Final = ("*.pkl", "*.pickle")
_LONGEST_CELL: Final = 1 << 28
"""Characters; as many as a line of docs.jsonl may have bytes."""
_TEXT: Final = "text"

Record = dict[str, Any]


def _bad_record(path: Path, number: int, problem: str, remedy: str = "correct the file") -> StoreError:
    return malformed(path, f"record {number} {problem}", remedy)


def _remedy_of(error: Exception) -> str:
    """Return what to do about a file that cannot be read."""
    is_encoding = isinstance(error, UnicodeError) or isinstance(error.__cause__, UnicodeError)
    if is_encoding:
        return "save it as UTF-8"
    return "correct the file"


def records_of(path: Path) -> Iterator[Record]:
    """Yield the records of a file, by the names of their fields; raises StoreError where one is none."""
    readers = {".json": _json_values, ".jsonl": _line_values, ".ndjson": _line_values, _TEXT_LINES: _text_lines}
    values = readers.get(path.suffix, _rows)
    number = 0
    with read_errors(path), open_file(path, buffering=1 << 20) as file:
        try:
            for number, value in enumerate(values(path, file), start=1):
                record = {_TEXT: value} if isinstance(value, str) else value
                if not isinstance(record, dict):
                    problem = f"is {shown_type(record)}, neither an object nor text"
                    raise _bad_record(path, number, problem, 'write each as an object, {"id": ..., "text": ...}')
                yield record
        except (MalformedError, UnicodeError, csv.Error) as error:
            raise _bad_record(path, number + 1, f"cannot be read ({error})", _remedy_of(error)) from error


def _json_values(path: Path, file: BinaryIO) -> Iterator[Any]:
    """Yield the records in a value of any of the usual shapes, or the values of lines, as in a `.jsonl`."""
    try:
        value = read_json(path, MOST_BYTES)
    except MalformedError as error:
        if is_of_lines(path):
            return _line_values(path, file)
        raise malformed(path, f"not JSON that can be read ({error})", _remedy_of(error)) from error
    return records_in(path, value)


def is_of_lines(path: Path) -> bool:
    """Return whether the first two lines of a file are objects of JSON, each by itself."""
    with open_file(path) as file, suppress(MalformedError):
        # Of two, as a file with one object of JSON in one line may be either.
        values = [parse_json(line) for _, _, line in islice(lines_of(file, path), 2)]
        return len(values) == 2 and all(isinstance(value, dict) for value in values)
    return False


def _line_values(path: Path, file: BinaryIO) -> Iterator[Any]:
    """Yield the value of each line."""
    return (parse_json(line.decode()) for _, _, line in lines_of(file, path))


def _text_lines(path: Path, file: BinaryIO) -> Iterator[str]:
    """Yield each line, blank ones too: they are the empty texts of their rows."""
    return (line.decode().rstrip("\r\n") for _, _, line in lines_of(file, path, blank=True))


def cells_of(path: Path, file: BinaryIO) -> Iterator[list[str]]:
    """Yield the cells of each row of a table that is not blank, those of its header first."""
    delimiter = delimiter_of(path, file)
    # of the whole process; its own limit is less than a long text
    csv.field_size_limit(_LONGEST_CELL)
    lines = (line.decode() for _, _, line in lines_of(file, path, blank=True))
    return filter(None, csv.reader(lines, delimiter=delimiter, strict=True))


def delimiter_of(path: Path, file: BinaryIO) -> str:
    """Return what divides the cells of a table; the file is at its beginning afterwards."""
    first = next((line for _, _, line in lines_of(file, path)), b"").decode(errors="replace")
    file.seek(0)
    if path.suffix == ".tsv":
        return "\t"
    # Spreadsheets write a semicolon where the comma divides decimals.
    return max((",", ";", "\t"), key=first.count)


def _rows(path: Path, file: BinaryIO) -> Iterator[Record]:
    """Yield the cells of each row of a table that are not empty, by the names in its header."""
    rows = cells_of(path, file)
    header = next(rows, [])
    if len(set(header)) < len(header):
        raise malformed(path, f"two columns have one name: {header}"[:200], "name them differently")
    for cells in rows:
        if len(cells) != len(header):
            raise MalformedError(f"{len(cells)} cells below {len(header)} names")
        yield {name: cell for name, cell in zip(header, cells, strict=True) if cell}


def _is_id(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and value != "")


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a file's records by role.

    `ids` are those that could be ids, the likeliest first; the last one is None, for the number of a record. A `title`
    may precede the `text`. `lifted` is a field of the metadata that is read as one of the record.
    """

    ids: tuple[str | None, ...]
    text: str
    title: str | None
    metadata: str | None
    vectors: tuple[str, ...]
    lifted: str | None


def _choose_fields(path: Path, records: Sequence[Record], named: Mapping[str, str], location: str) -> _Fields:
    """Choose the fields by the first records of a file, or as they are `named` for `id` and `text`."""
    if _TEXT in named:
        lifted = None
    else:
        lifted = _text_in_metadata(records)
    records = [_lifted(record, lifted) for record in records]
    columns = {name: [record.get(name) for record in records] for record in records for name in record}
    keys = columns.pop(KEY, ())
    # a list may be named as it is in the file
    named = {option: name if name in columns else field_of(name) for option, name in named.items()}
    texts = [
        name
        for name, values in columns.items()
        if any(values) and all(isinstance(value, str | None) for value in values)
    ]
    text = _choose_text(path, columns, longest_first(texts, records), named.get(_TEXT), location)
    # as in the corpora of BEIR
    is_titled = text == _TEXT and TITLE in texts and _TEXT not in named
    return _Fields(
        ids=_choose_ids(path, columns, named.get("id"), has_keys=any(keys)),
        text=text,
        title=TITLE if is_titled else None,
        metadata=first_of(METADATA, columns),
        vectors=tuple(name for name in VECTORS if name in columns),
        lifted=lifted,
    )


def _choose_ids(
    path: Path, columns: Mapping[str, Sequence[Any]], named: str | None, *, has_keys: bool
) -> tuple[str | None, ...]:
    if named is not None:
        return (choose(path, "field of ids", list(columns), named, "name one of these"),)
    likely = dict.fromkeys((*LIKELY_IDS, *filter(is_id_name, columns)))
    ids = [name for name in likely if name in columns and all(map(_is_id, columns[name]))]
    keys = (KEY,) if has_keys else ()
    # In a table it is the name of a column without one: the numbers that pandas writes first.
    if path.suffix in (".csv", ".tsv"):
        return (*ids, *keys, None)
    return (*keys, *ids, None)


def _choose_text(
    path: Path, columns: Mapping[str, Sequence[Any]], texts: Sequence[str], named: str | None, location: str
) -> str:
    """Return the field that holds the texts, out of `columns` with the first values; `texts` have nothing else."""
    if named is not None:
        return choose(path, "field of texts", texts, named, "name one of these")
    usual = first_of(TEXTS, texts)
    if usual is not None:
        return usual
    for name in TEXTS:
        values = columns.get(name, ())
        spoilt = [row for row, value in enumerate(values) if not isinstance(value, str | None)]
        if spoilt and any(isinstance(value, str) for value in values):
            raise _bad_record(path, spoilt[0] + 1, f"has as {name!r} no text but {shown_type(values[spoilt[0]])}")
    candidates = [name for name in columns if name != LABEL and not is_id_name(name)]
    if len(candidates) == 1 and candidates[0] in texts and not _OF_OTHER_TEXTS.fullmatch(candidates[0]):
        return candidates[0]
    raise without_texts(path, columns, location, [name for name in texts if name in candidates])


def _metadata_of(record: Record) -> tuple[str, Record]:
    """Return the field of a record that holds an object of metadata, and the object; an empty one where none does."""
    name = first_of(METADATA, record) or METADATA[0]
    metadata = record.get(name)
    return name, metadata if isinstance(metadata, dict) else {}


def _lifted(record: Record, name: str | None) -> Record:
    """Return a record with one field of its metadata as a field of its own."""
    field, metadata = _metadata_of(record)
    if name not in metadata:
        return record
    other_fields = {key: value for key, value in metadata.items() if key != name}
    return {**record, name: metadata[name], field: other_fields}


def _text_in_metadata(records: Sequence[Record]) -> str | None:
    """Return the field of metadata with a usual name of texts, as Pinecone exports it; None where one beside it has."""
    if any(first_of(TEXTS, record) for record in records):
        return None
    pairs = (pair for record in records for pair in _metadata_of(record)[1].items())
    return first_of(TEXTS, {name for name, value in pairs if isinstance(value, str)})


def _line_of(path: Path, number: int, record: Record, fields: _Fields, doc_id: str | None) -> bytes:
    """Return a record as a line of a docs.jsonl; without `doc_id` it is numbered."""
    record = _lifted(record, fields.lifted)
    own_id = str(number - 1) if doc_id is None else record.get(doc_id)
    if not _is_id(own_id):
        raise _bad_record(path, number, f"has as {doc_id!r} no text or whole number but {shown_type(own_id)}")
    content = record.get(fields.text)
    if not isinstance(content, str | None):
        raise _bad_record(path, number, f"has as {fields.text!r} no text but {shown_type(content)}")
    left_out = {KEY, doc_id, fields.text, LABEL, *fields.vectors}
    metadata = with_nested({name: value for name, value in record.items() if name not in left_out}, fields.metadata)
    if not fields.title:
        title = None
    else:
        title = record.get(fields.title)
    if title and isinstance(title, str):
        content = f"{title} {content or ''}".strip()
    label = record.get(LABEL)
    # Any number of 18 digits is an int64; a cell of a table is a text whatever it holds.
    if isinstance(label, str) and label.isdecimal() and len(label) < 19:  # a cell
        label = int(label)
    # None for an empty text: a file in which all are empty has no texts.
    line = {"id": str(own_id), "text": content or None, "metadata": metadata, LABEL: label}
    return (json.dumps(line, ensure_ascii=False) + "\n").encode()


def own_documents(
    path: Path,
    index: Path,
    rows: Numbering,
    named: Mapping[str, str],
    *,
    kind: str = "faiss",
    read: Callable[[], Iterator[Record]] | None = None,
) -> JsonlDocuments:
    """Return the records of a file, one a row, matched as `match_rows` says.

    `kind` is that of the store in messages; `read` reads the records where they are not simply those of the file.
    Raises a StoreError where the file is malformed, has no field of texts, or is not of this index.
    """
    if read is None:
        read = partial(records_of, path)
    fields = _choose_fields(path, list(islice(read(), LOOKED_AT)), named, f"{kind}:{index}")
    notes: list[str] = []
    for doc_id in fields.ids:
        records = enumerate(read(), start=1)
        lines = (_line_of(path, number, record, fields, doc_id) for number, record in records)
        try:
            documents = JsonlDocuments(path, rows, written=_written(path, lines, rows.count))
            break
        except RepeatedIdError:
            # A field that the user has named is the only one: there is none to try after it.
            if doc_id is fields.ids[-1]:
                raise
            notes.insert(0, f"several records of {path.name} have one {doc_id}, so that is no id of theirs")
    if fields.title:
        text = f"{TITLE} and {fields.text}"
    else:
        text = fields.text
    ids = "keys"
    if doc_id != KEY:
        ids = doc_id or "numbers of records"
    if fields.title:
        notes.append(f"the texts are {TITLE} and {_TEXT} of {path.name}; say ?text={_TEXT} for these alone")
    if fields.vectors:
        vectors = ", ".join(fields.vectors)
        notes.append(f"{path.name} also holds vectors ({vectors}); a new store has them as they are, untranslated")
    documents.info = replace(
        documents.info, fields=f"; text: {text}, ids: {ids}", notes=(*notes, *documents.info.notes)
    )
    if path.stem != index.stem and not named:
        _refuse_other_texts(path)
    return documents


def _refuse_other_texts(path: Path) -> None:
    """Refuse a list of texts that is one of ids, titles or names, as it is called so."""
    if not _OF_OTHER_TEXTS.fullmatch(path.stem):
        return
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
                more = sum(1 for _ in islice(lines, _MOST_COUNTED))
                count = most - remaining + more
                raise documents_differ(path, most, f"more than {count}" if more == _MOST_COUNTED else str(count))
            write_all(file, b"".join(chunk))
        stack.pop_all()
    # without a buffer every byte of a line is a read of its own
    return BufferedReader(file)


def _why_no_pickle(path: Path) -> str:
    """Say that a pickle is not read, and how to make a file of it that is."""
    if is_langchain_store(read_head(path, _HEAD_BYTES)):
        return f"{path}: a vector store that LangChain pickled whole; {for_path(SAVE_BY_LANGCHAIN, path)}"
    target = shlex.quote(str(path.with_suffix(".json")))
    return (
        f"{path}: a pickle, which can run code and is not read; if you trust it and it holds plain lists and texts, "
        f'write them as JSON: python -c "{PICKLE_TO_JSON}" {shlex.quote(str(path))} {target}'
    )


def _may_hold_texts(file: Path, index: Path) -> bool:
    if file.suffix != _TEXT_LINES:
        return True
    return file.stem == index.stem or _NAMED_AS_TEXTS.fullmatch(file.stem) is not None


def find_own_file(
    index: Path,
    rows: Numbering,
    named: Mapping[str, str],
    *,
    kind: str = "faiss",
) -> tuple[DocumentSource | None, str]:
    """Return the documents of the one file beside an index that fits it; else none, and why.

    A file of the index's own name comes first. One that does not fit may be anything, and is no error unless fields are
    `named`: then a StoreError is raised where no file has them, or more than one.
    """
    files = [file for file in sidecar_files(index, *PATTERNS) if file.name not in BESIDE]
    files = [file for file in files if _may_hold_texts(file, index)]
    files.sort(key=lambda file: (file.stem != index.stem, file.suffix == _TEXT_LINES))
    fitting: dict[Path, DocumentSource] = {}
    why = ""
    # Arbitrary: each of them is read to its end before one is taken, and a folder may hold thousands.
    for file in files[:20]:
        # Records say more than lines, and count before them.
        if file.suffix == _TEXT_LINES and fitting:
            break
        try:
            fitting[file] = own_documents(file, index, rows, named, kind=kind)
        except (StoreError, OutputError) as error:
            why = why or str(error)
            continue
        if file.stem == index.stem:
            break
    if len(fitting) == 1:
        return next(iter(fitting.values())), ""
    if fitting:
        first = next(iter(fitting))
        names = ", ".join(file.name for file in fitting)
        why = (
            f"{index.parent}: has {len(fitting)} files that could be the documents ({names}); give the right one the "
            f"name of the index, as {index.stem}{first.suffix}"
        )
    pickles = sidecar_files(index, *_PICKLES)
    if pickles and not why:
        why = _why_no_pickle(pickles[0])
    if named:
        fields = " and ".join(f"{option} {name!r}" for option, name in named.items())
        raise StoreError(why or f"{index.parent}: no file {', '.join(PATTERNS)} is there to have {fields}; add it")
    return None, why
