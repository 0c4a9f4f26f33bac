"""A good migration, and the references and queries that a mistaken user may hand to its audit: data, no tests.

`migrate` builds the good one in a few seconds, without a network; it is shared and never written to. Each function of
`REFERENCES` and `QUESTIONS` builds one mistake beside it, in a folder of its own, and says in its docstring what the
user did. `build` calls one by name. Where vectors are wrong, the store is left without a manifest, as another program
would leave it; `trusted` gives it the manifest that `stamp --trust` would, which is the strongest lie there is.

    @pytest.fixture(scope="module")
    def good(tmp_path_factory):
        return migrate(tmp_path_factory.mktemp("good"))

    @pytest.mark.parametrize("name", REFERENCES)
    def test_it_is_refused(good, name, tmp_path):
        mistake = build(name, good, tmp_path)
        assert run(["audit", *mistake.arguments()]) == 4

Source and target have one dimension, as many pairs of models have, so that nothing is refused for that alone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import faiss
import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from migrate import fit
from migrate.check import stamp_store
from migrate.datasets.beir import write_beir
from migrate.datasets.stdlib import stdlib_beir
from migrate.embed import embed_corpus, reembed_store
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.files import sha256_file
from migrate.manifest import MANIFEST_NAME, Manifest, read_manifest
from migrate.steps.translate import Translate
from migrate.stores import create_store, open_store
from migrate.stores.base import Metric, read_all
from migrate.vectors import Document, Query, Vectors, unit_rows

N_DOCUMENTS, N_QUERIES, DIM, N_PAIRS = 300, 300, 64, 120
SOURCE_SPEC = f"tfidf:{DIM}"
PREFIX = "Represent this passage for retrieval: "


class Model:
    """A model of words and of runs of letters: TF-IDF and a truncated SVD, (n, DIM), rows of unit length.

    Another seed is a space of its own of the same dimension. `letters` is the weight of runs of letters, which the
    source model does not see; words weigh 1. The more they weigh, the more a translation loses.
    """

    def __init__(self, texts: Sequence[str], *, letters: float = 0.3, seed: int = 0) -> None:
        self.weight = letters
        self.words = TfidfVectorizer(sublinear_tf=True)
        self.letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, max_features=4_000)
        self.words.fit(texts)
        self.letters.fit(texts)
        self.svd = TruncatedSVD(DIM, random_state=0).fit(self._weights(texts))
        self.turned = np.linalg.qr(np.random.default_rng(seed).normal(size=(DIM, DIM)))[0]

    def __call__(self, texts: Sequence[str]) -> Vectors:
        return unit_rows((self.svd.transform(self._weights(texts)) @ self.turned).astype(np.float32))

    def _weights(self, texts: Sequence[str]) -> csr_matrix:
        return hstack([self.words.transform(texts), self.weight * self.letters.transform(texts)]).tocsr()


def _inside(name: str) -> property:
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
    qrels: Mapping[str, Mapping[str, int]]
    model: Model

    source, stitch, translated, reference, beir = map(_inside, ("source", "stitch", "translated", "reference", "beir"))

    @property
    def target_file(self) -> Path:
        return self.folder / "target.npz"

    @property
    def target(self) -> str:
        """Spec of the target model."""
        return f"file:{self.target_file}"

    @property
    def embedder(self) -> Embedder:
        """The target model."""
        return load_embedder(self.target)

    @cached_property
    def other_model(self) -> Model:
        """A model of the same dimension that nobody meant to move to."""
        return Model([document.text for document in self.documents], letters=1.5, seed=1)

    @cached_property
    def true(self) -> Vectors:
        """What the reference holds: vectors (n, DIM) of `documents` in their order."""
        return _vectors_of(self.reference)

    @cached_property
    def old(self) -> Vectors:
        """What the source holds, (n, DIM)."""
        return _vectors_of(self.source)

    @cached_property
    def moved(self) -> Vectors:
        """What the translated store holds, (n, DIM)."""
        return _vectors_of(self.translated)

    @cached_property
    def is_pair(self) -> np.ndarray:
        """Which documents, (n,), the stitch was fitted on: their vectors in the translated store are true."""
        return np.abs(self.moved - self.true).max(axis=1) < 1e-6

    def right(self) -> Mistake:
        """No mistake at all."""
        return Mistake(self.translated, self.reference, self.beir, self.target)


@dataclass(frozen=True)
class Mistake:
    """What the user hands to the audit: stores, a folder of queries, and the spec of the model that embeds them."""

    translated: Path
    reference: Path
    beir: Path
    target: str

    def arguments(self) -> list[str]:
        """Arguments of the command `audit`."""
        return [
            str(self.translated),
            *("--reference", str(self.reference)),
            *("--beir", str(self.beir)),
            *("--target", self.target),
        ]


def migrate(folder: Path, n_pairs: int = N_PAIRS) -> Migration:
    """Build the good migration, which is SAFE, in an empty folder; one of far fewer pairs is not."""
    corpus = stdlib_beir(max_docs=N_DOCUMENTS, seed=7)
    texts = [document.text for document in corpus.documents]
    queries = corpus.queries
    good = Migration(folder, corpus.documents, queries, {q.id: corpus.qrels[q.id] for q in queries}, Model(texts))
    write_beir(good.beir, good.documents, good.queries, good.qrels)
    write_model(good.target_file, good, good.model)
    embed_corpus(lambda: good.documents, load_embedder(SOURCE_SPEC), good.source)
    fitted = fit(open_store(good.source), good.embedder, stitch="ridge", sample=n_pairs)
    fitted.save(good.stitch)
    Translate(open_store(good.source), fitted, good.translated).run()
    reembed_store(open_store(good.translated), good.embedder, good.reference)
    return good


def write_model(path: Path, good: Migration, model: Model) -> None:
    """Write a `file:` model that knows the documents, the queries, and the queries as careless loggers write them."""
    asked = sorted({spelling for query in good.queries for spelling in _spellings(query.text)})
    documents = [document.text for document in good.documents]
    np.savez(
        path,
        doc_ids=[document.id for document in good.documents],
        doc_texts=documents,
        docs=model(documents),
        query_ids=[f"text-{row}" for row in range(len(asked))],
        query_texts=asked,
        queries=model(asked),
    )


def write_store(
    folder: Path,
    documents: Sequence[Document],
    vectors: Vectors,
    *,
    metric: Metric = "ip",
    index_type: str | None = None,
    manifest: Manifest | None = None,
) -> Path:
    """Write a store of vectors (n, dim) without a manifest, or with this one, as it is.

    `index_type` is a description for faiss' own factory, such as "HNSW16"; None for a flat index.
    """
    folder.mkdir(parents=True)
    writer = create_store(folder, format="faiss", dim=vectors.shape[1], metric=metric)
    writer.append(documents, vectors)
    writer.finish()
    if index_type is not None:
        index = faiss.index_factory(vectors.shape[1], index_type, faiss.METRIC_INNER_PRODUCT)
        index.add(vectors)
        faiss.write_index(index, str(folder / "index.faiss"))
    if manifest is not None:
        manifest.write(folder)
    return folder


def trusted(good: Migration, mistake: Mistake, folder: Path) -> Mistake:
    """The same mistake, after `stamp --trust` has called its reference one of the target model."""
    store = open_store(mistake.reference)
    copied = Path(shutil.copytree(store.folder, folder / f"{store.folder.name}-trusted"))
    (copied / MANIFEST_NAME).unlink(missing_ok=True)
    assert stamp_store(open_store(copied), load_embedder(mistake.target), trust=True).path is not None
    return replace(mistake, reference=copied)


TARGETS: dict[str, Callable[[Migration, Path], Path]] = {}
"""Files of vectors that are not the target model's, which a mistaken user names as target of an audit by a pool."""


