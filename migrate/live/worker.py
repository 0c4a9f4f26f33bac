"""The worker of a live store: gives it true vectors, most wanted first, and watches what is served.

Vectors are in the embedding cache before anything else happens to them, and a store is surveyed anew at each start: a
worker that was killed at any moment has lost nothing. Records of a database are written to; for files the cache is the
only place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from migrate.check.facts import require_model
from migrate.cost import tally_of
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel
from migrate.embedders.base import Embedder, with_model
from migrate.embedders.cache import are_cached, cache_of, is_kept
from migrate.errors import (
    InputError,
    LeadMigrateError,
    LockedError,
    RemoteError,
    SpendingError,
    StoreError,
    UsageError,
    VectorError,
)
from migrate.live.control import note_obeyed, only_worker, paused_at
from migrate.live.generation import generation_of, model_of
from migrate.live.options import WorkerOptions
from migrate.live.paying import Account, PayingEmbedder, WorkerSpending
from migrate.live.state import STOP, LiveState, WorkerFacts, WorkerPhase, state_path, text_hash
from migrate.live.survey import LiveSurvey, survey_store
from migrate.live.watch import Watch, chosen_by_served
from migrate.live.writing import put_true_vectors, require_served
from migrate.progress import note_progress
from migrate.selection.model_match import ASKED_AGAIN, claim_of_cache, claim_of_true_rows, matches, needs_proof
from migrate.steps.translate.choice import Budget
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.registry import open_store
from migrate.vectors import Document, Vectors

# Arbitrary: documents whose vectors a turn embeds and writes, before stops, pauses and budgets are looked at again.
_BATCH: Final = 64
# Arbitrary: the longest that an idle worker takes to see what somebody has asked of it.
_POLL_S: Final = 1.0
_MOST_FAILURES: Final = 5
"""Failures in a row of a store that changes while it is read, after which the worker ends."""
_DATABASE_SURVEY_S: Final = 600.0
"""Seconds between surveys of a database, which other programs write to."""
_NEWS: Final = 0.02
"""The share of the documents that others have had embedded, from which on the store is surveyed anew."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The end of a run: with `true` of `count` documents true; see `LiveSurvey` for the others."""

    phase: WorkerPhase
    count: int
    true: int
    refused: int
    bitwise: bool
    message: str


