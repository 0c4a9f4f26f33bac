"""The table of faults: what is wrong, the command, its exit code, and the line that says so (`*` for what varies)."""

# fmt: off


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
ENDLESS = "{}: this is a pipe, a socket or a device; give a file or a folder"
NOT_READ = "store/index.faiss: FAISS cannot read the file (*); copy it again or build it again"
TRANSLATED = "out: 150 vectors, dimension 32 to 24, 60 of them true ones, in * s"
NO_INDEX = (
    "store: there is no FAISS index here, only docs.jsonl, embedder.json, embedder.safetensors, lead-"
    "migrate.json; give the folder that holds the store"
)
NO_TEXTS = (
    'store: the store has no texts to embed again; put a docs.jsonl ({"id", "text"} a line) '
    'beside the index, or take vectors found by id: --target file:VECTORS.npz, without doc_texts'
)
NAN = "store: NaN, Inf or overflowing vector for document * (1 bad of 150 in this batch); re-embed or remove it"
ZERO = "store: zero vector for document * (1 bad of 150 in this batch); re-embed or remove it"
OTHER_DIM = "store: its vectors have dimension 32, those of file:x.npz 16; name the model that it was built with"
NO_RIGHT = "cannot read {}: Permission denied; check that it is there and readable"
OVERLAPS = "{} overlaps {}, which is read; choose an output outside of it"
CHANGED = "{}: changed while it was read; nothing was written, run the same command again"
TRY_LATER = "http://127.0.0.1:*/v1 failed 8 times, the last time with: {}; try again later"
NO_NPZ = "x.npz: not an .npz file, or a damaged one (*); copy it again, or write it with numpy.savez"
CUT_JSON = "{}: damaged, or not of this store (*); copy it again, or save the store again"
CUT_TABLE = "{}: not valid JSON (*); the file is damaged, copy or make it again"
OTHER_HASH = "{}: its BLAKE3 is not the one in the manifest; fit the stitch again"
OTHER_BYTES = ("{}: its BLAKE3 * is not that of the manifest, *; the file was damaged or replaced: copy it again, "
               "make the store again, or, if you changed it, stamp the store again (lead-migrate stamp --force)")
EDITED = ("{}/lead-migrate.json: the content does not match its own SHA-256 (*..., now *...); it was damaged or "
          "edited: copy it again, or make the {} again")


def nothing(_place):
    pass


def cuts(what, name, sections, prepare, says, command=INSPECT, around=(-1, 0, 1)):
    return Fault(f"cut at each section: {what}", cut.cuts(name, sections, prepare, around), command, 4, says)


def faiss_cuts(factory, sections=cut.faiss_fields, around=(-1, 0, 1)):
    prepare = faiss_writes(of_factory(factory))
    return cuts(factory, "store/index.faiss", sections, prepare, "store/index.faiss: *; *", around=around)


def called(command):
    """What tells a command from the others of a row."""
    return " ".join(part for part in command if part in (command[0], "--any-store"))


