"""Documents of topics, a model that embeds them, and stores and audits of these: what tests of the audit share."""

import shutil

import numpy as np

from migrate.audit.audit import run_audit
from migrate.audit.bounds import Outcome
from migrate.audit.document import report_of
from migrate.audit.query_set import QuerySet
from migrate.audit.step import Audit
from migrate.embedders.base import Embedder
from migrate.manifest import Manifest, ModelIdentity
from migrate.report.audit_sections import audit_sections
from migrate.report.page import report_page
from migrate.report.terminal import report_text
from migrate.stores import create_store, open_store
from migrate.vectors import Document, Query

N_DOCUMENTS, N_QUERIES, DIM, SOURCE_DIM = 150, 60, 8, 6


class Topics(Embedder):
    """A text of topic 7 is near all texts of topic 7, as far as `blur` lets it; queries and documents are unlike."""

    def __init__(self, dim=DIM, blur=0.3, seed=0):
        self.dim, self.blur, self.seed = dim, blur, seed
        self.centres = np.random.default_rng(seed).normal(size=(50, dim))
        self.asked = []

    @property
    def identity(self):
        return ModelIdentity(f"topics-{self.seed}", self.dim, False)

    def embed(self, texts, role, *, progress=None):
        self.asked.append(role)
        return np.array([self._one(text.text, role) for text in texts], dtype=np.float32)

    def _one(self, text, role):
        topic, own = (int(word[1:]) for word in text.split()[:2])
        noise = np.random.default_rng([self.seed, own, role == "query"]).normal(size=self.dim)
        return self.centres[topic] + self.blur * noise


TARGET = Topics()
SOURCE = Topics(SOURCE_DIM, blur=0.9, seed=1)
DOCUMENTS = [Document(f"d{row:03}", f"t{row % 50} n{row} word{row % 9}") for row in range(N_DOCUMENTS)]
QUERIES = [Query(f"q{row}", f"t{row % 50} n{1000 + row} word{row % 7}") for row in range(N_QUERIES)]
QRELS = {
    query.id: {f"d{(row % 50) + 50 * part:03}": part for part in range(3)}  # grades 0, 1 and 2
    for row, query in enumerate(QUERIES)
}
QUESTIONS = QuerySet(QUERIES, QRELS, "topics")
UNJUDGED = QuerySet(QUERIES, None, "log")
OF_TARGET = Manifest("store", TARGET.identity, details={"index": "index.faiss"})


def make_store(folder, embedder=TARGET, documents=DOCUMENTS, *, vectors=None, metric="ip", manifest=None, texts=True):
    folder.mkdir()
    vectors = embedder.embed_documents(documents) if vectors is None else vectors
    writer = create_store(folder, format="faiss", dim=vectors.shape[1], metric=metric)
    writer.append(documents, vectors)
    writer.finish()
    if not texts:
        (folder / "docs.jsonl").unlink()
    if manifest:
        manifest.write(folder)
    return open_store(folder)


def halves(documents=DOCUMENTS):
    """Two chunks of each document, unlike each other."""
    return [
        Document(f"{document.id}#{part}", f"{document.text.split()[0]} n{part * 700 + row}", {"parent_id": document.id})
        for row, document in enumerate(documents)
        for part in range(2)
    ]


def copy_store(store):
    """The same vectors in a folder of their own, of unknown origin."""
    folder = store.folder.with_name(f"copy of {store.folder.name}")
    if not folder.exists():
        shutil.copytree(store.folder, folder)
        (folder / "lead-migrate.json").unlink(missing_ok=True)
    return open_store(folder)


def noisy(scale):
    """The reference's vectors with noise: a translation that is not perfect."""
    vectors = TARGET.embed_documents(DOCUMENTS)
    return vectors + np.float32(scale) * np.random.default_rng(3).normal(size=vectors.shape).astype(np.float32)


def pool(depth=None, **options):
    """The options of an audit by a pool."""
    if depth is None:
        return {"reference": "pool", **options}
    return {"reference": f"pool:{depth}", **options}


def asked(translated, reference, questions=QUESTIONS, embedder=TARGET, **options):
    """An audit that is still to be done."""
    by = reference if isinstance(reference, dict) else {"reference": reference}
    return Audit(translated, judged=questions, target=embedder, **{"two_stage": (), **by, **options})


def audit(*arguments, context=None, **options):
    step = asked(*arguments, **options)
    return run_audit(step.open(context).inputs)


def ways_out(report):
    """Arms that could serve instead and keep the margin, whichever of them one picks."""
    return [name for name in report.family if report.outcome_of(name) is Outcome.SAFE]


def shown(report):
    """What a terminal shows of an audit, in one line."""
    return " ".join(report_text(audit_sections(report_of(report))).split())


def page_of(report):
    return report_page(audit_sections(report_of(report)))