class Worker:
    """One run of the worker of the store at a location: a translated one, with texts.

    `embedder` is the model that it was translated for, behind its cache.
    """

    def __init__(self, location: str, embedder: Embedder, options: WorkerOptions | None = None) -> None:
        self.location = location
        self.options = options or WorkerOptions()
        budget = budget_of(self.options)
        store = open_store(location)
        _check_fits(store, embedder)
        require_served(store)
        self.state = LiveState(state_path(store))
        try:
            self.account = Account(self.state, tally_of(embedder, self.options.price), budget, store.info.count)
        except BaseException:
            self.state.close()
            raise
        self.embedder = with_model(embedder, lambda model: PayingEmbedder(model, self.account))
        self.store = store
        self._has_written = False  # to the store, as it is open
        self.survey = LiveSurvey()
        self._watch = Watch(self.state, self.options)
        self._paused_at = paused_at(self.state)
        self._surveyed_at = -np.inf
        self._embedded_by_queries = 0.0  # by then
        self._unsurveyed = 0.0  # documents that the verdict has had embedded since
        self._failures = 0
        self._is_proven = not needs_proof(self.embedder)
        self._is_unaffordable = False  # the proof, without which nothing is embedded

    def run(self) -> WorkerReport:
        """Work until somebody asks to stop, or, `once`, until nothing is left to do."""
        with self.state, only_worker(self.state, self.location):
            self.state.note(STOP, False)
            phase: WorkerPhase = "failed"
            message = "broke off"
            try:
                phase, message = self._work()
            except LeadMigrateError as error:
                message = str(error)
                raise
            except KeyboardInterrupt:
                phase = "stopped"
                message = "interrupted"
                raise
            finally:
                self._say(phase, message)
                del self.store  # a folder that a database gives to one process is free again
        survey = self.survey
        return WorkerReport(phase, survey.count, len(survey.true), survey.refused, survey.bitwise, message)

    def _work(self) -> tuple[WorkerPhase, str]:
        while True:
            if self.state.value(STOP):
                return "stopped", "asked to stop"
            self._paused_at = paused_at(self.state)
            note_obeyed(self.state, self._paused_at)
            try:
                idle = self._turn()
            except (RemoteError, LockedError) as error:
                self._pause(str(error))
                continue
            # A model or a server may be back; a store may not, so that only a database that changes is tried again
            except StoreError as error:  # of a database that documents were deleted from while it was read
                manifest = self.store.info.manifest
                model = None
                if manifest is not None:
                    model = manifest.model
                is_ours = model is not None and model == self.embedder.identity  # not after a rollback
                if self._is_in_files or self._failures >= _MOST_FAILURES or not is_ours:
                    raise
                self._pause(str(error))
                self._surveyed_at = -np.inf
                continue
            self._failures = 0
            if idle is not None:
                phase, message = idle
                if self.options.once and self._paused_at is None:
                    self._look(now=True)
                    return phase, message
                self._say(phase, message)
                note_progress("wait for queries", 0, None)
                self._wait(_POLL_S)

    def _turn(self) -> tuple[WorkerPhase, str] | None:
        """Take one step of the work; return the phase and why, where there was nothing to write."""
        is_paused = self._paused_at is not None
        is_surveyed = self._surveyed_at > -np.inf
        # A worker that starts paused surveys once, for `live status` to have figures
        if not (is_paused and is_surveyed) and self._is_other():
            self._survey()
        if is_paused:
            return "paused", ""
        if not self._is_proven:
            self._prove_model()
        self._look(now=False)
        documents = self._next()
        if not documents:
            return self._end()
        self._say("running", "")
        self._note_progress()
        stops = self._fill(documents)
        self._note_progress()
        if stops is None:
            return None
        return ("paused", stops)

    def _note_progress(self) -> None:
        """Report how many vectors are true, of those that the budget has room for."""
        n_true = len(self.survey.true)
        most = self.survey.count
        if self._room() < most - n_true:
            most = n_true + int(self._room())
        note_progress("give true vectors", n_true, most)

    @property
    def _is_in_files(self) -> bool:
        return as_files(self.store) is not None

    def _end(self) -> tuple[WorkerPhase, str] | None:
        """Return the phase and why, where nothing is left; None where another look at the store found something."""
        # Nothing is left to do, and yet not all is true: others have embedded, added or deleted documents meanwhile
        if not self.survey.embedded and not self.survey.remaining and not self.survey.is_complete:
            n_true = len(self.survey.true)
            self._survey()
            if len(self.survey.true) != n_true and not self.survey.is_complete:
                return None
        survey = self.survey
        if survey.is_complete:
            refused = ""
            if survey.refused:
                refused = f", but {survey.refused:,} that it refuses"
            if not survey.is_all_in_store:
                return "complete", f"all {len(survey.true):,} true vectors are in the cache{refused}"
            equal = "as the store can hold them"
            if survey.bitwise:
                equal = "to the bit, as a full re-embed has them"
            return "complete", f"all {len(survey.true):,} vectors are the model's own{refused}, {equal}"
        if survey.remaining and self._is_unaffordable:
            return "paused", (
                f"the budget of {self.account.budget} has no room for more than the {ASKED_AGAIN} texts that prove the "
                "model at each start; raise --budget to go on"
            )
        if survey.remaining and not self.options.from_queue:
            return "paused", f"the budget of {self.account.budget} is used up"
        return "running", "nothing more was asked for"

    # What there is to do.

    def _is_other(self) -> bool:
        """Tell if the store may hold other documents than the survey has seen, or the cache many more."""
        by_queries = self.state.counters()["embedded_by_queries"] - self._embedded_by_queries
        # A survey reads the whole store, which is dear: not after each query that had a document embedded
        if self._surveyed_at == -np.inf or by_queries + self._unsurveyed >= max(_NEWS * self.survey.count, 1):
            return True
        files = as_files(self.store)
        if files is None:
            return time.monotonic() - self._surveyed_at >= _DATABASE_SURVEY_S
        return not files.is_as_opened()

    def _prove_model(self) -> None:
        """Make sure that the model behind an API still gives the vectors that the cache and the store have."""
        if self.survey.is_complete or self._room() <= 0:  # nothing will be embedded
            return
        documents = self._documents([*self.survey.true, *self.survey.embedded][:ASKED_AGAIN])
        try:
            # For all of them, before the first is sent, and for one to embed after
            self.account.require_room([*documents, *documents[:1]])
            claim = claim_of_cache(self.embedder, documents)
            n_asked = matches(claim, self.embedder, past_cache=True).require(self.location).count
            # The cache may be of this model and the store of another: what the store calls true has to be its own too
            if not self.survey.in_store:
                unproven = np.array([self.survey.rows[doc_id] for doc_id in self.survey.unproven], dtype=np.int64)
                claim = claim_of_true_rows(self.store, unproven)
                n_asked += matches(claim, self.embedder, past_cache=True).require_one(self.location).count
            self._is_proven = n_asked > 0
        except VectorError:
            raise
        except SpendingError:
            self._is_unaffordable = True
        except InputError:  # nothing will be embedded
            return

    def _survey(self) -> None:
        """Find out which documents are true in the store that is there now, and note it for searchers."""
        store = self.store = open_store(self.location)
        self._has_written = False
        _check_fits(store, self.embedder)
        # A budget in per cent is one of the documents that there are now
        self.account.limit_to(store.info.count)
        self.state.adopt(self.embedder.cache_scope("document"), generation_of(store))
        self._watch.adopt(store)
        refused = self.state.documents.refused()
        self._embedded_by_queries = self.state.counters()["embedded_by_queries"]
        self._unsurveyed = 0.0
        survey = survey_store(store, self.embedder, refused)
        # A text that was refused may be another by now, and is tried again
        self.state.documents.settle(survey.true, refused.keys() & set(survey.remaining))
        self.survey = survey
        self._surveyed_at = time.monotonic()

    def _next(self) -> list[Document]:
        """Return what to write next: what is embedded already, the most wanted, then, where others are to be, these."""
        survey = self.survey
        if survey.embedded:
            # Paid for already: written whatever the budget, and before anything is sent
            ids = survey.embedded[:_BATCH]
            del survey.embedded[:_BATCH]
            return self._documents([doc_id for doc_id in ids if doc_id not in survey.true])
        size = int(min(self._room(), _BATCH))
        if size <= 0:
            return []
        # Documents may be wanted that were deleted since
        queued = (doc_id for doc_id in self.state.demand.queue(_BATCH) if doc_id in survey.rows)
        ids = [doc_id for doc_id in queued if doc_id not in survey.true][:size]
        chosen = set(ids)
        while not self.options.from_queue and len(ids) < size and survey.remaining:
            doc_id = survey.remaining.pop()
            if doc_id not in chosen and doc_id not in survey.true:
                ids.append(doc_id)
        return self._documents(ids)

    def _room(self) -> float:
        """Return how many more documents may be embedded, where the budget is one of documents or used up."""
        if self._is_unaffordable:
            return 0
        return self.account.room

    def _documents(self, ids: Sequence[str]) -> list[Document]:
        rows = np.array([self.survey.rows[doc_id] for doc_id in ids], dtype=np.int64)
        if len(rows):
            return list(self.store.documents(rows))
        return []

    # Doing it.

    def _fill(self, documents: Sequence[Document]) -> str | None:
        """Embed documents and put their vectors; return why that is the end of it, where it is."""
        # Noted with each vector: an audit must not judge by queries that chose what was embedded
        self.embedder = chosen_by_served(self.embedder, self.state)
        cached = are_cached(self.embedder, documents, "document")
        new = [document for document, is_known in zip(documents, cached, strict=True) if not is_known]
        # The cache gives its vectors for nothing, so that only new texts count
        unpaid = {document.id for document in new[self.account.fits(new) :]}
        batch = [document for document in documents if document.id not in unpaid]
        try:
            for chunk, vectors in self._embedded(batch):
                n_put = put_true_vectors(self.state, self.store, chunk, vectors, is_written=self._has_written)
                self._has_written = self._has_written or n_put > 0
                if n_put < len(chunk):
                    self._surveyed_at = -np.inf
                # Where one was left out, the survey is made anew.
                self.survey.true.update({document.id: text_hash(document.text) for document in chunk})
                if not self._is_in_files:
                    self.survey.in_store.update(document.id for document in chunk)
        except RemoteError:
            self.survey.remaining.extend(document.id for document in batch)
            raise
        if not unpaid:
            return None
        self.survey.remaining.extend(sorted(unpaid))
        return f"the budget of {self.account.budget} is used up"

    def _embedded(self, documents: Sequence[Document]) -> Iterator[tuple[Sequence[Document], Vectors]]:
        """Yield the documents with their vectors; what the model refuses is noted, and left out."""
        if not documents:
            return
        try:
            yield documents, self.embedder.embed_documents(list(documents))
        except InputError as error:
            if len(documents) == 1:
                self.embedder.find(list(documents), "document")  # if the cache is to blame, it fails again
                document = documents[0]
                self.state.documents.refuse({document.id: (text_hash(document.text), str(error))})
                self.survey.refused += 1
                return
            # An API refuses a batch as a whole: halves find the text that it is about
            half = len(documents) // 2
            yield from self._embedded(documents[:half])
            yield from self._embedded(documents[half:])

    # Watching and telling.

    def _look(self, *, now: bool) -> None:
        """Let queries that were sampled since be judged, as far as the budget has room for their documents."""
        if self.survey.remaining and self._room() <= 0:
            return
        embedded = self.state.counters()["embedded_by_worker"]
        try:
            self._watch.look(self.store, self.embedder, self.survey, now=now)
        finally:
            self._unsurveyed += self.state.counters()["embedded_by_worker"] - embedded

    def _say(self, phase: WorkerPhase, message: str) -> None:
        facts = WorkerFacts(phase, os.getpid(), message)
        # Reading is free, but each write is synced to the disk
        if WorkerFacts.kept_in(self.state) != facts:
            facts.keep(self.state)

    def _pause(self, reason: str) -> None:
        """Wait for a model or a server that does not answer, longer each time."""
        self._say("paused", reason)
        self.state.count({"embedder_failures": 1})
        self._wait(min(2.0**self._failures, 60))
        self._failures += 1

    def _wait(self, seconds: float) -> None:
        """Wait, unless somebody asks for something else."""
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            # Asked every second: whoever stops a worker waits for it
            if self.state.value(STOP) or paused_at(self.state) != self._paused_at:
                return
            time.sleep(min(remaining, _POLL_S))


