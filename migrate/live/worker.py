"""The worker of a live store: gives it true vectors, most wanted first, and watches what is served.

Vectors are in the embedding cache before anything else happens to them, and a store is surveyed anew at each start: a
worker that was killed at any moment has lost nothing. Records of a database are written to; for files the cache is the
only place.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from migrate.audit.bounds import Outcome
from migrate.check.facts import require_model
from migrate.cost import tally_of, usd_of
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel
from migrate.embedders.base import Embedder, with_model
from migrate.embedders.cache import are_cached, cache_of, is_kept, with_choosers
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
from migrate.files import canonical_json, output_lock
from migrate.live.control import Control, begin_control, control_at_start, control_of, note_obeyed
from migrate.live.generation import confidence_of, generation_of, model_of
from migrate.live.monitor import LiveVerdict, Monitor, ServedPool
from migrate.live.old_store import MAY_GO, Additions
from migrate.live.options import WorkerOptions
from migrate.live.paying import Account, PayingEmbedder, WorkerSpending, refuse_unpriced
from migrate.live.state import (
    OLD_STORE,
    STOP,
    Counter,
    LiveState,
    ServedQuery,
    WorkerFacts,
    WorkerPhase,
    state_path,
    text_hash,
)
from migrate.live.writing import VectorWriter, require_served
from migrate.selection.matches import ASKED_AGAIN, claim_of_cache, claim_of_true_rows, matches, needs_proof
from migrate.steps.translate.choice import Budget
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.registry import open_store
from migrate.stores.serving import is_cosine
from migrate.translate import batch_rows
from migrate.vectors import Document, Vectors, unit_rows

_log = logging.getLogger(__name__)

_BATCH: Final = 64
_POLL_S: Final = 1.0
_SAID: Final = "own verdict that was told"
_NEWS: Final = 0.02
"""The share of the documents that others have had embedded, from which on the store is surveyed anew."""


@dataclass
class LiveSurvey:
    """The documents of a store: hashes of the texts of the `true` ones by id; ids `remaining`, in their order.

    `in_store` are the true ones whose vector in the store is the true one: all of a database, some of files. `embedded`
    are those of a database whose vectors the cache has and the store has not. `counters` are those of the survey,
    `judged` counts what the verdict has had embedded since. `bitwise` is True if all that is true in the store is so to
    the last bit; `refused` are texts that the model takes no vector of. `unproven` are the documents of `remaining`
    whose vectors the store calls true, and the cache does not know.
    """

    count: int = 0
    counters: Mapping[Counter, float] = field(default_factory=dict)
    true: dict[str, bytes] = field(default_factory=dict)
    in_store: set[str] = field(default_factory=set)
    embedded: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    judged: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    bitwise: bool = True

    @property
    def is_complete(self) -> bool:
        """True if every document has its true vector, but those that the model refuses."""
        return not self.embedded and not self.remaining and len(self.true) + self.refused == self.count

    @property
    def is_all_in_store(self) -> bool:
        """True if the store itself is complete: it is searched by true vectors alone."""
        return self.is_complete and len(self.in_store) == len(self.true)


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

    `embedder` is the model that it was translated for, behind its cache. `tell` is called with a sentence when the
    store before the migration, if searchers ask it too, may be switched off.
    """

    def __init__(
        self,
        location: str,
        embedder: Embedder,
        options: WorkerOptions | None = None,
        *,
        tell: Callable[[str], object] = _log.info,
    ) -> None:
        self.location, self.options, self._tell_user = location, options or WorkerOptions(), tell
        budget, pace = Control().budget_of(self.options), Control().pace_of(self.options)
        store = open_store(location)
        _check_fits(store, embedder)
        require_served(store)
        self.state = LiveState(state_path(store))
        try:
            tally = tally_of(embedder, self.options.price)
            self.account = Account(self.state, tally, budget, pace, room=self._room, sleep=self._wait)
            self.embedder = with_model(embedder, lambda model: PayingEmbedder(model, self.account))
            self.control = control_at_start(self.state, self.options)
            self.account.limit(self.control.budget_of(self.options), self.control.pace_of(self.options))
            self.writer = VectorWriter(self.state)
        except BaseException:
            self.state.close()
            raise
        self.store, self.survey = store, LiveSurvey()
        self._monitor = Monitor()
        self._verdict: LiveVerdict | None = None
        self._surveyed_at = self._looked_at = self._noted_at = -np.inf
        self._failures = 0
        self._is_old_told = False
        self._is_proven = not needs_proof(self.embedder)
        self._is_unaffordable = False  # the proof, without which nothing is embedded

    def run(self) -> WorkerReport:
        """Work until somebody asks to stop, or, `once`, until nothing is left to do."""
        with self.state, ExitStack() as stack:
            self._take_lock(stack)
            self.state.note(STOP, False)
            begin_control(self.state, self.options, self.account.tally.price)
            phase: WorkerPhase = "failed"
            message = "broke off"
            try:
                phase, message = self._work()
            except LeadMigrateError as error:
                message = str(error)
                raise
            except KeyboardInterrupt:
                phase, message = "stopped", "interrupted"
                raise
            finally:
                self._say(phase, message)
                self._note_history(now=True)
                del self.store  # a folder that a database gives to one process is free again
        survey = self.survey
        return WorkerReport(phase, survey.count, len(survey.true), survey.refused, survey.bitwise, message)

    def _take_lock(self, stack: ExitStack) -> None:
        """Be the one worker of the store; who looks if there is one holds its lock for a moment, and is waited for."""
        deadline, lock = time.monotonic() + 1.0, self.state.path.with_name("worker")
        while time.monotonic() < deadline:
            with suppress(LockedError):
                stack.enter_context(output_lock(lock))
                return
            time.sleep(0.02)
        pid = self.state.worker().pid
        raise LockedError(
            f"{self.location}: another worker is running (process {pid}); `lead-migrate live stop` ends it"
        )

    def _work(self) -> tuple[WorkerPhase, str]:
        while True:
            if self.state.value(STOP):
                return "stopped", "asked to stop"
            self._obey()
            try:
                idle = self._turn()
            except (RemoteError, LockedError) as error:
                self._pause(str(error))
                continue
            except StoreError as error:  # of a database that documents were deleted from while it was read
                manifest = self.store.info.manifest
                model = None if manifest is None else manifest.model
                is_ours = model is not None and model == self.embedder.identity  # not after a rollback
                if self._is_in_files or self._failures >= 5 or not is_ours:
                    raise
                self._pause(str(error))
                self._surveyed_at = -np.inf
                continue
            self._failures = 0
            if idle is not None:
                phase, message = idle
                if self.options.once and not self._is_paused:
                    self._look(now=True)
                    return phase, message
                self._say(phase, message)
                self._wait(_POLL_S)

    def _turn(self) -> tuple[WorkerPhase, str] | None:
        """Take one step of the work; return the phase and why, where there was nothing to write."""
        is_surveyed = self._surveyed_at > -np.inf
        if not (self._is_paused and is_surveyed) and self._is_other():
            self._survey()
        if self._is_paused:
            return "paused", ""
        if not self._is_proven:
            self._prove_model()
        self._look()
        self._tell_of_old_store()
        self._note_history()
        documents = self._next()
        stops = None
        if documents:
            self._say("running", "")
            stops = self._fill(documents)
        if documents and stops is None:
            return None
        if stops is not None:
            return "paused", stops
        return self._end()

    @property
    def _is_in_files(self) -> bool:
        return as_files(self.store) is not None

    @property
    def _is_paused(self) -> bool:
        return self.control.paused_at is not None

    def _obey(self) -> None:
        """Go by what was asked for since the last batch."""
        control = control_of(self.state)
        if control != self.control:
            self.control = control
            self.account.limit(control.budget_of(self.options), control.pace_of(self.options))
            self._is_unaffordable = False
        note_obeyed(self.state, control)

    def _end(self) -> tuple[WorkerPhase, str] | None:
        """Return the phase and why, where nothing is left; None where another look at the store found something."""
        if not self.survey.embedded and not self.survey.remaining and not self.survey.is_complete:
            n_true = len(self.survey.true)
            self._survey()
            if len(self.survey.true) != n_true and not self.survey.is_complete:
                return None
        survey = self.survey
        if survey.is_complete:
            refused = f", but {survey.refused:,} that it refuses" if survey.refused else ""
            if not survey.is_all_in_store:
                return "complete", f"all {len(survey.true):,} true vectors are in the cache{refused}"
            equal = "to the bit, as a full re-embed has them" if survey.bitwise else "as the store can hold them"
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
        if self._since("embedded_by_queries") + self.survey.judged >= max(_NEWS * self.survey.count, 1):
            return True
        files = as_files(self.store)
        if files is None or self._surveyed_at == -np.inf:
            return time.monotonic() - self._surveyed_at >= 600  # seconds between surveys of a database
        return not files.is_as_opened()

    def _since(self, *names: Counter) -> int:
        """Return how much was counted since the survey."""
        counters = self.state.counters()
        return int(sum(counters[name] - self.survey.counters.get(name, 0) for name in names))

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
            if not self.survey.in_store:  # nothing in the store is what the cache has
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
        """Find out which documents are true in the store: their vector is the one that the cache has of their text."""
        store = self.store = open_store(self.location)
        _check_fits(store, self.embedder)
        self._adopt(store)
        refused = self.state.refused()
        survey = LiveSurvey(store.info.count, self.state.counters())
        ranked: list[tuple[float, int, str]] = []
        confidence, cosine = confidence_of(store), is_cosine(store.info)
        for start, ids, vectors, documents in _blocks(store):
            cached = self.embedder.find(documents, "document")
            for number, document in enumerate(documents):
                digest, row = text_hash(document.text), start + number
                survey.rows[ids[number]] = row
                if refused.get(document.id, (None,))[0] == digest:
                    survey.refused += 1
                    continue
                true = cached.get(number)
                sure = 0.0 if confidence is None or np.isnan(confidence[row]) else float(confidence[row])
                if true is not None and not store.info.exact:  # it keeps codes: nothing to compare
                    same, bitwise = sure == 1, False
                else:
                    same, bitwise = _same(vectors[number], true, cosine=cosine)
                if same:
                    survey.in_store.add(document.id)
                    survey.bitwise &= bitwise
                if same or (true is not None and self._is_in_files):
                    survey.true[document.id] = digest
                elif true is not None:
                    survey.embedded.append(document.id)
                else:
                    ranked.append((sure, row, document.id))
                    if sure == 1:
                        survey.unproven.append(document.id)
        survey.remaining = [doc_id for *_, doc_id in sorted(ranked, reverse=True)]  # taken from the end
        self.state.settle(survey.true, refused.keys() & set(survey.remaining))
        self.survey, self._surveyed_at = survey, time.monotonic()

    def _adopt(self, store: Store) -> None:
        """Note which store this is; another one than the last ends the epoch of the monitor."""
        self.state.adopt(self.embedder.cache_scope("document"), generation_of(store))
        translation, monitor = translation_of(store), Monitor.kept_in(self.state)
        if monitor is not None and monitor.translation != translation:
            queries = self.state.kept_queries(monitor.last, limit=10**6)
            monitor = replace(monitor.new_epoch(), last=max([monitor.last, *(query.number for query in queries)]))
        # another margin is another question to the same scores
        margin, origin = self.options.margin, self.options.margin_from
        self._monitor = replace(monitor or Monitor(), translation=translation, margin=margin, margin_from=origin)
        self._monitor.keep(self.state)

    def _next(self) -> list[Document]:
        """Return what to write next: what is embedded already, the most wanted, then, where others are to be, these."""
        survey = self.survey
        if survey.embedded:
            ids, survey.embedded = survey.embedded[:_BATCH], survey.embedded[_BATCH:]
            return self._documents([doc_id for doc_id in ids if doc_id not in survey.true])
        size = min(self._room(), self.account.at_once(_BATCH))
        if size <= 0:
            return []
        queued = (doc_id for doc_id in self.state.queue(_BATCH) if doc_id in survey.rows)
        ids = [doc_id for doc_id in queued if doc_id not in survey.true][:size]
        chosen = set(ids)
        while not self.options.from_queue and len(ids) < size and survey.remaining:
            doc_id = survey.remaining.pop()
            if doc_id not in chosen and doc_id not in survey.true:
                ids.append(doc_id)
        return self._documents(ids)

    def _room(self) -> int:
        """Return how many more documents may be embedded, where the budget is one of documents or used up."""
        budget, survey = self.account.budget, self.survey
        if self._is_unaffordable:
            return 0
        if budget is None or budget.unit not in ("share", "documents"):
            return survey.count
        most = round(budget.amount * self.store.info.count if budget.unit == "share" else budget.amount)
        return max(most - self.account.documents, 0)

    def _documents(self, ids: Sequence[str]) -> list[Document]:
        rows = np.array([self.survey.rows[doc_id] for doc_id in ids], dtype=np.int64)
        return list(self.store.documents(rows)) if len(rows) else []

    # Doing it.

    def _fill(self, documents: Sequence[Document]) -> str | None:
        """Embed documents and hand them to the writer; return why that is the end of it, where it is."""
        self._note_choosers()
        cached = are_cached(self.embedder, documents, "document")
        new = [document for document, is_known in zip(documents, cached, strict=True) if not is_known]
        fits = self.account.fits(new)
        unpaid = {document.id for document in new[fits:]}
        batch = [document for document in documents if document.id not in unpaid]
        try:
            for chunk, vectors in self._embedded(batch):
                if self.writer.put(self.store, chunk, vectors) < len(chunk):
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

    def _note_choosers(self) -> None:
        """Have the cache remember that what is embedded from now on was chosen by the queries that were served."""
        self.embedder = with_choosers(self.embedder, self.state.choosers(), group=str(self.state.path))

    def _embedded(self, documents: Sequence[Document]) -> Iterator[tuple[Sequence[Document], Vectors]]:
        """Yield the documents with their vectors; what the model refuses is noted, and left out."""
        if not documents:
            return
        try:
            yield documents, self.embedder.embed_documents(list(documents))
        except SpendingError:  # somebody asks for something else before the pace lets them go
            self.survey.remaining.extend(document.id for document in documents)
        except InputError as error:
            if len(documents) == 1:
                self.embedder.find(list(documents), "document")  # if the cache is to blame, it fails again
                document = documents[0]
                self.state.refuse({document.id: (text_hash(document.text), str(error))})
                self.state.count({"refused_documents": 1})
                self.survey.refused += 1
                return
            half = len(documents) // 2
            yield from self._embedded(documents[:half])
            yield from self._embedded(documents[half:])

    # Watching.

    def _look(self, *, now: bool = False) -> None:
        """Let the monitor look at queries that were sampled since, and tell what it says."""
        since = time.monotonic() - self._looked_at
        if self._verdict is None:
            self._verdict = self._monitor.verdict()
        if not now and since < _POLL_S:
            return
        queries = self.state.kept_queries(self._monitor.last, limit=200)
        if now or len(queries) >= 50 or since >= 60:
            self._looked_at = time.monotonic()
            if len(queries) >= self._monitor.wants and (self._room() or not self.survey.remaining):
                try:
                    self._judge(queries)
                except (SpendingError, InputError):  # its documents cannot be paid for, or not be embedded: no verdict
                    return
                queries = []
        self._verdict = self._monitor.verdict(len(queries))
        self._tell(self._verdict)

    def _judge(self, queries: Sequence[ServedQuery]) -> None:
        true, n_embedded = self.survey.in_store, self._since("embedded_by_worker")
        is_true = np.array([doc_id in true for batch in self.store.scan() for doc_id in batch.ids], dtype=bool)
        self._note_choosers()
        try:
            pool = ServedPool(self.store, self.embedder, queries, is_true, seed=self.options.seed)
            self._monitor = self._monitor.judged(pool)
            self._monitor.keep(self.state)
        finally:
            self.survey.judged += self._since("embedded_by_worker") - n_embedded

    def _tell(self, verdict: LiveVerdict) -> None:
        """Run the shell command where the verdict has become NOT SAFE: once, and whatever comes of it."""
        if self.state.value(_SAID) == str(verdict.outcome):
            return
        if verdict.outcome is Outcome.NOT_SAFE and self.options.on_unsafe:
            with suppress(subprocess.TimeoutExpired, OSError):
                subprocess.run(  # noqa: S602 - the user's own command line
                    self.options.on_unsafe,
                    shell=True,
                    input=canonical_json(asdict(verdict)).encode(),
                    timeout=60,
                    check=False,
                    env={**os.environ, "LIVE_STORE": self.location, "LIVE_VERDICT": str(verdict.outcome)},
                )
        self.state.note(_SAID, str(verdict.outcome))

    # Telling.

    def _tell_of_old_store(self) -> None:
        """Say once that the store before the migration is no longer needed, as what it adds to answers shows."""
        noted = self.state.value(OLD_STORE)
        is_needed = noted is None or (Additions(**noted).is_needed and not self.survey.is_all_in_store)
        if not is_needed and not self._is_old_told:
            adds = f"the old store adds nothing to true vectors: {MAY_GO}"
            self._tell_user(f"{self.location}: {adds if self.survey.is_all_in_store else Additions(**noted)}")
        self._is_old_told = not is_needed

    def _say(self, phase: WorkerPhase, message: str) -> None:
        status = WorkerFacts(phase, os.getpid(), self.account.usd, message)
        if replace(self.state.worker(), updated=0.0) != status:
            self.state.set_worker(status)

    def _note_history(self, *, now: bool = False) -> None:
        if not now and time.monotonic() - self._noted_at < 60:
            return
        self._noted_at = time.monotonic()
        counted: dict[str, Any] = {"count": self.survey.count, "true": len(self.survey.true)}
        counted |= {"tokens": self.account.tokens, "usd": self.account.usd}
        if self._verdict is not None and self._verdict.n_queries:
            counted |= {name: getattr(self._verdict, name) for name in ("mean", "likely", "lower", "upper")}
        self.state.note_history(counted)

    def _pause(self, reason: str) -> None:
        """Wait for a model or a server that does not answer, longer each time."""
        self._say("paused", reason)
        self.state.count({"embedder_failures": 1})
        self._wait(min(2.0**self._failures, 60))
        self._failures += 1

    def _wait(self, seconds: float) -> bool:
        """Wait, unless somebody asks for something else; return whether it waited for so long."""
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            if self.state.value(STOP) or control_of(self.state) != self.control:
                return False
            time.sleep(min(remaining, _POLL_S))
        return True


