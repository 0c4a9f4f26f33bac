"""The table of faults: what is wrong, the command, and its exit code; the line that says so is in `sentences.json`."""

import fault_cuts as cut
import fault_index as index
import fault_models as models
import fault_stores as stores
import fault_system as system
import fault_texts as texts
import openai_server as fake
from fault_index import faiss_writes, of_factory, then
from fault_place import Fault

INSPECT = ("inspect", "store")
FIT = ("fit", "store", "--target", "tfidf:8", "--sample", "50", "-o", "out", "-q")
TRANSLATE = system.TRANSLATE
ANY_STORE = (*TRANSLATE, "--any-store")
AUDIT = ("audit", "store", "--reference", "right", "--judged", "beir", "--report", "out.json", "-q", "-v")
POOL = ("--reference", "pool")
RUN = ("run", "store", *POOL, "--target", "tfidf:24", "--judged", "beir", "--sample", "60", "-o", "out", "-q")
EMBED = ("embed", "beir", "--model", "tfidf:8", "-o", "out", "-q")
FIT_FILE = ("fit", "store", "--target", "file:x.npz", "--sample", "50", "-o", "out", "-q")
BACKFILL = ("backfill", "store", "-o", "out", "-q")


def nothing(_place):
    pass


def cuts(what, name, sections, prepare, command=INSPECT, around=(-1, 0, 1)):
    return Fault(f"cut at each section: {what}", cut.cuts(name, sections, prepare, around), command, 4)


def faiss_cuts(factory, sections=cut.faiss_fields, around=(-1, 0, 1)):
    prepare = faiss_writes(of_factory(factory))
    return cuts(factory, "store/index.faiss", sections, prepare, around=around)


def called(command):
    """What tells a command from the others of a row."""
    return " ".join(part for part in command if part in (command[0], "--any-store"))


