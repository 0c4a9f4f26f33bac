"""The torch code of a GPU on the processor, `cpu:0`, and devices that are not there."""

import numpy as np
import pytest
import torch
from small_memory import SmallMemory

import migrate
from migrate.devices import DEVICE, TorchDevice, check_device, chosen_device, map_rows
from migrate.embedders import load_embedder
from migrate.errors import OutputError, UsageError
from migrate.stores import open_store
from migrate.stores.base import read_all

ABSENT = "cuda:99"


@pytest.fixture(autouse=True)
def own_device(monkeypatch):
    """Set back what a test sets."""
    monkeypatch.setenv(DEVICE, "")


@pytest.mark.parametrize("name", ["", "auto", "cpu", "mps"])
def test_numpy_computes_unless_a_gpu_is_named(name, monkeypatch):
    monkeypatch.setenv(DEVICE, name)
    check_device()
    assert chosen_device() is None
    assert map_rows(type, np.ones((2, 3))) is np.ndarray


@pytest.mark.parametrize("name", [ABSENT, "gpu", "cuda:first", "CUDA"])
def test_a_device_that_is_not_there_is_told_in_one_line(name, monkeypatch):
    monkeypatch.setenv(DEVICE, name)
    with pytest.raises(
        UsageError, match=rf"'{name}' is not (usable here .*; set {DEVICE}=cpu|a device; name one)"
    ) as told:
        check_device()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("count", "limit", "calls"), [(0, 1, 1), (1, 5, 1), (9, 45, 1), (9, 44, 2), (9, 12, 5), (9, 5, 9)]
)
def test_parts_are_halved_until_they_fit_and_come_in_order(count, limit, calls):
    rows = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    table = np.arange(20, dtype=np.float32).reshape(4, 5)
    with SmallMemory(limit) as memory:
        found = TorchDevice("cpu:0").map_rows(torch.matmul, rows, table)
    assert (found.dtype, found.shape, memory.products) == (np.float32, (count, 5), calls)
    np.testing.assert_allclose(found, rows @ table, rtol=1e-5, atol=1e-5)


def test_a_row_that_does_not_fit_is_an_error_of_one_line():
    with (
        SmallMemory(4),
        pytest.raises(OutputError, match=f"^the memory of device cpu:0 is full .*GiB\\); end what .*{DEVICE}=cpu$"),
    ):
        TorchDevice("cpu:0").map_rows(torch.matmul, np.ones((9, 4), np.float32), np.ones((4, 5), np.float32))


def test_a_device_that_fails_is_told_and_a_bug_is_not_taken_for_that():
    def fail(_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")

    with pytest.raises(
        OutputError, match=r"^device cpu:0 failed \(CUDA error: .* encountered\); run the command again"
    ):
        TorchDevice("cpu:0").map_rows(fail, np.ones((2, 2)))
    with pytest.raises(RuntimeError, match="shapes"):
        TorchDevice("cpu:0").map_rows(torch.matmul, np.ones((2, 2)), np.ones((3, 3)))


@pytest.mark.parametrize("before", ["highest", "high", "medium"])
def test_products_are_float32_whatever_a_program_has_set(before):
    at_work = []

    def multiply(rows):
        at_work.append(torch.get_float32_matmul_precision())
        return rows

    usual = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    try:
        TorchDevice("cpu:0").map_rows(multiply, np.ones((2, 2), np.float32))
        assert (at_work, torch.get_float32_matmul_precision()) == (["highest"], before)
    finally:
        torch.set_float32_matmul_precision(usual)


def test_an_array_that_must_not_change_does_not():
    rows = np.ones((2, 2), np.float32)
    rows.flags.writeable = False
    found = TorchDevice("cpu:0").map_rows(lambda tensor: tensor.add_(1), rows)
    assert found.tolist() == [[2, 2], [2, 2]] and rows.tolist() == [[1, 1], [1, 1]]


@pytest.fixture
def fitted(source_folder):
    return migrate.fit(source_folder, load_embedder("tfidf:24"), sample=60, kind="ridge")


def test_a_translation_that_was_begun_on_another_device_is_refused(source_folder, fitted, tmp_path, monkeypatch):
    def interrupt(stage, done, total):
        if stage == "translate" and 64 <= done < 150:
            raise KeyboardInterrupt

    monkeypatch.setattr("migrate.translate._BATCH_BYTES", 4 * 32 * 16)
    monkeypatch.setattr("migrate.translate._FEWEST_ROWS", 16)
    monkeypatch.setattr("migrate.steps.translate.job._PART_BYTES", 4 * 24 * 32)
    with pytest.raises(KeyboardInterrupt):
        migrate.translate(source_folder, fitted, tmp_path / "new", progress=interrupt)
    monkeypatch.setenv(DEVICE, "cpu:0")
    with pytest.raises(UsageError, match="begun with other values of device"):
        migrate.translate(source_folder, fitted, tmp_path / "new")
    migrate.translate(source_folder, fitted, tmp_path / "new", restart=True)
    by_torch = read_all(open_store(tmp_path / "new").scan())
    monkeypatch.setenv(DEVICE, "")
    migrate.translate(source_folder, fitted, tmp_path / "by-numpy")
    by_numpy = read_all(open_store(tmp_path / "by-numpy").scan())
    assert by_torch.ids == by_numpy.ids
    np.testing.assert_allclose(by_torch.vectors, by_numpy.vectors, atol=1e-6)


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(source_folder, fitted, tmp_path, monkeypatch):
    monkeypatch.setenv(DEVICE, ABSENT)
    with pytest.raises(UsageError, match=ABSENT):
        migrate.steps.translate.Translate(source_folder, fitted, tmp_path / "new").check()
    assert list(tmp_path.iterdir()) == []
