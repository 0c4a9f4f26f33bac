"""Spoils models and what they answer: files of vectors, servers, fitted states, stitches."""

import json
import shutil
import struct
import zipfile
from dataclasses import replace

import numpy as np
import openai_server as fake
from fault_index import change_manifest
from fault_place import spoiler
from openai_server import OpenAIServer
from safetensors.numpy import load_file, save_file

from migrate.embedders import load_embedder
from migrate.embedders.abilities import save_state
from migrate.embedders.openai import OpenAIEmbedder
from migrate.files import sha256_file
from migrate.manifest import read_manifest
from migrate.selection.model_match import ASKED_AGAIN
from migrate.stores import open_store

_MODEL = ("--target", "openai:text-embedding-3-small,dimensions=8,batch-size=20", "--base-url", "{url}")
FIT_API = ("fit", "store", *_MODEL, "--sample", "40", "-o", "out", "-q")


@spoiler
def vectors_file(place, dim, change=lambda _arrays: None):
    """`x.npz` with a vector for each document and query."""
    arrays = {}
    for kind, ids, name in (("corpus", "doc_ids", "docs"), ("queries", "query_ids", "queries")):
        found = (place / f"beir/{kind}.jsonl").read_text().splitlines()
        arrays[ids] = [json.loads(line)["_id"] for line in found]
        arrays[name] = np.random.default_rng(2).normal(size=(len(found), dim)).astype(np.float32)
    change(arrays)
    np.savez(place / "x.npz", **arrays)


def another_store(place):
    """A copy of the store under a name of its own, as that from before the migration."""
    shutil.copytree(place / "store", place / "other")


def lying_member(place):
    """A member whose header claims 2^60 vectors."""
    with zipfile.ZipFile(place / "x.npz", "w") as archive:
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 60}, 8), }}"
        padded = header.ljust(117).encode() + b"\n"
        archive.writestr("docs.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + bytes(64))


def objects(arrays):
    arrays["docs"] = np.array([{"a": 1}], dtype=object)


@spoiler
def server(place, *answers):
    """A server that gives these answers before it gives good ones; nobody waits before trying again."""
    running = place.stack.enter_context(OpenAIServer())
    running.faults.extend(answers)
    place.servers.append(running)
    place.words["url"] = running.url
    place.patch.setitem(OpenAIEmbedder.__init__.__kwdefaults__, "timeout_s", 0.2)
    fake.do_not_wait(place.patch)


def refit_vocabulary(place):
    other = load_embedder("tfidf:32")
    other.fit(list(open_store(place / "store").documents())[:100])
    save_state(other, place / "store")


@spoiler
def edit_manifest(place, folder, change):
    change_manifest(place, folder, change)


@spoiler
def edit_details(place, folder, **changes):
    change_manifest(place, folder, lambda facts: facts["details"].update(changes))


@spoiler
def spoil_weights(place, value):
    """A stitch with a bad number, whose hashes are right all the same."""
    path = place / "stitch/weights.safetensors"
    tensors = load_file(path)
    name = next(name for name in sorted(tensors) if name.startswith("stitch.") and tensors[name].dtype.kind == "f")
    tensors[name] = tensors[name].copy()
    tensors[name].flat[0] = value
    save_file(tensors, path)
    change_manifest(place, "stitch", lambda facts: facts["details"]["files"].update({path.name: sha256_file(path)}))


@spoiler
def flip_digits(place, folder):
    """The manifest, each time with one digit of a number, a hash or a date changed."""
    path = place / folder / "lead-migrate.json"
    sound = path.read_bytes()
    # not those of the version and in the name of the hash, which are told otherwise
    told = (b"format_version", b"manifest_sha256")
    digits = [at for at in range(len(sound)) if sound[at : at + 1].isdigit()]
    digits = [at for at in digits if not any(name in line_at(sound, at) for name in told)]
    for at in digits[:: max(len(digits) // 12, 1)]:
        changed = sound[:at] + (b"1" if sound[at : at + 1] != b"1" else b"2") + sound[at + 1 :]
        if json.loads(changed) == json.loads(sound):  # the last digit of a number may make no other one
            continue
        path.write_bytes(changed)
        yield


def line_at(content, at):
    return content[content.rfind(b"\n", 0, at) + 1 : content.find(b"\n", at)]


def drop_array(place):
    path = place / "stitch/weights.safetensors"
    tensors = load_file(path)
    del tensors["stitch.offset"]
    save_file(tensors, path)
    manifest = read_manifest(place / "stitch", "stitch")
    files = {**manifest.details["files"], path.name: sha256_file(path)}
    replace(manifest, details={**manifest.details, "files": files}).write(place / "stitch")


def another_stitch(place):
    """The stitch was fitted again, differently."""
    shutil.rmtree(place / "stitch")
    place.make("fit", "store", "--target", "tfidf:24", "--kind", "procrustes", "--sample", "70", "-o", "stitch", "-q")


def edit_out_of_folder(place):
    """The manifest names an index elsewhere; ours alone would believe it."""
    (place / "store/lead-migrate.json").write_bytes((place / "stitch/lead-migrate.json").read_bytes())
    change_manifest(place, "store", lambda facts: facts.update(kind="store"))
    edit_details("store", index="../../elsewhere/index", index_hash="0" * 64)(place)


def pays_the_rest(place):
    """The next run asks for what is missing, and again for some texts that prove the model alone."""
    place.make(*FIT_API)
    served = place.servers[-1].texts_served
    assert (len(set(served)), len(served)) == (40, 40 + ASKED_AGAIN)


def longer_weights(place):
    path = place / "stitch/weights.safetensors"
    path.write_bytes(path.read_bytes() + b"x")