def planned_model(store: Store, embedder: Embedder, options: WorkerOptions) -> PlannedModel:
    """Return the model of a worker that would be started now, for what the budget leaves of what is not cached."""
    require_model(store.info.location, model_of(store), embedder.identity)
    tally = tally_of(embedder, options.price)
    budget, spent = Control().budget_of(options), WorkerSpending()
    if state_path(store).exists():
        with LiveState(state_path(store)) as state:
            budget = control_at_start(state, options).budget_of(options)
            spent = WorkerSpending.kept_in(state)
    refuse_unpriced(budget, tally.price)
    again = ASKED_AGAIN if needs_proof(embedder) else 0
    cap = SpendingCap()
    cap.meter(embedder, options.price)

    def documents() -> Iterator[Document]:
        n_sent, n_tokens, stream = spent.documents + again, spent.tokens, iter(store.documents())
        while batch := list(islice(stream, _BATCH)):
            cached = are_cached(embedder, batch, "document")
            for document in (one for one, is_known in zip(batch, cached, strict=True) if not is_known):
                n_sent, n_tokens = n_sent + 1, n_tokens + int(tally.tokens([document])[0])
                if budget is not None and _is_beyond(budget, n_sent, n_tokens, store.info.count, tally.price):
                    return
                yield document

    return PlannedModel(embedder, cap, documents=documents, again=again)