INDEX = [
    Fault("no index in the folder", stores.remove("store/index.faiss"), INSPECT, 4, NO_INDEX),
    Fault("a folder where the index should be", index.as_folder, INSPECT, 4, NO_INDEX),
    Fault("two indexes, looked at", index.second_index, INSPECT, 0, "store/second.faiss * 150 *"),
    faiss_cuts("Flat"),
    faiss_cuts("IDMap2,IVF4,Flat", cut.faiss_arrays, around=(0,)),
    faiss_cuts("IVF4_HNSW4,Flat", cut.faiss_arrays, around=(0,)),
    faiss_cuts("SQ8", around=(0,)),
    faiss_cuts("PCA16,SQfp16", cut.faiss_arrays, around=(0,)),
    cuts("docs.jsonl", "store/docs.jsonl", cut.lines, nothing,
          "store/docs.jsonl:*: not a JSON object (*); correct the line", around=(0,)),
    cuts("LlamaIndex's docstore", "store/docstore.json", cut.last_json_tokens, stores.llamaindex,
          CUT_JSON.format("store/docstore.json"), around=(0,)),
    cuts("Parquet", "store/docs.parquet", cut.parquet_parts, stores.parquet,
          "store/docs.parquet: no readable Arrow or Parquet file (*); the file is damaged or was not copied whole; "
          "copy it again"),
    cuts("a dataset's Arrow", "store/data-0.arrow", cut.arrow_messages, stores.dataset,
          "store*: *; *"),
    cuts("the manifest", "store/lead-migrate.json", cut.last_json_tokens, nothing,
          CUT_TABLE.format("store/lead-migrate.json"), around=(0,)),
    cuts("a stitch's weights", "stitch/weights.safetensors", cut.tensors, nothing,
          OTHER_HASH.format("stitch/weights.safetensors"), TRANSLATE),
    cuts("a file of vectors", "x.npz", cut.zip_members, models.vectors_file(8), NO_NPZ, FIT_FILE),
    cuts("the model in a store", "store/embedder.safetensors", cut.tensors, nothing,
          "store: the saved state of tfidf:32 is damaged (*); fit it again", AUDIT),
    cuts("the words of the model in a store", "store/embedder.json", cut.last_json_tokens, nothing,
          "store: the saved state of tfidf:32 is damaged (*); fit it again", AUDIT),
    Fault("2^40 vectors in codes", then(faiss_writes(of_factory("SQ8")), index.pack(8, "<q", 1 << 40)),
          INSPECT, 4, NOT_READ),
    Fault("2^60 ids", then(faiss_writes(of_factory("IDMap,Flat")), index.edit(
        lambda raw: raw[:-150 * 8 - 8] + (1 << 60).to_bytes(8, "little") + raw[-150 * 8:])), INSPECT, 4, NOT_READ),
    *[Fault(f"a flipped bit among the vectors, {called(command)}", index.flip(9_999), command, 4,
            OTHER_BYTES.format("store/index.faiss"))
      for command in (INSPECT, TRANSLATE, ANY_STORE, FIT, AUDIT, BACKFILL, RUN, ("compare", "store", "store", "-q"))],
    *[Fault(f"a flipped bit in the {name} of an audit", index.flipped_copy, command, 4,
            OTHER_BYTES.format("copy/index.faiss"))
      for name, command in (("reference", (*AUDIT[:2], "--reference", "copy", *AUDIT[4:])),
                            ("source", (*AUDIT, "--source", "copy")))],
    # nothing says that it is wrong; that nothing could is what a user has to know
    Fault("a flipped bit, and no checksum of the index", then(index.forget_checksum, index.flip(9_999)), INSPECT,
          0, "checksum *as in the manifest: docs.jsonl; none of index.faiss"),
    Fault("a flipped bit, and no checksum", then(index.forget_checksum, index.forget_texts, index.flip(9_999)),
          INSPECT, 0, "checksum *none to compare with"),
    Fault("an unknown kind inside", then(faiss_writes(of_factory("IDMap,Flat")), index.edit(
        lambda raw: raw[:37] + b"IxZZ" + raw[41:])), INSPECT, 4, NOT_READ),
    Fault("a binary index", faiss_writes(index.binary), INSPECT, 4,
          "store/index.faiss: a binary index (IBxF); its vectors are bits, which no map between "
          "embedding spaces applies to: use the index of the float vectors"),
    Fault("fractions cut to whole numbers", faiss_writes(index.fractions_as_bytes), INSPECT, 4,
          "store/index.faiss: the 8bit_direct codes hold only 0 to 0: the vectors were fractions, and nothing of "
          "them is left; embed the documents again"),
    Fault("a graph without vectors", index.graph_without_vectors, INSPECT, 4,
          "store/index.faiss: the index holds the graph but not the vectors; save it without IO_FLAG_SKIP_STORAGE"),
    Fault("one id twice", faiss_writes(index.labelled(3)), INSPECT, 4,
          "store/index.faiss: two vectors have the id 3 (1 repetitions); remove the stale vectors and save the "
          "index again"),
    # ids are texts and kept to the letter; FAISS itself takes any 64 bits
    Fault("negative and large ids", faiss_writes(index.labelled(-1, -(1 << 63), (1 << 63) - 1)), INSPECT, 0,
          "notes *a document has the id -1, with which FAISS also says that it found nothing"),
    Fault("not trained", faiss_writes(index.untrained), INSPECT, 4,
          "store/index.faiss: the IndexIVFFlat is not trained; train and fill it first"),
    # there is no audit of nothing: the way there is refused before it
    Fault("no vectors, fitted", faiss_writes(index.empty), FIT, 4,
          "store: holds no vectors, so there is nothing to move; give a store that does"),
    Fault("lists on disk are missing", index.lists_missing, INSPECT, 4, NOT_READ),
    Fault("lists on disk are cut", index.lists_cut, INSPECT, 4,
          "store/index.faiss: store/lists.ivfdata holds 65535 of the 65536 bytes of inverted lists; copy it too"),
    Fault("lists on disk linked beside the index", index.lists_linked, INSPECT, 0,
          "notes *read and copied through links out of the folder: lists.ivfdata"),
    *[Fault(f"{name} may not be read", index.unreadable(name), INSPECT, 5, NO_RIGHT.format(name))
      for name in ("store", "store/index.faiss", "store/docs.jsonl", "store/lead-migrate.json")],
    Fault("a stitch that may not be read", index.unreadable("stitch/weights.safetensors"), TRANSLATE, 5,
          "cannot read stitch: Permission denied; check the permissions"),
    Fault("a source that may not be written to", index.read_only, TRANSLATE, 0, TRANSLATED),
    Fault("the output is a link to the source", system.out_is_link("store"), TRANSLATE, 2,
          OVERLAPS.format("out", "store")),
    Fault("the output would replace the source", nothing,
          ("translate", "store", "stitch", "-o", "store", "-q", "--force"), 2, OVERLAPS.format("store", "store")),
    Fault("the output would replace the stitch", nothing,
          ("translate", "store", "stitch", "-o", "stitch", "-q", "--force"), 2, OVERLAPS.format("stitch", "stitch")),
    Fault("the source changes meanwhile", system.changes_meanwhile("content"), TRANSLATE, 4,
          CHANGED.format("store/index.faiss")),
    Fault("the documents change meanwhile", system.changes_meanwhile("docs"), TRANSLATE, 4,
          CHANGED.format("store/docs.jsonl")),
    Fault("the source vanishes meanwhile", system.changes_meanwhile("vanished"), TRANSLATE, 5,
          "cannot read store/index.faiss: No such file or directory; check that it is there and readable"),
    Fault("a quantizer of another metric", faiss_writes(index.two_metrics), INSPECT, 0,
          "notes *the quantizer compares by l2, the lists by ip"),
    Fault("a PCA", faiss_writes(of_factory("PCA16,Flat")), INSPECT, 0,
          "notes *PCAMatrix projects 32 dimensions to 16; what lay outside of these is lost"),
    Fault("a device", index.device("store/index.faiss"), INSPECT, 4, NO_INDEX),
    *[Fault(f"{name} is a pipe", index.fifo(name), command, 4, ENDLESS.format(name))
      for name, command in (("store/docs.jsonl", INSPECT), ("store/lead-migrate.json", INSPECT),
                            ("store/embedder.json", AUDIT), ("x.npz", FIT_FILE))],
    *[Fault(f"{name} has no end", index.device(name), command, 4, ENDLESS.format(name))
      for name, command in (("store/docs.jsonl", INSPECT), ("stitch/weights.safetensors", TRANSLATE))],
    Fault("a pickle in a pipe", then(stores.langchain, index.fifo("store/index.pkl")), FIT, 4, NO_TEXTS),
    Fault("judgements in a pipe", index.fifo("beir/qrels/test.tsv"), AUDIT, 4,
          "beir/qrels/test.tsv: is a folder or a device, not a file; check the path"),
]