INDEX = [
    Fault("no index in the folder", stores.remove("store/index.faiss"), INSPECT, 4),
    Fault("a folder where the index should be", index.as_folder, INSPECT, 4),
    Fault("two indexes, looked at", index.second_index, INSPECT, 0),
    faiss_cuts("Flat"),
    faiss_cuts("IDMap2,IVF4,Flat", cut.faiss_arrays, around=(0,)),
    faiss_cuts("IVF4_HNSW4,Flat", cut.faiss_arrays, around=(0,)),
    faiss_cuts("SQ8", around=(0,)),
    faiss_cuts("PCA16,SQfp16", cut.faiss_arrays, around=(0,)),
    cuts("docs.jsonl", "store/docs.jsonl", cut.lines, nothing, around=(0,)),
    cuts("LlamaIndex's docstore", "store/docstore.json", cut.last_json_tokens, stores.llamaindex, around=(0,)),
    cuts("Parquet", "store/docs.parquet", cut.parquet_parts, stores.parquet),
    cuts("a dataset's Arrow", "store/data-0.arrow", cut.arrow_messages, stores.dataset),
    cuts("the manifest", "store/lead-migrate.json", cut.last_json_tokens, nothing, around=(0,)),
    cuts("a stitch's weights", "stitch/weights.safetensors", cut.tensors, nothing, command=TRANSLATE),
    cuts("a file of vectors", "x.npz", cut.zip_members, models.vectors_file(8), command=FIT_FILE),
    cuts("the model in a store", "store/embedder.safetensors", cut.tensors, nothing, command=AUDIT),
    cuts("the words of the model in a store", "store/embedder.json", cut.last_json_tokens, nothing, command=AUDIT),
    Fault("2^40 vectors in codes", then(faiss_writes(of_factory("SQ8")), index.pack(8, "<q", 1 << 40)), INSPECT, 4),
    Fault(
        "2^60 ids",
        then(
            faiss_writes(of_factory("IDMap,Flat")),
            index.edit(lambda raw: raw[: -150 * 8 - 8] + (1 << 60).to_bytes(8, "little") + raw[-150 * 8 :]),
        ),
        INSPECT,
        4,
    ),
    *[
        Fault(f"a flipped bit among the vectors, {called(command)}", index.flip(9_999), command, 4)
        for command in (INSPECT, TRANSLATE, ANY_STORE, FIT, AUDIT, BACKFILL, RUN, ("compare", "store", "store", "-q"))
    ],
    *[
        Fault(f"a flipped bit in the {name} of an audit", index.flipped_copy, command, 4)
        for name, command in (
            ("reference", (*AUDIT[:2], "--reference", "copy", *AUDIT[4:])),
            ("source", (*AUDIT, "--source", "copy")),
        )
    ],
    # nothing says that it is wrong; that nothing could is what a user has to know
    Fault("a flipped bit, and no checksum of the index", then(index.forget_checksum, index.flip(9_999)), INSPECT, 0),
    Fault(
        "a flipped bit, and no checksum", then(index.forget_checksum, index.forget_texts, index.flip(9_999)), INSPECT, 0
    ),
    Fault(
        "an unknown kind inside",
        then(faiss_writes(of_factory("IDMap,Flat")), index.edit(lambda raw: raw[:37] + b"IxZZ" + raw[41:])),
        INSPECT,
        4,
    ),
    Fault("a binary index", faiss_writes(index.binary), INSPECT, 4),
    Fault("fractions cut to whole numbers", faiss_writes(index.fractions_as_bytes), INSPECT, 4),
    Fault("a graph without vectors", index.graph_without_vectors, INSPECT, 4),
    Fault("one id twice", faiss_writes(index.labelled(3)), INSPECT, 4),
    # ids are texts and kept to the letter; FAISS itself takes any 64 bits
    Fault("negative and large ids", faiss_writes(index.labelled(-1, -(1 << 63), (1 << 63) - 1)), INSPECT, 0),
    Fault("not trained", faiss_writes(index.untrained), INSPECT, 4),
    # there is no audit of nothing: the way there is refused before it
    Fault("no vectors, fitted", faiss_writes(index.empty), FIT, 4),
    Fault("lists on disk are missing", index.lists_missing, INSPECT, 4),
    Fault("lists on disk are cut", index.lists_cut, INSPECT, 4),
    Fault("lists on disk linked beside the index", index.lists_linked, INSPECT, 0),
    *[
        Fault(f"{name} may not be read", index.unreadable(name), INSPECT, 5)
        for name in ("store", "store/index.faiss", "store/docs.jsonl", "store/lead-migrate.json")
    ],
    Fault("a stitch that may not be read", index.unreadable("stitch/weights.safetensors"), TRANSLATE, 5),
    Fault("a source that may not be written to", index.read_only, TRANSLATE, 0),
    Fault("the output is a link to the source", system.out_is_link("store"), TRANSLATE, 2),
    Fault(
        "the output would replace the source",
        nothing,
        ("translate", "store", "stitch", "-o", "store", "-q", "--force"),
        2,
    ),
    Fault(
        "the output would replace the stitch",
        nothing,
        ("translate", "store", "stitch", "-o", "stitch", "-q", "--force"),
        2,
    ),
    Fault("the source changes meanwhile", system.changes_meanwhile("content"), TRANSLATE, 4),
    Fault("the documents change meanwhile", system.changes_meanwhile("docs"), TRANSLATE, 4),
    Fault("the source vanishes meanwhile", system.changes_meanwhile("vanished"), TRANSLATE, 5),
    Fault("a quantizer of another metric", faiss_writes(index.two_metrics), INSPECT, 0),
    Fault("a PCA", faiss_writes(of_factory("PCA16,Flat")), INSPECT, 0),
    Fault("a device", index.device("store/index.faiss"), INSPECT, 4),
    *[
        Fault(f"{name} is a pipe", index.fifo(name), command, 4)
        for name, command in (
            ("store/docs.jsonl", INSPECT),
            ("store/lead-migrate.json", INSPECT),
            ("store/embedder.json", AUDIT),
            ("x.npz", FIT_FILE),
        )
    ],
    *[
        Fault(f"{name} has no end", index.device(name), command, 4)
        for name, command in (("store/docs.jsonl", INSPECT), ("stitch/weights.safetensors", TRANSLATE))
    ],
    Fault("a pickle in a pipe", then(stores.langchain, index.fifo("store/index.pkl")), FIT, 4),
    Fault("judgements in a pipe", index.fifo("beir/qrels/test.tsv"), AUDIT, 4),
]