def _is_beyond(budget: Budget, documents: int, tokens: int, count: int, price: float | None) -> bool:
    """Return whether so many texts, of so many tokens, are more than a budget."""
    if budget.unit == "share":
        return documents > round(budget.amount * count)
    if budget.unit == "documents":
        return documents > budget.amount
    spent = tokens if budget.unit == "tokens" else usd_of(tokens, price) or 0.0
    return spent > budget.amount


def translation_of(store: Store) -> str:
    """Name the translation that gave the vectors without a true one; true vectors that come do not change it."""
    manifest = store.info.manifest
    inputs = None if manifest is None else dict(manifest.inputs)
    return canonical_json(inputs)


def _check_fits(store: Store, embedder: Embedder) -> None:
    location, model = store.info.location, model_of(store)
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


def _blocks(store: Store) -> Iterator[tuple[int, Sequence[str], Vectors, list[Document]]]:
    documents, start = store.documents(), 0
    for batch in store.scan(batch_size=batch_rows(store.info.dim)):
        texts = list(islice(documents, len(batch)))
        if [document.id for document in texts] != list(batch.ids):
            raise StoreError(f"{store.info.location}: the store changed while it was read; run again")
        yield start, batch.ids, batch.vectors, texts
        start += len(batch)


def _same(stored: Vectors, true: Vectors | None, *, cosine: bool) -> tuple[bool, bool]:
    """Tell if a vector of the store is the true one, and if it is so to the bit."""
    if true is None or stored.shape != true.shape:
        return False, False
    if np.array_equal(stored, true):
        return True, True
    near = cosine and np.allclose(unit_rows(stored[None]), unit_rows(true[None]), rtol=0, atol=1e-6)
    return bool(near), False