VECTORS = [
    Fault("a vector of NaN", texts.put_row(99, float("nan")), ANY_STORE, 4, NAN),
    Fault("a NaN in an audit", texts.put_row(99, float("nan")), AUDIT, 4, NAN),
    Fault("a NaN, looked at", texts.put_row(99, float("nan")), INSPECT, 0, "bad vectors *1"),
    Fault("zero", texts.put_row(99, 0), ANY_STORE, 4, ZERO),
    Fault("overflow after the stitch", models.spoil_weights(3e38), TRANSLATE, 4,
          "store after the ridge stitch: NaN, Inf or overflowing vector for document * (150 bad of 150 in this "
          "batch); re-embed or remove it"),
    # equal vectors are a poor store, not a broken one; the audit judges it
    Fault("all vectors equal", texts.put_rows(texts.EQUAL), FIT, 0, "out: *, fitted on 50 of 150 documents"),
    Fault("a constant column", texts.put_rows(texts.CONSTANT_COLUMN), FIT, 0, "out: *, fitted on 50 of 150 documents"),
    Fault("one not of unit length", texts.put_row(9, 3.5), INSPECT, 0, "norms *1 to 19.8"),
]

TEXTS = [
    Fault("an array of objects", models.vectors_file(8, models.objects), FIT_FILE, 4,
          "x.npz: docs.npy holds Python objects or records, which are not read; save plain arrays"),
    # nothing in the store contradicts itself; what comes of it answers badly, and the audit says so
    Fault("documents one row off their vectors", texts.drifted, RUN, 1, "translated alone: NOT SAFE: *"),
    Fault("a blank text, embedded", stores.write("beir/corpus.jsonl", b'{"_id": "a", "text": " "}'), EMBED, 4,
          "document 'a' has no text to embed; give it one, or drop it with --skip-bad"),
    Fault("blank texts, passed over by the sample", texts.edit_documents(range(50), text=" "), FIT, 0,
          "out: *, fitted on 50 of 150 documents"),
    Fault("byte order marks, DOS line ends, blank lines", texts.marked_and_broken_by_dos, AUDIT, 3,
          "INCONCLUSIVE: retention 100.0 %*"),
    Fault("judgements for unknown queries", texts.add_qrels("nobody\tnothing\t1\n"), AUDIT, 3,
          "note: 1 judged queries have no text in beir; they are left out"),
    Fault("a query without a relevant document", texts.first_judgement_irrelevant, AUDIT, 3,
          "note: 1 queries have no relevant document; every arm scores 0"),
    Fault("queries without judgements", texts.keep_judgements(120), AUDIT, 3, "beir: 120 queries in *"),
    Fault("five queries", texts.keep_judgements(5), AUDIT, 3,
          "INCONCLUSIVE: *; 5 queries are too few for a verdict, which*"),
]

