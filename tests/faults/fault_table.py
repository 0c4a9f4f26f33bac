"""The table of faults: what is wrong, the command, its exit code, and the line that says so (`*` for what varies)."""

# fmt: off

import os
import pickle

import fault_cuts as cut
import fault_index as index
import fault_models as models
import fault_stores as stores
import fault_system as system
import fault_texts as texts
import openai_server as fake
from fault_index import faiss_writes, of_factory, then
from fault_place import Fault
from hostile_pickles import HOSTILE

INSPECT = ("inspect", "store")
FIT = ("fit", "store", "--target", "tfidf:8", "--sample", "50", "-o", "out", "-q")
TRANSLATE = system.TRANSLATE
ANY_STORE = (*TRANSLATE, "--any-store")
AUDIT = ("audit", "store", "--reference", "right", "--judged", "beir", "--report", "out.json", "-q", "-v")
RUN = ("run", "store", "--target", "tfidf:24", "--judged", "beir", "--sample", "60", "-o", "out", "-q")
EMBED = ("embed", "beir", "--model", "tfidf:8", "-o", "out", "-q")
FIT_FILE = ("fit", "store", "--target", "file:x.npz", "--sample", "50", "-o", "out", "-q")
FIT_API = models.FIT_API


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
HOSTILE_CLASS = (
    "store/index.pkl: the pickle holds the class posix.system, which is not part of a LangChain docstore; "
    "nothing was executed: if you trust the file, save the store again with plain metadata (text, "
    "numbers, lists, dates)"
)
OTHER_DIM = "store: its vectors have dimension 32, those of file:x.npz 16; name the model that it was built with"
NO_RIGHT = "cannot read {}: Permission denied; check that it is there and readable"
OVERLAPS = "{} overlaps {}, which is read; choose an output outside of it"
CHANGED = "{}: changed while it was read; nothing was written, run the same command again"
LINE_6 = "store/docs.jsonl:6: {}; correct the line"
SERVER = "http://127.0.0.1:*/v1 failed {}, the last time with: {}; check --base-url and the model behind it"
TRY_LATER = "http://127.0.0.1:*/v1 failed 8 times, the last time with: {}; try again later"
NO_NPZ = "x.npz: not an .npz file, or a damaged one (*); copy it again, or write it with numpy.savez"
CUT_JSON = "{}: damaged, or not of this store (*); copy it again, or save the store again"
CUT_TABLE = "{}: not valid JSON (*); the file is damaged, copy or make it again"
OTHER_HASH = "{}: its SHA-256 is not the one in the manifest; fit the stitch again"
NO_CORPUS = "beir/corpus.jsonl: the file has no documents; check how it was written"
OTHER_BYTES = ("{}: its SHA-256 * is not that of the manifest, *; the file was damaged or replaced: copy it again, "
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


def coded_cuts(factory):
    """Fewer of them: each takes a process of its own."""
    return faiss_cuts(factory, cut.faiss_arrays, around=(0,))


def called(command):
    """What tells a command from the others of a row."""
    return " ".join(part for part in command if part in (command[0], "--any-store"))


INDEX = [
    Fault("no such store", stores.remove("store"), INSPECT, 4, "store: no such file or folder; check the path"),
    Fault("no index in the folder", stores.remove("store/index.faiss"), INSPECT, 4, NO_INDEX),
    Fault("an empty folder", then(stores.remove("store"), lambda p: (p / "store").mkdir()), INSPECT, 4,
          "store: there is no FAISS index here, only an empty folder; give the folder that holds the store"),
    Fault("a folder where the index should be", index.as_folder, INSPECT, 4, NO_INDEX),
    Fault("two indexes", index.second_index, FIT, 4,
          "store: has 2 FAISS indexes (index.faiss, second.faiss); give one of these"),
    Fault("two indexes, looked at", index.second_index, INSPECT, 0, "store/second.faiss * 150 *"),
    Fault("an empty file", index.put(b""), INSPECT, 4,
          "store/index.faiss: this is not a FAISS index but an empty file; copy or write it again"),
    faiss_cuts("Flat"),
    faiss_cuts("IDMap,Flat"),
    faiss_cuts("IDMap2,IVF4,Flat"),
    faiss_cuts("IVF4,Flat"),
    faiss_cuts("IVF4_HNSW4,Flat"),
    faiss_cuts("HNSW4,Flat"),
    faiss_cuts("SQ8", around=(0,)),
    coded_cuts("IVF2,PQ4x4"),
    coded_cuts("PCA16,SQfp16"),
    cuts("LangChain's pickle", "store/index.pkl", cut.pickle_instructions, stores.langchain,
          "store/index.pkl: the unpickler cannot read the file (*); copy the file again, or save the store again with "
          "LangChain"),
    cuts("docs.jsonl", "store/docs.jsonl", cut.lines, nothing,
          "store/docs.jsonl:*: not a JSON object (*); correct the line", around=(0,)),
    cuts("LlamaIndex's docstore", "store/docstore.json", cut.json_tokens, stores.llamaindex,
          CUT_JSON.format("store/docstore.json")),
    cuts("LlamaIndex's index store", "store/index_store.json", cut.json_tokens, stores.llamaindex,
          CUT_JSON.format("store/index_store.json")),
    cuts("Parquet", "store/docs.parquet", cut.parquet_parts, stores.parquet,
          "store/docs.parquet: no readable Arrow or Parquet file (*); the file is damaged or was not copied whole; "
          "copy it again"),
    cuts("a dataset's Arrow", "store/data-0.arrow", cut.arrow_messages, stores.dataset,
          "store*: *; *"),
    cuts("a dataset's state", "store/state.json", cut.json_tokens, stores.dataset, CUT_JSON.format("store/state.json")),
    cuts("the manifest", "store/lead-migrate.json", cut.json_tokens, nothing,
          CUT_TABLE.format("store/lead-migrate.json")),
    cuts("a stitch's weights", "stitch/weights.safetensors", cut.tensors, nothing,
          OTHER_HASH.format("stitch/weights.safetensors"), TRANSLATE),
    cuts("a stitch's sample", "stitch/sample.json", cut.last_json_tokens, nothing,
          OTHER_HASH.format("stitch/sample.json"), TRANSLATE),
    cuts("a stitch's manifest", "stitch/lead-migrate.json", cut.last_json_tokens, nothing,
          CUT_TABLE.format("stitch/lead-migrate.json"), TRANSLATE),
    cuts("a file of vectors", "x.npz", cut.zip_members, models.vectors_file(8), NO_NPZ, FIT_FILE),
    cuts("the model in a store", "store/embedder.safetensors", cut.tensors, nothing,
          "store: the saved state of tfidf:32 is damaged (*); fit it again", AUDIT),
    cuts("the words of the model in a store", "store/embedder.json", cut.last_json_tokens, nothing,
          "store: the saved state of tfidf:32 is damaged (*); fit it again", AUDIT),
    Fault("bytes after the end", index.edit(lambda raw: raw + b"x"), INSPECT, 4,
          "store/index.faiss: the index ends at byte 19245 of 19246; the file is damaged or was not copied "
          "whole; copy it again"),
    Fault("another index after the end", index.edit(lambda raw: raw + raw), INSPECT, 4,
          "store/index.faiss: the index ends at byte 19245 of 38490; the file is damaged or was not copied "
          "whole; copy it again"),
    Fault("dimension 0", index.pack(4, "<i", 0), INSPECT, 4, NOT_READ),
    Fault("dimension 2^20 + 1", index.pack(4, "<i", (1 << 20) + 1), INSPECT, 4, NOT_READ),
    Fault("2^60 vectors", index.pack(8, "<q", 1 << 60), INSPECT, 4, NOT_READ),
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
    Fault("a flipped bit in the header of Flat", index.flips_in(None, 45), INSPECT, 4, "store/index.faiss: *; *"),
    Fault("a flipped bit in the header of IVF", index.flips_in(of_factory("IVF4,Flat"), 53), INSPECT, 4,
          "store/index.faiss: *; *"),
    # nothing says that it is wrong; that nothing could is what a user has to know
    Fault("a flipped bit, and no checksum of the index", then(index.forget_checksum, index.flip(9_999)), INSPECT,
          0, "checksum *as in the manifest: docs.jsonl; none of index.faiss"),
    Fault("a flipped bit, and no checksum", then(index.forget_checksum, index.forget_texts, index.flip(9_999)),
          INSPECT, 0, "checksum *none to compare with"),
    Fault("an unknown kind", index.edit(lambda raw: b"IxZZ" + raw[4:]), INSPECT, 4, NOT_READ),
    Fault("an unknown kind inside", then(faiss_writes(of_factory("IDMap,Flat")), index.edit(
        lambda raw: raw[:37] + b"IxZZ" + raw[41:])), INSPECT, 4, NOT_READ),
    Fault("a Git LFS pointer", index.put(b"version https://git-lfs.github.com/spec/v1\n"), INSPECT, 4,
          "store/index.faiss: this is not a FAISS index but a Git LFS pointer; run git lfs pull in its repository, "
          "then try again"),
    Fault("a binary index", faiss_writes(index.binary), INSPECT, 4,
          "store/index.faiss: a binary index (IBxF); its vectors are bits, which no map between "
          "embedding spaces applies to: use the index of the float vectors"),
    # lossy indexes are read and called approximate: every report says so, and the audit judges what comes of it
    Fault("LSH", faiss_writes(of_factory("LSH")), INSPECT, 0, "reading *approximate"),
    Fault("fractions cut to whole numbers", faiss_writes(index.fractions_as_bytes), INSPECT, 4,
          "store/index.faiss: the 8bit_direct codes hold only 0 to 0: the vectors were fractions, and nothing of "
          "them is left; re-embed the documents"),
    Fault("FastScan", faiss_writes(of_factory("IVF4,PQ8x4fs")), INSPECT, 0, "reading *approximate"),
    Fault("a graph without vectors", index.graph_without_vectors, INSPECT, 4,
          "store/index.faiss: the index holds the graph but not the vectors; save it without IO_FLAG_SKIP_STORAGE"),
    Fault("an id map", faiss_writes(of_factory("IDMap,Flat")), INSPECT, 0, "index type *IndexIDMap(IndexFlatL2)"),
    Fault("lists with sparse ids", faiss_writes(index.sparse_lists), INSPECT, 0, "vectors *150"),
    Fault("lists that lost a row", faiss_writes(index.lists_that_lost_a_row), INSPECT, 4,
          "store/index.faiss: the index counts 150 vectors, but its lists hold 149: FAISS drops NaN vectors from "
          "the lists yet counts them; build it again without them"),
    Fault("one id twice", faiss_writes(index.labelled(3)), INSPECT, 4,
          "store/index.faiss: two vectors have the id 3 (1 repetitions); remove the stale vectors and save the "
          "index again"),
    # ids are texts and kept to the letter; FAISS itself takes any 64 bits
    Fault("negative and large ids", faiss_writes(index.labelled(-1, -(1 << 63), (1 << 63) - 1)), INSPECT, 0,
          "notes *a document has the id -1, with which FAISS also says that it found nothing"),
    Fault("not trained", faiss_writes(index.untrained), INSPECT, 4,
          "store/index.faiss: the IndexIVFFlat is not trained; train and fill it first"),
    Fault("no vectors, looked at", faiss_writes(index.empty), INSPECT, 0, "vectors *0"),
    # there is no audit of nothing: the way there is refused before it
    Fault("no vectors, fitted", faiss_writes(index.empty), FIT, 4, NO_TEXTS),
    Fault("no vectors, with documents", then(faiss_writes(index.empty), stores.write("store/docs.jsonl", b"")),
          FIT, 4, NO_TEXTS),
    Fault("lists on disk are missing", index.lists_missing, INSPECT, 4, NOT_READ),
    Fault("lists on disk are cut", index.lists_cut, INSPECT, 4,
          "store/index.faiss: store/lists.ivfdata holds 65535 of the 65536 bytes of inverted lists; copy it too"),
    Fault("lists on disk moved beside the index", index.lists_moved_beside, INSPECT, 0, "vectors *150"),
    Fault("lists on disk linked beside the index", index.lists_linked, INSPECT, 0,
          "notes *read and copied through links out of the folder: lists.ivfdata"),
    *[Fault(f"{name} may not be read", index.unreadable(name), INSPECT, 5, NO_RIGHT.format(name))
      for name in ("store", "store/index.faiss", "store/docs.jsonl", "store/lead-migrate.json")],
    Fault("a stitch that may not be read", index.unreadable("stitch/weights.safetensors"), TRANSLATE, 5,
          "cannot read stitch: Permission denied; check the permissions"),
    Fault("queries that may not be read", index.unreadable("beir/queries.jsonl"), AUDIT, 5,
          "cannot read beir/queries.jsonl: Permission denied; check the permissions"),
    Fault("a source that may not be written to", index.read_only, TRANSLATE, 0, TRANSLATED),
    Fault("the output is a link to the source", system.out_is_link("store"), TRANSLATE, 2,
          OVERLAPS.format("out", "store")),
    Fault("the output is a link to the source, replaced", system.out_is_link("store"), (*TRANSLATE, "--force"),
          2, OVERLAPS.format("out", "store")),
    Fault("the output is the source", nothing, ("translate", "store", "stitch", "-o", "store", "-q"), 2,
          OVERLAPS.format("store", "store")),
    Fault("the output would replace the source", nothing,
          ("translate", "store", "stitch", "-o", "store", "-q", "--force"), 2, OVERLAPS.format("store", "store")),
    Fault("the output would replace the stitch", nothing,
          ("translate", "store", "stitch", "-o", "stitch", "-q", "--force"), 2, OVERLAPS.format("stitch", "stitch")),
    Fault("the source changes meanwhile", system.changes_meanwhile("content"), TRANSLATE, 4,
          CHANGED.format("store/index.faiss")),
    Fault("the documents change meanwhile", system.changes_meanwhile("docs"), TRANSLATE, 4,
          CHANGED.format("store/docs.jsonl")),
    Fault("the time of the source changes meanwhile", system.changes_meanwhile("time"), TRANSLATE, 4,
          CHANGED.format("store/index.faiss")),
    Fault("the source vanishes meanwhile", system.changes_meanwhile("vanished"), TRANSLATE, 5,
          "cannot read store/index.faiss: No such file or directory; check that it is there and readable"),
    Fault("FAISS dies by a signal", then(faiss_writes(of_factory("SQ8")), system.child_dies), INSPECT, 4,
          "store/index.faiss: FAISS cannot read the file: its process ended by SIGSEGV; copy it again or build "
          "it again"),
    Fault("metric L1", faiss_writes(index.other_metric), INSPECT, 4,
          "store/index.faiss: IndexFlat uses the metric L1, but only L2 and inner product are read; build the "
          "index with one of these first"),
    Fault("a quantizer of another metric", faiss_writes(index.two_metrics), INSPECT, 0,
          "notes *the quantizer compares by l2, the lists by ip"),
    Fault("a PCA", faiss_writes(of_factory("PCA16,Flat")), INSPECT, 0,
          "notes *PCAMatrix projects 32 dimensions to 16; what lay outside of these is lost"),
    Fault("a pipe", index.fifo("store/index.faiss"), ("inspect", "store/index.faiss"), 4,
          ENDLESS.format("store/index.faiss")),
    Fault("a pipe in the folder", index.fifo("store/index.faiss"), INSPECT, 4, NO_INDEX),
    Fault("a device", index.device("store/index.faiss"), INSPECT, 4, NO_INDEX),
    *[Fault(f"{name} is a pipe", index.fifo(name), command, 4, ENDLESS.format(name))
      for name, command in (("store/docs.jsonl", INSPECT), ("store/lead-migrate.json", INSPECT),
                            ("store/embedder.json", AUDIT), ("x.npz", FIT_FILE))],
    *[Fault(f"{name} has no end", index.device(name), command, 4, ENDLESS.format(name))
      for name, command in (("store/docs.jsonl", INSPECT), ("stitch/weights.safetensors", TRANSLATE))],
    Fault("a pickle in a pipe", then(stores.langchain, index.fifo("store/index.pkl")), FIT, 4, NO_TEXTS),
    Fault("queries in a pipe", index.fifo("beir/queries.jsonl"), AUDIT, 4,
          "beir/queries.jsonl: is a folder or a device, not a file; check the path"),
    Fault("judgements in a pipe", index.fifo("beir/qrels/test.tsv"), AUDIT, 4,
          "beir/qrels/test.tsv: is a folder or a device, not a file; check the path"),
]

VECTORS = [
    Fault("a vector of NaN", texts.put_row(99, float("nan")), ANY_STORE, 4, NAN),
    Fault("a NaN in an audit", texts.put_row(99, float("nan")), AUDIT, 4, NAN),
    Fault("a NaN, looked at", texts.put_row(99, float("nan")), INSPECT, 0, "bad vectors *1"),
    Fault("Inf", texts.put_row(99, float("-inf")), ANY_STORE, 4, NAN),
    Fault("zero", texts.put_row(99, 0), ANY_STORE, 4, ZERO),
    Fault("denormal", texts.put_row(99, 1e-42), ANY_STORE, 4, ZERO),
    Fault("1e30", texts.put_row(99, 1e30), ANY_STORE, 4, NAN),
    Fault("overflow after the stitch", models.spoil_weights(3e38), TRANSLATE, 4,
          "store after the ridge stitch: NaN, Inf or overflowing vector for document * (150 bad of 150 in this "
          "batch); re-embed or remove it"),
    Fault("float64 beyond float32", models.vectors_file(8, models.beyond_float32), FIT_FILE, 4,
          "x.npz (docs): NaN, Inf or overflowing vector for document * (1 bad of 150 in this batch); re-embed or "
          "remove it"),
    # equal vectors are a poor store, not a broken one; the audit judges it
    Fault("all vectors equal", texts.put_rows(texts.EQUAL), FIT, 0, "out: *, fitted on 50 of 150 documents"),
    Fault("a constant column", texts.put_rows(texts.CONSTANT_COLUMN), FIT, 0, "out: *, fitted on 50 of 150 documents"),
    Fault("one not of unit length", texts.put_row(9, 3.5), INSPECT, 0, "norms *1 to 19.8"),
    Fault("fewer documents than the sample", nothing, ("fit", "store", "--target", "tfidf:8", "-o", "out"), 0,
          "out: *, fitted on 150 of 150 documents"),
]

TEXTS = [
    Fault("a pickle of a command", stores.pickled(pickle.dumps(stores.Command())), INSPECT, 4, HOSTILE_CLASS),
    Fault("a pickle of an evaluation", stores.pickled(pickle.dumps(stores.Evaluation())), INSPECT, 4,
          "store/index.pkl: the pickle holds the class builtins.eval, which is not part of a LangChain docstore; "
          "nothing was executed: if you trust the file, save the store again with plain metadata (text, numbers, "
          "lists, dates)"),
    Fault("an array of objects", models.vectors_file(8, models.objects), FIT_FILE, 4,
          "x.npz: docs.npy holds Python objects or records, which are not read; save plain arrays"),
    Fault("a pickle of something else", stores.pickled(pickle.dumps({"a": 1})), INSPECT, 4,
          "store/index.pkl: the pickle holds dict instead of a docstore of LangChain; give the folder of "
          "FAISS.save_local"),
    Fault("LlamaIndex lacks a node that has a vector", then(stores.llamaindex, stores.edit_json(
        "store/docstore.json", lambda f: f["docstore/data"].pop("id-3"))), INSPECT, 4,
          "store/docstore.json: damaged, or not of this store (a vector has no node, for example 'id-3' (1 missing)); "
          "copy it again, or save the store again"),
    Fault("a line too few", texts.edit_lines(lambda found: found[:-1]), INSPECT, 4,
          "store/docs.jsonl: has 149 documents for 150 vectors; write the file and the index from the same documents"),
    Fault("LlamaIndex has a node more", then(stores.llamaindex, stores.edit_json(
        "store/docstore.json", lambda f: f["docstore/data"].update(orphan=f["docstore/data"]["id-3"]))),
          INSPECT, 0, "notes *1 nodes in docstore.json belong to no vector; they are kept as they are"),
    # nothing in the store contradicts itself; what comes of it answers badly, and the audit says so
    Fault("documents one row off their vectors", texts.drifted, RUN, 1, "translated alone: NOT SAFE: *"),
    Fault("a blank text, embedded", stores.write("beir/corpus.jsonl", b'{"_id": "a", "text": " "}'), EMBED, 4,
          "document 'a' has no text to embed; give it one, or drop it with --skip-bad"),
    Fault("blank texts, passed over by the sample", texts.edit_documents(range(50), text=" "), FIT, 0,
          "out: *, fitted on 50 of 150 documents"),
    Fault("nothing but blank texts", texts.edit_documents(range(150), text=" "), FIT, 4,
          "tfidf:8: the corpus has no words; give documents with texts"),
    Fault("the corpus is not UTF-8", stores.write("beir/corpus.jsonl", b'{"_id": "a", "text": "\xff"}'),
          EMBED, 4, "beir/corpus.jsonl:1: not UTF-8 (byte 0xff at column 23); convert the file to UTF-8"),
    Fault("queries are not UTF-8", stores.write("beir/queries.jsonl", b'{"_id": "1", "text": "\xff"}'),
          AUDIT, 4, "beir/queries.jsonl:1: not UTF-8 (byte 0xff at column 23); convert the file to UTF-8"),
    Fault("judgements are not UTF-8", stores.write("beir/qrels/test.tsv", b"q\td\xff\t1\n"), AUDIT, 4,
          "beir/qrels/test.tsv:1: not UTF-8 (byte 0xff at column 4); convert the file to UTF-8"),
    Fault("byte order marks, DOS line ends, blank lines", texts.marked_and_broken_by_dos, AUDIT, 3,
          "INCONCLUSIVE: retention 100.0 %*"),
    Fault("judgements of unknown documents", texts.add_qrels("{}\tnowhere\t2\n"), AUDIT,
          3, "caveat: 1 of 151 relevant documents are not in the stores, so that no arm can find them"),
    Fault("judgements for unknown queries", texts.add_qrels("nobody\tnothing\t1\n"), AUDIT, 3,
          "note: 1 judged queries have no text in beir; they are left out"),
    Fault("judgements for unknown queries only", texts.qrels(texts.HEADER + "nobody\td\t1\n"), AUDIT, 4,
          "beir/qrels: none of the 1 queries that split 'test' judges is in queries.jsonl; check that both files "
          "belong together"),
    Fault("a query without a relevant document", texts.first_judgement_irrelevant, AUDIT, 3,
          "note: 1 queries have no relevant document; every arm scores 0"),
    Fault("queries without judgements", texts.keep_judgements(120), AUDIT, 3, "beir: 120 queries in *"),
    Fault("no judgements at all", stores.remove("beir/qrels"), AUDIT, 4, "beir has no judgements in qrels/test.tsv; *"),
    Fault("five queries", texts.keep_judgements(5), AUDIT, 3,
          "INCONCLUSIVE: *; 5 queries are too few for a verdict, which*"),
]

MODELS = [
    Fault("the source model has another dimension", models.vectors_file(16), (
        *AUDIT, "--source", "store", "--source-model", "file:x.npz"), 4, OTHER_DIM),
    Fault("the target model has another dimension", models.vectors_file(16), (*AUDIT, "--target", "file:x.npz"),
          4, OTHER_DIM),
    Fault("documents and queries of two dimensions", models.vectors_file(8, models.fewer_queries_dim), FIT_FILE,
          4, "x.npz: documents have dimension 8, queries 7; use one model"),
    Fault("the server answers with too few", models.for_ever(fake.TOO_FEW), FIT_API, 7,
          SERVER.format("* times", "19 embeddings for 20 texts")),
    Fault("the server answers with too many", models.for_ever(fake.TOO_MANY), FIT_API, 7,
          SERVER.format("* times", "21 embeddings for 20 texts")),
    Fault("the server shuffles", models.server(fake.SHUFFLED, fake.SHUFFLED), FIT_API, 0,
          "out: *, fitted on 40 of 150 documents", models.in_order),
    Fault("the server answers with NaN", models.for_ever(fake.NAN), FIT_API, 7,
          SERVER.format("3 times", "an embedding that is zero, NaN or Inf")),
    Fault("the server answers with zeros", models.for_ever(fake.ZERO), FIT_API, 7,
          SERVER.format("3 times", "an embedding that is zero, NaN or Inf")),
    Fault("the server answers with ragged vectors", models.for_ever(fake.RAGGED), FIT_API, 7,
          SERVER.format("3 times", "embeddings of several dimensions")),
    Fault("429, for ever", models.for_ever(fake.status(429, "slow down")), FIT_API, 7,
          TRY_LATER.format("HTTP 429 (slow down)"), models.asked(8)),
    Fault("500, for ever", models.for_ever(fake.status(500)), FIT_API, 7,
          TRY_LATER.format("HTTP 500 (spoiled)"), models.asked(8)),
    Fault("502, for ever", models.for_ever(fake.status(502)), FIT_API, 7,
          TRY_LATER.format("HTTP 502 (spoiled)"), models.asked(8)),
    Fault("no answer, for ever", models.for_ever(fake.SLOW), FIT_API, 7,
          "http://127.0.0.1:*/v1 failed 3 times, the last time with: no answer within 0.2 s, perhaps for want of "
          "a smaller batch-size; is the server running, and is --base-url right?", models.asked(3)),
    Fault("cut answers, for ever", models.for_ever(fake.TRUNCATED), FIT_API, 7,
          SERVER.format("3 times", "an answer that is not a list of embeddings with an index each (1044 bytes)"),
          models.asked(3)),
    Fault("no server", models.nobody_listens, FIT_API, 7,
          "http://127.0.0.1:*/v1 failed 3 times, the last time with: no connection (Connection refused); is "
          "the server running, and is --base-url right?"),
    Fault("a failure that passes", models.once(fake.status(429), fake.status(500), fake.status(502), fake.SLOW,
          fake.RESET, fake.TRUNCATED, fake.NOT_JSON, fake.TOO_FEW, fake.NAN), FIT_API, 0,
          "out: *, fitted on 40 of 150 documents", models.asked(3)),
    Fault("401", models.server(fake.status(401, "no")), FIT_API, 7,
          "http://127.0.0.1:*/v1 refused the key (HTTP 401); check OPENAI_API_KEY and its rights", models.asked(1)),
    Fault("400", models.server(fake.status(400, "no")), FIT_API, 7,
          "http://127.0.0.1:*/v1 refused the request for 'text-embedding-3-small' (HTTP 400): no; check the options",
          models.asked(1)),
    Fault("the account is empty", models.server(models.QUOTA), FIT_API, 7,
          "http://127.0.0.1:*/v1: the account has no quota left (insufficient_quota); add credit, then run the "
          "same again", models.asked(1)),
    Fault("asked to wait for hours", models.server(fake.status(429, "no", retry_after="7200")), FIT_API, 7,
          "http://127.0.0.1:*/v1 failed once with: HTTP 429 (no); the server asks to wait 7200 s: run again after that",
          models.asked(1)),
    Fault("a failure half way, then again", models.server(fake.Fault(), *[fake.status(500)] * 8), FIT_API, 7,
          TRY_LATER.format("HTTP 500 (spoiled)"), models.pays_the_rest),
    Fault("the model has changed", models.refit_vocabulary, AUDIT, 4,
          "store: tfidf:32 has changed since the store was made, from revision * to *; name the model as it was, or *"),
    Fault("the file of vectors has changed", then(models.vectors_file(32), models.edit_manifest(
        "store", lambda f: f["model"].update(spec="file:x.npz", dim=32, revision="0" * 64))), AUDIT, 4,
          "store: file:x.npz has changed since the store was made, from revision * to *; name the model as it was, *"),
]

ENVIRONMENT = [
    Fault("the disk is full, at each write", system.disk(system.ENOSPC, stays=True), TRANSLATE, 5,
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
    Fault("the disk fails, at each write, fsync and rename", system.disk(system.EIO, stays=False), TRANSLATE, 5,
          "cannot write *: Input/output error; see what holds it, and run the same command again", system.goes_on),
    Fault("kill -9, at each step", system.dies_at_each_step, TRANSLATE, 137, "", system.goes_on),
    Fault("kill -9, while it writes", system.signalled(9), TRANSLATE, -9, "", system.goes_on),
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
    Fault("the output exists", stores.write("out", b"mine"), TRANSLATE, 2,
          "out exists; choose another output, or replace it with --force"),
    Fault("out of memory", then(stores.large_docstore, system.memory(48 << 20)), INSPECT, 5,
          "out of memory; free some, use a smaller batch, or take a machine with more"),
    Fault("out of memory among pickles", then(stores.large_pickle, system.memory(48 << 20)), INSPECT, 5,
          "out of memory; free some, use a smaller batch, or take a machine with more"),
    Fault("one thread", system.with_threads(1), TRANSLATE, 0, TRANSLATED, system.same_bytes),
    Fault("two threads", system.with_threads(2), TRANSLATE, 0, TRANSLATED, system.same_bytes),
    Fault("a jump of the clock and another time zone", system.clock_jumps_back, TRANSLATE, 0, TRANSLATED,
          system.same_bytes),
    Fault("a stitch with bytes after its end", models.longer_weights, TRANSLATE, 4,
          OTHER_HASH.format("stitch/weights.safetensors")),
    Fault("a stitch with NaN", models.spoil_weights(float("nan")), TRANSLATE, 4,
          "stitch: the weights of the stitch hold NaN or Inf; fit the stitch again"),
    Fault("a stitch with a norm of NaN", models.edit_details("stitch", norm="NaN"), TRANSLATE, 4,
          "stitch/lead-migrate.json: in its details 'norm' must be a number, and is 'NaN'; *"),
    Fault("a stitch of an unknown kind", models.edit_details("stitch", stitch="magic"), TRANSLATE, 4,
          "stitch: the stitch is incomplete or damaged (*); fit it again"),
]

MORE = [
    Fault("a document of 10 MB", texts.edit_documents([3], text="tea " * 2_500_000), FIT, 0,
          "out: *, fitted on 50 of 150 documents"),
    Fault("an empty corpus", stores.write("beir/corpus.jsonl", b""), EMBED, 4, NO_CORPUS),
    Fault("an empty corpus beside the queries", stores.write("beir/corpus.jsonl", b""), AUDIT, 4, NO_CORPUS),
    Fault("one document", then(texts.one_document, stores.remove("store/lead-migrate.json")),
          ("fit", "store", "--target", "tfidf:1", "-o", "out", "-q"), 4,
          "a fit needs at least 2 pairs of vectors, and there are 1 source and 1 target vectors; take a larger sample"),
    Fault("one document, looked at", texts.one_document, INSPECT, 0, "vectors *1"),
    Fault("fewer documents than are ranked", texts.small_corpus, AUDIT, 3,
          "caveat: 120 of 150 relevant documents are not in the stores, so that no arm can find them, and *"),
    Fault("a stitch for another store", models.stitch_of_another_store, TRANSLATE, 4,
          "store: the stitch was fitted on another store (150 vectors there, 150 here); fit again, or allow it "
          "with --any-store if the model is the same"),
    Fault("no stitch", stores.remove("stitch"), TRANSLATE, 4,
          "stitch: no stitch here: there is no lead-migrate.json in it; check the path"),
    Fault("a store for a stitch", nothing, ("translate", "store", "store", "-o", "out", "-q"), 4,
          "store: this is a store, not a stitch; give the folder of a stitch"),
    Fault("the wrong direction", models.translated, ("translate", "new", "stitch", "-o", "out", "-q"), 4,
          "new: the stitch expects vectors of dimension 32, and the store has 24; fit a stitch for this store"),
    Fault("a stale manifest: the index was replaced", texts.other_vectors, INSPECT, 4,
          OTHER_BYTES.format("store/index.faiss")),
    Fault("a stale manifest: of another index", stores.move("store/index.faiss", "store/renamed.faiss"),
          INSPECT, 0, "notes *the manifest in the folder is not of renamed.faiss; it is ignored"),
    Fault("a manifest that is not JSON", stores.write("store/lead-migrate.json", b"{"), INSPECT, 4,
          CUT_TABLE.format("store/lead-migrate.json")),
    Fault("a manifest of a stitch", stores.write("store/lead-migrate.json", b'{"kind": "stitch"}'), TRANSLATE,
          4, "store: this is a stitch, not a store; give the folder of a store"),
    Fault("a manifest of the future", models.edit_manifest("store", lambda f: f.update(format_version=99)), INSPECT, 4,
          "store/lead-migrate.json: has format version 99, but this version reads 1; it was written by "
          "lead-migrate 0.1.0, install that version or a newer one"),
    Fault("a manifest with other fields", models.edit_manifest("store", lambda f: f.update(surprise=1)), INSPECT, 4,
          "store/lead-migrate.json: not the fields of a store manifest (*); the file is damaged, copy or make it "
          "again"),
    Fault("one id twice in docs.jsonl", texts.edit_lines(lambda found: [*found[:-1], found[0]]), INSPECT, 4,
          "store/docs.jsonl:150: duplicate id *, the id of line 1; correct the line"),
    Fault("one id twice in a corpus", stores.write("beir/corpus.jsonl", b'{"_id": "a", "text": "green tea"}\n' * 2),
          EMBED, 4, "beir/corpus.jsonl:2: the document id 'a' appears twice; remove one"),
    Fault("one id twice in a file of vectors", models.vectors_file(8, models.repeat_first_id), FIT_FILE, 4,
          "x.npz: doc_ids names 1 ids twice; keep one of each"),
    Fault("an id that is a list in a corpus", stores.write("beir/corpus.jsonl", b'{"_id": [1], "text": "x"}'), EMBED, 4,
          "beir/corpus.jsonl:1: the id is a list; give the record a text under \"_id\" or \"id\""),
    Fault("an id that is a number in LangChain", stores.docstore_with(ids=[*stores.IDS[1:], 7]), INSPECT, 4,
          "store/index.pkl: an id is 7, not text; save the store again with text ids"),
    Fault("an id that is a number in LlamaIndex", then(stores.llamaindex, stores.edit_index_store(
        lambda nodes: nodes.update({"3": 17}))), INSPECT, 4,
          "store/index_store.json: damaged, or not of this store (17 is no id of a node, which is a text); copy it "
          "again, or save the store again"),
    Fault("a line that is not JSON", texts.raw_line(5, b"{"), INSPECT, 4, LINE_6.format("not a JSON object (*)")),
    Fault("no queries", stores.remove("beir/queries.jsonl"), AUDIT, 4,
          "beir/queries.jsonl: no such file; check the path"),
    Fault("an empty file of queries", stores.write("beir/queries.jsonl", b""), AUDIT, 4,
          "beir/queries.jsonl: the file has no queries; check how it was written"),
    Fault("a query that is not JSON", stores.write("beir/queries.jsonl", b"{\n"), AUDIT, 4,
          "beir/queries.jsonl:1: not a JSON object (*); correct the line"),
    Fault("no judgements in the file", texts.qrels(texts.HEADER), AUDIT, 4,
          "beir/qrels/test.tsv: the file has no judgements; check how it was written"),
    Fault("judgements in two columns", texts.qrels(texts.HEADER + "q\td\n"), AUDIT, 4,
          "beir/qrels/test.tsv:2: 'q\\td' is not query-id, corpus-id and score divided by tabs (or TREC's four columns"
          "); correct the line"),
    Fault("a grade that is a word", texts.qrels(texts.HEADER + "q\td\thigh\n"), AUDIT, 4,
          "beir/qrels/test.tsv:2: the grade 'high' is not a whole number; correct the line"),
    Fault("no such split", nothing, (*AUDIT, "--judged", "beir:dev"), 4,
          "beir/qrels: there is no split 'dev', but test; choose one of these"),
    Fault("a split that leads out of the folder", stores.move("beir/qrels/test.tsv", "beir/test.tsv"),
          (*AUDIT, "--judged", "beir:../test"), 4,
          "beir/qrels: there is no split '../test', but no splits at all; choose one of these"),
    Fault("an index name that leads out of the folder", then(stores.langchain, models.edit_out_of_folder), INSPECT,
          0, "notes *the manifest in the folder is not of index.faiss; it is ignored"),
    Fault("an index name of two lines", stores.move("store/index.faiss", "store/in\ndex.faiss"), INSPECT, 0,
          "notes *the manifest in the folder is not of in\\ndex.faiss; it is ignored"),
    Fault("a damaged index with a name of two lines", then(
        index.edit(lambda raw: raw[:-1]), stores.move("store/index.faiss", "store/\x1b[31mi\nn.faiss")), INSPECT,
          4,
          "store/\\x1b[31mi\\nn.faiss: FAISS cannot read the file (*); copy it again or build it again"),
    Fault("a stitch that names files elsewhere", models.edit_details("stitch", files={"../store/docs.jsonl": "0"}),
          TRANSLATE, 4, "stitch: the manifest names '../store/docs.jsonl', a file that no stitch has; do not "
                        "trust it"),
    Fault("a dataset that names files elsewhere", then(stores.dataset, stores.move(
        "store/data-0.arrow", "elsewhere/data-0.arrow"), stores.edit_json(
        "store/state.json", lambda f: f["_data_files"][0].update(filename="../elsewhere/data-0.arrow"))),
          INSPECT, 4,
          "store/state.json: '../elsewhere/data-0.arrow' is not the name of a file in the same folder; save the "
          "dataset again"),
    Fault("lists on disk are elsewhere", index.lists_elsewhere, INSPECT, 4, NOT_READ),
    Fault("a zip bomb", models.zip_bomb, FIT_FILE, 4,
          "x.npz: claims 268435456 bytes of arrays in a file of 261030; it is not read: save the arrays with "
          "numpy.savez"),
    Fault("an array of 2^60 vectors", models.lying_member, FIT_FILE, 4,
          "x.npz: docs.npy claims an array of shape (1152921504606846976, 8) in 192 bytes; the file is damaged, "
          "copy it again"),
    Fault("not an npz", stores.write("x.npz", b"PK\x03\x04nothing"), FIT_FILE, 4, NO_NPZ),
    Fault("no file of vectors", nothing, FIT_FILE, 4,
          "x.npz: no .npz file of vectors can be read there (no such file or directory); check the path"),
    # a link is the will of who laid it, as in the cache of Hugging Face; what is read through it is told
    Fault("the index is a link out of the folder", stores.link("store/index.faiss", "elsewhere/blob"), INSPECT,
          0, "notes *read and copied through links out of the folder: index.faiss"),
    Fault("documents are a link out of the folder", stores.link("store/docs.jsonl", "elsewhere/blob"), INSPECT,
          0, "notes *read and copied through links out of the folder: docs.jsonl"),
    Fault("a link that leads nowhere", then(stores.link("store/index.faiss", "elsewhere/blob"), stores.remove(
        "elsewhere/blob")), INSPECT, 4, NO_INDEX),
    Fault("a link to itself", lambda p: (p / "store").rename(p / "x") and (p / "store").symlink_to(p / "store"),
          INSPECT, 5, "cannot read store: Too many levels of symbolic links; check that it is there and readable"),
    Fault("a link to itself, translated", lambda p: (p / "store").rename(p / "x") and (p / "store").symlink_to(
        p / "store"), TRANSLATE, 5,
          "cannot read store: Too many levels of symbolic links; check that it is there and readable"),
    Fault("the output is a link out of the folder, replaced", system.out_is_link("elsewhere"),
          (*TRANSLATE, "--force"), 0, TRANSLATED, system.same_bytes),
    Fault("the place of unfinished work is a link", system.link_beside(".out.work"), TRANSLATE, 5,
          "cannot write .out.work: it is a link, which could lead anywhere; remove the link"),
    Fault("the lock is a link", system.link_beside(".out.lock"), TRANSLATE, 5,
          "cannot write .out.lock: it is a link, which could lead anywhere; remove the link"),
    Fault("the lock is a link to a file that is not there", lambda p: (p / ".out.lock").symlink_to(p / "stray"),
          TRANSLATE, 5, "cannot write .out.lock: it is a link, which could lead anywhere; remove the link"),
    Fault("an output in a folder that may not be written to", system.folder_without_writing,
          ("translate", "store", "stitch", "-o", "sealed/out", "-q"), 5,
          "cannot write sealed/out: Permission denied (sealed/.out.lock); check the permissions"),
    Fault("an output below a file", stores.write("file", b""),
          ("translate", "store", "stitch", "-o", "file/out", "-q"), 5,
          "cannot write file/out: File exists (file); see what holds it, and run the same command again"),
    Fault("an unknown model", nothing, ("fit", "store", "--target", "magic", "-o", "out"), 2,
          "unknown model 'magic'; the kinds are sentence-transformers:, packaged:, openai:, file:, tfidf:, "
          "langchain: - for example openai:text-embedding-3-small"),
    Fault("a dimension that is a word", nothing, ("fit", "store", "--target", "tfidf:many", "-o", "out"), 2,
          "tfidf:many names no number of dimensions; give one such as tfidf:256"),
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
    Fault("a folder where a page should be", lambda p: (p / "out.html").mkdir(),
          (*ASSESS, "--report", "out.html", "--force"), 2,
          "out.html: this is a folder, but the output is a file; choose another output"),
    Fault("a pipe where a finding should be", lambda p: os.mkfifo(p / "pipe.xml"),
          (*CHECK, "--report", "pipe.xml", "--force"), 2,
          "pipe.xml: this is a pipe or a device, and cannot be replaced; choose another output"),
    Fault("an assessment in the store", nothing, (*ASSESS, "--report", "store/page.html"), 2,
          OVERLAPS.format("store/page.html", "store")),
    Fault("a finding in place of the manifest", nothing, (*CHECK, "--report", "store/lead-migrate.json", "--force"),
          2, OVERLAPS.format("store/lead-migrate.json", "store")),
    Fault("a finding of no kind", nothing, (*CHECK, "--report", "out.txt"), 2,
          "--report out.txt: the ending chooses the kind of report; end it in .json or .html or .xml"),
    Fault("a page inside the folder of figures", nothing, (*COMPARE, "--report", "out/page.html", "--csv", "out"), 2,
          "--report and --csv: out/page.html and out are one output, or one is in the other; choose another"),
    Fault("labels that are all different", texts.labels("label {}"), (*COMPARE, "--labels", "labels.tsv"), 4,
          "too few labels: of the 150 labels of 150 compared documents 0 occur twice or more, and two must; check "
          "the labels"),
    Fault("one label", texts.labels("same"), (*COMPARE, "--labels", "labels.tsv"), 4,
          "too few labels: of the 1 labels of 150 compared documents 1 occur twice or more, and two must; check "
          "the labels"),
    Fault("a report that never ends", nothing, (*ASSESS, "--audit", "/dev/zero"), 4, ENDLESS.format("/dev/zero")),
    Fault("a report without a frontier", stores.write("audit.json", b"{}"), (*ASSESS, "--audit", "audit.json"), 4,
          "audit.json: this is not the report of an audit with --frontier; run one"),
    Fault("a metadata field that no document has", nothing, (*AUDIT, "--slice", "colour"), 3,
          "note: --slice: no document that the queries are about has 'colour' in its metadata"),
    Fault("a store that has no words of the model", then(stores.remove("store/embedder.json"), stores.remove(
        "store/embedder.safetensors")), (*CHECK, "--full"), 4,
          "store: the words that tfidf:32 learned (embedder.json, embedder.safetensors) are missing; only a store "
          "that lead-migrate embedded has them: name another model"),
    Fault("a smaller model", nothing, ("check", "store", "--model", "tfidf:16", "-q"), 4,
          "store: the saved state is of tfidf:32, not of tfidf:16; name that"),
    Fault("a store that is stamped", nothing, ("stamp", "store", "--model", "tfidf:32", "-q"), 2,
          "store/lead-migrate.json exists: the store is stamped already; replace it with --force"),
    Fault("the summary of a run is a folder", system.summary_is_folder, CHECK, 5,
          "cannot write beir: Is a directory; see what holds it, and run the same command again"),
    Fault("a margin that is no number", nothing, (*AUDIT, "--margin", "nan"), 2,
          "Invalid value for '--margin': * is not a number; see lead-migrate audit --help"),
    Fault("a price without end", nothing, (*ASSESS, "--price", "inf"), 2,
          "Invalid value for '--price': inf is not in the range 0<x<=1000000; see lead-migrate "
          "assess --help"),
    Fault("a seed below 0", nothing, (*FIT, "--seed", "-1"), 2,
          "Invalid value for '--seed': -1 is not in the range 0<=x<=4294967295; see lead-migrate fit --help"),
]

HASHES = [
    *[Fault(f"other texts, {called(command)}", texts.reworded, command, 4, OTHER_BYTES.format("store/docs.jsonl"))
      for command in (INSPECT, TRANSLATE, ANY_STORE, FIT, AUDIT, BACKFILL, RUN)],
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

HOSTILES = [
    Fault("a pickle nested too deeply", stores.pickled(HOSTILE["a deep tuple as a key"][0]), INSPECT, 4,
          "store/index.pkl: the unpickler cannot read the file: its process ended by SIGSEGV; copy the file "
          "again, or save the store again with LangChain"),
    Fault("a pickle of what cannot be hashed in a lifetime", stores.pickled(HOSTILE["doubled tuples in a set"][0]),
          TRANSLATE, 4,
          "store/index.pkl: the unpickler cannot read the file: it takes longer than its size explains; copy the "
          "file again, or save the store again with LangChain"),
    Fault("a pickle that refers to itself so often", stores.pickled(HOSTILE["doubled lists"][0]), FIT, 4,
          "store/index.pkl: its 1 ids are not those of the rows 0 to 4 of the index; the pickle and the index "
          "are not of the same store"),
    Fault("a server that sends on to another", models.server(fake.status(
        307, Location="http://localhost:1/v1/embeddings")), FIT_API, 7,
          "http://127.0.0.1:* redirects to http://localhost:1; nothing was sent there: if that is right, name its "
          "address instead", models.asked(1)),
]

SECTIONS = {"index": INDEX, "vectors": VECTORS, "texts": TEXTS, "models": MODELS, "environment": ENVIRONMENT,
            "more": MORE, "reports": REPORTS, "hashes": HASHES, "hostile": HOSTILES}
FAULTS = {f"{section}: {fault.name}": fault for section, rows in SECTIONS.items() for fault in rows}
