"""Cuts files at the boundaries of their sections, which are computed from the files themselves."""

import io
import json
import re
import struct
import zipfile

import faiss
from fault_place import spoiler

_NUMBER_BYTES = 8


@spoiler
def cuts(place, name, sections, prepare, around=(-1, 0, 1)):
    prepare(place)
    sound = (place / name).read_bytes()
    boundaries = {boundary + by for boundary in sections(sound) for by in around}
    # a line end that is missing at the end of a file of text does no harm
    ends = sorted(end for end in boundaries if 0 <= end < len(sound.rstrip(b"\n")))
    assert len(ends) > 3
    for end in ends:
        (place / name).write_bytes(sound[:end])
        yield


def faiss_fields(content):
    """Where FAISS itself begins to read another field."""
    return [place for place, _ in _reads(content)]


def faiss_arrays(content):
    """Where FAISS itself begins and ends to read more than a number."""
    return [end for place, size in _reads(content) if size > _NUMBER_BYTES for end in (place, place + size)]


def _reads(content):
    """Place and size of each piece that FAISS reads."""
    pieces, stream = [], io.BytesIO(content)

    def read(size):
        pieces.append((stream.tell(), size))
        return stream.read(size)

    faiss.read_index(faiss.PyCallbackIOReader(read, len(content)))
    return pieces


def json_tokens(content):
    """Beginnings of tokens; the white space at the end is none."""
    return (match.start() for match in re.finditer(rb'[\[\]{},:]|"(?:[^"\\]|\\.)*"', content.rstrip()))


def last_json_tokens(content):
    """The first and the last 8 of them, of large files."""
    places = list(json_tokens(content))
    return [*places[:8], *places[-8:]]


def lines(content):
    """The middle of every tenth line: a file cut between two lines is a whole one, of fewer lines."""
    ends = [match.start() for match in re.finditer(rb"\n", content)]
    return [(begin + end) // 2 for begin, end in zip([0, *ends], ends, strict=False)][::10]


def zip_members(content):
    """Beginnings of members, of their data, of the directory and of its end."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            name, extra = struct.unpack_from("<HH", content, member.header_offset + 26)
            yield member.header_offset
            yield member.header_offset + 30 + name + extra
        yield archive.start_dir
    yield content.rindex(b"PK\x05\x06")


def tensors(content):
    """Beginnings of the header and of each tensor, in the layout of safetensors."""
    (size,) = struct.unpack_from("<Q", content)
    facts = json.loads(content[8 : 8 + size])
    return [0, 8, *(8 + size + place for entry in facts.values() for place in entry.get("data_offsets", ()))]


def parquet_parts(content):
    """Beginnings of the columns of each row group, of the footer, of its length and of the last letters."""
    import pyarrow.parquet

    (footer,) = struct.unpack_from("<I", content, len(content) - 8)
    metadata = pyarrow.parquet.ParquetFile(io.BytesIO(content)).metadata
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    columns = [group.column(column) for group in groups for column in range(group.num_columns)]
    pages = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return [4, *pages, len(content) - 8 - footer, len(content) - 8, len(content) - 4]


def arrow_messages(content):
    """Beginnings of messages and of their bodies; what marks the end of the stream is not needed to read it."""
    import pyarrow

    reader = pyarrow.BufferReader(content)
    while reader.tell() < len(content) - 8:
        begin = reader.tell()
        yield begin + 1
        yield begin + 8 + struct.unpack_from("<i", content, begin + 4)[0]
        pyarrow.ipc.read_message(reader)
