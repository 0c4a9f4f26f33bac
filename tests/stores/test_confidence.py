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
def test_the_bytes_are_those_of_numpy_itself(tmp_path, count):
    write(tmp_path, VALUES[:count])
    assert (tmp_path / CONFIDENCE_NAME).read_bytes() == saved(VALUES[:count])
    found = read_confidence(tmp_path, count)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, VALUES[:count])


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


DAMAGED = {
    "empty": b"",
    "text": b"no array",
    "truncated": saved(VALUES)[:-1],
    "no header": saved(VALUES)[:20],
    "double": saved(VALUES.astype(np.float64)),
    "table": saved(VALUES.reshape(3, 100)),
    "number": saved(VALUES[0]),
    "pickle": saved(np.array([{}] * 300), allow_pickle=True),
    "zip": a_zip(),
    "broken zip": a_zip()[:-10],
    "vast": a_header_of((10**15,)),
    "negative": a_header_of((-1,)),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
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