def _entry(table: dict[str, Callable]) -> Callable[[Callable], Callable]:
    def register(function: Callable) -> Callable:
        table[function.__name__] = function
        return function

    return register


def by_pool(good: Migration, target: Path, *, translated: Path | None = None) -> list[str]:
    """Arguments of an audit by a pool of this target."""
    store = good.translated if translated is None else translated
    return [str(store), "--reference", "pool", "--beir", str(good.beir), "--target", f"file:{target}"]


def _rewritten(good: Migration, folder: Path, docs: Vectors) -> Path:
    path = folder / "target.npz"
    with np.load(good.target_file) as arrays:
        np.savez(path, **{**arrays, "docs": np.ascontiguousarray(docs)})
    return path


@_entry(TARGETS)
def a_target_that_nobody_moved_to(good: Migration, folder: Path) -> Path:
    """Another model, of the same dimension, for documents and queries."""
    write_model(folder / "target.npz", good, good.other_model)
    return folder / "target.npz"


@_entry(TARGETS)
def a_target_with_a_prefix(good: Migration, folder: Path) -> Path:
    """The target's vectors of documents behind a prefix that they are not to be given."""
    return _rewritten(good, folder, good.model([PREFIX + document.text for document in good.documents]))


@_entry(TARGETS)
def a_target_of_translated_vectors(good: Migration, folder: Path) -> Path:
    """The translated vectors with a little noise, as if they were the model's."""
    noise = _rng().normal(scale=0.01 / np.sqrt(DIM), size=good.moved.shape).astype(np.float32)
    return _rewritten(good, folder, unit_rows(good.moved + noise))