MODELS = [
    Fault("the source model has another dimension", then(models.another_store, models.vectors_file(16)), (
        *AUDIT, "--source", "other", "--source-model", "file:x.npz"), 4, OTHER_DIM.replace("store", "other", 1)),
    Fault("the target model has another dimension", models.vectors_file(16), (*AUDIT, "--target", "file:x.npz"),
          4, OTHER_DIM),
    Fault("a failure half way, then again", models.server(fake.Fault(), *[fake.status(500)] * 16), models.FIT_API, 7,
          TRY_LATER.format("HTTP 500 (spoiled)"), models.pays_the_rest),
    Fault("the model has changed", models.refit_vocabulary, AUDIT, 4,
          "store: tfidf:32 has changed since the store was made, from revision * to *; name the model as it was, or *"),
    Fault("the file of vectors has changed", then(models.vectors_file(32), models.edit_manifest(
        "store", lambda f: f["model"].update(spec="file:x.npz", dim=32, revision="0" * 64))), AUDIT, 4,
          "store: file:x.npz has changed since the store was made, from revision * to *; name the model as it was, *"),
]

ENVIRONMENT = [
    Fault("the disk is full, at one write or another", system.disk(system.ENOSPC, stays=True), TRANSLATE, 5,
          "cannot write *: No space left on device; free some space and run the same command again",
          system.goes_on),
    Fault("the disk is full before the end", system.file_limits(4096, 4095, 1, 10_000), TRANSLATE, 5,
          "cannot write .out.work/content/index.faiss: File too large; raise the limit on file sizes (ulimit -f), "
          "and run the same command again",
          system.lift_limit_and_go_on),
    Fault("too little room is told before", system.little_room, TRANSLATE, 5,
          "cannot write out: it needs 14400 bytes, but only 1000 are free; free some "
          "space, or choose another output, and run the same command again", system.goes_on),
    Fault("no room for what is printed", system.stdout_full, (*INSPECT, "--json"), 5,
          "cannot write to standard output: No space left on device; free some space, or send it elsewhere"),
    Fault("the disk fails, at one write, fsync or rename", system.disk(system.EIO, stays=False), TRANSLATE, 5,
          "cannot write *: Input/output error; see what holds it, and run the same command again", system.goes_on),
    Fault("kill -9, at each step", system.dies_at_each_step, TRANSLATE, 137, "", system.goes_on),
    Fault("SIGTERM", system.signalled(15), TRANSLATE, 143,
          "interrupted; continue with the same command: 150 of 150 rows are done", system.goes_on),
    Fault("Ctrl-C", system.signalled(2), TRANSLATE, 130,
          "interrupted; continue with the same command: 150 of 150 rows are done", system.goes_on),
    Fault("another run holds the output", system.locked, TRANSLATE, 6,
          "another run is writing out; wait for it, or choose another output"),
    Fault("the lock of a dead run", system.lock_of_the_dead, TRANSLATE, 0, TRANSLATED, system.same_bytes),
    Fault("other options for unfinished work", then(system.unfinished, models.another_stitch), TRANSLATE, 2,
          "out: the unfinished work there was begun with other values of stitch; to "
          "discard the unfinished work and start over, add --restart"),
    Fault("another source for unfinished work", then(system.unfinished, system.touch_docs), TRANSLATE, 4,
          "out: the unfinished work there was begun with another source, or it changed since; to "
          "discard the unfinished work and start over, add --restart"),
    Fault("out of memory", then(stores.large_docstore, system.memory(48 << 20)), INSPECT, 5,
          "out of memory; free some, use a smaller batch, or take a machine with more"),
    Fault("two threads", system.with_threads(2), TRANSLATE, 0, TRANSLATED, system.same_bytes),
    Fault("a jump of the clock and another time zone", system.clock_jumps_back, TRANSLATE, 0, TRANSLATED,
          system.same_bytes),
    Fault("a stitch with bytes after its end", models.longer_weights, TRANSLATE, 4,
          OTHER_HASH.format("stitch/weights.safetensors")),
    Fault("a stitch with NaN", models.spoil_weights(float("nan")), TRANSLATE, 4,
          "stitch: the weights of the stitch hold NaN or Inf; fit the stitch again"),
    Fault("a stitch with a norm of NaN", models.edit_details("stitch", norm="NaN"), TRANSLATE, 4,
          "stitch/lead-migrate.json: in its details 'norm' must be a number, and is 'NaN'; *"),
]

