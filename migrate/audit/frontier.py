"""The frontier: what re-embedding more of the store would buy, by policy, before it is bought.

The reference has every true vector, so each budget is tried for real: its documents are chosen, the stitch is fitted
again with their true vectors, the store is translated and searched. Nothing is embedded but queries. In memory are
the true vectors of one budget and the system that is solved for them (`migrate.sample.pairs.MOST_PAIRS`); translated
vectors are searched as they come, and not kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from migrate.audit.asking import Asking
from migrate.audit.attempts import Attempts, Judge
from migrate.audit.independence import independent
from migrate.audit.measures import Scores
from migrate.audit.points import Frontier
from migrate.audit.questions import PARENT_FIELD, Questions, document_keys
from migrate.audit.verdict import CONFIDENCE, MARGIN, RESAMPLES
from migrate.cost import tally_of
from migrate.documents import Query
from migrate.embedders.base import Embedder
from migrate.errors import InputError, StitchError, StoreError, UsageError
from migrate.reembed.policies import CONFIDENCE as CONFIDENCE_POLICY
from migrate.reembed.policies import POLICIES, QUERY_LOG, require_confidence, why_unsure
from migrate.reembed.survey import survey_store
from migrate.sample.choosers import choosers_of, digest_of, digests_of
from migrate.sample.query_log import MOST_QUERIES
from migrate.stitch.direction import DOCUMENT, require_direction
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store
from migrate.vectors import Progress, no_progress

SHARES = (0.1, 0.2, 0.3, 0.5)
"""Shares of the store to try, unless told otherwise."""


def frontier(
    store: Store,
    fitted: FittedStitch,
    reference: Store,
    questions: Questions,
    embedder: Embedder,
    *,
    log: Sequence[Query] = (),
    shares: Sequence[float] = SHARES,
    policies: Sequence[str] = (),
    stay: Scores | None = None,
    doubts: tuple[str, ...] = (),
    parent_field: str = PARENT_FIELD,
    price_usd_per_mtok: float | None = None,
    margin: float = MARGIN,
    seed: int = 0,
    resamples: int = RESAMPLES,
    progress: Progress = no_progress,
) -> Frontier:
    """Try every policy at every share of `store`, which `fitted` was fitted on.

    The first point is the store as it is translated now; shares that the sample has already reached are left out.
    Without `policies` all that can be used are tried: `query-log` where there is a log, and `confidence` where that of
    the stitch tells good translations from bad ones. Queries of the log do not judge then, whatever the policy, nor do
    those that chose documents for `fitted`. `stay` are the scores of staying for the questions' distinct texts, (c,).
    Each stitch is of the kind that `fitted` is, where `translate --reembed` may find a better one. With k policies,
    each verdict has bounds of confidence 1 - 0.05 / k, so that the cheapest of them all is SAFE by mistake in 5 % of
    audits at most. `doubts` are those of the audit by the same reference: with any of them no budget is SAFE.

    Raises
    ------
    UsageError
        A share is not within 0 and 1, the only policy needs a log and has none, or the policy is `confidence` and that
        of the stitch is not to be used.
    InconclusiveError
        Too few queries are left to judge by.
    StitchError
        The stitch was fitted on another store, or is one for queries.
    StoreError
        The store has no texts, or the reference does not hold its documents.
    InputError
        There are no queries.
    RemoteError
        A query could not be embedded.
    """
    _check(store, fitted, questions, shares)
    unsure = why_unsure(fitted)
    if CONFIDENCE_POLICY in policies:
        require_confidence(fitted)
    tried = [policy for policy in policies or POLICIES if log or policy != QUERY_LOG]
    tried = [policy for policy in tried if not unsure or policy != CONFIDENCE_POLICY]
    if not tried:
        raise UsageError(f"expected a query log for the policy {QUERY_LOG}, found none; give one, or another policy")
    choosing = log[:MOST_QUERIES] if QUERY_LOG in tried else ()
    choosers = choosers_of(fitted.manifest, store.info.manifest) | digests_of(choosing)
    if stay is not None:
        stay = stay[[digest_of(query) not in choosers for query in questions.distinct]]
    notes, questions = questions.notes, independent(questions, choosers)
    asked = embedder.embed_queries(questions.queries, progress=progress)
    logged = embedder.embed_queries(choosing, progress=progress) if choosing else None
    keys = document_keys(store, parent_field)
    judge = Judge(
        Asking(questions, no_progress, seed),
        asked,
        store.info.metric,
        keys,
        reference,
        margin,
        resamples,
        # The cheapest budget is picked out of several policies, each of which may look safe by chance.
        1 - (1 - CONFIDENCE) / len(tried),
        stay,
        doubts,
    )
    survey = survey_store(store, fitted, logged, progress=progress)
    attempts = Attempts(store, fitted, reference, survey, judge, tally_of(embedder, price_usd_per_mtok), seed)
    further = [share for share in sorted(shares) if round(share * store.info.count) > survey.paid.sum()]
    wanted = [(policy, share) for policy in tried for share in further]
    points = [attempts.sample()]
    for policy, share in wanted:
        progress("try budgets", len(points) - 1, len(wanted))
        points.append(attempts.point(policy, share))
    left_out = (f"{unsure}; the policy {CONFIDENCE_POLICY} is left out",) if unsure and not policies else ()
    return Frontier(tuple(points), store.info.count, judge.measure, (*left_out, *questions.notes[len(notes) :]))


def _check(store: Store, fitted: FittedStitch, questions: Questions, shares: Sequence[float]) -> None:
    if not questions.queries:
        raise InputError(f"{questions.name}: expected queries to judge by, found none")
    require_direction(fitted.manifest, DOCUMENT, source=str(store.info.path))
    difference = store.fingerprint().difference(fitted.manifest.details["fingerprint"])
    if difference is not None:
        raise StitchError(
            f"{store.info.path}: expected the store that the stitch was fitted on, found another ({difference}); name "
            "that one with --source"
        )
    if not store.info.has_texts:
        raise StoreError(f"{store.info.path}: expected texts, which are what is re-embedded, found vectors only")
    wrong = [share for share in shares if not 0 < share <= 1]
    if wrong or not shares:
        raise UsageError(f"expected shares of the store above 0 and up to 1, found {wrong or 'none'}; give others")