VECTORS = [
    Fault("a vector of NaN", texts.put_row(99, float("nan")), ANY_STORE, 4),
    Fault("a NaN in an audit", texts.put_row(99, float("nan")), AUDIT, 4),
    Fault("a NaN, looked at", texts.put_row(99, float("nan")), INSPECT, 0),
    Fault("zero", texts.put_row(99, 0), ANY_STORE, 4),
    Fault("overflow after the stitch", models.spoil_weights(3e38), TRANSLATE, 4),
    # equal vectors are a poor store, not a broken one; the audit judges it
    Fault("all vectors equal", texts.put_rows(texts.EQUAL), FIT, 0),
    Fault("a constant column", texts.put_rows(texts.CONSTANT_COLUMN), FIT, 0),
    Fault("one not of unit length", texts.put_row(9, 3.5), INSPECT, 0),
]

TEXTS = [
    Fault("an array of objects", models.vectors_file(8, models.objects), FIT_FILE, 4),
    # nothing in the store contradicts itself; what comes of it answers badly, and the audit says so
    Fault("documents one row off their vectors", texts.drifted, RUN, 1),
    Fault("a blank text, embedded", stores.write("beir/corpus.jsonl", b'{"_id": "a", "text": " "}'), EMBED, 4),
    Fault("blank texts, passed over by the sample", texts.edit_documents(range(50), text=" "), FIT, 0),
    Fault("byte order marks, DOS line ends, blank lines", texts.marked_and_broken_by_dos, AUDIT, 3),
    Fault("judgements for unknown queries", texts.add_qrels("nobody\tnothing\t1\n"), AUDIT, 3),
    Fault("a query without a relevant document", texts.first_judgement_irrelevant, AUDIT, 3),
    Fault("queries without judgements", texts.keep_judgements(120), AUDIT, 3),
    Fault("five queries", texts.keep_judgements(5), AUDIT, 3),
]

MODELS = [
    Fault(
        "the source model has another dimension",
        then(models.another_store, models.vectors_file(16)),
        (*AUDIT, "--source", "other", "--source-model", "file:x.npz"),
        4,
    ),
    Fault("the target model has another dimension", models.vectors_file(16), (*AUDIT, "--target", "file:x.npz"), 4),
    Fault(
        "a failure half way, then again",
        models.server(fake.Fault(), *[fake.status(500)] * 16),
        models.FIT_API,
        7,
        after=models.pays_the_rest,
    ),
    Fault("the model has changed", models.refit_vocabulary, AUDIT, 4),
    Fault(
        "the file of vectors has changed",
        then(
            models.vectors_file(32),
            models.edit_manifest("store", lambda f: f["model"].update(spec="file:x.npz", dim=32, revision="0" * 64)),
        ),
        AUDIT,
        4,
    ),
]

