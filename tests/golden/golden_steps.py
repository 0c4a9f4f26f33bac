"""The commands, in the order in which somebody would give them."""

import csv
import json
import shutil
from pathlib import Path

import golden_data
import golden_kinds
import numpy as np
from golden_data import NEW, OLD
from kinds import kind_class

SAMPLE = 120
QUERIES = 60
TARGET = ("--target", NEW)
QUIET = ("--json", "-q")
CHECK = ("compatible", "cause", "basis", "sentence", "figures", "notes")
VERDICT = ("verdict", "kind")
FIT = ("candidates", "chosen", "confidence")


def write_beir(folder, documents):
    """A corpus and judged queries as BEIR has them."""
    found = dict(list(golden_data.queries().items())[:QUERIES])
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        rows = ({"_id": d.id, "text": d.text, "metadata": dict(d.metadata)} for d in documents)
        file.writelines(json.dumps(row) + "\n" for row in rows)
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"_id": name, "text": text}) + "\n" for name, (text, _) in found.items())
    with (folder / "qrels" / "test.tsv").open("w", encoding="utf-8", newline="") as file:
        rows = ((name, doc_id, 1) for name, (_, ids) in found.items() for doc_id in ids)
        csv.writer(file, delimiter="\t").writerows([("query-id", "corpus-id", "score"), *rows])


def take(recorder):
    """All steps of a kind."""
    stores = recorder.stores
    if recorder.golden.is_once:
        take_once(recorder)
        return
    documents = golden_data.documents()
    write_beir(Path("beir"), documents)
    old = stores.make(documents)
    recorder.look("00 old", old, bits=True)
    if not recorder.golden.is_variant:
        look_at_old(recorder, old)
    new = translate(recorder, old)
    serve(recorder, old)
    if not recorder.golden.is_variant:
        audit(recorder, old, new)
        make_of_another(recorder)
        refuse(recorder, old, new)
    stores.change(old, golden_data.later(documents))
    sync(recorder, old, new)
    full = stores.new("full")
    recorder.run("30 reembed", "reembed", old, *TARGET, "-o", full, *QUIET)
    recorder.look("30 reembed", stores.opened("full"), bits=recorder.golden.is_exact)
    switch(recorder, old, new)
    if recorder.golden.runs:
        run = (
            "run",
            stores.opened("new"),
            "--reference",
            "pool",
            "--target",
            OLD,
            "--sample",
            SAMPLE,
            "--judged",
            "beir",
        )
        more = ("--source-model", NEW, "--kind", "ridge", "-o", "run", *QUIET)
        recorder.run("50 run", *run, *more, of_json=VERDICT)
        recorder.list_files("50 run", Path("run"))


def look_at_old(recorder, old):
    """What reads only."""
    recorder.run("01 inspect", "inspect", old, "--json")
    assess = ("assess", old, *TARGET, "--price", "0.02", "--no-calibrate", *QUIET)
    recorder.run("02 assess", *assess, of_json=("texts", "store", "answers"))
    recorder.run("03 check", "check", old, "--model", OLD, *QUIET, of_json=CHECK)
    recorder.run("04 check, wrong", "check", old, "--model", NEW, *QUIET, of_json=CHECK)


def translate(recorder, old):
    """A stitch, and the store through it."""
    stores = recorder.stores
    fit = ("fit", old, *TARGET, "--sample", SAMPLE, "--source-model", OLD, "--view", "none")
    recorder.run("10 fit", *fit, "--kind", "ridge", "-o", "stitch", *QUIET, of_json=FIT)
    recorder.run("11 translate", "translate", old, "stitch", "-o", stores.new("new"), *QUIET)
    new = stores.opened("new")
    recorder.look("11 translate", new)
    recorder.run("12 inspect", "inspect", new, "--json")
    return new


def serve(recorder, old):
    """True vectors while it serves, and from the cache."""
    stores = recorder.stores
    recorder.run("13 translate", "translate", old, "stitch", "-o", stores.new("live"), *QUIET)
    live = stores.opened("live")
    recorder.run("13 live run", "live", "run", live, *TARGET, "--once", "--budget", "68", *QUIET)
    recorder.look("13 live run", live)
    recorder.run("14 live status", "live", "status", live, "--json")
    backfill = ("backfill", stores.opened("new"), *TARGET, "-o", stores.new("filled"), *QUIET)
    recorder.run("15 backfill", *backfill)
    recorder.look("15 backfill", stores.opened("filled"))


