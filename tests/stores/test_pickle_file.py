"""Pickles of records with vectors, opened again by `pickle.load` and pandas; hostile ones do nothing."""

import base64
import collections
import datetime
import decimal
import os
import pickle
import re
import shlex
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from faiss_tools import read, rewrite
from hostile_pickles import DEEP, ENDLESS, MEMORY, SHARED, doubled, get, long, name, put, text

from migrate.errors import LeadMigrateError, UnsupportedStoreError
from migrate.stores import open_store
from migrate.testing.stores import StoreTests

VECTORS = np.arange(18, dtype=np.float32).reshape(3, 6) / 7
TEXTS = ["한국어 텍스트", "中文 😀", "of salt"]
IDS = ["b", "w", "s"]


class TestPickle(StoreTests):
    metrics = ("ip",)

    def make_store(self, folder, documents, vectors, metric):
        records = [
            {"id": document.id, "text": document.text, "metadata": dict(document.metadata), "embedding": vector}
            for document, vector in zip(documents, vectors, strict=True)
        ]
        (folder / "embeddings.pkl").write_bytes(pickle.dumps(records))
        return f"records:{folder / 'embeddings.pkl'}#?distance={'l2' if metric == 'l2' else 'dot'}"


def objects(vectors, **more):
    rows = zip(IDS, TEXTS, vectors, strict=True)
    return [{"id": i, "text": t, "embedding": vector, **more} for i, t, vector in rows]


def by_row(ids):
    return [str(number) for number in range(len(ids))]


SHAPES = {
    "sentences": (lambda v: {"sentences": TEXTS, "embeddings": v}, by_row(IDS)),
    "columns": (lambda v: {"ids": IDS, "texts": np.array(TEXTS, object), "embeddings": v, "n": np.arange(3)}, IDS),
    "objects": (lambda v: objects(v, tags=("a", {"b": None}), when=datetime.datetime(2020, 1, 1)), IDS),
    "objects by id": (lambda v: {i: {"text": t, "vector": r} for i, t, r in zip(IDS, TEXTS, v, strict=True)}, IDS),
    "tuples by number": (lambda v: {n: (t, r) for n, (t, r) in enumerate(zip(TEXTS, v, strict=True))}, by_row(IDS)),
    "pairs": (lambda v: list(zip(TEXTS, v, strict=True)), by_row(IDS)),
    "texts, vectors": (lambda v: (TEXTS, v), by_row(IDS)),
    "a list among facts": (lambda v: {"model": "m", "data": objects(v, price=decimal.Decimal(1))}, IDS),
    "vectors by id": (lambda v: dict(zip(IDS, v, strict=True)), IDS),
    "in order": (lambda v: collections.OrderedDict(zip(IDS, v, strict=True)), IDS),
    "an array": (lambda v: v, by_row(IDS)),
    "a list of arrays": (list, by_row(IDS)),
}
NUMBERS = {
    "float32": lambda v: v,
    "float64": lambda v: v.astype(np.float64),
    "float16": lambda v: v.astype(np.float16),
    "of the other order": lambda v: v.astype(">f4"),
    "in columns": np.asfortranarray,
    "lists": lambda v: v.tolist(),
}


