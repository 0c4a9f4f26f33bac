"""Indexes that only FAISS can read: what comes back, what is refused, and what survives a crash of FAISS."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
from faiss_tools import COUNT, DIM, empty_index, read, save
from hostile_jobs import put_in_place_of

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores import child, open_store
from migrate.stores.faiss import reader

pytestmark = pytest.mark.slow

LABELS = np.random.default_rng(5).permutation(COUNT) * 3 - 50


def train(factory, vectors, labels=None, metric=faiss.METRIC_L2):
    index = empty_index(factory, vectors.shape[1], metric)
    index.train(np.tile(vectors, (2, 1)))
    index.add(vectors) if labels is None else index.add_with_ids(vectors, labels)
    return index


@pytest.fixture
def coded(vectors, tmp_path):
    """The file of an index of codes, which FAISS reads in a process of its own."""
    return save(train("SQ8", vectors), tmp_path)


def cosines(found, expected):
    return (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)


@pytest.mark.parametrize("factory", ["IDMap,SQ8", "IDMap2,HNSW8,SQ8", "IVF8,SQ8", "IDMap,IVF8,SQ8", "PCA12,IVF8,SQ8"])
def test_vectors_come_back_under_their_own_ids(factory, vectors, tmp_path):
    save(train(factory, vectors, LABELS), tmp_path)
    store = open_store(tmp_path)
    ids, found = read(store)
    assert sorted(ids) == sorted(map(str, LABELS))
    row_of = {str(label): row for row, label in enumerate(LABELS)}
    assert cosines(found, vectors[[row_of[doc_id] for doc_id in ids]]).min() > 0.999
    rows = np.array([3, 3, 399, 0])
    assert np.array_equal(store.get(rows).vectors, found[rows])
    assert not store.info.exact
    assert any("approximately" in note for note in store.info.notes)


def test_removed_rows_are_gone_from_lists_that_are_decoded(vectors, tmp_path):
    index = train("IVF8,SQ8", vectors, LABELS)
    index.remove_ids(LABELS[:100].astype(np.int64))
    save(index, tmp_path)
    ids, _ = read(open_store(tmp_path))
    assert sorted(ids) == sorted(map(str, LABELS[100:]))


@pytest.mark.parametrize("factory", ["PQ4x4fs", "IVF4,PQ4x4", "PCA12,IVF4,SQ8"])
def test_vectors_are_those_that_faiss_reconstructs(factory, vectors, tmp_path):
    index = train(factory, vectors)
    save(index, tmp_path)
    ids, found = read(open_store(tmp_path))
    lists = faiss.try_extract_index_ivf(index)
    if lists is not None:
        lists.make_direct_map()
    expected = np.stack([index.reconstruct(int(doc_id)) for doc_id in ids])
    assert np.abs(found - expected).max() < 1e-5


@pytest.mark.parametrize("factory", ["PQ4x4fs_64", "IVF4,PQ4x4fs_32", "IVF4,PQ4x4fsr_96"])
def test_fast_scan_codes_that_faiss_reads_wrong_are_refused_with_a_remedy(factory, vectors, tmp_path):
    """It gives other vectors for blocks of more than 32 rows, and crashes for lists."""
    save(train(factory, vectors), tmp_path)
    with pytest.raises(UnsupportedStoreError, match=r"without fast scan \(PQ8x4, not PQ8x4fs; RaBitQ,"):
        open_store(tmp_path)


def equal_vectors_once(vectors):
    index = faiss.IndexIVFFlatDedup(faiss.IndexFlatL2(DIM), DIM, 4)
    index.train(vectors)
    index.add(np.concatenate([vectors[:9], vectors[:-9]]))
    return index


def codes_by_another_quantizer(vectors):
    lists = faiss.IndexIVFFlat(faiss.IndexFlatL2(DIM), DIM, 4)
    index = faiss.IndexIVFIndependentQuantizer(faiss.IndexFlatL2(DIM), lists, None)
    index.train(vectors)
    index.add(vectors)
    return index


def graph_alone(vectors):
    return train("HNSW8,Flat", vectors)


UNREADABLE = {
    "a lattice": (lambda vectors: train("ZnLattice4x10_4", vectors), "without its codes", 0),
    "equal vectors once": (equal_vectors_once, "equal vectors once, .* build an IndexIVFFlat from the vectors", 0),
    "another quantizer": (codes_by_another_quantizer, "reconstruct vectors from IndexIVFIndep.*build an index that", 0),
    "a spectral hash": (
        lambda vectors: train("IVF4,ITQ8,SH1.5", vectors),
        "build an index that keeps them, such as",
        0,
    ),
    "a graph": (graph_alone, "save it without IO_FLAG_SKIP_STORAGE", faiss.IO_FLAG_SKIP_STORAGE),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_faiss_does_not_reconstruct_is_refused_with_what_makes_it_readable(kind, vectors, tmp_path):
    make, says, flags = UNREADABLE[kind]
    faiss.write_index(make(vectors), str(tmp_path / "index.faiss"), flags)
    with pytest.raises(UnsupportedStoreError, match=says):
        open_store(tmp_path)


def test_vectors_of_a_graph_by_nn_descent_are_read_from_its_storage(vectors, tmp_path):
    index = faiss.IndexNNDescentFlat(DIM, 16, faiss.METRIC_L2)
    index.add(vectors)
    save(index, tmp_path)
    assert np.array_equal(read(open_store(tmp_path))[1], vectors)


@pytest.mark.parametrize("factory", [f"PCAW{DIM},Flat", "PCAWR12,SQ8"])
def test_whitening_which_faiss_undoes_wrong_is_refused_with_a_remedy(factory, vectors, tmp_path):
    save(train(factory, vectors), tmp_path)
    with pytest.raises(UnsupportedStoreError, match="whitens or scales"):
        open_store(tmp_path)


@pytest.mark.parametrize("factory", ["IVF16,Flat", "IVF8,SQ8"])
def test_vectors_that_faiss_dropped_from_lists_are_missed(factory, vectors, tmp_path):
    index = train(factory, vectors)
    index.add(np.full((2, DIM), np.nan, np.float32))
    save(index, tmp_path)
    with pytest.raises(StoreError, match=f"counts {COUNT + 2} vectors, but its lists hold {COUNT}"):
        open_store(tmp_path)


def on_disk(factory, vectors, folder):
    folder.mkdir()
    index = train(factory, vectors)
    lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(folder / "lists.ivfdata"))
    lists.merge_from_1(index.invlists)
    index.replace_invlists(lists, False)
    return save(index, folder)


@pytest.mark.parametrize("factory", ["IVF4,Flat", "IVF4,SQ8"])
def test_lists_in_a_second_file_are_read_where_they_are_and_where_they_moved(factory, vectors, tmp_path):
    on_disk(factory, vectors, tmp_path / "old")
    ids, found = read(open_store(tmp_path / "old" / "index.faiss"))
    assert cosines(found, vectors[np.array(ids, int)]).min() > 0.999
    (tmp_path / "old").rename(tmp_path / "new")
    assert np.array_equal(read(open_store(tmp_path / "new" / "index.faiss"))[1], found)


JOB = f"{reader.JOBS}:read"


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL"])
@pytest.mark.parametrize("factory", ["HNSW8,Flat", "SQ8"])
def test_a_crash_of_faiss_is_one_error_that_names_the_signal(factory, name, vectors, tmp_path, monkeypatch):
    save(train(factory, vectors), tmp_path)
    put_in_place_of(monkeypatch, JOB, "die", signal=getattr(signal, name).value)
    with pytest.raises(StoreError, match=name):
        open_store(tmp_path)


def test_a_child_that_hangs_is_given_up_and_ended(coded, monkeypatch):
    put_in_place_of(monkeypatch, JOB, "hang")
    monkeypatch.setattr(child, "QUIET_S", 0.2)
    with pytest.raises(StoreError, match="did not respond within"):
        open_store(coded)
    children = Path(f"/proc/{child._server.process}/task/{child._server.process}/children")
    deadline = time.monotonic() + 120
    while children.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not children.read_text()


def frame(tag, content=b""):
    return tag + len(content).to_bytes(8, "little") + content


def facts(**changes):
    """What FAISS says of the index of the tests, with changes."""
    told = {
        "chain": "IndexFlatL2",
        "dim": DIM,
        "count": COUNT,
        "metric": 1,
        "exact": True,
        "remarks": [],
        "recipe": {"factory": "Flat", "settings": {}},
        "labels": False,
        "added": False,
        "in_place": True,
    }
    return frame(b"FACT", json.dumps(told | changes).encode())


def runs(*numbers):
    return frame(b"RUNS", np.array(numbers, "<i8").tobytes())


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (b"nonsense" * 9, "sent a frame of"),
        (frame(b"FACT", b"{}"), "facts about the index that make no sense"),
        (facts(count=1 << 60) + frame(b"DONE"), "did not return facts that fit"),
        (facts(dim=-1) + frame(b"DONE"), "did not return facts that fit"),
        (frame(b"DONE"), "FAISS did not return all vectors"),
        (facts(in_place=False) + frame(b"DONE"), "FAISS did not return all vectors"),
        (facts(labels=True) + runs(45, COUNT) + frame(b"DONE"), "did not return a label for each vector"),
        (facts(added=True) + runs(45, COUNT) + frame(b"DONE"), "did not return a place for each vector"),
        (facts() + runs(46, COUNT) + frame(b"DONE"), "did not return places of vectors within the file"),
        (facts() + runs(-45, COUNT) + frame(b"DONE"), "did not return places of vectors within the file"),
        (facts() + runs(45, 1) + frame(b"DONE"), "did not return places of vectors within the file"),
        (b"", "FAISS cannot read the file: its process ended with 0"),
    ],
)
def test_a_child_that_talks_nonsense_is_not_believed(output, message, coded, monkeypatch):
    put_in_place_of(monkeypatch, JOB, "answer", bytes=output.hex())
    with pytest.raises(StoreError, match=message):
        open_store(coded)


# Python loads it at the start of each process that finds it, the guarded ones too.
LACKS_WHAT_LINUX_HAS = """
import os, pathlib, resource, select, selectors, socket
for module, names in ((os, ["pidfd_open", "posix_fadvise", "waitid", "eventfd", "memfd_create", "pipe2"]),
                      (select, ["epoll"]), (socket, ["SOCK_SEQPACKET", "MSG_CMSG_CLOEXEC"])):
    for name in names:
        vars(module).pop(name, None)