def audit(recorder, old, new):
    """Verdicts by both kinds of reference."""
    words = ("audit", new, "--source", old, "--judged", "beir", *TARGET, "--margin", "0.7", *QUIET)
    recorder.run("16 audit, build", *words, "--reference", "build", "--report", "build.json", of_json=VERDICT)
    if not recorder.golden.runs:  # else `run` audits by a pool below
        pool = ("--reference", "pool:10", "--report", "pool.json")
        recorder.run("17 audit, pool", *words, *pool, of_json=VERDICT)
    if not Path("build.json").is_file():
        return
    arms = json.loads(Path("build.json").read_text(encoding="utf-8"))["arms"]
    names = ("nDCG@10", "recall@100", "overlap@10", "RBO")
    for arm in arms:
        against = arm["against"] or {}
        retention = against.get("retention") or {}
        figures = [arm["means"].get(name) for name in names] + [retention.get(name) for name in ("lower", "upper")]
        figures += [against.get("wins"), against.get("losses")]
        recorder.facts.put(f"16 audit, build.arms.{arm['name']}", figures)

    recorder.run("19 switch by report", "switch", old, new, "--audit", "build.json", "--json")
    recorder.run("19 rollback", "rollback", old, "--json")


def make_of_another(recorder):
    """A store of the kind, made of a FAISS index with a docs.jsonl."""
    made = recorder.stores.kind.named_place(Path("made"))
    if made is None:
        return
    records = recorder.golden.shape(golden_kinds.records_of(golden_data.documents()))
    plain = kind_class("faiss")().make(Path("plain/old"), records)
    recorder.run("18 made of FAISS", "translate", plain, "stitch", "--any-store", "-o", made, *QUIET)
    recorder.look("18 made of FAISS", made)


def refuse(recorder, old, new):
    """What ends with another code, and one line."""
    stores = recorder.stores
    # the same command would be done already
    recorder.run("20 output exists", "translate", old, "stitch", "-o", stores.new("new"), "--any-store", *QUIET)
    recorder.run("21 wrong stitch", "translate", new, "stitch", "-o", stores.new("wrong"), *QUIET)
    recorder.run("22 no stitch", "translate", old, "nowhere", "-o", stores.new("wrong"), *QUIET)
    recorder.run("23 no store", "inspect", stores.opened("nowhere"), "--json")
    recorder.run("24 unproven", "switch", old, new, "--json")
    recorder.run("25 no switch", "rollback", old, "--json")
    recorder.run("26 nothing to forget", "forget", old, "--yes", "--json")


def sync(recorder, old, new):
    """What changed in the old store since."""
    recorder.run("27 stale", "translate", old, "stitch", "-o", recorder.stores.new("stale"), *QUIET)
    recorder.run("28 sync, dry", "sync", old, new, *TARGET, "--dry-run", *QUIET)
    recorder.run("29 sync", "sync", old, new, *TARGET, *QUIET)
    recorder.look("29 sync", new)
    recorder.run("29 sync again", "sync", old, new, *TARGET, *QUIET)


def switch(recorder, old, new):
    """The full re-embed answers, then the old store, then the full re-embed for good."""
    full = recorder.stores.opened("full")
    if not recorder.golden.is_variant:
        recorder.run("31 stale report", "switch", old, new, "--audit", "build.json", "--json")
    recorder.run("40 switch", "switch", old, full, "--json")
    recorder.look("40 switch", old)
    recorder.run("41 rollback", "rollback", old, "--json")
    recorder.look("41 rollback", old, bits=True)
    recorder.run("42 switch again", "switch", old, full, "--json")
    recorder.run("43 forget", "forget", old, "--yes", "--json")
    recorder.look("43 forget", old)
    recorder.facts.put("43 forget.left", {path.name: True for path in Path().iterdir()} | recorder.stores.kind.left())
    recorder.run("44 stamp", "stamp", old, "--model", NEW, "--force", *QUIET, of_json=("manifest", "found"))