ENVIRONMENT = [
    Fault(
        "the disk is full, at one write or another",
        system.disk(system.ENOSPC, stays=True),
        TRANSLATE,
        5,
        after=system.goes_on,
    ),
    Fault(
        "the disk is full before the end",
        system.file_limits(4096, 4095, 1, 10_000),
        TRANSLATE,
        5,
        after=system.lift_limit_and_go_on,
    ),
    Fault("too little room is told before", system.little_room, TRANSLATE, 5, after=system.goes_on),
    Fault("no room for what is printed", system.stdout_full, (*INSPECT, "--json"), 5),
    Fault(
        "the disk fails, at one write, fsync or rename",
        system.disk(system.EIO, stays=False),
        TRANSLATE,
        5,
        after=system.goes_on,
    ),
    Fault("kill -9, at each step", system.dies_at_each_step, TRANSLATE, 137, after=system.goes_on),
    Fault("SIGTERM", system.signalled(15), TRANSLATE, 143, after=system.goes_on),
    Fault("Ctrl-C", system.signalled(2), TRANSLATE, 130, after=system.goes_on),
    Fault("another run holds the output", system.locked, TRANSLATE, 6),
    Fault("the lock of a dead run", system.lock_of_the_dead, TRANSLATE, 0, after=system.same_bytes),
    Fault("other options for unfinished work", then(system.unfinished, models.another_stitch), TRANSLATE, 2),
    Fault("another source for unfinished work", then(system.unfinished, system.touch_docs), TRANSLATE, 4),
    Fault("out of memory", then(stores.large_docstore, system.memory(48 << 20)), INSPECT, 5),
    Fault("two threads", system.with_threads(2), TRANSLATE, 0, after=system.same_bytes),
    Fault("a jump of the clock and another time zone", system.clock_jumps_back, TRANSLATE, 0, after=system.same_bytes),
    Fault("a stitch with bytes after its end", models.longer_weights, TRANSLATE, 4),
    Fault("a stitch with NaN", models.spoil_weights(float("nan")), TRANSLATE, 4),
    Fault("a stitch with a norm of NaN", models.edit_details("stitch", norm="NaN"), TRANSLATE, 4),
]

MORE = [
    Fault("a document of 2 MB", texts.edit_documents([3], text="tea " * 500_000), FIT, 0),
    Fault("one document, looked at", texts.one_document, INSPECT, 0),
    Fault("fewer documents than are ranked", texts.small_corpus, AUDIT, 3),
    Fault("a stale manifest: of another index", stores.move("store/index.faiss", "store/renamed.faiss"), INSPECT, 0),
    Fault("a manifest of a stitch", stores.write("store/lead-migrate.json", b'{"kind": "stitch"}'), TRANSLATE, 4),
    Fault("an id that is a number in LangChain", stores.docstore_with(ids=[*stores.IDS[1:], 7]), INSPECT, 4),
    Fault("an index name that leads out of the folder", then(stores.langchain, models.edit_out_of_folder), INSPECT, 0),
    Fault("an index name of two lines", stores.move("store/index.faiss", "store/in\ndex.faiss"), INSPECT, 0),
    Fault(
        "a damaged index with a name of two lines",
        then(index.edit(lambda raw: raw[:-1]), stores.move("store/index.faiss", "store/\x1b[31mi\nn.faiss")),
        INSPECT,
        4,
    ),
    Fault("lists on disk are elsewhere", index.lists_elsewhere, INSPECT, 4),
    Fault("an array of 2^60 vectors", models.lying_member, FIT_FILE, 4),
    # a link is the will of who laid it, as in the cache of Hugging Face; what is read through it is told
    Fault("the index is a link out of the folder", stores.link("store/index.faiss", "elsewhere/blob"), INSPECT, 0),
    Fault(
        "a link to itself",
        lambda p: (p / "store").rename(p / "x") and (p / "store").symlink_to(p / "store"),
        INSPECT,
        5,
    ),
    Fault(
        "the output is a link out of the folder, replaced",
        system.out_is_link("elsewhere"),
        (*TRANSLATE, "--force"),
        0,
        after=system.same_bytes,
    ),
    Fault("the place of unfinished work is a link", system.link_beside(".out.work"), TRANSLATE, 5),
    Fault("the lock is a link", system.link_beside(".out.lock"), TRANSLATE, 5),
    Fault(
        "an output in a folder that may not be written to",
        system.folder_without_writing,
        ("translate", "store", "stitch", "-o", "sealed/out", "-q"),
        5,
    ),
    Fault(
        "an output below a file", stores.write("file", b""), ("translate", "store", "stitch", "-o", "file/out", "-q"), 5
    ),
    Fault("more dimensions than words", nothing, ("fit", "store", "--target", "tfidf:9999", "-o", "out"), 4),
    Fault("another file in the folder", stores.write("store/notes.txt", b"mine"), TRANSLATE, 0),
]

