"""A good migration, and the references and queries that a mistaken user may hand to its audit: data, no tests.

`migrate` builds the good one in a few seconds, without a network; it is shared and never written to. Each method of
`References` and the classes below it builds one mistake beside it, in a folder of its own; its name says what the user
did. `names` lists them, `build` calls one. Where vectors are wrong, the store is left without a manifest, as another
program would leave it; `trusted` gives it the manifest that `stamp --trust` would, which is the strongest lie there is.

Source and target have one dimension, as many pairs of models have, so that nothing is refused for that alone.
"""

import json
import re
import shutil
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path

import faiss
import numpy as np
from scipy.sparse import hstack
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from topics import make_store

from migrate import fit
from migrate.check import stamp_store
from migrate.datasets.beir import write_beir
from migrate.datasets.stdlib import stdlib_beir
from migrate.embed import embed_corpus, reembed_store
from migrate.embedders import load_embedder
from migrate.files import sha256_file
from migrate.manifest import MANIFEST_NAME, read_manifest
from migrate.steps.translate import Translate
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Document, Query, unit_rows

N_DOCUMENTS, N_QUERIES, DIM, N_PAIRS = 300, 300, 64, 120
N_CHOOSERS = 150
SOURCE_SPEC = f"tfidf:{DIM}"
PREFIX = "Represent this passage for retrieval: "


class Model:
    """A model of words and of runs of letters: TF-IDF and a truncated SVD, (n, DIM), rows of unit length.

    Another seed is a space of its own of the same dimension. `letters` is the weight of runs of letters, which the
    source model does not see; words weigh 1. The more they weigh, the more a translation loses.
    """

    def __init__(self, texts, *, letters=0.3, seed=0):
        self.weight = letters
        self.words = TfidfVectorizer(sublinear_tf=True)
        self.letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, max_features=4_000)
        self.words.fit(texts)
        self.letters.fit(texts)
        self.svd = TruncatedSVD(DIM, random_state=0).fit(self._weights(texts))
        self.turned = np.linalg.qr(np.random.default_rng(seed).normal(size=(DIM, DIM)))[0]

    def __call__(self, texts):
        return unit_rows((self.svd.transform(self._weights(texts)) @ self.turned).astype(np.float32))

    def _weights(self, texts):
        return hstack([self.words.transform(texts), self.weight * self.letters.transform(texts)]).tocsr()


def _inside(name):
    return property(lambda migration: migration.folder / name)


@dataclass(frozen=True)
class Migration:
    """A migration without a mistake, as files and as what they were made from.

    `source`, `translated` and `reference` are stores, `stitch` the stitch between the first two, `beir` the folder of
    queries and judgements, `target_file` the `file:` model that was moved to. `model` gives true vectors of any text.
    """

    folder: Path
    documents: tuple[Document, ...]
    queries: tuple[Query, ...]
    qrels: dict
    model: Model

    source, stitch, translated, reference, beir = map(_inside, ("source", "stitch", "translated", "reference", "beir"))
    target_file = _inside("target.npz")

    @property
    def target(self):
        return f"file:{self.target_file}"

    @property
    def embedder(self):
        return load_embedder(self.target)

    @cached_property
    def texts(self):
        return [document.text for document in self.documents]

    @cached_property
    def other(self):
        """Vectors of the documents by a model of the same dimension that nobody meant to move to."""
        return self.other_model(self.texts)

    @cached_property
    def other_model(self):
        return Model(self.texts, letters=1.5, seed=1)

    @cached_property
    def true(self):
        """What the reference holds: vectors (n, DIM) of `documents` in their order."""
        return _vectors_of(self.reference)

    @cached_property
    def old(self):
        """What the source holds, (n, DIM)."""
        return _vectors_of(self.source)

    @cached_property
    def moved(self):
        """What the translated store holds, (n, DIM)."""
        return _vectors_of(self.translated)

    @cached_property
    def is_pair(self):
        """Which documents, (n,), the stitch was fitted on: their vectors in the translated store are true."""
        return np.abs(self.moved - self.true).max(axis=1) < 1e-6

    def right(self):
        return Mistake(self.translated, self.reference, self.beir, self.target)

    def by_pool(self, target=None):
        """The audit by a pool, of another file of vectors where one is named."""
        return replace(self.right(), reference="pool", target=f"file:{target}" if target else self.target)