@_entry(TARGETS)
def a_target_whose_vectors_are_of_other_texts(good: Migration, folder: Path) -> Path:
    """True vectors, each one row too far down."""
    return _rewritten(good, folder, np.roll(good.true, 1, axis=0))


@_entry(TARGETS)
def a_target_that_changed_half_way(good: Migration, folder: Path) -> Path:
    """A server that got another model under the same name half way through the documents."""
    other = good.other_model([document.text for document in good.documents])
    return _rewritten(good, folder, np.where(_is_half()[:, None], other, good.true))


@_entry(TARGETS)
def a_target_that_answers_all_alike(good: Migration, folder: Path) -> Path:
    """Nearly one vector for every document."""
    one = unit_rows(good.true.mean(axis=0, keepdims=True))
    return _rewritten(good, folder, unit_rows(one + 1e-3 * good.true))


@_entry(TARGETS)
def a_target_that_lacks_documents(good: Migration, folder: Path) -> Path:
    """A file of half the documents."""
    with np.load(good.target_file) as arrays:
        kept = {name: arrays[name][::2] if name.startswith("doc") else arrays[name] for name in arrays}
    np.savez(folder / "target.npz", **kept)
    return folder / "target.npz"


FILES: dict[str, Callable[[Migration, Path], Path]] = {}
"""Other files than the one that was moved to, which agree with all true vectors that the translated store has."""


def _but_for_the_sample(good: Migration, folder: Path, docs: Vectors) -> Path:
    return _rewritten(good, folder, np.where(good.is_pair[:, None], good.true, docs))


@_entry(FILES)
def a_file_of_old_vectors(good: Migration, folder: Path) -> Path:
    """The sample's true vectors, and the source's."""
    return _but_for_the_sample(good, folder, good.old)


@_entry(FILES)
def a_file_of_translated_vectors(good: Migration, folder: Path) -> Path:
    """An export of the translated store."""
    return _but_for_the_sample(good, folder, good.moved)


@_entry(FILES)
def a_file_of_translated_vectors_with_noise(good: Migration, folder: Path) -> Path:
    """The same, each value off by about a tenth of itself."""
    noise = _rng().normal(scale=0.1 / np.sqrt(DIM), size=good.moved.shape).astype(np.float32)
    return _but_for_the_sample(good, folder, unit_rows(good.moved + noise))


@_entry(FILES)
def a_file_of_another_translation(good: Migration, folder: Path) -> Path:
    """The sample's true vectors, and those of another stitch."""
    return _but_for_the_sample(good, folder, _vectors_of(another_translation(good, folder).reference))


@_entry(FILES)
def a_file_whose_other_rows_are_shifted(good: Migration, folder: Path) -> Path:
    """True vectors, each one row too far down, but for the sample."""
    return _but_for_the_sample(good, folder, np.roll(good.true, 1, axis=0))


@_entry(FILES)
def a_file_of_true_vectors(good: Migration, folder: Path) -> Path:
    """All is right, which nobody can tell."""
    return _rewritten(good, folder, good.true + np.float32(1e-7))


Build = Callable[[Migration, Path], Mistake]
"""Called as build(good, folder): makes the mistake in a folder that is there and empty."""

REFERENCES: dict[str, Build] = {}
"""References that are not a full re-embed by the target model: an audit against them means nothing."""

HARMLESS: dict[str, Build] = {}
"""References that look odd and hold the right directions: an audit against them means what it says."""

QUESTIONS: dict[str, Build] = {}
"""The right reference, asked about in a way that makes the verdict mean less than it says, or nothing."""


def build(name: str, good: Migration, folder: Path) -> Mistake:
    """Make a mistake of one of the tables, by name."""
    return {**REFERENCES, **HARMLESS, **QUESTIONS, **JUDGEMENTS, **HONEST}[name](good, folder)


def _reference(good: Migration, path: Path) -> Mistake:
    return replace(good.right(), reference=path)


def _of(good: Migration, folder: Path, vectors: Vectors, **options) -> Mistake:
    return _reference(good, write_store(folder / "reference", good.documents, np.ascontiguousarray(vectors), **options))


def _vectors_of(folder: Path) -> Vectors:
    return read_all(open_store(folder).scan()).vectors


def _rng() -> np.random.Generator:
    return np.random.default_rng(11)


def _is_half() -> np.ndarray:
    return np.arange(N_DOCUMENTS) % 2 == 0


# References that are another store, or another form of the store that is judged