def take_once(recorder):
    """What needs no store of every kind: a model that is saved beside what it made, shares, spaces, directions."""
    documents = golden_data.documents()
    write_beir(Path("beir"), documents)
    target = ("--target", "tfidf:24")
    recorder.run("01 embed", "embed", "beir/corpus.jsonl", "--model", "tfidf:32", "--no-chunks", "-o", "old", *QUIET)
    recorder.look("01 embed", "old")
    recorder.run("02 embed in chunks", "embed", "beir", "--model", "tfidf:32", "-o", "chunks", *QUIET)
    recorder.look("02 embed in chunks", "chunks")
    fit = ("fit", "old", *target, "--sample", SAMPLE, "--view", "none", *QUIET)
    recorder.run("03 fit, auto", *fit, "-o", "stitch", of_json=FIT)
    recorder.run("04 inspect stitch", "inspect", "stitch", "--json")
    recorder.run("05 translate", "translate", "old", "stitch", "-o", "new", *QUIET)
    recorder.look("05 translate", "new")
    recorder.run("06 translate, 60%", "translate", "old", "stitch", "--reembed", "60%", "-o", "part", *QUIET)
    recorder.look("06 translate, 60%", "part")
    share = ("reembed", "old", *target, "--stitch", "stitch", "--share", "60%", "-o", "share", *QUIET)
    recorder.run("07 reembed, 60%", *share)
    recorder.look("07 reembed, 60%", "share")
    recorder.run("08 fit for queries", *fit, "--direction", "query", "-o", "bridge", of_json=FIT)
    audit = ("audit", "new", "--source", "old", "--judged", "beir", *QUIET)
    recorder.run("09 audit, bridge", *audit, "--bridge", "bridge", "--reference", "build", of_json=("verdict",))
    # documents without known words share a vector, and distances of 0 make noise of intrinsic dimensions
    write_beir(Path("plain"), golden_data.ordinary(documents))
    for dim in (32, 24):
        embed = ("embed", "plain/corpus.jsonl", "--model", f"tfidf:{dim}", "--no-chunks", "-o", f"plain-{dim}")
        recorder.run(f"11 embed, {dim}", *embed, *QUIET)
    recorder.run("11 compare", "compare", "plain-32", "plain-24", "--sample", "200", *QUIET)
    np.savez("directions.npz", size=np.random.default_rng(0).normal(size=32).astype(np.float32))
    recorder.run("12 carry", "carry", "old", "stitch", "--directions", "directions.npz", "-o", "carried", *QUIET)
    run = (
        "run",
        "old",
        "--reference",
        "pool",
        *target,
        "--judged",
        "beir",
        "--sample",
        SAMPLE,
        "--kind",
        "ridge",
        "-o",
        "run",
    )
    recorder.run("13 run", *run, *QUIET, of_json=("verdict",))
    recorder.run("14 run again", *run, *QUIET, of_json=("verdict",))
    recorder.list_files("14 run again", Path("run"))
    recorder.run("15 translate to Parquet", "translate", "old", "stitch", "-o", "parquet:rows", *QUIET)
    shutil.copytree("old", "bare")
    lines = [json.dumps({"id": document.id}) for document in documents]
    Path("bare/docs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("lead-migrate.json", "embedder.json", "embedder.safetensors"):
        Path("bare", name).unlink()
    recorder.run("16 no texts, inspect", "inspect", "bare", "--json")
    recorder.run("17 no texts, fit", "fit", "bare", *target, "--sample", SAMPLE, "-o", "none", *QUIET)
    recorder.run("18 no texts, reembed", "reembed", "bare", *target, "-o", "none", *QUIET)
    damaged = Path("old/index.faiss").read_bytes()
    Path("bare/index.faiss").write_bytes(damaged[:-100])
    recorder.run("19 damaged", "inspect", "bare", "--json")
    recorder.run("20 usage", "translate", "old")
    recorder.run("21 unknown model", "fit", "old", "--target", "nothing:1", "-o", "none", *QUIET)
