"""What an earlier version hashed by SHA-256 is checked as what is hashed by BLAKE3 now; no other hash is taken."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from migrate.errors import ManifestError, StitchError, StoreError
from migrate.files import sha256_json
from migrate.manifest import MANIFEST_NAME, read_manifest
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import difference_from
from migrate.stores.confidence import stored_confidence
from migrate.stores.content import content_as_noted, content_difference, content_of, is_content
from migrate.stores.file_store import check_files
from migrate.stores.old_checksums import stored_sources

SHA256, BLAKE3 = "SHA-256", "BLAKE3"

EARLIER_NAMES = {
    "index_hash": "index_sha256",
    "documents_hashes": "documents_sha256",
    "beside_hashes": "beside_sha256",
    "texts_hash": "texts_sha256",
}


def sha256_of(content):
    return hashlib.sha256(content).hexdigest()


def sha256_of_texts(folder):
    return sha256_of(sha256_of((folder / "docs.jsonl").read_bytes()).encode())


def renamed(facts):
    return {EARLIER_NAMES.get(name, name): value for name, value in facts.items()}


def change_manifest(folder, change):
    """Change the details of a manifest, which then has no hash of its own."""
    path = folder / MANIFEST_NAME
    facts = json.loads(path.read_text())
    facts.pop("manifest_sha256", None)
    facts["details"] = change(facts["details"])
    path.write_text(json.dumps(facts))


def make_earlier(folder, source):
    """Let a manifest be as a version wrote it that hashed by SHA-256; `source` is the store that it was made from."""

    def change(details):
        details = renamed(details)
        if "index_sha256" in details:
            details["index_sha256"] = sha256_of((folder / details["index"]).read_bytes())
        for name in details.keys() & {"documents_sha256", "beside_sha256", "files"}:
            details[name] = {file: sha256_of((folder / file).read_bytes()) for file in details[name]}
        if "fingerprint" in details:
            details["fingerprint"] = renamed(details["fingerprint"]) | {"texts_sha256": sha256_of_texts(source)}
        if "source state" in details:
            details["source state"] = sha256_json([sha256_of_texts(source)])
        assert "blake3" not in json.dumps(details)
        return details

    change_manifest(folder, change)


@pytest.fixture(params=[SHA256, BLAKE3])
def function(request, here):
    """The name of the function that has hashed the `store`, the `stitch`, and `new`, in the folder of the test."""
    for name in ("store", "stitch", "new") if request.param == SHA256 else ():
        make_earlier(here / name, here / "store")
    return request.param


def flip(path):
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def test_what_is_sound_is_taken(function):
    for name in ("store", "new"):
        assert check_files(open_store(name, verify=True)) == ("index.faiss", "docs.jsonl")
    assert stored_confidence(open_store("new")) is not None and stored_sources(open_store("new")) is not None
    assert load_stitch("stitch").sample.ids
    facts = (Path("store") / MANIFEST_NAME).read_text()
    assert ("blake3:" in facts) == (function == BLAKE3)


@pytest.mark.parametrize("file", ["index.faiss", "docs.jsonl"])
def test_a_file_of_a_store_that_is_damaged_is_found(file, function):
    flip(Path("new", file))
    with pytest.raises(StoreError, match=rf"new/{file}: its {function} "):
        open_store("new", verify=True)


@pytest.mark.parametrize(("file", "read"), [("confidence.npy", stored_confidence), ("sources.npy", stored_sources)])
def test_numbers_beside_a_store_that_are_damaged_are_found(file, read, function):
    flip(Path("new", file))
    with pytest.raises(StoreError, match=rf"new/{file}: its {function} \w+\.\.\. is not that of the manifest"):
        read(open_store("new"))


@pytest.mark.parametrize("file", ["weights.safetensors", "sample.json"])
def test_a_file_of_a_stitch_that_is_damaged_is_found(file, function):
    flip(Path("stitch", file))
    with pytest.raises(StitchError, match=rf"stitch/{file}: its {function} is not the one in the manifest"):
        load_stitch("stitch")


def test_a_stitch_knows_the_texts_that_it_was_fitted_on(function):
    fitted_on = load_stitch("stitch").manifest.stitch.fitted_on
    store = open_store("store")
    assert fitted_on["texts_hash"] is not None
    assert difference_from(store, fitted_on, store.snapshot()) is None
    with Path("store/docs.jsonl").open("a") as file:
        file.write("\n")
    store = open_store("store")
    assert difference_from(store, fitted_on, store.snapshot()) == "the same vectors, other texts"


def test_a_store_that_is_up_to_date_is_not_written_again(function, lead_migrate):
    before = Path("new", MANIFEST_NAME).read_bytes()
    assert "up to date" in lead_migrate("sync store new").out
    assert Path("new", MANIFEST_NAME).read_bytes() == before


def test_a_manifest_that_is_written_anew_has_no_hash_of_an_older_file(function, lead_migrate):
    lines = Path("store/docs.jsonl").read_text().splitlines(keepends=True)
    Path("store/docs.jsonl").write_text(lines[0].replace('"text": "', '"text": "Other ') + "".join(lines[1:]))
    change_manifest(Path("store"), lambda details: details.clear() or details)
    lead_migrate("sync store new -q")
    details = json.loads(Path("new", MANIFEST_NAME).read_text())["details"]
    assert not details.keys() & set(EARLIER_NAMES.values())
    assert details["index_hash"].startswith("blake3:")
    assert check_files(open_store("new", verify=True)) == ("index.faiss", "docs.jsonl")


def test_what_was_noted_of_a_store_is_compared_to_the_last_vector(function):
    store = open_store("new")
    noted = content_of(store)
    if function == SHA256:
        ids, vectors = hashlib.sha256(), hashlib.sha256()
        for batch in store.scan():
            for doc_id in batch.ids:
                ids.update(len(doc_id.encode()).to_bytes(8, "little") + doc_id.encode())
            vectors.update(batch.vectors.tobytes())
        noted = renamed(noted) | {"texts_sha256": sha256_of_texts(Path("new"))}
        noted["beside_sha256"] = {name: sha256_of(Path("new", name).read_bytes()) for name in noted["beside_sha256"]}
        for name, hasher in (("ids", ids), ("vectors", vectors)):
            del noted[f"{name}_hash"]
            noted[f"{name}_sha256"] = hasher.hexdigest()
        assert "blake3" not in json.dumps(noted)
    assert is_content(noted, content_of(store), store)
    flip(Path("new/index.faiss"))
    store = open_store("new")
    content = content_of(store)
    assert not is_content(noted, content, store)
    assert content_difference(noted, content_as_noted(noted, content, store)) == "the same ids, other vectors"


def by_another(note):
    return f"md5:{note.rpartition(':')[2]}"


UNKNOWN = r"{}: the manifest: has a hash by 'md5', and this version knows blake3 and sha256; install the version that"


@pytest.mark.parametrize(
    ("name", "key", "file", "read"),
    [
        ("store", "index_hash", "index.faiss", lambda name: open_store(name, verify=True)),
        ("store", "documents_hashes", "docs.jsonl", lambda name: open_store(name, verify=True)),
        ("new", "beside_hashes", "confidence.npy", lambda name: stored_confidence(open_store(name))),
        ("stitch", "files", "embedder.json", load_stitch),
    ],
)
def test_a_hash_by_an_unknown_function_is_refused(name, key, file, read, here):
    def change(details):
        value = details[key]
        changed = by_another(value) if isinstance(value, str) else {f: by_another(note) for f, note in value.items()}
        return {**details, key: changed}

    change_manifest(here / name, change)
    with pytest.raises(ManifestError, match=UNKNOWN.format(f"{name}/{file}")) as caught:
        read(name)
    assert "\n" not in str(caught.value)


def test_a_fingerprint_by_an_unknown_function_is_refused(here, lead_migrate):
    fingerprint = read_manifest(here / "stitch", "stitch").stitch.fitted_on
    changed = {**fingerprint, "texts_hash": by_another(fingerprint["texts_hash"])}
    change_manifest(here / "stitch", lambda details: {**details, "fingerprint": changed})
    assert "has a hash by 'md5'" in lead_migrate("translate store stitch -o more", code=4).complaint


@pytest.mark.slow
def test_a_finished_run_that_was_noted_by_an_earlier_version_says_its_verdict_again(finished_here, lead_migrate):
    path = Path("made/run.json")
    facts = json.loads(path.read_bytes())
    del facts["sha256"]
    for name, output in facts["outputs"].items():
        output["files"] = {
            file: sha256_of((Path("made", name, file) if file else Path("made", name)).read_bytes())
            for file in output["files"]
        }
    source = facts["configuration"]["source"]
    source["fingerprint"] = renamed(source["fingerprint"]) | {"texts_sha256": sha256_of_texts(Path("old"))}
    assert "blake3" not in json.dumps(facts)
    path.write_text(json.dumps({**facts, "sha256": sha256_json(facts)}))
    assert "its verdict is printed again" in lead_migrate(finished_here, code=(0, 1, 3)).err
    flip(Path("made/store/index.faiss"))
    complaint = lead_migrate(finished_here, code=4).complaint
    assert "made/store/index.faiss: the file was changed" in complaint