@_entry(REFERENCES)
def the_source(good: Migration, folder: Path) -> Mistake:
    """The store before the migration, manifest and all."""
    return _reference(good, good.source)


@_entry(REFERENCES)
def the_source_without_its_manifest(good: Migration, folder: Path) -> Mistake:
    """The store before the migration, as another program left it."""
    return _of(good, folder, good.old)


@_entry(REFERENCES)
def the_source_stamped_as_the_target(good: Migration, folder: Path) -> Mistake:
    """The store before the migration, after `stamp --trust` with the new model."""
    return trusted(good, the_source(good, folder), folder)


@_entry(REFERENCES)
def the_translated_store(good: Migration, folder: Path) -> Mistake:
    """The store that is judged, twice."""
    return _reference(good, good.translated)


@_entry(REFERENCES)
def a_copy_of_the_translated_store(good: Migration, folder: Path) -> Mistake:
    """Every byte of the store that is judged, in another folder."""
    return _reference(good, Path(shutil.copytree(good.translated, folder / "copy")))


@_entry(REFERENCES)
def hard_links_to_the_translated_store(good: Migration, folder: Path) -> Mistake:
    """A backup by hard links."""
    return _reference(good, Path(shutil.copytree(good.translated, folder / "links", copy_function=os.link)))


@_entry(REFERENCES)
def a_symlink_to_the_translated_store(good: Migration, folder: Path) -> Mistake:
    """`latest`, which points to the store that is judged."""
    (folder / "latest").symlink_to(good.translated)
    return _reference(good, folder / "latest")


@_entry(REFERENCES)
def the_translated_store_under_another_name(good: Migration, folder: Path) -> Mistake:
    """The files of the store that is judged, renamed."""
    (folder / "renamed").mkdir()
    shutil.copy(good.translated / "index.faiss", folder / "renamed" / "vectors.faiss")
    shutil.copy(good.translated / "docs.jsonl", folder / "renamed" / "docs.jsonl")
    return _reference(good, folder / "renamed")


@_entry(REFERENCES)
def the_translated_store_in_another_order(good: Migration, folder: Path) -> Mistake:
    """The documents of the store that is judged, each with its vector, in another order."""
    order = _rng().permutation(N_DOCUMENTS)
    return _reference(
        good, write_store(folder / "reordered", [good.documents[row] for row in order], good.moved[order])
    )


@_entry(REFERENCES)
def the_translated_store_in_another_index(good: Migration, folder: Path) -> Mistake:
    """The vectors of the store that is judged, in a graph."""
    return _of(good, folder, good.moved, index_type="HNSW16")


@_entry(REFERENCES)
def the_translated_store_rounded(good: Migration, folder: Path) -> Mistake:
    """The vectors of the store that is judged, after a trip through float16."""
    return _of(good, folder, good.moved.astype(np.float16).astype(np.float32))


@_entry(REFERENCES)
def the_translated_store_with_noise(good: Migration, folder: Path) -> Mistake:
    """The vectors of the store that is judged, each value off by about a hundredth of itself."""
    noise = _rng().normal(scale=0.01 / np.sqrt(DIM), size=good.moved.shape).astype(np.float32)
    return _of(good, folder, unit_rows(good.moved + noise))


@_entry(REFERENCES)
def another_translation(good: Migration, folder: Path) -> Mistake:
    """The same source through another stitch, fitted on another sample; its manifest says so."""
    fitted = fit(open_store(good.source), good.embedder, stitch="procrustes", sample=N_PAIRS, seed=5)
    Translate(open_store(good.source), fitted, folder / "other").run()
    return _reference(good, folder / "other")


@_entry(REFERENCES)
def another_translation_without_its_manifest(good: Migration, folder: Path) -> Mistake:
    """The same source through another stitch, as another program left it."""
    vectors = _vectors_of(another_translation(good, folder).reference)
    return _of(good, folder, vectors)


# References of wrong vectors


@_entry(REFERENCES)
def random_vectors(good: Migration, folder: Path) -> Mistake:
    """The right ids with vectors of nothing."""
    return _of(good, folder, unit_rows(_rng().normal(size=good.true.shape).astype(np.float32)))


@_entry(REFERENCES)
def half_old(good: Migration, folder: Path) -> Mistake:
    """A re-embed in place that broke off half way: every other vector is the source's."""
    return _of(good, folder, np.where(_is_half()[:, None], good.old, good.true))


@_entry(REFERENCES)
def half_translated(good: Migration, folder: Path) -> Mistake:
    """A re-embed over the translated store that broke off half way."""
    return _of(good, folder, np.where(_is_half()[:, None], good.moved, good.true))