selectors.DefaultSelector = selectors.SelectSelector
exists, read_text = pathlib.Path.exists, pathlib.Path.read_text
def is_proc(path): return str(path).startswith("/proc")
pathlib.Path.exists = lambda path: not is_proc(path) and exists(path)
def read(path, *arguments, **options):
    if is_proc(path):
        raise FileNotFoundError(2, "No such file", str(path))
    return read_text(path, *arguments, **options)
pathlib.Path.read_text = read
"""
OPENS = """
import os, signal, sys, time
import numpy as np
from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores import child, open_store
from hostile_jobs import die, hang
assert not hasattr(os, "pidfd_open")
start, quiet_s = child._start, child.QUIET_S
for name in sys.argv[1:]:
    store = open_store(name)
    print(store.info.count, np.concatenate([batch.vectors.copy() for batch in store.scan()]).tobytes().hex()[:64])
for do in ("die", "hang"):
    child.QUIET_S = 0.2 if do == "hang" else quiet_s
    child._start = lambda job: start({**job, "do": f"hostile_jobs:{do}", "signal": signal.SIGSEGV})
    try:
        open_store(sys.argv[1])
    except StoreError as error:
        print(error)
"""


def test_a_guarded_process_does_without_what_only_linux_has(vectors, tmp_path):
    """As macOS is: no pidfd, no sockets that keep messages apart, no /proc, no limit of memory."""
    (tmp_path / "sitecustomize.py").write_text(LACKS_WHAT_LINUX_HAS)
    folders = [save(train(factory, vectors), tmp_path / factory).parent for factory in ("SQ8", "HNSW8,Flat")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", OPENS, *map(str, folders)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    found = [read(open_store(folder))[1] for folder in folders]
    assert lines[:2] == [f"{COUNT} {part.tobytes().hex()[:64]}" for part in found], done.stderr
    assert "its process ended by SIGSEGV" in lines[2]
    assert "did not respond within" in lines[3]


def test_a_large_job_is_received_whole(coded, monkeypatch):
    """The socket is a stream, whose reader gets no more at once than has come."""
    put_in_place_of(monkeypatch, JOB, "measure", filler="x" * (8 << 20))
    with pytest.raises(StoreError, match=f"the filler has {8 << 20} characters"):
        open_store(coded)


def test_a_job_that_was_sent_in_part_spoils_no_later_one(coded, monkeypatch):
    open_store(coded)
    send = child.socket.send_fds

    def interrupted(*arguments):
        send(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(child.socket, "send_fds", interrupted)
        open_store(coded)
    for _ in range(2):
        assert open_store(coded).info.count == COUNT


def test_another_server_is_started_where_one_was_killed(coded):
    open_store(coded)
    first = child._server.process
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert open_store(coded).info.count == COUNT
    assert child._server.process != first


def test_threads_open_indexes_at_once(coded):
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(open_store, [coded] * 16))
    assert len({read(store)[1].tobytes() for store in stores}) == 1


def test_a_forked_process_has_a_server_of_its_own(coded):
    open_store(coded)
    first = child._server.process
    process = os.fork()
    if not process:
        fine = child._server is None and open_store(coded).info.count == COUNT
        os._exit(0 if fine else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert open_store(coded).info.count == COUNT
    assert child._server.process == first


def test_memory_of_the_child_is_limited(tmp_path, monkeypatch):
    save(train("SQ8", np.random.default_rng(0).random((20_000, 1_000), np.float32)), tmp_path)
    monkeypatch.setattr(reader, "_READ_SPARE_BYTES", -5 * 20_000 * 1_000)
    with pytest.raises(StoreError, match="memory"):
        open_store(tmp_path)


def test_no_room_for_the_decoded_vectors_is_told_beforehand(coded, monkeypatch):
    usage = shutil.disk_usage(coded.parent)
    monkeypatch.setattr(child.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(child.OutputError, match="TMPDIR"):
        open_store(coded)


ROTATIONS = ["PCA12,Flat", f"PCA{DIM},SQ8", "PCAR12,Flat", "RR16,Flat", "RR40,Flat", "OPQ4_8,Flat"]


@pytest.mark.parametrize(
    ("factory", "spoil"),
    [*((factory, "a sign") for factory in ROTATIONS), *((ROTATIONS[0], s) for s in ("an exponent", "a row", "zero"))],
)
def test_a_rotation_that_is_none_is_refused(factory, spoil, vectors, tmp_path):
    index = train(factory, vectors)
    assert save_and_count(index, tmp_path / "sound") == COUNT
    transform = faiss.downcast_VectorTransform(index.chain.at(0))
    matrix = faiss.vector_to_array(transform.A).reshape(transform.d_out, transform.d_in)
    place = np.unravel_index(np.argmax(np.abs(matrix)), matrix.shape)
    if spoil == "a row":
        matrix[1] = matrix[0]
    else:
        matrix[place] *= {"a sign": -1, "an exponent": 2.0**8, "zero": 0}[spoil]
    faiss.copy_array_to_vector(matrix.ravel(), transform.A)
    with pytest.raises(StoreError, match=r"off by \S+ from those of a rotation"):
        save_and_count(index, tmp_path / "spoilt")


def save_and_count(index, folder):
    folder.mkdir()
    save(index, folder)
    return len(read(open_store(folder))[0])


ANY_MATRICES = {
    "a scale": lambda dim: np.diag(np.linspace(1, 2, dim)),
    "one scale": lambda dim: np.diag([2.0] + [1.0] * (dim - 1)),
    "a sheared one": lambda dim: np.eye(dim) + np.random.default_rng(1).normal(size=(dim, dim)) / 20,
}


@pytest.mark.parametrize("make", ANY_MATRICES.values(), ids=ANY_MATRICES)
def test_a_matrix_that_faiss_does_not_undo_is_refused(make, vectors, tmp_path):
    linear = faiss.LinearTransform(DIM, DIM, False)
    faiss.copy_array_to_vector(make(DIM).astype(np.float32).ravel(), linear.A)
    linear.is_trained = True
    index = faiss.IndexPreTransform(linear, faiss.IndexFlatL2(DIM))
    index.add(vectors)
    save(index, tmp_path)
    with pytest.raises(UnsupportedStoreError, match="FAISS undoes rotations alone"):
        open_store(tmp_path)


def test_a_process_with_more_than_a_thousand_open_files_reads_one(vectors, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_000:
        pytest.skip("this machine allows fewer open files")
    save(train("SQ8", vectors), tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_000), hard))
    opened = []
    try:
        with (tmp_path / "index.faiss").open("rb") as file:
            opened += [os.dup(file.fileno()) for _ in range(1_100)]
        assert len(read(open_store(tmp_path))[0]) == COUNT
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_relative_path_is_read_from_where_this_process_is(vectors, tmp_path, monkeypatch):
    save(train("SQ8", vectors), tmp_path / "one")
    save(train("SQ8", vectors[:100]), tmp_path / "two")
    for name, count in (("one", COUNT), ("two", 100)):
        monkeypatch.chdir(tmp_path / name)
        assert open_store("index.faiss").info.count == count