MORE = [
    Fault("a document of 2 MB", texts.edit_documents([3], text="tea " * 500_000), FIT, 0,
          "out: *, fitted on 50 of 150 documents"),
    Fault("one document, looked at", texts.one_document, INSPECT, 0, "vectors *1"),
    Fault("fewer documents than are ranked", texts.small_corpus, AUDIT, 3,
          "caveat: 120 of 150 relevant documents are not in the stores, so that no arm can find them, and *"),
    Fault("a stale manifest: of another index", stores.move("store/index.faiss", "store/renamed.faiss"),
          INSPECT, 0, "notes *the manifest in the folder is not of renamed.faiss; it is ignored"),
    Fault("a manifest of a stitch", stores.write("store/lead-migrate.json", b'{"kind": "stitch"}'), TRANSLATE,
          4, "store: this is a stitch, not a store; give the folder of a store"),
    Fault("an id that is a number in LangChain", stores.docstore_with(ids=[*stores.IDS[1:], 7]), INSPECT, 4,
          "store/index.pkl: an id is 7, not text; save the store again with text ids"),
    Fault("an index name that leads out of the folder", then(stores.langchain, models.edit_out_of_folder), INSPECT,
          0, "notes *the manifest in the folder is not of index.faiss; it is ignored"),
    Fault("an index name of two lines", stores.move("store/index.faiss", "store/in\ndex.faiss"), INSPECT, 0,
          "notes *the manifest in the folder is not of in\\ndex.faiss; it is ignored"),
    Fault("a damaged index with a name of two lines", then(
        index.edit(lambda raw: raw[:-1]), stores.move("store/index.faiss", "store/\x1b[31mi\nn.faiss")), INSPECT,
          4,
          "store/\\x1b[31mi\\nn.faiss: FAISS cannot read the file (*); copy it again or build it again"),
    Fault("lists on disk are elsewhere", index.lists_elsewhere, INSPECT, 4, NOT_READ),
    Fault("an array of 2^60 vectors", models.lying_member, FIT_FILE, 4,
          "x.npz: docs.npy claims an array of shape (1152921504606846976, 8) in 192 bytes; the file is damaged, "
          "copy it again"),
    # a link is the will of who laid it, as in the cache of Hugging Face; what is read through it is told
    Fault("the index is a link out of the folder", stores.link("store/index.faiss", "elsewhere/blob"), INSPECT,
          0, "notes *read and copied through links out of the folder: index.faiss"),
    Fault("a link to itself", lambda p: (p / "store").rename(p / "x") and (p / "store").symlink_to(p / "store"),
          INSPECT, 5, "cannot read store: Too many levels of symbolic links; check that it is there and readable"),
    Fault("the output is a link out of the folder, replaced", system.out_is_link("elsewhere"),
          (*TRANSLATE, "--force"), 0, TRANSLATED, system.same_bytes),
    Fault("the place of unfinished work is a link", system.link_beside(".out.work"), TRANSLATE, 5,
          "cannot write .out.work: it is a link, which could lead anywhere; remove the link"),
    Fault("the lock is a link", system.link_beside(".out.lock"), TRANSLATE, 5,
          "cannot write .out.lock: it is a link, which could lead anywhere; remove the link"),
    Fault("an output in a folder that may not be written to", system.folder_without_writing,
          ("translate", "store", "stitch", "-o", "sealed/out", "-q"), 5,
          "cannot write sealed/out: *sealed is not writable; check the permissions, or choose another place"),
    Fault("an output below a file", stores.write("file", b""),
          ("translate", "store", "stitch", "-o", "file/out", "-q"), 5,
          "cannot write file/out: *file is not a folder; choose another place"),
    Fault("more dimensions than words", nothing, ("fit", "store", "--target", "tfidf:9999", "-o", "out"), 4,
          "tfidf:9999 needs at least 9999 documents and words, and there are 150 and *; choose a smaller dimension"),
    Fault("another file in the folder", stores.write("store/notes.txt", b"mine"), TRANSLATE, 0, TRANSLATED),
]