@_entry(REFERENCES)
def half_of_another_model(good: Migration, folder: Path) -> Mistake:
    """Two workers embedded half each, one of them with another model."""
    other = good.other_model([document.text for document in good.documents])
    return _of(good, folder, np.where(_is_half()[:, None], other, good.true))


@_entry(REFERENCES)
def all_of_another_model(good: Migration, folder: Path) -> Mistake:
    """A full re-embed by a model that nobody moved to."""
    return _of(good, folder, good.other_model([document.text for document in good.documents]))


@_entry(REFERENCES)
def only_the_sample_is_true(good: Migration, folder: Path) -> Mistake:
    """The source with the vectors of the stitch's sample replaced: they agree with the translated store, bit by bit."""
    return _of(good, folder, np.where(good.is_pair[:, None], good.true, good.old))


@_entry(REFERENCES)
def shuffled(good: Migration, folder: Path) -> Mistake:
    """True vectors that belong to other ids: results of threads, written as they came."""
    return _of(good, folder, good.true[_rng().permutation(N_DOCUMENTS)])


@_entry(REFERENCES)
def off_by_one(good: Migration, folder: Path) -> Mistake:
    """True vectors, each one row too far down: a header line that was counted."""
    return _of(good, folder, np.roll(good.true, 1, axis=0))


@_entry(REFERENCES)
def other_texts(good: Migration, folder: Path) -> Mistake:
    """The right ids of another state of the corpus: each text has moved to another id, and so has its vector."""
    texts = np.roll([document.text for document in good.documents], 1)
    documents = [replace(document, text=str(text)) for document, text in zip(good.documents, texts, strict=True)]
    return _reference(good, write_store(folder / "reference", documents, np.roll(good.true, 1, axis=0)))