CHECK = ("check", "store", "--model", "tfidf:32", "-q")
COMPARE = ("compare", "store", "store", "-q")
ASSESS = ("assess", "store", "--target", "tfidf:16", "-q")

REPORTS = [
    Fault(
        "a page in a folder that may not be written to",
        system.folder_without_writing,
        (*AUDIT[:6], "--report", "sealed/out.html", "-q"),
        5,
    ),
    Fault(
        "a stitch in a folder that may not be written to",
        system.folder_without_writing,
        ("fit", "store", "--target", "tfidf:8", "-o", "sealed/out", "-q"),
        5,
    ),
    Fault("a report below a file", stores.write("file", b""), (*AUDIT[:6], "--report", "file/out.xml", "-q"), 5),
    Fault("an assessment in the store", nothing, (*ASSESS, "--report", "store/page.html"), 2),
    Fault("a finding of no kind", nothing, (*CHECK, "--report", "out.txt"), 2),
    Fault("a finding in place of the manifest", nothing, (*CHECK, "--report", "store/lead-migrate.json", "--force"), 2),
    Fault("a page inside the folder of figures", nothing, (*COMPARE, "--report", "out/page.html", "--csv", "out"), 2),
    Fault("labels that are all different", texts.labels("label {}"), (*COMPARE, "--labels", "labels.tsv"), 4),
    Fault("a report that never ends", nothing, (*ASSESS, "--audit", "/dev/zero"), 4),
    Fault("a metadata field that no document has", nothing, (*AUDIT, "--slice", "colour"), 3),
    Fault(
        "a store that has no words of the model",
        then(stores.remove("store/embedder.json"), stores.remove("store/embedder.safetensors")),
        (*CHECK, "--full"),
        4,
    ),
    Fault("the summary of a run is a folder", system.summary_is_folder, CHECK, 5),
    Fault("a margin that is no number", nothing, (*AUDIT, "--margin", "nan"), 2),
]

HASHES = [
    Fault("other texts", texts.reworded, TRANSLATE, 4),
    Fault("no texts any more", stores.remove("store/docs.jsonl"), TRANSLATE, 4),
    Fault("other texts than the stitch was fitted on", then(texts.reworded, index.forget_documents), TRANSLATE, 4),
    Fault(
        "other texts than the stitch was fitted on, allowed", then(texts.reworded, index.forget_documents), ANY_STORE, 0
    ),
    Fault("a stitch that has noted no texts", then(texts.reworded, index.forget_texts), TRANSLATE, 0),
    Fault("a flipped digit in the manifest of a stitch", models.flip_digits("stitch"), TRANSLATE, 4),
    Fault("a flipped digit in the manifest of a store", models.flip_digits("store"), INSPECT, 4),
    Fault("a stitch without one of its arrays, whose hash is right all the same", models.drop_array, TRANSLATE, 4),
]

SECTIONS = {
    "index": INDEX,
    "vectors": VECTORS,
    "texts": TEXTS,
    "models": MODELS,
    "environment": ENVIRONMENT,
    "more": MORE,
    "reports": REPORTS,
    "hashes": HASHES,
}
FAULTS = {f"{section}: {fault.name}": fault for section, rows in SECTIONS.items() for fault in rows}