def budget_of(options: WorkerOptions) -> Budget | None:
    """Return the budget of a worker; raises UsageError where it is none."""
    if options.budget is None:
        return None
    return Budget.parse(options.budget)


def planned_model(store: Store, embedder: Embedder, options: WorkerOptions) -> PlannedModel:
    """Return the model of a worker that would be started now, for what the budget leaves of what is not cached."""
    require_model(store.info.location, model_of(store), embedder.identity)
    tally = tally_of(embedder, options.price)
    most = WorkerSpending.most(budget_of(options), store.info.count, tally.price)
    spent = WorkerSpending()
    if state_path(store).exists():
        with LiveState(state_path(store)) as state:
            spent = WorkerSpending.kept_in(state)
    # At each start some texts are asked for again, to prove that the model is still that of the cache
    again = ASKED_AGAIN if needs_proof(embedder) else 0
    cap = SpendingCap()
    cap.meter(embedder, options.price)

    def documents() -> Iterator[Document]:
        n_sent = spent.documents + again
        n_tokens = spent.tokens
        stream = iter(store.documents())
        while batch := list(islice(stream, _BATCH)):
            cached = are_cached(embedder, batch, "document")
            for document in (one for one, is_known in zip(batch, cached, strict=True) if not is_known):
                n_sent += 1
                n_tokens += int(tally.tokens([document])[0])
                if n_sent > most.documents or n_tokens > most.tokens:
                    return
                yield document

    return PlannedModel(embedder, cap, documents=documents, again=again)


def _check_fits(store: Store, embedder: Embedder) -> None:
    location = store.info.location
    model = model_of(store)
    if not store.info.has_texts:
        raise StoreError(f"{location}: the store has no texts to embed; serve one with texts")
    require_model(location, model, embedder.identity)
    if cache_of(embedder) is None and not embedder.cacheable:
        raise UsageError(
            f"{location}: a worker writes what is cached, and no cache keeps the vectors of {embedder.profile.spec}, "
            "which cost nothing to have again; embed the whole store at once with `reembed`"
        )
    if not is_kept(embedder):
        raise UsageError(f"{location}: a worker writes what is cached, and nothing would be; name a file with --cache")