CHECK = ("check", "store", "--model", "tfidf:32", "-q")
COMPARE = ("compare", "store", "store", "-q")
ASSESS = ("assess", "store", "--target", "tfidf:16", "-q")

REPORTS = [
    Fault("a page in a folder that may not be written to", system.folder_without_writing,
          (*AUDIT[:6], "--report", "sealed/out.html", "-q"), 5,
          "cannot write sealed/out.html: *sealed is not writable; check the permissions, or choose another place"),
    Fault("a stitch in a folder that may not be written to", system.folder_without_writing,
          ("fit", "store", "--target", "tfidf:8", "-o", "sealed/out", "-q"), 5,
          "cannot write sealed/out: *sealed is not writable; check the permissions, or choose another place"),
    Fault("a report below a file", stores.write("file", b""), (*AUDIT[:6], "--report", "file/out.xml", "-q"), 5,
          "cannot write file/out.xml: *file is not a folder; choose another place"),
    Fault("an assessment in the store", nothing, (*ASSESS, "--report", "store/page.html"), 2,
          OVERLAPS.format("store/page.html", "store")),
    Fault("a finding of no kind", nothing, (*CHECK, "--report", "out.txt"), 2,
          "--report out.txt: the ending chooses the kind of report; end it in .json or .html or .xml"),
    Fault("a finding in place of the manifest", nothing, (*CHECK, "--report", "store/lead-migrate.json", "--force"),
          2, OVERLAPS.format("store/lead-migrate.json", "store")),
    Fault("a page inside the folder of figures", nothing, (*COMPARE, "--report", "out/page.html", "--csv", "out"), 2,
          "--report and --csv: out/page.html and out are one output, or one is in the other; choose another"),
    Fault("labels that are all different", texts.labels("label {}"), (*COMPARE, "--labels", "labels.tsv"), 4,
          "too few labels: of the 150 labels of 150 compared documents 0 occur twice or more, and two must; check "
          "the labels"),
    Fault("a report that never ends", nothing, (*ASSESS, "--audit", "/dev/zero"), 4, ENDLESS.format("/dev/zero")),
    Fault("a metadata field that no document has", nothing, (*AUDIT, "--slice", "colour"), 3,
          "note: --slice: no document that the queries are about has 'colour' in its metadata"),
    Fault("a store that has no words of the model", then(stores.remove("store/embedder.json"), stores.remove(
        "store/embedder.safetensors")), (*CHECK, "--full"), 4,
          "store: the words that tfidf:32 learned (embedder.json, embedder.safetensors) are missing; only a store "
          "that lead-migrate embedded has them: name another model"),
    Fault("the summary of a run is a folder", system.summary_is_folder, CHECK, 5,
          "cannot write beir: Is a directory; see what holds it, and run the same command again"),
    Fault("a margin that is no number", nothing, (*AUDIT, "--margin", "nan"), 2,
          "Invalid value for '--margin': * is not a number; see lead-migrate audit --help"),
]

