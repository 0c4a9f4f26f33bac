import struct

import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, read, serialize

from migrate.errors import StoreError, VectorError
from migrate.stores import open_store

pytestmark = pytest.mark.slow

FACTORIES = ["Flat", "IVF16,Flat", "IVF300,Flat", "IVF8_HNSW8,Flat", "HNSW12,Flat", "IDMap2,Flat", "IDMap,IVF16,Flat"]
# The structure of the others is within these: what comes after 140 bytes is the vectors
STRUCTURES = ["IDMap2,Flat", "IDMap,IVF16,Flat", "IVF8_HNSW8,Flat", "HNSW12,Flat"]
CODED = ["IVF8,SQ8", "PQ4x4fs", "IDMap,IVF8,PQ4x4", "PCA6,SQ8", "PQ4x4,RFlat"]


@pytest.fixture(params=FACTORIES)
def content(request, vectors):
    labels = np.arange(COUNT) * 2 if request.param.startswith("IDMap") else None
    return serialize(build(request.param, vectors, labels=labels))


def write(tmp_path, content):
    path = tmp_path / "index.faiss"
    path.write_bytes(content)
    return path


def one_line(error):
    text = str(error.value)
    return "index.faiss: " in text and "; " in text and "\n" not in text


def test_trailing_bytes_are_refused(content, tmp_path):
    with pytest.raises(StoreError, match=f" {len(content)} of {len(content) + 1}"):
        open_store(write(tmp_path, content + b"\0"))


@pytest.mark.parametrize("content", STRUCTURES, indirect=True)
def test_any_flipped_bit_of_the_structure_is_refused_or_harmless(content, tmp_path):
    """What can be read still has the shape of the original; nothing but StoreError is raised."""
    refused = 0
    for place in range(140):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (7 * place) % 8
        try:
            store = open_store(write(tmp_path, bytes(flipped)))
            ids, vectors = read(store)
        except StoreError:
            refused += 1
        else:
            assert vectors.shape == (COUNT, DIM)
            assert len(set(ids)) == COUNT
    assert refused > 20


@pytest.mark.parametrize("factory", CODED)
def test_codes_in_spoilt_files_are_refused_in_one_line_or_read_whole(factory, vectors, tmp_path):
    labels = np.arange(COUNT) * 2 if factory.startswith("IDMap") else None
    whole = serialize(build(factory, vectors, labels=labels))
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(30):
        spoilt = bytearray(whole)
        for place in random.integers(4, min(len(whole), 2_000), 3):
            spoilt[place] = int(random.integers(256))
        path = write(tmp_path, bytes(spoilt))
        try:
            found = read(open_store(path))[1]
        except (StoreError, VectorError) as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            assert found.shape[1] == DIM
    assert refused


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [
        *((8, "<q", count) for count in (1 << 60, (1 << 63) - 1, -1, COUNT + 1)),
        *((4, "<i", dim) for dim in (0, -1, 1 << 30, DIM + 1)),
    ],
)
def test_absurd_counts_and_dimensions_allocate_nothing(place, form, value, content, tmp_path):
    spoiled = bytearray(content)
    struct.pack_into(form, spoiled, place, value)
    with pytest.raises(StoreError) as error:
        open_store(write(tmp_path, bytes(spoiled)))
    assert one_line(error)


@pytest.mark.parametrize("claim", [1 << 60, (1 << 64) - 1, COUNT])
def test_absurd_vector_lengths_inside_are_refused(claim, vectors, tmp_path):
    """The u64 counts of an IVF index: the centroids', the direct map's, the list sizes'."""
    content = serialize(build("IVF16,Flat", vectors))
    lists = content.index(b"ilar")
    for place in (37 + 16 + 37, lists - 8, lists + 4, lists + 12, lists + 24, lists + 32):
        spoiled = bytearray(content)
        struct.pack_into("<Q", spoiled, place, claim)
        with pytest.raises(StoreError) as error:
            open_store(write(tmp_path, bytes(spoiled)))
        assert one_line(error)


def test_list_sizes_whose_sum_wraps_around_are_refused(vectors, tmp_path):
    content = bytearray(serialize(build("IVF16,Flat", vectors)))
    sizes = content.index(b"full") + 12
    first, second = struct.unpack_from("<QQ", content, sizes)
    struct.pack_into("<QQ", content, sizes, first + (1 << 63), second + (1 << 63))
    with pytest.raises(StoreError, match="inverted list 0"):
        open_store(write(tmp_path, bytes(content)))


def test_inner_labels_beyond_the_id_map_are_refused(vectors, tmp_path):
    index = build("IDMap2,IVF16,Flat", vectors, labels=np.arange(COUNT) * 2)
    content = bytearray(serialize(index))
    last_label = len(content) - 8 - 8 * COUNT - 8
    struct.pack_into("<q", content, last_label, COUNT)
    with pytest.raises(StoreError, match="inner labels"):
        open_store(write(tmp_path, bytes(content)))