@dataclass(frozen=True)
class Mistake:
    """What the user hands to the audit: stores, a folder of queries, and the spec of the model that embeds them."""

    translated: Path
    reference: Path | str
    beir: Path
    target: str

    def command(self, *judged_by):
        """The audit by these queries, or by what is named in their place."""
        by = judged_by or ("--judged", self.beir)
        command = "labels" if by[0] == "--labels" else "audit"
        return [command, self.translated, "--reference", self.reference, "--target", self.target, *by]


def migrate(folder, n_pairs=N_PAIRS, noise=0.0, **options):
    """Build the good migration, which is SAFE, in an empty folder; one of far fewer pairs and with noise is not.

    `options` are those of the target's `Model`.
    """
    corpus = stdlib_beir(max_docs=N_DOCUMENTS, seed=7)
    texts = [document.text for document in corpus.documents]
    queries, model = corpus.queries, Model(texts, **options)
    good = Migration(folder, corpus.documents, queries, {q.id: corpus.qrels[q.id] for q in queries}, model)
    write_beir(good.beir, good.documents, good.queries, good.qrels)
    write_model(good.target_file, good, good.model)
    embed_corpus(lambda: good.documents, load_embedder(SOURCE_SPEC), good.source)
    fitted = fit(open_store(good.source), good.embedder, kind="ridge", sample=n_pairs)
    add_noise(fitted.stitch, noise)
    fitted.save(good.stitch)
    Translate(open_store(good.source), fitted, good.translated).run()
    reembed_store(open_store(good.translated), good.embedder, good.reference)
    return good


def add_noise(stitch, noise):
    """Put each value of a linear map off by about `noise` standard deviations: what few pairs cost, and more."""
    matrix = stitch.matrix_
    matrix += noise * matrix.std() * np.random.default_rng(3).normal(size=matrix.shape).astype(np.float32)


def write_model(path, good, model):
    """Write a `file:` model that knows the documents, the queries, and the queries as careless loggers write them."""
    asked = sorted({spelling for query in good.queries for spelling in _spellings(query.text)})
    known = {"doc_ids": [document.id for document in good.documents], "doc_texts": good.texts}
    known |= {"query_ids": [f"text-{row}" for row in range(len(asked))], "query_texts": asked}
    np.savez(path, **known, docs=model(good.texts), queries=model(asked))


def trusted(mistake, folder):
    """The same mistake, after `stamp --trust` has called its reference one of the target model."""
    store = open_store(mistake.reference)
    copied = Path(shutil.copytree(store.folder, folder / f"{store.folder.name}-trusted"))
    (copied / MANIFEST_NAME).unlink(missing_ok=True)
    assert stamp_store(open_store(copied), load_embedder(mistake.target), trust=True).path is not None
    return replace(mistake, reference=copied)


def _vectors_of(folder):
    return read_all(open_store(folder).scan()).vectors


def _spellings(text):
    """The text as it is, in upper case, in lower case, between blanks, and with double blanks."""
    return [text, text.upper(), text.lower(), f"  {text} ", text.replace(" ", "  ")]


def names(kind):
    """The mistakes of a class, in order."""
    return [name for name in vars(kind) if not name.startswith("_")]


def build(kind, name, good, folder):
    """Make a mistake of a class, by name, in a folder that is there and empty."""
    return getattr(kind(good, folder), name)()