def same(one, other):
    """Whether two values are alike to the type, arrays too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray) and one.dtype != object:
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple | np.ndarray):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("numbers", ["float32", "lists"])
def test_a_copy_is_the_same_value_with_other_vectors(shape, numbers, tmp_path):
    make, ids = SHAPES[shape]
    path = tmp_path / "store" / "embeddings.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(make(NUMBERS[numbers](VECTORS))))
    store = open_store(path.parent)
    assert read(store)[0] == ids and np.array_equal(read(store)[1], VECTORS)
    if store.info.has_texts:
        assert [document.text for document in store.documents()] == TEXTS
    doubled_vectors = np.hstack([VECTORS, VECTORS])
    new = rewrite(store, tmp_path / "new", lambda old: np.hstack([old, old]), 12)
    assert np.array_equal(read(new)[1], doubled_vectors)
    written = pickle.loads((tmp_path / "new" / path.name).read_bytes())
    assert same(written, make(NUMBERS[numbers](doubled_vectors)))


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("protocol", [2, 5])
def test_every_protocol_and_type_of_numbers(numbers, protocol, tmp_path):
    path = tmp_path / "store" / "embeddings.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps({"texts": TEXTS, "embeddings": NUMBERS[numbers](VECTORS)}, protocol))
    rewrite(open_store(path), tmp_path / "new", lambda old: -old, 6)
    written = pickle.loads((tmp_path / "new" / path.name).read_bytes())["embeddings"]
    # NumPy itself brings numbers of the other order to that of the machine
    expected = pickle.loads(pickle.dumps(NUMBERS[numbers](-VECTORS), protocol))
    assert np.array_equal(np.array(written), np.array(expected))
    assert getattr(written, "dtype", None) == getattr(expected, "dtype", None)


def test_odd_records(tmp_path):
    records = [
        {"id": 7, "text": "a", "embedding": [np.float32(x) for x in VECTORS[0]], "n": np.int64(3), "x": float("nan")},
        {"id": 8, "text": "b", "embedding": None},
        {"id": 9, "text": "c", "embedding": np.array([])},
        {"id": 10, "text": "d", "embedding": float("nan")},
        {"id": 11, "text": float("nan"), "embedding": VECTORS[1].tolist(), "x": b"\0", "file": Path("a")},
    ]
    path = tmp_path / "store" / "embeddings.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(records))
    store = open_store(path)
    assert (read(store)[0], store.info.without_vector) == (["7", "11"], 3)
    assert [(document.text, document.metadata) for document in store.documents()] == [
        ("a", {"n": 3, "x": None}), ("", {"x": "AA==", "file": "a"}),
    ]  # fmt: skip
    rewrite(store, tmp_path / "new", lambda old: -old, 6)
    written = pickle.loads((tmp_path / "new" / path.name).read_bytes())
    assert type(written[0]["n"]) is np.int64 and written[4]["file"] == Path("a") and written[1]["embedding"] is None
    assert written[4]["embedding"] == (-VECTORS[1]).tolist()


FRAMES = {
    "1.5.3": (
        "eNqdVM1r1EAUT3Y3tVprqbW1YhFvVpT1ouDB0o8tgg2NUOjNEibJ7CY0ycZkQnehxS3SbStz61NEEPUo+AcoePCf6cmLePKmbyZZ"
        "mm3rQSfZmZed9/F7nx3tZVdT5OKjEQkdklTtZkyr9ZgEFPjZRcLIQ0kfwM1t2IJpXjGDRgz8WpHdCxmNQ+In1YCEpEHjBPj5Bb9p"
        "ry9n3yg+zSdyEdP3rORIBviImYaRZ6/71LSEEHLz8TANonamPkh95pE4Jm1Ua8bUboYJi1ObCUZNMgI/g7olywHoyg7UVAt2YQWm"
        "dVUv6+UuuCNcc1g7Eq7w0uP7sL+X3Ze5ugmGYSz9xiU3fZaBtb+GkFUCHBVx1UZDVkyJA7z8/dNX4IOHHz5e//HudQf4xQJUJGns"
        "IfeQWY+bgZXW65n3ry4pxdWZxW0OX/x15sCd5KX63SKkB8cgKQhJ13YQSg0YMrk3iir71SnKe1R5S7C7d04y9zMqyrd+ZoqW+KCV"
        "ehj0ELOjJb5nUxlWjKQqEOolsbtDQu9kn1+/ZvPzWc9W5lsh3O7tUzxTZYoysDNoptJviI/11Y5MNEKbMs2o3TqqHmNxXtwsEHud"
        "OiLPU8UqzaSqDmGUeQFF+eHFnJ7PK2fp85PVYUPaRNTLR6grJ1BjL9RKGB+Ejg+DLqbFci+4o6L63LFe7WWO/Zey/RrG9sWXe28O"
        "xxVls/X25+pEL93iegtTg0VGn4KR7KLpGQya9vf8qPlZys9yfkpw3r/lR9MHioYYiF6Z7J8IDm3RpGqRBOfIOTOkG+Yj8R8G2d3m"
        "Wo+WEwUzQuBk6Abw46psw5KHfVdhtMVwJtHAoo7jhQ1RmsIYXm24NMTWCLPirYRiYhlpV6B9zq+cBiwmYUMgWxFnAY0LBqplJGZY"
        "77ySsGYE2I9IUCRUqZOKDQchThPEI9D35qUZUEakO2uIjjCGkxDzNGDWfdKQ5GXi+82NxHTSCNsKy8/0iUVxCu4lqVX9A9osD5k="
    ),
    "2.2.3": (
        "eNqdVM1r1EAUT3aTtbVqKdVasag3K8p6UfBg6ccWwYZGKHgswySZ3YQms2syobtQcT30S+bWUYog2qPgPyB48J/pyYt68qZvJlma"
        "2Pag2d2Zl503v/d7n33z9YGpqYePdTD1cFJ32zGpN2McEcGHFzHDj5S8J269FM/FNDdQ1IoFv1ZUDygjMcVhUo8wxS0SJ4KfWwjb"
        "7tpy9g7Xp/lEfgWFgZMc3RF8FKW0E7hrIUGOvATafIKmUadXRwo/SkMW4DjGPcBFMXHbNGFx6jKpaSpNwc8AuFLZE5a2KRq6I7bF"
        "ipi2dKtqVbeEP8pNj/U60hdeefJA7O5k51Wubwjbtpd+w6MWa5YJZ3cVOOtYcADiuguGnJhgT/Dqt09fBB86PPh44/v7/b7g40Wu"
        "IJM4APUR1IzbkZM2m5n/by5qxac/C8scfOHXnxP+JK807xU5PfyLkwacLHMTuDQEAyX/ZhGyDKdpHwDytlT37x5XLitq2teyMgFL"
        "fMhJA4g6hfyYSRi4RMUVQqlLhlZFrv6IxJ0s+fVrNt9fDGxlvhXi7d85wTNd5SgjOwNmjLIhPl6qHpVpoDaFUKfXPaofe3Fenixg"
        "d414MtFTxTrNbtU9zAgLIgL3zy/m8nxeOkvXaz8MW9kE1stHrI1jrKEbGhWID1CHDxNbkBbHv+CPyfLzxwfFlzn2X2C7DYjtq8/3"
        "3x5e0rSN7rufTycG6ZbHsh1NqDLyTNi8hlzs+gR6lBspDRjUOMAl6TZwmoFomqcnTs/3Sr5X812xDv4tcaZVKxpiQnbRZHlYeKRL"
        "krqDExgxZxEl6+ix/A+i729ycyCrYQOpwuJ4TGvwclU1aCWAjjQY6YLDwyRyiOcFtCVrVhqDo3WfUOgZmlW1QeUws9MtyXabXzmJ"
        "WIxpSzJbkXuBjb9vAyzDMYNG4EbC2h0BjQoCAUFXmEQuMCNhzgAfyX4wSlFEGFburAI7zBgMSchVDTVD3FLiZRyG7fUEeWkH+g3q"
        "EoXYITAgd5LUqf8BNmEaMg=="
    ),
}
"""Data frames by earlier versions of pandas: ids, texts, vectors, numbers and dates, of which some are missing."""


@pytest.mark.parametrize("version", [*FRAMES, "installed"])
def test_a_data_frame_of_each_version_is_opened_by_pandas_again(version, tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "store" / "frame.pkl"
    path.parent.mkdir()
    if version == "installed":
        frame = pandas.read_pickle(write_frame(path, FRAMES["2.2.3"]))
        frame.assign(text=frame["text"].astype("str")).to_pickle(path)
    else:
        write_frame(path, FRAMES[version])
    store = open_store(path)
    assert read(store)[0] == ["a", "b", "c"]
    documents = list(store.documents())
    assert [document.text for document in documents] == ["bread", "물", "塩 😀"]
    assert [document.metadata["score"] for document in documents] == [1.5, None, 2.0]
    assert [str(document.metadata["when"])[:10] for document in documents] == ["2020-01-01", "2021-01-01", "None"]
    rewrite(store, tmp_path / "new", lambda old: np.hstack([old, old]), 10)
    old, new = pandas.read_pickle(path), pandas.read_pickle(tmp_path / "new" / path.name)
    pandas.testing.assert_frame_equal(old.drop(columns="embedding"), new.drop(columns="embedding"))
    for before, after in zip(old["embedding"], new["embedding"], strict=True):
        assert after.dtype == np.float32 and np.array_equal(after, np.hstack([before, before]))


def write_frame(path, packed):
    path.write_bytes(zlib.decompress(base64.b64decode(packed)))
    return path


def test_indexes_and_series_of_pandas(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"key": IDS, "text": TEXTS, "embedding": VECTORS.tolist()})
    for number, made in enumerate(
        [frame.set_index("key"), frame[["text", "embedding"]].set_axis(IDS), frame.set_index("key")["embedding"]]
    ):
        path = tmp_path / str(number) / "frame.pkl"
        path.parent.mkdir()
        made.to_pickle(path)
        assert read(open_store(path))[0] == IDS
        rewrite(open_store(path), tmp_path / f"{number} new", lambda old: -old, 6)
        new = pandas.read_pickle(tmp_path / f"{number} new" / path.name)
        assert new.index.equals(made.index) and type(new) is type(made)


def follow(message):
    """Run the command of a message, as somebody who pastes it."""
    arguments = shlex.split(re.search(r"python -c \".*(?=; give that file)", message)[0])
    subprocess.run([sys.executable, *arguments[1:]], check=True, capture_output=True, timeout=60)


def test_a_frame_of_another_layout_is_read_after_the_command_of_the_message(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"text": TEXTS, "embedding": list(VECTORS), "kind": pandas.Categorical(["a", "b", "a"])})
    frame.to_pickle(tmp_path / "frame.pkl")
    with pytest.raises(UnsupportedStoreError, match="Categorical") as refused:
        open_store(tmp_path / "frame.pkl")
    follow(str(refused.value))
    store = open_store(tmp_path / "frame.parquet")
    assert [document.text for document in store.documents()] == TEXTS and np.array_equal(read(store)[1], VECTORS)


def test_what_else_is_pickled_is_read_after_the_command_of_the_message(tmp_path):
    content = collections.defaultdict(list, texts=TEXTS, embeddings=list(VECTORS))
    (tmp_path / "embeddings.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(UnsupportedStoreError, match=r"collections\.defaultdict") as refused:
        open_store(tmp_path)
    follow(str(refused.value))
    store = open_store(tmp_path / "embeddings.json")
    assert [document.text for document in store.documents()] == TEXTS


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"texts": TEXTS[:2], "embeddings": VECTORS}, "texts 2, embeddings 3"),
        ([{"text": "a", "embedding": VECTORS[0]}, {"text": "b", "embedding": VECTORS[0][:4]}], "record 2"),
        ([{"text": "a", "embedding": "[1, 2, 3, 4, 5]"}], "the text of a list"),
        (TEXTS, "record 1"),
        ([], "no field holds vectors"),
        (None, "no records"),
        ({"scores": [0.1, 0.2], "others": [0.3, 0.4]}, "no field holds vectors"),
        ({"texts": TEXTS, "embeddings": VECTORS.reshape(3, 2, 3)}, "3 dimensions"),
        ([{1: "a", "1": "b", "embedding": VECTORS[0]}], "the same as text"),
    ],
)
def test_what_is_wrong_is_named(content, says, tmp_path):
    (tmp_path / "embeddings.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(LeadMigrateError, match=says) as refused:
        open_store(tmp_path / "embeddings.pkl")
    assert "\n" not in str(refused.value)


def test_a_vector_that_records_share_becomes_one_for_each(tmp_path):
    path = tmp_path / "store" / "embeddings.pkl"
    path.parent.mkdir()
    shared = VECTORS[0].copy()
    path.write_bytes(pickle.dumps([{"text": text, "embedding": shared} for text in TEXTS]))
    rewrite(open_store(path), tmp_path / "new", lambda old: old * np.arange(1, 4, dtype=np.float32)[:, None], 6)
    written = pickle.loads((tmp_path / "new" / path.name).read_bytes())
    assert np.array_equal([entry["embedding"] for entry in written], [shared, 2 * shared, 3 * shared])


class Call:
    """An object whose pickle calls a function."""

    def __init__(self, function, *arguments):
        self._reduced = function, arguments

    def __reduce__(self):
        return self._reduced


MARK = "executed"
CALLS = {
    "posix.system": Call(os.system, f"touch {MARK}"),
    "builtins.eval": Call(eval, f"open({MARK!r}, 'w')"),
    "builtins.exec": Call(exec, f"open({MARK!r}, 'w')"),
    "builtins.getattr": Call(getattr, "a", "upper"),
    "io.open": Call(open, MARK, "w"),
    "subprocess.Popen": Call(subprocess.Popen, ["touch", MARK]),
    "numpy.load": Call(np.load, MARK),
    "numpy.core.multiarray.frombuffer": b"\x80\x04" + name("numpy.core.multiarray", "frombuffer") + b"C\x01a\x85R.",
    "numpy.dtype.type": b"\x80\x04" + name("numpy", "dtype.type") + b")R.",
    "pandas.read_pickle": b"\x80\x04" + name("pandas", "read_pickle") + text(MARK) + b"\x85R.",
    "pandas.eval": b"\x80\x04" + name("pandas", "eval") + text("1") + b"\x85R.",
    "builtins.__import__": b"\x80\x04" + name("builtins", "__import__") + text("os") + b"\x85R.",
}


@pytest.mark.parametrize("called", CALLS)
def test_a_pickle_that_calls_is_refused_by_name_and_nothing_is_executed(called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = CALLS[called]
    if not isinstance(content, bytes):
        content = pickle.dumps({"texts": TEXTS, "embeddings": VECTORS, "more": content})
    Path("embeddings.pkl").write_bytes(content)
    with pytest.raises(UnsupportedStoreError, match=re.escape(f"the pickle names {called}, and nothing was executed")):
        open_store("embeddings.pkl")
    assert [entry.name for entry in tmp_path.iterdir()] == ["embeddings.pkl"]


def record(value):
    return b"\x80\x04](}(" + text("field") + value + b"ue."


ARRAY = name("numpy.core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R"
FLOATS = (
    name("numpy", "dtype")
    + text("f4")
    + b"\x89\x88\x87R(K\x03"
    + text("<")
    + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
)
HOSTILE = {
    "deep lists": (record(b"]" * DEEP + b"a" * (DEEP - 1)), "nested more than 100 deep"),
    "a list that holds itself": (record(b"]" + put(0) + get(0) + b"a"), "nested more than 100 deep"),
    "doubled tuples": (record(doubled(b"N\x85", b"\x86")), SHARED),
    "doubled tuples as a key": (b"\x80\x04}" + doubled(b"N\x85", b"\x86") + b"Ns.", ENDLESS),
    "a number that claims 2 GB": (record(b"\x8b\xff\xff\xff\x7f"), MEMORY),
    "an integer of a million digits": (record(long(420_000)), "4300 digits"),
    "half a character": (record(text("a\ud800")), "half a character"),
    "refers to an object outside": (record(b"Pid\n"), "refers to an object outside of it"),
    "a dtype alone": (record(FLOATS), "it holds a dtype"),
    "a class": (record(name("numpy", "ndarray")), "it holds a ndarray"),
    "an array without a state": (record(ARRAY), "cannot be read"),
    "an array that claims more": (
        record(ARRAY + b"(K\x01J\xff\xff\xff\x7f\x85" + FLOATS + b"\x89C\x04abcdtb"), "cannot be read"),
    "bytes behind the end": (pickle.dumps([1]) + b"x", "bytes after the end"),
    "a cut": (pickle.dumps({"texts": TEXTS, "embeddings": VECTORS})[:-40], "cannot read the file"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_pickle_ends_in_one_line(hostile, tmp_path):
    content, says = HOSTILE[hostile]
    (tmp_path / "embeddings.pkl").write_bytes(content)
    with pytest.raises(LeadMigrateError, match=re.escape(says)) as refused:
        open_store(tmp_path / "embeddings.pkl")
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1_000