HASHES = [
    Fault("other texts", texts.reworded, TRANSLATE, 4, OTHER_BYTES.format("store/docs.jsonl")),
    Fault("no texts any more", stores.remove("store/docs.jsonl"), TRANSLATE, 4,
          "store/docs.jsonl: the manifest has the hash of this file, which is missing; copy it again, or, if you "
          "removed it, stamp the store again (lead-migrate stamp --force)"),
    Fault("other texts than the stitch was fitted on", then(texts.reworded, index.forget_documents), TRANSLATE, 4,
          "store: the stitch was fitted on another store (the same vectors, other texts); fit again, or allow it with "
          "--any-store if the model is the same"),
    Fault("other texts than the stitch was fitted on, allowed", then(texts.reworded, index.forget_documents),
          ANY_STORE, 0, "out: 150 vectors, dimension 32 to 24, 0 of them true ones, in * s"),
    Fault("a stitch that has noted no texts", then(texts.reworded, index.forget_texts), TRANSLATE, 0, TRANSLATED),
    Fault("a flipped digit in the manifest of a stitch", models.flip_digits("stitch"), TRANSLATE, 4,
          EDITED.format("stitch", "stitch")),
    Fault("a flipped digit in the manifest of a store", models.flip_digits("store"), INSPECT, 4,
          EDITED.format("store", "store")),
    Fault("a stitch without one of its arrays, whose hash is right all the same", models.drop_array, TRANSLATE, 4,
          "stitch/weights.safetensors: the array 'stitch.offset', which the manifest names, is missing (1 missing "
          "in all); fit the stitch again"),
]

SECTIONS = {"index": INDEX, "vectors": VECTORS, "texts": TEXTS, "models": MODELS, "environment": ENVIRONMENT,
            "more": MORE, "reports": REPORTS, "hashes": HASHES}
FAULTS = {f"{section}: {fault.name}": fault for section, rows in SECTIONS.items() for fault in rows}