@dataclass(frozen=True)
class _Mistakes:
    good: Migration
    folder: Path

    def _rng(self):
        return np.random.default_rng(11)

    def _is_half(self):
        return (np.arange(N_DOCUMENTS) % 2 == 0)[:, None]

    def _noisy(self, scale):
        """The translated vectors, each value off by about `scale` of itself."""
        moved = self.good.moved
        return unit_rows(moved + self._rng().normal(scale=scale / np.sqrt(DIM), size=moved.shape).astype(np.float32))

    def _at(self, path):
        return replace(self.good.right(), reference=Path(path))

    def _of(self, vectors, documents=None, *, index_type=None, **options):
        """The reference has these vectors; `index_type` is of faiss' own factory, such as "HNSW16"."""
        vectors, documents = np.ascontiguousarray(vectors), documents or self.good.documents
        store = make_store(self.folder / "reference", documents=documents, vectors=vectors, **options)
        if index_type is not None:
            index = faiss.index_factory(DIM, index_type, faiss.METRIC_INNER_PRODUCT)
            index.add(vectors)
            faiss.write_index(index, str(store.folder / "index.faiss"))
        return self._at(store.folder)

    def _reordered(self, vectors):
        order = self._rng().permutation(N_DOCUMENTS)
        return self._of(vectors[order], [self.good.documents[row] for row in order])

    def _behind_a_prefix(self):
        return self.good.model([PREFIX + text for text in self.good.texts])

    def _but_for_the_sample(self, docs):
        return np.where(self.good.is_pair[:, None], self.good.true, docs)

    def _of_many_lengths(self):
        lengths = self._rng().lognormal(sigma=0.7, size=(N_DOCUMENTS, 1)).astype(np.float32)
        return self.good.true * lengths

    def _another_translation(self):
        good = self.good
        fitted = fit(open_store(good.source), good.embedder, kind="procrustes", sample=N_PAIRS, seed=5)
        Translate(open_store(good.source), fitted, self.folder / "other").run()
        return self.folder / "other"

    def _file(self, docs):
        """The target's file with other vectors of documents."""
        path = self.folder / "target.npz"
        with np.load(self.good.target_file) as arrays:
            np.savez(path, **{**arrays, "docs": np.ascontiguousarray(docs)})
        return path

    def _asked(self, asked):
        """The right reference, asked by pairs of a query and its grades."""
        beir = self.folder / "beir"
        (beir / "qrels").mkdir(parents=True)
        lines = (json.dumps({"_id": query.id, "text": query.text}) + "\n" for query, _ in asked)
        (beir / "queries.jsonl").write_text("".join(lines))
        judged = "".join(
            f"{query.id}\t{document}\t{grade}\n" for query, log in asked for document, grade in log.items()
        )
        (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
        return replace(self.good.right(), beir=beir)

    def _asking_too(self, asked, others=()):
        """Pairs of a query that the target's file does not know yet and its grades, and others that it knows."""
        with np.load(self.good.target_file) as arrays:
            known = dict(arrays)
        texts = [query.text for query, _ in asked]
        further = {"query_texts": texts, "query_ids": [query.id for query, _ in asked]}
        for name, values in {**further, "queries": self.good.model(texts)}.items():
            known[name] = np.concatenate([known[name], values])
        np.savez(self.folder / "knows-more.npz", **known)
        return replace(self._asked([*asked, *others]), target=f"file:{self.folder / 'knows-more.npz'}")

    def _copied(self, change):
        """The documents of which the stitch has seen nothing, each as a query for itself."""
        rows = np.flatnonzero(~self.good.is_pair)[:130]
        copied = [self.good.documents[row] for row in rows]
        return [(Query(f"copy of {one.id}", change(one.text).strip()), {one.id: 1}) for one in copied]

    def _chosen(self, chose):
        """A store whose sample some queries chose."""
        good = self.good
        fitted = fit(open_store(good.source), good.embedder, kind="ridge", sample=90, query_log=chose)
        add_noise(fitted.stitch, 0.4)
        fitted.save(self.folder / "stitch")
        Translate(open_store(good.source), fitted, self.folder / "translated").run()
        return self.folder / "translated"

    def _by_choosers(self, change):
        """Such a store, judged by these queries in other words."""
        good, chose = self.good, self.good.queries[:N_CHOOSERS]
        asked = [(Query(f"again {query.id}", change(query.text)), good.qrels[query.id]) for query in chose]
        return replace(self._asking_too(asked), translated=self._chosen(chose))

    def _judged(self, logs):
        """The queries of which something is judged relevant."""
        pairs = zip(self.good.queries, logs, strict=True)
        return self._asked([(query, log) for query, log in pairs if any(grade > 0 for grade in log.values())])

    def _people(self):
        """What people judged of each query."""
        return [self.good.qrels[query.id] for query in self.good.queries]

    def _of_the_sample(self):
        """What they judged of the documents that the stitch was fitted on."""
        true = {
            document.id for document, is_pair in zip(self.good.documents, self.good.is_pair, strict=True) if is_pair
        }
        return [{doc_id: grade for doc_id, grade in log.items() if doc_id in true} for log in self._people()]

    def _found(self, vectors, depth=10, asked=None):
        """The first documents that these vectors find for each query, or for queries of another model."""
        asked = self.good.model([query.text for query in self.good.queries]) if asked is None else asked
        order = np.argsort(-(asked @ vectors.T), axis=1, kind="stable")[:, :depth]
        return [[self.good.documents[row].id for row in best] for best in order]

    def _found_by_both(self):
        found = zip(self._found(self.good.moved), self._found(self.good.true), strict=True)
        return [[*own, *full] for own, full in found]

    def _clicks(self, vectors=None, *, sessions=3, noise=0.0, fading=1.0, graded=False, shown=False, **options):
        """What users click of what a store finds, the translated one: the later in the list, the rarer it is seen.

        They click nine of ten relevant documents and a share `noise` of others. With `graded` a document's grade is how
        often it was clicked; with `shown` what nobody clicked has grade 0.
        """
        rng, logs = self._rng(), []
        found_by_all = self._found(self.good.moved if vectors is None else vectors, **options)
        for people, found in zip(self._people(), found_by_all, strict=True):
            log = dict.fromkeys(found, 0) if shown else {}
            for _, (place, doc_id) in product(range(sessions), enumerate(found, start=1)):
                likes = 0.9 if people.get(doc_id, 0) > 0 else noise
                if rng.random() < place**-fading and rng.random() < likes:
                    log[doc_id] = log.get(doc_id, 0) + 1 if graded else 1
            logs.append(log)
        return logs


class Targets(_Mistakes):
    """Files of vectors that are not the target model's, which a mistaken user names as target of an audit by a pool."""

    def a_target_that_nobody_moved_to(self):
        write_model(self.folder / "target.npz", self.good, self.good.other_model)
        return self.folder / "target.npz"

    def a_target_with_a_prefix(self):
        return self._file(self._behind_a_prefix())

    def a_target_of_translated_vectors(self):
        return self._file(self._noisy(0.01))

    def a_target_whose_vectors_are_of_other_texts(self):
        return self._file(np.roll(self.good.true, 1, axis=0))

    def a_target_that_changed_half_way(self):
        return self._file(np.where(self._is_half(), self.good.other, self.good.true))

    def a_target_that_answers_all_alike(self):
        one = unit_rows(self.good.true.mean(axis=0, keepdims=True))
        return self._file(unit_rows(one + 1e-3 * self.good.true))

    def a_target_that_lacks_documents(self):
        with np.load(self.good.target_file) as arrays:
            kept = {name: arrays[name][::2] if name.startswith("doc") else arrays[name] for name in arrays}
        np.savez(self.folder / "target.npz", **kept)
        return self.folder / "target.npz"


class Files(_Mistakes):
    """Other files than the one that was moved to, which agree with all true vectors that the translated store has."""

    def a_file_of_old_vectors(self):
        return self._file(self._but_for_the_sample(self.good.old))

    def a_file_of_translated_vectors(self):
        return self._file(self._but_for_the_sample(self.good.moved))

    def a_file_of_translated_vectors_with_noise(self):
        return self._file(self._but_for_the_sample(self._noisy(0.1)))

    def a_file_of_another_translation(self):
        return self._file(self._but_for_the_sample(_vectors_of(self._another_translation())))

    def a_file_whose_other_rows_are_shifted(self):
        return self._file(self._but_for_the_sample(np.roll(self.good.true, 1, axis=0)))

    def a_file_of_true_vectors(self):
        return self._file(self.good.true + np.float32(1e-7))


class References(_Mistakes):
    """References that are not a full re-embed by the target model: an audit against them means nothing."""

    def the_source(self):
        return self._at(self.good.source)

    def the_source_stamped_as_the_target(self):
        return trusted(self.the_source(), self.folder)

    def the_translated_store(self):
        return self._at(self.good.translated)

    def a_copy_of_the_translated_store(self):
        return self._at(shutil.copytree(self.good.translated, self.folder / "copy"))

    def a_symlink_to_the_translated_store(self):
        (self.folder / "latest").symlink_to(self.good.translated)
        return self._at(self.folder / "latest")

    def the_translated_store_in_another_order(self):
        return self._reordered(self.good.moved)

    def the_translated_store_in_another_index(self):
        return self._of(self.good.moved, index_type="HNSW16")

    def the_translated_store_with_noise(self):
        return self._of(self._noisy(0.01))

    def another_translation(self):
        """The same source through another stitch, fitted on another sample; its manifest says so."""
        return self._at(self._another_translation())

    def another_translation_without_its_manifest(self):
        return self._of(_vectors_of(self._another_translation()))

    def half_translated(self):
        return self._of(np.where(self._is_half(), self.good.moved, self.good.true))

    def half_of_another_model(self):
        return self._of(np.where(self._is_half(), self.good.other, self.good.true))

    def all_of_another_model(self):
        return self._of(self.good.other)

    def only_the_sample_is_true(self):
        return self._of(self._but_for_the_sample(self.good.old))

    def shuffled(self):
        """True vectors that belong to other ids: results of threads, written as they came."""
        return self._of(self.good.true[self._rng().permutation(N_DOCUMENTS)])

    def other_texts(self):
        """The right ids of another state of the corpus: each text has moved to another id, and so has its vector."""
        texts = np.roll(self.good.texts, 1)
        documents = [replace(one, text=str(text)) for one, text in zip(self.good.documents, texts, strict=True)]
        return self._of(np.roll(self.good.true, 1, axis=0), documents)

    def shortened_texts(self):
        documents = [replace(one, text=one.text[: len(one.text) // 2]) for one in self.good.documents]
        return self._of(self.good.model([document.text for document in documents]), documents)

    def with_a_prefix(self):
        """True vectors of texts behind a prefix that the target model is not to be given; the manifest is silent."""
        return self._of(self._behind_a_prefix())

    def with_a_prefix_that_the_manifest_names(self):
        made = read_manifest(self.good.reference, "store")
        mistake = self.with_a_prefix()
        hashed = {**made.details, "index_hash": sha256_file(mistake.reference / "index.faiss")}
        replace(made, model=replace(made.model, document_prefix=PREFIX), details=hashed).write(mistake.reference)
        return mistake

    def another_revision(self):
        """The reference is a real re-embed by a file of the target's name that somebody has replaced."""
        path = self.folder / self.good.target_file.name
        write_model(path, self.good, self.good.other_model)
        reembed_store(open_store(self.good.translated), load_embedder(f"file:{path}"), self.folder / "reference")
        return self._at(self.folder / "reference")

    def another_revision_for_queries_too(self):
        return replace(self.another_revision(), target=f"file:{self.folder / self.good.target_file.name}")

    def cut_short(self):
        """True vectors whose later half is zeros: shorter vectors of the API, filled up to fit the index."""
        return self._of(unit_rows(np.where(np.arange(DIM) < DIM // 2, self.good.true, np.float32(0))))

    def the_manifest_of_another_file(self):
        """The reference's own manifest, whose hash is that of the file that stood there before."""
        return self._of(self.good.moved, manifest=read_manifest(self.good.reference, "store"))

    def unnormalised(self):
        """True directions of many lengths, in an index by inner product: long vectors come first."""
        return self._of(self._of_many_lengths())


class Harmless(_Mistakes):
    """References that look odd and hold the right directions: an audit against them means what it says."""

    def no_manifest(self):
        return self._of(self.good.true)

    def another_order(self):
        return self._reordered(self.good.true)

    def another_index(self):
        return self._of(self.good.true, index_type="HNSW16")

    def scaled(self):
        """All of one length that is not 1: inner products rank as ever."""
        return self._of(self.good.true * np.float32(7.5))

    def euclidean(self):
        """Of unit length, which Euclidean distance ranks as inner products do."""
        return self._of(self.good.true, metric="l2")


def _asking(change):
    """A mistake: documents as they are after a change ask for themselves."""

    def ask(mistakes):
        return mistakes._asking_too(mistakes._copied(change))

    return ask


def _rewording(change):
    """A mistake: queries that chose the sample judge, as they are after a change."""

    def ask(mistakes):
        return mistakes._by_choosers(change)

    return ask


class Indexes(_Mistakes):
    """Stores of true vectors, a translation that loses nothing, in indexes that do not find them."""

    def _in(self, kind, **settings):
        good, manifest = self.good, read_manifest(self.good.reference, "store")
        options = {"documents": good.documents, "vectors": np.ascontiguousarray(good.true)}
        store = make_store(self.folder / "translated", **options, manifest=replace(manifest, details={}))
        index = faiss.index_factory(DIM, kind, faiss.METRIC_INNER_PRODUCT)
        index.train(good.true)
        if "HNSW" in kind:
            index.hnsw.efConstruction = 4
        index.add(good.true)
        for name, value in settings.items():
            faiss.ParameterSpace().set_index_parameter(index, name, value)
        faiss.write_index(index, str(store.folder / "index.faiss"))
        return replace(good.right(), translated=store.folder)

    def lists_of_which_one_is_looked_into(self):
        return self._in("IVF128,Flat", nprobe=1)

    def lists_of_codes(self):
        return self._in("IVF16,SQ8", nprobe=4)

    def a_graph_of_few_links(self):
        return self._in("HNSW4", efSearch=4)

    def a_copied_index_of_many_lists(self):
        """An index of the old store is built again, with the setting that it had."""
        return self._in("IVF256,Flat", nprobe=1)


class Questions(_Mistakes):
    """The right reference, asked about in a way that makes the verdict mean less than it says, or nothing."""

    def five_queries_forty_times(self):
        asked = product(range(40), self.good.queries[:5])
        return self._asked([(Query(f"{one.id}:{time}", one.text), self.good.qrels[one.id]) for time, one in asked])

    def spellings_of_few_queries(self):
        """Forty questions, each in upper case, lower case, between blanks and with double ones: 160 ids."""
        spelled = [
            (Query(f"{query.id}:{number}", spelling), self.good.qrels[query.id])
            for query in self.good.queries[:40]
            for number, spelling in enumerate(_spellings(query.text)[1:])
        ]
        return self._asked(spelled)

    def judgements_of_another_set(self):
        return self._asked([(query, {f"MED-{row}": 1}) for row, query in enumerate(self.good.queries)])

    def judgements_of_another_set_by_the_same_numbers(self):
        """They name documents of this corpus by chance, as sets that number theirs from 0 do."""
        drawn = self._rng().permutation(N_DOCUMENTS)[: len(self.good.queries)]
        pairs = zip(self.good.queries, drawn, strict=True)
        return self._asked([(query, {self.good.documents[row].id: 1}) for query, row in pairs])

    def documents_as_queries(self):
        """Each document asks for itself: every model finds it."""
        asked = [(Query(document.id, document.text), {document.id: 1}) for document in self.good.documents[:N_QUERIES]]
        return self._asking_too(asked)


def _without_every(nth, text):
    return " ".join(word for number, word in enumerate(text.split(), start=1) if number % nth)


def _changed(nth, text):
    """Every nth word is another one, of a list that any writer has."""
    words = text.split()
    others = ("thing", "some", "kind", "of", "maybe", "part")
    changed = (others[number % len(others)] if number % nth == 0 else word for number, word in enumerate(words))
    return " ".join(changed)


class Copies(_Mistakes):
    """The texts of 130 stored documents, nearly, ask for these documents: every model finds them."""

    please = _asking("{} please".format)
    behind_a_word = _asking("find: {}".format)
    behind_an_id = _asking(lambda text: f"[DOC-{len(text)}] {text}")
    behind_a_prefix_for_queries = _asking("query: {}".format)
    between_sentences = _asking("I wonder which document says this. {} Where does that come from?".format)
    without_punctuation = _asking(lambda text: re.sub(r"[^\w\s]", "", text))
    in_upper_case = _asking(lambda text: f"{text.upper()} ?")
    without_every_fifth_word = _asking(partial(_without_every, 5))
    every_fifth_word_changed = _asking(partial(_changed, 5))
    every_third_word_changed = _asking(partial(_changed, 3))
    words_in_another_order = _asking(lambda text: " ".join(text.split()[::-1]))
    twice = _asking("{0} {0}".format)
    cut_short = _asking(lambda text: text[: 7 * len(text) // 10])
    with_accents = _asking(lambda text: " ".join(f"{word[:2]}\u0301{word[2:]}" for word in text.split()))

    pieces_of_eight_words = _asking(lambda text: " ".join(text.split()[5:13]))

    def among_a_few_questions(self):
        """Forty queries that users ask, beside these."""
        people = [(query, self.good.qrels[query.id]) for query in self.good.queries[:40]]
        return self._asking_too(self._copied("{} please".format), people)


def _typo(text):
    """Two neighbouring letters of each sixth word change places."""
    words = text.split()
    for row in range(0, len(words), 6):
        middle = len(words[row]) // 2
        if middle:
            words[row] = words[row][: middle - 1] + words[row][middle - 1 : middle + 1][::-1] + words[row][middle + 1 :]
    return " ".join(words)


class Choosers(_Mistakes):
    """A query log had what it looks for embedded for the sample, and comes back in other words to judge."""

    is_it_true = _rewording("Is it true that {}".format)
    tell_me = _rewording("please tell me, as I have to know it by tomorrow: {} Thank you".format)
    two_words_dropped = _rewording(lambda text: " ".join(text.split()[1:-1]) or text)
    every_third_word_dropped = _rewording(partial(_without_every, 3))
    typos = _rewording(_typo)
    another_order = _rewording(lambda text: " ".join(sorted(text.split())))
    twice = _rewording("{0} {0}".format)
    a_question_mark_and_thanks = _rewording("{}? thanks in advance".format)


def _click_log(**options):
    """A mistake: what users click of the translated store is taken for judgements."""

    def judge(mistakes):
        return mistakes._judged(mistakes._clicks(**options))

    return judge


class Judgements(_Mistakes):
    """The right queries of a migration of few pairs, judged in a way that makes it look good."""

    clicks = _click_log(sessions=1, fading=2, noise=0.05)  # hardly anybody looks beyond the first place
    clicks_on_anything = _click_log(noise=0.3)
    counted_clicks = _click_log(noise=0.05, sessions=6, graded=True)
    clicks_and_what_was_shown = _click_log(noise=0.05, shown=True)
    clicks_on_several_pages = _click_log(noise=0.05, depth=20, fading=0.5)

    def clicks_added_to_judgements(self):
        logs = zip(self._clicks(noise=0.5, fading=0.3), self._people(), strict=True)
        return self._judged([{**log, **people} for log, people in logs])

    def clicks_for_most_queries(self):
        logs = zip(self._clicks(noise=0.2), self._people(), strict=True)
        return self._judged([log if row % 10 else people for row, (log, people) in enumerate(logs)])

    def what_the_translated_store_finds(self):
        """Its first three documents taken for relevant: by its vendor, or a language model that was shown no others."""
        return self._judged([dict.fromkeys(found, 1) for found in self._found(self.good.moved, 3)])

    def clicks_on_a_store_like_it(self):
        """A click log of the translation before this one, which erred in much the same way; each query asked once."""
        moved = self.good.moved
        drift = self._rng().normal(scale=1 / np.sqrt(DIM), size=moved.shape).astype(np.float32)
        return self._judged(self._clicks(unit_rows(moved + drift), sessions=1, fading=2, noise=0.25))

    def judgements_of_the_sample(self):
        """Only queries whose documents the stitch was fitted on, by the team that had these embedded."""
        return self._judged(self._of_the_sample())

    def judgements_of_the_sample_among_what_both_find(self):
        """The same queries, with grade 0 for what either ranking finds besides."""
        logs = zip(self._found_by_both(), self._of_the_sample(), strict=True)
        return self._judged([{**dict.fromkeys(found, 0), **log} for found, log in logs])


class Honest(_Mistakes):
    """The right queries, judged by a part of the truth that favours no ranking."""

    def all_judgements(self):
        return self.good.right()

    def judgements_of_half_the_queries(self):
        return self._judged([people if row % 2 else {} for row, people in enumerate(self._people())])

    def judgements_of_what_both_find(self):
        logs = zip(self._found_by_both(), self._people(), strict=True)
        return self._judged([{doc_id: people.get(doc_id, 0) for doc_id in found} for found, people in logs])

    def clicks_on_the_full_re_embed(self):
        return self._judged(self._clicks(self.good.true))

    def clicks_on_the_old_store(self):
        embedder = load_embedder(SOURCE_SPEC)
        embedder.fit(self.good.documents)
        return self._judged(self._clicks(self.good.old, asked=embedder.embed_queries(self.good.queries)))

    def judgements_of_others_than_the_choosers(self):
        """A store whose sample half of the queries chose, judged by the other half."""
        chose, others = self.good.queries[:N_CHOOSERS], self.good.queries[N_CHOOSERS:]
        asked = self._asked([(query, self.good.qrels[query.id]) for query in others])
        return replace(asked, translated=self._chosen(chose))


class Agreed(_Mistakes):
    """The right queries of a migration of few pairs, judged by what its store and the full re-embed agree on."""

    def what_both_find_first(self):
        """The first document of both, where that is one: whatever else is lost, nobody asks for it."""
        found = zip(self._found(self.good.moved, 1), self._found(self.good.true, 1), strict=True)
        return self._judged([{own: 1} if own == other else {} for (own,), (other,) in found])

    def the_first_three_where_both_agree(self):
        found = zip(self._found(self.good.moved, 3), self._found(self.good.true, 3), strict=True)
        return self._judged([dict.fromkeys(own, 1) if set(own) == set(other) else {} for own, other in found])

    def what_both_find_first_and_some_judgements(self):
        """One query of twelve is judged by people."""
        found = zip(self._found(self.good.moved, 1), self._found(self.good.true, 1), strict=True)
        logs = [{own: 1} if own == other else {} for (own,), (other,) in found]
        return self._judged([people if row % 12 == 0 else logs[row] for row, people in enumerate(self._people())])

    def what_both_have_among_their_first_two(self):
        """One or two documents, and neither ranking need have them first."""
        found = zip(self._found(self.good.moved, 2), self._found(self.good.true, 2), strict=True)
        return self._judged([dict.fromkeys(set(own) & set(other), 1) for own, other in found])

    def what_both_find_first_at_four_of_five_queries(self):
        """People judge where the first documents differ, as many queries as a fifth of all."""
        found = zip(self._found(self.good.moved, 1), self._found(self.good.true, 1), strict=True)
        same = [{own: 1} if own == other else {} for (own,), (other,) in found]
        others = [row for row, log in enumerate(same) if not log][: sum(map(bool, same)) // 4]
        return self._judged([self._people()[row] if row in others else log for row, log in enumerate(same)])
