import io
import zipfile

import numpy as np
import pytest

from migrate.errors import StoreError
from migrate.stores.confidence import CONFIDENCE_NAME, read_confidence
from migrate.work.shards import write_values

VALUES = np.linspace(-1, 1, 300).astype(np.float32)


def write(folder, values=VALUES, step=64):
    parts = (values[row : row + step] for row in range(0, len(values), step))
    write_values(folder / CONFIDENCE_NAME, parts, len(values))


@pytest.mark.parametrize("count", [0, 1, 300])
def test_numpy_reads_what_was_written(tmp_path, count):
    write(tmp_path, VALUES[:count])
    found = np.load(tmp_path / CONFIDENCE_NAME, allow_pickle=False)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, VALUES[:count])
    np.testing.assert_array_equal(read_confidence(tmp_path, count), VALUES[:count])


def test_the_bytes_are_those_of_numpy_itself(tmp_path):
    write(tmp_path)
    judge = io.BytesIO()
    np.save(judge, VALUES)
    assert (tmp_path / CONFIDENCE_NAME).read_bytes() == judge.getvalue()


@pytest.mark.parametrize("left", [b"", b"x" * 10_000], ids=["shorter", "longer"])
def test_whatever_stood_there_the_file_is_as_long_as_the_store(tmp_path, left):
    (tmp_path / CONFIDENCE_NAME).write_bytes(left)
    write(tmp_path)
    np.testing.assert_array_equal(read_confidence(tmp_path, len(VALUES)), VALUES)


def test_a_store_without_confidence_has_none(tmp_path):
    assert read_confidence(tmp_path, 300) is None


@pytest.mark.parametrize("count", [0, 299, 301])
def test_the_confidence_of_another_store_is_refused(tmp_path, count):
    write(tmp_path)
    with pytest.raises(StoreError, match=f"has 300 numbers, float32 of shape .300,.* for {count} documents; translate"):
        read_confidence(tmp_path, count)


def saved(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def a_zip():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("arr_0.npy", saved(VALUES))
    return file.getvalue()


def a_header_of(shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue() + VALUES.tobytes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no array",
        saved(VALUES)[:-1],
        saved(VALUES)[:20],
        saved(VALUES.astype(np.float64)),
        saved(VALUES.reshape(3, 100)),
        saved(VALUES[0]),
        saved(np.array([{}] * 300), allow_pickle=True),
        a_zip(),
        a_zip()[:-10],
        a_header_of((10**15,)),
        a_header_of((-1,)),
    ],
    ids=[
        "empty", "text", "truncated", "no header", "double", "table", "number", "pickle", "zip", "broken zip", "vast",
        "negative",
    ],
)  # fmt: skip
def test_a_damaged_file_is_told(tmp_path, content):
    (tmp_path / CONFIDENCE_NAME).write_bytes(content)
    with pytest.raises(StoreError, match="translate again") as caught:
        read_confidence(tmp_path, 300)
    assert str(tmp_path / CONFIDENCE_NAME) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_of_that_name_is_told(tmp_path):
    (tmp_path / CONFIDENCE_NAME).mkdir()
    with pytest.raises(StoreError, match="translate again"):
        read_confidence(tmp_path, 300)
