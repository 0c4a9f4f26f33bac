"""Folders where fsspec can write: files that are whole or absent, and are put once."""

import json

import pytest
from blake3 import blake3

from migrate.cli.main import run
from migrate.errors import ManifestError, OutputError, StitchError, UsageError
from migrate.stitch.persistence import load_stitch, stitch_folder
from migrate.work.remote import Folder, download, upload


@pytest.fixture
def url(tmp_path):
    return f"memory://{tmp_path.name}/folder"


@pytest.fixture
def local(tmp_path):
    folder = tmp_path / "local"
    folder.mkdir()
    for name in ("a", "b", "last.json", "weights"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture(params=["memory", "folder"])
def folder(request, url, tmp_path):
    location = url if request.param == "memory" else f"{tmp_path}/shared/folder"
    return Folder(location, f"--shards {location}")


def test_a_file_is_put_where_there_is_none(folder):
    assert folder.names() == [] and folder.read("a") is None
    folder.write("b", b"con", b"tent")
    assert folder.add("a", b"1") and folder.add("a", b"1")
    assert not folder.add("a", b"2") and folder.read("a") == b"1"
    folder.write("a", b"3")
    assert folder.read("a") == b"3" and folder.names() == ["a", "b"] and folder.read("b") == b"content"
    folder.remove("a")
    folder.remove("a")
    assert folder.names() == ["b"]


def test_a_finished_file_is_found_by_its_rows_and_none_that_is_half_written(folder):
    rows = "000000000256-000000000512"
    name = folder.write_hashed(rows, [b"con", b"tent"])
    assert name == f"{rows}-{blake3(b'content').hexdigest()}" == folder.write_hashed(rows, [b"content"])
    folder.write(".half", b"")
    assert folder.find_hashed() == {rows: name}
    assert folder.read(name) == b"content"
    assert Folder(f"{folder.location}/two", "two").find_hashed() == {}, "other work at the same place"
    folder.remove(name)
    assert folder.find_hashed() == {}


def test_what_was_uploaded_is_downloaded_though_it_broke_off_once_and_another_is_refused(url, local, tmp_path):
    Folder(url, url).add("a", b"a")  # all that a killed run has left
    upload(local, url, last="last.json")
    (tmp_path / "copy").mkdir()
    download(url, tmp_path / "copy")
    copied = {path.name: path.read_text() for path in (tmp_path / "copy").iterdir()}
    assert copied == {name: name for name in ("a", "b", "last.json", "weights")}
    with pytest.raises(UsageError, match=f"{url} exists"):
        upload(local, url, last="last.json")
    (local / "a").write_text("other")
    upload(local, url, last="last.json", force=True)
    assert Folder(url, url).read("a") == b"other"


def test_of_two_who_write_at_once_one_fails_and_nothing_is_mixed(url, local):
    Folder(url, url).add("b", b"of another")
    with pytest.raises(UsageError, match="exists"):
        upload(local, url, last="last.json")
    assert "last.json" not in Folder(url, url).names() and Folder(url, url).read("b") == b"of another"


def test_places_that_cannot_be_used_are_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"--shards nowhere://x: .*pip install"):
        Folder("nowhere://x", "--shards nowhere://x").find_hashed()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"--shards file: .*; the same command continues"):
        Folder(str(tmp_path / "file" / "a"), "--shards file").write_hashed("0", [b""])


@pytest.fixture
def stitch(source_folder, target_file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def fit(output, *options):
        words = [str(source_folder), "--target", f"file:{target_file}", "--sample", "80", "--view", "none"]
        return run(["fit", *words, "-o", str(output), "--quiet", *options])

    return fit


@pytest.mark.slow
def test_a_stitch_is_written_to_a_url_and_read_from_it(url, stitch, source_folder, tmp_path, capsys):
    assert stitch(tmp_path / "here") == 0
    assert stitch(url) == 0
    assert load_stitch(url).digest() == load_stitch(tmp_path / "here").digest()
    assert (stitch_folder(url) / "lead-migrate.json").is_file()
    assert stitch(url) == 2 and "exists" in capsys.readouterr().err
    assert stitch(url, "--force") == 0
    assert run(["inspect", url]) == 0 and url in capsys.readouterr().out
    for place, output in ((url, "new"), (tmp_path / "here", "same")):
        assert run(["translate", str(source_folder), str(place), "-o", str(tmp_path / output), "--quiet"]) == 0
    assert (tmp_path / "new" / "index.faiss").read_bytes() == (tmp_path / "same" / "index.faiss").read_bytes()


@pytest.mark.slow
def test_no_half_of_a_stitch_is_taken_for_one(url, stitch, source_folder, tmp_path, capsys):
    assert stitch(url) == 0
    folder = Folder(url, url)
    manifest = folder.read("lead-migrate.json")
    weights = folder.read("weights.safetensors")
    folder.write("weights.safetensors", weights[:-1])
    with pytest.raises(StitchError, match=f"{url}/weights.safetensors: its BLAKE3"):
        load_stitch(url)
    folder.remove("lead-migrate.json")
    with pytest.raises(ManifestError, match=f"{url}: no stitch here"):
        load_stitch(url)
    assert run(["translate", str(source_folder), url, "-o", str(tmp_path / "new")]) == 4
    assert not (tmp_path / "new").exists() and "Traceback" not in capsys.readouterr().err
    assert json.loads(manifest)["kind"] == "stitch"


def test_a_url_of_no_kind_is_refused_before_anything_is_embedded(stitch, capsys):
    assert stitch("nowhere://x/y") == 2
    assert "nowhere://x/y" in capsys.readouterr().err