@_entry(REFERENCES)
def shortened_texts(good: Migration, folder: Path) -> Mistake:
    """The right ids, embedded when every text was half as long."""
    documents = [replace(document, text=document.text[: len(document.text) // 2]) for document in good.documents]
    vectors = good.model([document.text for document in documents])
    return _reference(good, write_store(folder / "reference", documents, vectors))


@_entry(REFERENCES)
def with_a_prefix(good: Migration, folder: Path) -> Mistake:
    """True vectors of the texts behind a prefix that the target model is not to be given; the manifest is silent."""
    return _of(good, folder, good.model([PREFIX + document.text for document in good.documents]))


@_entry(REFERENCES)
def with_a_prefix_that_the_manifest_names(good: Migration, folder: Path) -> Mistake:
    """The same, and the manifest names the prefix, as that of a real re-embed does."""
    made = read_manifest(good.reference, "store")
    assert made.model is not None
    prefixed = replace(made, model=replace(made.model, document_prefix=PREFIX))
    mistake = with_a_prefix(good, folder)
    _hashed(prefixed, mistake.reference).write(mistake.reference)
    return mistake


@_entry(REFERENCES)
def another_revision(good: Migration, folder: Path) -> Mistake:
    """The reference is a real re-embed by a file of the target's name that somebody has replaced."""
    write_model(folder / good.target_file.name, good, good.other_model)
    embedder = load_embedder(f"file:{folder / good.target_file.name}")
    reembed_store(open_store(good.translated), embedder, folder / "reference")
    return _reference(good, folder / "reference")


@_entry(REFERENCES)
def another_revision_for_queries_too(good: Migration, folder: Path) -> Mistake:
    """The same, and the queries are embedded by the replaced file too: all agree, but for the translated store."""
    mistake = another_revision(good, folder)
    return replace(mistake, target=f"file:{folder / good.target_file.name}")


@_entry(REFERENCES)
def constant(good: Migration, folder: Path) -> Mistake:
    """One vector for every document: a server that answered everything alike."""
    return _of(good, folder, np.tile(unit_rows(good.true.mean(axis=0, keepdims=True)), (N_DOCUMENTS, 1)))


@_entry(REFERENCES)
def cut_short(good: Migration, folder: Path) -> Mistake:
    """True vectors whose later half is zeros: shorter vectors of the API, filled up to fit the index."""
    return _of(good, folder, unit_rows(np.where(np.arange(DIM) < DIM // 2, good.true, np.float32(0))))


@_entry(REFERENCES)
def the_manifest_of_another_file(good: Migration, folder: Path) -> Mistake:
    """Wrong vectors beside the reference's own manifest, whose hash is that of the file that stood there before."""
    return _of(good, folder, good.moved, manifest=read_manifest(good.reference, "store"))


# References that hold the right directions


@_entry(HARMLESS)
def no_manifest(good: Migration, folder: Path) -> Mistake:
    """True vectors, and nothing to hold them against."""
    return _of(good, folder, good.true)


@_entry(HARMLESS)
def another_order(good: Migration, folder: Path) -> Mistake:
    """True vectors of documents in another order."""
    order = _rng().permutation(N_DOCUMENTS)
    return _reference(good, write_store(folder / "reference", [good.documents[row] for row in order], good.true[order]))


@_entry(HARMLESS)
def another_index(good: Migration, folder: Path) -> Mistake:
    """True vectors in a graph; an audit searches them exactly all the same."""
    return _of(good, folder, good.true, index_type="HNSW16")


@_entry(HARMLESS)
def scaled(good: Migration, folder: Path) -> Mistake:
    """True vectors, all of one length that is not 1: inner products rank as ever."""
    return _of(good, folder, good.true * np.float32(7.5))


@_entry(HARMLESS)
def euclidean(good: Migration, folder: Path) -> Mistake:
    """True vectors of unit length in an index by Euclidean distance: it ranks as inner products do."""
    return _of(good, folder, good.true, metric="l2")


# Right directions whose lengths change the ranking


@_entry(REFERENCES)
def unnormalised(good: Migration, folder: Path) -> Mistake:
    """True directions of many lengths, in an index by inner product: long vectors come first."""
    lengths = _rng().lognormal(sigma=0.7, size=(N_DOCUMENTS, 1)).astype(np.float32)
    return _of(good, folder, good.true * lengths)


@_entry(REFERENCES)
def unnormalised_euclidean(good: Migration, folder: Path) -> Mistake:
    """True directions of many lengths, in an index by Euclidean distance: short vectors come first."""
    lengths = _rng().lognormal(sigma=0.7, size=(N_DOCUMENTS, 1)).astype(np.float32)
    return _of(good, folder, good.true * lengths, metric="l2")


# Queries


@_entry(QUESTIONS)
def five_queries_forty_times(good: Migration, folder: Path) -> Mistake:
    """Five texts under two hundred ids: a log of a demo."""
    repeated = [
        (Query(f"{query.id}:{time}", query.text), good.qrels[query.id])
        for time in range(40)
        for query in good.queries[:5]
    ]
    return _questions(good, folder, repeated)


@_entry(QUESTIONS)
def spellings_of_few_queries(good: Migration, folder: Path) -> Mistake:
    """Forty questions, each in upper case, lower case, between blanks and with double ones: 160 ids."""
    spelled = [
        (Query(f"{query.id}:{number}", spelling), good.qrels[query.id])
        for query in good.queries[:40]
        for number, spelling in enumerate(_spellings(query.text)[1:])
    ]
    return _questions(good, folder, spelled)


@_entry(QUESTIONS)
def judgements_of_another_set(good: Migration, folder: Path) -> Mistake:
    """The queries of this corpus with judgements of another one's documents."""
    return _questions(good, folder, [(query, {f"MED-{row}": 1}) for row, query in enumerate(good.queries)])


@_entry(QUESTIONS)
def judgements_of_another_set_by_the_same_numbers(good: Migration, folder: Path) -> Mistake:
    """Judgements that name documents of this corpus by chance, as sets that number theirs from 0 do."""
    drawn = _rng().permutation(N_DOCUMENTS)[: len(good.queries)]
    return _questions(
        good,
        folder,
        [(query, {good.documents[row].id: 1}) for query, row in zip(good.queries, drawn, strict=True)],
    )


@_entry(QUESTIONS)
def documents_as_queries(good: Migration, folder: Path) -> Mistake:
    """Each document asks for itself: every model finds it."""
    asked = [(Query(document.id, document.text), {document.id: 1}) for document in good.documents[:N_QUERIES]]
    mistake = _questions(good, folder, asked)
    with np.load(good.target_file) as arrays:
        known = dict(arrays)
    known["query_texts"] = np.concatenate([known["query_texts"], [query.text for query, _ in asked]])
    known["query_ids"] = np.concatenate([known["query_ids"], [query.id for query, _ in asked]])
    known["queries"] = np.concatenate([known["queries"], good.true[:N_QUERIES]])
    np.savez(folder / "asks-documents.npz", **known)
    return replace(mistake, target=f"file:{folder / 'asks-documents.npz'}")


# Judgements of what one ranking showed, or of the sample; `poor` is a migration of few pairs

JUDGEMENTS: dict[str, Build] = {}
"""The right queries of a poor migration, judged in a way that makes it look good."""

HONEST: dict[str, Build] = {}
"""The right queries, judged by a part of the truth that favours no ranking."""

Grades = Mapping[str, int]


def _found(vectors: Vectors, poor: Migration, depth: int) -> list[list[str]]:
    """The first documents of every query in a store of these vectors."""
    asked = (poor.model if vectors is not poor.old else _source_model(poor))([query.text for query in poor.queries])
    order = np.argsort(-(asked @ vectors.T), axis=1, kind="stable")[:, :depth]
    return [[poor.documents[row].id for row in rows] for rows in order.tolist()]


def _source_model(poor: Migration) -> Callable[[Sequence[str]], Vectors]:
    embedder = load_embedder(SOURCE_SPEC)
    embedder.fit(poor.documents)
    return lambda texts: embedder.embed_queries([Query(str(row), text) for row, text in enumerate(texts)])


def _clicks(
    poor: Migration,
    vectors: Vectors,
    *,
    depth: int = 10,
    sessions: int = 3,
    noise: float = 0.0,
    fading: float = 1.0,
    graded: bool = False,
    shown: bool = False,
) -> list[Grades]:
    """What users click of the first documents of a store: the later in the list, the rarer it is looked at.

    They click nine of ten relevant ones and a share `noise` of others. With `graded` a document's grade is how often
    it was clicked; with `shown` what nobody clicked has grade 0.
    """
    rng, logs = _rng(), []
    for query, found in zip(poor.queries, _found(vectors, poor, depth), strict=True):
        log = dict.fromkeys(found, 0) if shown else {}
        for _, (place, doc_id) in product(range(sessions), enumerate(found, start=1)):
            likes = 0.9 if poor.qrels[query.id].get(doc_id, 0) > 0 else noise
            if rng.random() < place**-fading and rng.random() < likes:
                log[doc_id] = log.get(doc_id, 0) + 1 if graded else 1
        logs.append(log)
    return logs


def _judged(poor: Migration, folder: Path, logs: Sequence[Grades]) -> Mistake:
    """The queries of which something is judged relevant."""
    pairs = zip(poor.queries, logs, strict=True)
    return _questions(poor, folder, [(query, log) for query, log in pairs if any(grade > 0 for grade in log.values())])


@_entry(JUDGEMENTS)
def clicks(poor: Migration, folder: Path) -> Mistake:
    """A click log of the translated store, each query asked once, and hardly anybody looks beyond the first place."""
    return _judged(poor, folder, _clicks(poor, poor.moved, sessions=1, fading=2, noise=0.05))


@_entry(JUDGEMENTS)
def clicks_on_a_small_screen(poor: Migration, folder: Path) -> Mistake:
    """A click log of users who are shown three documents."""
    return _judged(poor, folder, _clicks(poor, poor.moved, depth=3, noise=0.1))


@_entry(JUDGEMENTS)
def clicks_by_mistake_too(poor: Migration, folder: Path) -> Mistake:
    """A click log with one click of twenty looks that was not meant."""
    return _judged(poor, folder, _clicks(poor, poor.moved, noise=0.05))


@_entry(JUDGEMENTS)
def clicks_on_anything(poor: Migration, folder: Path) -> Mistake:
    """A click log of users who click a third of what they look at."""
    return _judged(poor, folder, _clicks(poor, poor.moved, noise=0.3))


@_entry(JUDGEMENTS)
def counted_clicks(poor: Migration, folder: Path) -> Mistake:
    """A click log whose grades are numbers of clicks."""
    return _judged(poor, folder, _clicks(poor, poor.moved, noise=0.05, sessions=6, graded=True))


@_entry(JUDGEMENTS)
def clicks_and_what_was_shown(poor: Migration, folder: Path) -> Mistake:
    """A click log that gives grade 0 to what was shown and not clicked."""
    return _judged(poor, folder, _clicks(poor, poor.moved, noise=0.05, shown=True))


@_entry(JUDGEMENTS)
def clicks_on_several_pages(poor: Migration, folder: Path) -> Mistake:
    """A click log of users who read on to the second page."""
    return _judged(poor, folder, _clicks(poor, poor.moved, noise=0.05, depth=20, fading=0.5))


@_entry(JUDGEMENTS)
def clicks_added_to_judgements(poor: Migration, folder: Path) -> Mistake:
    """A click log with many clicks that were not meant, beside what people judged."""
    logs = _clicks(poor, poor.moved, noise=0.5, fading=0.3)
    return _judged(poor, folder, [{**log, **poor.qrels[q.id]} for q, log in zip(poor.queries, logs, strict=True)])


@_entry(JUDGEMENTS)
def clicks_for_most_queries(poor: Migration, folder: Path) -> Mistake:
    """A click log for nine queries of ten, and what people judged for the others."""
    logs = _clicks(poor, poor.moved, noise=0.2)
    people = [poor.qrels[query.id] for query in poor.queries]
    return _judged(poor, folder, [people[row] if row % 10 == 0 else log for row, log in enumerate(logs)])


@_entry(JUDGEMENTS)
def what_the_translated_store_finds(poor: Migration, folder: Path) -> Mistake:
    """Its first three documents taken for relevant: by its vendor, or a language model that was shown no others."""
    return _judged(poor, folder, [dict.fromkeys(found, 1) for found in _found(poor.moved, poor, 3)])


@_entry(JUDGEMENTS)
def clicks_on_a_store_like_it(poor: Migration, folder: Path) -> Mistake:
    """A click log of the translation before this one, which erred in much the same way; each query asked once."""
    drift = _rng().normal(scale=1 / np.sqrt(DIM), size=poor.moved.shape).astype(np.float32)
    return _judged(poor, folder, _clicks(poor, unit_rows(poor.moved + drift), sessions=1, fading=2, noise=0.25))


@_entry(JUDGEMENTS)
def judgements_of_the_sample(poor: Migration, folder: Path) -> Mistake:
    """Only queries whose documents the stitch was fitted on, by the team that had these embedded."""
    true = {document.id for document, is_pair in zip(poor.documents, poor.is_pair, strict=True) if is_pair}
    return _judged(poor, folder, [_among(poor.qrels[query.id], true) for query in poor.queries])


@_entry(JUDGEMENTS)
def judgements_of_the_sample_among_what_both_find(poor: Migration, folder: Path) -> Mistake:
    """The same queries, with grade 0 for what either ranking finds besides."""
    true = {document.id for document, is_pair in zip(poor.documents, poor.is_pair, strict=True) if is_pair}
    both = zip(poor.queries, _found(poor.moved, poor, 10), _found(poor.true, poor, 10), strict=True)
    logs = [{**dict.fromkeys([*own, *full], 0), **_among(poor.qrels[q.id], true)} for q, own, full in both]
    return _judged(poor, folder, logs)


def _among(grades: Grades, doc_ids: Collection[str]) -> Grades:
    return {doc_id: grade for doc_id, grade in grades.items() if doc_id in doc_ids}


@_entry(HONEST)
def all_judgements(poor: Migration, folder: Path) -> Mistake:
    """What people judged."""
    return poor.right()


@_entry(HONEST)
def judgements_of_half_the_queries(poor: Migration, folder: Path) -> Mistake:
    """What people judged, of every other query."""
    return _judged(poor, folder, [poor.qrels[q.id] if row % 2 else {} for row, q in enumerate(poor.queries)])


@_entry(HONEST)
def judgements_of_what_both_find(poor: Migration, folder: Path) -> Mistake:
    """A pool of both rankings, with grade 0 for what is not relevant."""
    both = zip(poor.queries, _found(poor.moved, poor, 10), _found(poor.true, poor, 10), strict=True)
    return _judged(poor, folder, [{d: poor.qrels[q.id].get(d, 0) for d in {*own, *full}} for q, own, full in both])


@_entry(HONEST)
def clicks_on_the_full_re_embed(poor: Migration, folder: Path) -> Mistake:
    """A click log of the reference, which wrongs the translated store and cannot flatter it."""
    return _judged(poor, folder, _clicks(poor, poor.true))


@_entry(HONEST)
def clicks_on_the_old_store(poor: Migration, folder: Path) -> Mistake:
    """A click log of the store before the migration."""
    return _judged(poor, folder, _clicks(poor, poor.old))


def _questions(good: Migration, folder: Path, asked: Sequence[tuple[Query, Mapping[str, int]]]) -> Mistake:
    qrels = {query.id: grades for query, grades in asked}
    (folder / "beir" / "qrels").mkdir(parents=True)
    lines = (json.dumps({"_id": query.id, "text": query.text}) + "\n" for query, _ in asked)
    (folder / "beir" / "queries.jsonl").write_text("".join(lines))
    judged = "".join(f"{query}\t{document}\t{g}\n" for query, grades in qrels.items() for document, g in grades.items())
    (folder / "beir" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return replace(good.right(), beir=folder / "beir")


def _spellings(text: str) -> list[str]:
    """The text as it is, in upper case, in lower case, between blanks, and with double blanks."""
    return [text, text.upper(), text.lower(), f"  {text} ", text.replace(" ", "  ")]


def _hashed(manifest: Manifest, folder: Path) -> Manifest:
    """The manifest with the hash of the index that stands in the folder."""
    return replace(manifest, details={**manifest.details, "index_sha256": sha256_file(folder / "index.faiss")})
