"""Spoils models and what they answer: files of vectors, servers, fitted states, stitches."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import openai_server as fake
from fault_index import HEADER_BYTES, change_details, random_rows
from fault_place import Place, Spoiler
from openai_server import Fault as Answer
from openai_server import OpenAIServer

import migrate
from migrate.embedders import load_embedder
from migrate.embedders.openai import OpenAIEmbedder
from migrate.stores import open_store

Arrays = dict[str, object]
_MODEL = ("--target", "openai:text-embedding-3-small,dimensions=8,batch-size=20", "--base-url", "{url}")
FIT_API = ("fit", "store", *_MODEL, "--sample", "40", "-o", "out", "-q")


def vectors_file(dim: int, change: Callable[[Arrays], object] = lambda _arrays: None) -> Spoiler:
    """`x.npz` with a vector for each document and query."""

    def spoil(place: Place) -> None:
        arrays: Arrays = {}
        for kind, ids, name in (("corpus", "doc_ids", "docs"), ("queries", "query_ids", "queries")):
            found = (place / f"beir/{kind}.jsonl").read_text().splitlines()
            arrays[ids] = [json.loads(line)["_id"] for line in found]
            arrays[name] = np.random.default_rng(2).normal(size=(len(found), dim)).astype(np.float32)
        change(arrays)
        np.savez(place / "x.npz", **arrays)

    return spoil


def zip_bomb(place: Place) -> None:
    """Zeros that pack 1,000 to 1."""
    with (
        zipfile.ZipFile(place / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("docs.npy", "w") as member,
    ):
        for _ in range(256):
            member.write(bytes(1 << 20))


def lying_member(place: Place) -> None:
    """A member whose header claims 2^60 vectors."""
    with zipfile.ZipFile(place / "x.npz", "w") as archive:
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 60}, 8), }}"
        padded = header.ljust(117).encode() + b"\n"
        archive.writestr("docs.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + bytes(64))


def objects(arrays: Arrays) -> None:
    arrays["docs"] = np.array([{"a": 1}], dtype=object)


def set_row(row: int, value: float, kind: type = np.float32) -> Callable[[Arrays], object]:
    def change(arrays: Arrays) -> None:
        table = np.asarray(arrays["docs"]).astype(kind)
        table[row] = value
        arrays["docs"] = table

    return change


def repeat_first_id(arrays: Arrays) -> None:
    arrays["doc_ids"] = ["same", "same", *list(arrays["doc_ids"])[2:]]  # type: ignore[call-overload]


def fewer_queries_dim(arrays: Arrays) -> None:
    arrays["queries"] = np.asarray(arrays["queries"])[:, :-1]


def server(*answers: Answer, key: str | None = None) -> Spoiler:
    """A server that gives these answers before it gives good ones; nobody waits before trying again."""

    def spoil(place: Place) -> None:
        running = place.stack.enter_context(OpenAIServer(key=key))
        running.faults.extend(answers)
        place.servers.append(running)
        place.words["url"] = running.url
        place.patch.setitem(OpenAIEmbedder.__init__.__kwdefaults__, "timeout_s", 0.2)
        fake.do_not_wait(place.patch)

    return spoil


def nobody_listens(place: Place) -> None:
    server()(place)
    place.stack.close()


def each(*answers: Answer) -> Spoiler:
    """One server after the other, each of which gives one of these answers until nobody asks any more."""

    def spoil(place: Place) -> Iterator[None]:
        for answer in answers:
            server(*[answer] * 99)(place)
            yield

    return spoil


def once(*answers: Answer) -> Spoiler:
    """One server after the other, each of which gives one of these answers and then good ones."""

    def spoil(place: Place) -> Iterator[None]:
        for answer in answers:
            shutil.rmtree(place / "out", ignore_errors=True)
            shutil.rmtree(place / "cache", ignore_errors=True)
            server(answer)(place)
            yield

    return spoil


QUOTA = fake.status(429, "You exceeded your current quota", "insufficient_quota")


def refit_vocabulary(place: Place) -> None:
    """The model in the store learned from other texts than the manifest says."""
    other = load_embedder("tfidf:32")
    other.fit(list(open_store(place / "store").documents())[:100])
    other.save_state(place / "store")


def edit_manifest(folder: str, change: Callable[[dict], object]) -> Spoiler:
    def spoil(place: Place) -> None:
        path = place / folder / "lead-migrate.json"
        facts = json.loads(path.read_text())
        facts.pop("manifest_sha256", None)  # as an older one has none
        change(facts)
        path.write_text(json.dumps(facts))

    return spoil


def edit_details(folder: str, **changes: object) -> Spoiler:
    return edit_manifest(folder, lambda facts: facts["details"].update(changes))


def stitch_of_another_store(place: Place) -> None:
    other = place / "other"
    shutil.copytree(place / "store", other)
    raw = bytearray((other / "index.faiss").read_bytes())
    raw[HEADER_BYTES:] = random_rows().tobytes()
    (other / "index.faiss").write_bytes(raw)
    change_details(place, "other", lambda details: details.pop("index_sha256"))
    shutil.rmtree(place / "stitch")
    migrate.fit(open_store(other), load_embedder("tfidf:24"), stitch="ridge", sample=60).save(place / "stitch")


def spoil_weights(value: float) -> Spoiler:
    """A stitch with a bad number, whose hashes are right all the same."""

    def spoil(place: Place) -> None:
        from safetensors.numpy import load_file, save_file

        from migrate.files import sha256_file

        path = place / "stitch/weights.safetensors"
        tensors = load_file(path)
        name = next(name for name in sorted(tensors) if name.startswith("stitch.") and tensors[name].dtype.kind == "f")
        tensors[name] = tensors[name].copy()
        tensors[name].flat[0] = value
        save_file(tensors, path)
        edit_manifest(
            "stitch", lambda facts: facts["details"]["files"].update({"weights.safetensors": sha256_file(path)})
        )(place)

    return spoil


def flip_digits(folder: str) -> Spoiler:
    """The manifest, each time with one digit of a number, a hash or a date changed."""

    def spoil(place: Place) -> Iterator[None]:
        path = place / folder / "lead-migrate.json"
        sound = path.read_bytes()
        # not those of the version and in the name of the hash, which are told otherwise
        told = (b"format_version", b"manifest_sha256")
        digits = [at for at in range(len(sound)) if sound[at : at + 1].isdigit()]
        digits = [at for at in digits if not any(name in line(sound, at) for name in told)]
        for at in digits[:: max(len(digits) // 40, 1)]:
            changed = sound[:at] + (b"1" if sound[at : at + 1] != b"1" else b"2") + sound[at + 1 :]
            if json.loads(changed) == json.loads(sound):  # the last digit of a number may make no other one
                continue
            path.write_bytes(changed)
            yield

    return spoil


def line(content: bytes, at: int) -> bytes:
    """The line that a byte stands in."""
    return content[content.rfind(b"\n", 0, at) + 1 : content.find(b"\n", at)]


def drop_array(place: Place) -> None:
    """An array is gone from the weights; the hashes of the file and of the manifest are those of what is left."""
    from safetensors.numpy import load_file, save_file

    from migrate.files import sha256_file
    from migrate.manifest import read_manifest

    path = place / "stitch/weights.safetensors"
    tensors = load_file(path)
    del tensors["stitch.offset"]
    save_file(tensors, path)
    manifest = read_manifest(place / "stitch", "stitch")
    files = {**manifest.details["files"], path.name: sha256_file(path)}
    replace(manifest, details={**manifest.details, "files": files}).write(place / "stitch")


def translated(place: Place) -> None:
    """The store has been translated already, to `new`."""
    made = place.run(("translate", "store", "stitch", "-o", "new", "-q"))
    assert made.code == 0, made


def another_stitch(place: Place) -> None:
    """The stitch was fitted again, differently."""
    shutil.rmtree(place / "stitch")
    command = ("fit", "store", "--target", "tfidf:24", "--stitch", "ols", "--sample", "70", "-o", "stitch", "-q")
    made = place.run(command)
    assert made.code == 0, made


def edit_out_of_folder(place: Place) -> None:
    """The manifest names an index elsewhere; ours alone would believe it."""
    (place / "store/lead-migrate.json").write_bytes((place / "stitch/lead-migrate.json").read_bytes())
    edit_manifest("store", lambda facts: facts.update(kind="store"))(place)
    edit_details("store", index="../../elsewhere/index", index_sha256="0" * 64)(place)


def asked(times: int) -> Spoiler:
    """The server was asked so often."""

    def check(place: Place) -> None:
        assert len(place.servers[-1].requests) == times

    return check


def in_order(place: Place) -> None:
    """Each document of the sample has its own vector."""
    from migrate.stitch.persistence import load_stitch

    texts = {document.id: document.text for document in open_store(place / "store").documents()}
    sample = load_stitch(place / "out").sample
    expected = np.stack([fake.vector_of(texts[doc_id]) for doc_id in sample.ids])
    np.testing.assert_array_equal(sample.vectors, expected)


def pays_the_rest(place: Place) -> None:
    """The next run asks for what is missing, and for nothing twice."""
    running = place.servers[-1]
    again = place.run(FIT_API)
    assert again.code == 0, again
    assert len(running.texts_served) == len(set(running.texts_served)) == 40


def longer_weights(place: Place) -> None:
    path = place / "stitch/weights.safetensors"
    path.write_bytes(path.read_bytes() + b"x")
