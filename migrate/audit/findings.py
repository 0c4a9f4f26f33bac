"""The findings of an audit: whatever is to be known beside its figures, and what speaks against believing them.

Each function returns the findings of one kind, none where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import FEWEST_QUERIES, MARGIN, Bounds, Outcome
from migrate.audit.evidence import Evidence
from migrate.audit.held_out import HeldOut
from migrate.audit.keys import Keys
from migrate.audit.measures import CUT, Scores, ndcg, ndcg_at_random
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, RANDOM, STAY, TIE, TRANSLATED
from migrate.audit.rules import Rules
from migrate.audit.scoring import agreement_scores
from migrate.audit.unjudged import LOSS_AT_LEAST
from migrate.audit.verdict import Finding, doubt
from migrate.display import counted, percent
from migrate.embedders.cache import UNKNOWN_QUERY
from migrate.search.runs import Rankings
from migrate.selection.choosers import Choosers, look_for_the_chosen
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside
from migrate.vectors import query_key, squared_norms

_BY_LUCK = 0.01
"""A chance that is not taken for luck, below this."""

_BY_LITTLE_LUCK = 0.15
"""The same where next to nothing is relevant but what the translated store found."""

_NEXT_TO_NOTHING = 0.01
"""Share of the relevant documents, 0-1, up to which the translated store found nearly all of them."""

# Queries of people are at most 4 times nearer to a document than to the next, by MiniLM: docs/statistics.md
_NEXT = 0.2
"""Distance to the first document, in distances to the second, up to which a query is a copy of that document."""

_ROUNDING = 1e-3
"""Distance that is 0 but for rounding: a cosine may be a little above 1."""

_MOSTLY_COPIES = 0.1
"""Share of the queries, 0-1, above which copies of documents decide the scores."""

_ALL_AGREED = 0.9
"""Share of queries, 0-1, above which judgements of what both rankings have first were made from these."""

_ALL_COMMON = 0.95
"""The same of the queries for which both rankings have something in common among their first documents."""

_ALL_JUDGED = 0.9
"""Share of the first ten documents, 0-1, from which on what the rankings found has been graded, zeros included."""

_TOO_GOOD = 1.05
"""Retention that no translation reaches for certain: it can be no better than the vectors that it was fitted to."""


def has_standard(rules: Rules, scores: Mapping[str, Scores]) -> bool:
    """Return whether the full re-embed scores more than documents drawn at random."""
    is_judged = rules.query_set.is_judged
    return not is_judged or rules.bootstrap().is_less(scores[RANDOM], rules.expected(scores[FULL]))


def oddities(evidence: Evidence, scores: Mapping[str, Scores], judged: float) -> Iterator[Finding]:
    """Yield doubts for what speaks against the reference or the judgements; `judged` is the full one's judged@10.

    `scores` are those of the arms by the deciding measure, (c,) each. Unjudged queries are measured against the
    reference itself, which says nothing of it.
    """
    runs = evidence.runs.compared
    rules = evidence.rules
    query_set = evidence.experiment.query_set
    bootstrap = rules.bootstrap()
    arm = scores[TRANSLATED]
    full = scores[FULL]
    verdict = rules.verdict(arm, full)
    if query_set.is_judged:
        by_words = None
        if evidence.runs.bm25 is not None:
            by_words = evidence.scores(evidence.runs.bm25.run)
        yield from odd_scores(arm, rules.expected(full), by_words, scores.get(STAY), scores[RANDOM], bootstrap)
    if len(query_set.distinct) < FEWEST_QUERIES:  # which the verdict says: a few show any share by chance
        return
    yield from _next_to_documents(evidence)
    # Judgements that cannot tell good vectors from bad lack assay sensitivity (ICH E10): any store is SAFE by them
    doubts = (
        *alike_grades(query_set, [*runs.values()]),
        *agreed_grades(query_set, runs[TRANSLATED], runs[FULL]),
        *one_sided(query_set, runs[TRANSLATED], runs[FULL]),
    )
    yield from doubts
    # Documents without a grade of 0 are all relevant, and in any order as good: only graded answers can be unrelated
    if not doubts and judged >= _ALL_JUDGED and verdict.observations.has_enough:
        yield from unrelated_grades(query_set, full, bootstrap)
    if query_set.is_judged and verdict.outcome is Outcome.SAFE:
        # Agreement is by the target model's own scores alone, so that no judgement can flatter it
        agreements = (agreement_scores(evidence.experiment, runs[FULL], runs[name]) for name in (TRANSLATED, FULL))
        yield from contradicted(verdict.retention, bootstrap.retention(*agreements))


def of_inputs(query_set: QuerySet, translated: Store, keys: Keys) -> list[Finding]:
    """Return what there is to know of the queries and of the translated store, before it is searched."""
    notes = list(query_set.notes)
    distinct = len(query_set.distinct)
    count = len(query_set.queries)
    if distinct < count:
        notes.append(
            f"{count - distinct:,} of {count:,} queries repeat the text of another, but for case and white space; each "
            f"of the {distinct:,} texts counts once, by the mean of its scores"
        )
    notes += _notes_on_vectors(translated)
    return [*_missing(query_set, keys), *(Finding("note", note) for note in notes)]


def _notes_on_vectors(translated: Store) -> Iterator[str]:
    """Yield how many vectors are true, and what their confidence says or cannot be believed to say."""
    manifest = translated.info.manifest
    count = translated.info.count
    if manifest is not None and (n_true := manifest.counts.get(TRUE, 0)):
        note = f"{n_true:,} of {count:,} vectors are true ones"
        if n_true < count and not manifest.store.filled_in:
            note += ": the sample the stitch was fitted on"
        yield note
    reason = distrust(translated)
    if reason is not None:
        yield f"{reason}; nothing is sliced by it, nor is it said which documents lie outside what the sample covers"
    elif (outside := find_outside(translated)) is not None:
        yield outside.sentence


def _missing(query_set: QuerySet, keys: Keys) -> list[Finding]:
    """Return a caveat where judged documents are not in the stores."""
    relevant = query_set.relevant
    missing = relevant - keys.documents.present(relevant)
    if not missing:
        return []
    judged = [judged_relevant for query in query_set.distinct if (judged_relevant := query_set.relevant_to(query.id))]
    lost = sum(judged_relevant <= missing for judged_relevant in judged)
    text = (
        f"{len(missing):,} of {len(relevant):,} relevant documents are not in the stores, so that no arm can find them"
    )
    if lost:
        text += f", and {lost:,} of {len(judged):,} queries say nothing for want of them"
    return [Finding("caveat", text)]


def repeated_texts(query_set: QuerySet, translated: Store, keys: Keys) -> list[Finding]:
    """Return a doubt where more than a tenth of the queries are, word for word, a document that they look for.

    Every model retrieves a text by itself, however many vectors are wrong.
    """
    if not translated.info.has_texts:
        return []
    # By normal forms, as case and white space make no difference to most models
    keys_by_text: dict[str, set[str]] = {}
    for query in query_set.queries:
        keys_by_text.setdefault(query_key(query.text), set()).update(query_set.relevant_to(query.id))
    rows = keys.documents.all_rows_of(query_set.relevant)
    texts = [query_key(document.text) for document in translated.documents(rows)]
    pairs = zip(texts, keys.documents.take(rows), strict=True)
    same = {text for text, document in pairs if document in keys_by_text.get(text, ())}
    if len(same) <= _MOSTLY_COPIES * len(query_set.distinct):
        return []
    text = (
        f"{len(same):,} of {len(query_set.distinct):,} queries are word for word the document that they look for, "
        "which every model finds: use queries that users ask"
    )
    return [doubt(text)]


def groups(query_set: QuerySet) -> list[Finding]:
    """Return a note where some queries are not independent of each other, or a doubt where their field is to blame."""
    grouping = query_set.grouping
    queries = len(query_set.distinct)
    if grouping.groups is None or grouping.count == queries:
        return []
    if (too_few := _joined_by_field(query_set)) is not None:
        return [too_few]
    by = "vectors"
    if query_set.group_field is not None:
        by = f"vectors and their field {query_set.group_field!r}"
    text = (
        f"{queries:,} queries are in {counted(grouping.count, 'independent group', 'independent groups')} by their "
        f"{by}, the largest of {grouping.sizes.max():,}; the bounds count each group as one observation"
    )
    return [Finding("note", text)]


def _joined_by_field(query_set: QuerySet) -> Finding | None:
    """Return a doubt where the vectors leave enough groups for a verdict, and their field joins these to too few."""
    alike = query_set.alike or {}
    count = query_set.grouping.count
    by_vectors = len({alike[query.id] for query in query_set.distinct})
    if query_set.group_field is None or not count < FEWEST_QUERIES <= by_vectors:
        return None
    different = {query_set.group_of(query) for query in query_set.distinct} - {None}
    values = counted(len(different), "value", "values")
    groups_left = counted(count, "group", "groups")
    text = (
        f"the {values} of {query_set.group_field!r} and the {by_vectors:,} groups of the vectors leave "
        f"{groups_left} of queries, as those that share either are one observation, and a verdict needs "
        f"{FEWEST_QUERIES}: name a field that tells users or topics apart, or leave --group-field out"
    )
    return doubt(text, "groups")


def _next_to_documents(evidence: Evidence) -> list[Finding]:
    """Return a doubt where more than a tenth of the queries are by their vectors what they look for.

    They are many times nearer to their first document, by true vectors, than to their second: of queries that people
    ask next to none is, whatever the words or the language.
    """
    query_set = evidence.experiment.query_set
    run = evidence.runs.full
    if query_set.exclude_self:
        return []
    reference = evidence.experiment.stores[FULL]
    lengths = dict(zip(query_set.query_ids, np.sqrt(squared_norms(reference.queries)).tolist(), strict=True))
    is_l2 = reference.store.info.metric == "l2"
    count = 0
    for query in query_set.distinct:
        scores = np.array(run.scores.get(query.id, ()), dtype=float)[:2]
        first = next(iter(run.top(query.id, 1)), None)
        # Where documents differ in length, the first by inner product need not be the nearest, and is not judged by it
        if len(scores) < 2 or (query_set.is_judged and first not in query_set.relevant_to(query.id)):
            continue
        distances = scores
        if not is_l2:
            distances = 1 - scores / lengths[query.id]
        count += -_ROUNDING <= distances[0] <= _NEXT * distances[-1]
    if count <= _MOSTLY_COPIES * len(query_set.distinct):
        return []
    text = (
        f"{count:,} of {len(query_set.distinct):,} queries are {1 / _NEXT:.0f} times nearer to the document that they "
        f"look for than to the next, as copies of a document are, which every model finds: use queries that users "
        "ask"
    )
    return [doubt(text)]


def odd_scores(
    arm: Scores, full: Scores, by_words: Scores | None, stay: Scores | None, chance: Scores, bootstrap: Bootstrap
) -> list[Finding]:
    """Return doubts for scores that are too good or too bad to be true; they are nDCG@10, one value a query.

    `chance` are those of documents drawn at random.
    """
    doubts = []
    # A reference of other documents, or of another model, finds little, so that anything looks good beside it
    lower = bootstrap.retention(arm, full).lower
    if lower > _TOO_GOOD:
        text = (
            f"the translated store scores at least {lower:.2f} times what the full re-embed does, which a translation "
            "cannot: is the reference of these documents and this model?"
        )
        doubts.append(doubt(text, "reference"))
    named = ("staying with the source model", stay), ("BM25", by_words)
    rivals = [(name, scores) for name, scores in named if scores is not None]
    if not bootstrap.is_less(chance, full):
        event = (
            f"the full re-embed (nDCG@10 {full.mean():.3f}) is not significantly better than documents drawn at random "
            f"({chance.mean():.3f}), so that no share of it means anything"
        )
        better = [f"{name} ({scores.mean():.3f})" for name, scores in rivals if bootstrap.is_less(chance, scores)]
        if better:
            text = f"{event}, and {better[0]} is: check the target model, its prefixes and its vectors"
            doubts.append(doubt(text, "model"))
        elif bootstrap.has_enough(len(full)):
            # Of fewer queries, that they are too few is all that is known
            doubts.append(doubt(f"{event}: these judgements cannot tell good vectors from bad ones"))
    for name, scores in reversed(rivals):
        if bootstrap.is_less(full, scores):
            text = (
                f"the full re-embed is significantly worse than {name} (nDCG@10 {full.mean():.3f} against "
                f"{scores.mean():.3f}): check the reference and the target model's prefixes, or do not move"
            )
            doubts.append(doubt(text, "model"))
    return doubts


def alike_grades(query_set: QuerySet, runs: Sequence[Rankings]) -> list[Finding]:
    """Return a doubt where most queries with a relevant document have one grade for all that is judged or ranked first.

    A document that nobody judged has grade 0, so that judgements of relevant documents alone raise no doubt.
    """
    queries = [query.id for query in query_set.distinct if query_set.relevant_to(query.id)]
    alike = 0
    for query_id in queries:
        grades = query_set.grades(query_id)
        # Documents that nobody judged count as 0, which tells them from relevant ones: a list of these alone is enough
        candidates = set(grades).union(*(run.top(query_id, CUT) for run in runs))
        alike += len({max(grades.get(doc_id, 0), 0) for doc_id in candidates}) == 1
    if alike <= 0.5 * len(queries):
        return []
    text = (
        f"in {alike:,} of {len(queries):,} queries with relevant documents all candidates have the same grade, which "
        "cannot show that one ranking is worse than another: give 0 to what does not answer the query, and the more to "
        "the rest the better it does"
    )
    return [doubt(text)]


def agreed_grades(query_set: QuerySet, translated: Rankings, full: Rankings) -> list[Finding]:
    """Return a doubt where nearly all that is relevant is what both rankings have first, and nothing else is.

    Such judgements come from the rankings, as where only queries with one answer by both were kept: whatever else is
    lost was never asked for. People find more, or something else, in more than a tenth of the queries.
    """
    queries = [query.id for query in query_set.distinct if query_set.relevant_to(query.id)]
    agreed = 0
    for query_id in queries:
        relevant = query_set.relevant_to(query_id)
        firsts = [set(run.top(query_id, len(relevant))) for run in (translated, full)]
        agreed += firsts[0] == firsts[1] == relevant
    if agreed > _ALL_AGREED * len(queries):
        event = f"in {agreed:,} of {len(queries):,} queries with relevant documents these are just what both rankings"
        event += " have first"
    elif (common := _in_common(query_set, queries, translated, full)) is not None:
        event = common
    else:
        return []
    text = (
        f"{event}, as where judgements are made from what both agree on, which cannot show a loss: judge queries by "
        "what people find relevant, whichever store finds it"
    )
    return [doubt(text)]


def _in_common(query_set: QuerySet, queries: Sequence[str], translated: Rankings, full: Rankings) -> str | None:
    """Say for how many queries what is relevant is what both rankings share to some depth; None where it seldom is.

    Queries for which they share nothing are not judged by it: they may be left out, or judged by people.
    """
    for depth in range(1, CUT + 1):
        shared = {
            query_id: set(translated.top(query_id, depth)) & set(full.top(query_id, depth)) for query_id in queries
        }
        is_all = [query_set.relevant_to(query_id) == common for query_id, common in shared.items() if common]
        count = sum(is_all)
        total = len(is_all)
        if total >= FEWEST_QUERIES and count > _ALL_COMMON * total:
            shared_first = f"some of the same first {depth}, these are"
            if depth == 1:
                shared_first = "the same first document, it is"
            return f"in {count:,} of {total:,} queries for which both rankings have {shared_first} all that is relevant"
    return None


def one_sided(query_set: QuerySet, translated: Rankings, full: Rankings) -> list[Finding]:
    """Return a doubt where judgements lie with the first ten of the translated store, more than with the full one.

    Users click what is shown: of a log of the translated store all that is relevant is what that store found, and what
    it missed was never judged. Sign tests hold queries against each other: in which ranking are more relevant, or more
    judged documents, which has all that is relevant, and which has it higher up.
    """
    qrels = query_set.qrels or {}
    ids = [query.id for query in query_set.distinct]
    signs: dict[str, list[float]] = {"more relevant": [], "more judged": [], "all relevant": [], "relevant": []}
    lost = 0
    lost_by_full = 0
    n_relevant = 0
    for query_id in ids:
        judged = query_set.grades(query_id).keys()
        relevant = query_set.relevant_to(query_id)
        translated_top = set(translated.top(query_id, CUT))
        full_top = set(full.top(query_id, CUT))
        signs["more relevant"].append(len(relevant & translated_top) - len(relevant & full_top))
        signs["more judged"].append(len(judged & translated_top) - len(judged & full_top))
        signs["all relevant"].append(int(relevant <= translated_top) - int(relevant <= full_top))
        lost += len(relevant - translated_top)
        lost_by_full += len(relevant - full_top)
        n_relevant += len(relevant)
    signs["relevant"] = (ndcg(translated, qrels, ids, CUT) - ndcg(full, qrels, ids, CUT)).tolist()
    reason = "as where users could click only what it showed; judge what both find"
    for sign, differences in signs.items():
        more = int((np.array(differences) > TIE).sum())
        fewer = int((np.array(differences) < -TIE).sum())
        # A translation is better than what it translates to by luck alone, and judgements of other rankings favour
        # neither, so that a fair coin is what to expect. Four signs are tried: each has a fourth of the chance
        if _tail(more, more + fewer, 0.5) < _BY_LUCK / len(signs):
            rank = f"in its first {CUT}"
            if sign == "relevant":
                rank = f"higher up {rank}"
            text = (
                f"the judgements favour the translated store: it has {sign} documents {rank} where the full re-embed "
                f"has not in {more:,} queries, the other way round in {fewer:,}, {reason}"
            )
            return [doubt(text)]
    # Where next to nothing is relevant but what the translated store found, less is taken for a sign
    if lost <= _NEXT_TO_NOTHING * n_relevant and _tail(lost_by_full, lost + lost_by_full, 0.5) < _BY_LITTLE_LUCK:
        text = (
            f"the judgements favour the translated store: {n_relevant - lost:,} of {n_relevant:,} relevant "
            f"documents are in its first {CUT}, {n_relevant - lost_by_full:,} in those of the full re-embed, {reason}"
        )
        return [doubt(text)]
    return []


def unrelated_grades(query_set: QuerySet, full: Scores, bootstrap: Bootstrap) -> list[Finding]:
    """Return a doubt where judged documents in random order are not shown to be worse than the full re-embed.

    To be used where grades of 0 are there too: of documents that are all relevant no order is any better.

    `full` are the full re-embed's nDCG@10, (c,).
    """
    # The order that says nothing: grades by which even this keeps enough show no loss of any translation
    shuffled = query_set.merged(ndcg_at_random(query_set.qrels or {}, query_set.query_ids, CUT))
    bounds = bootstrap.retention(shuffled, full)
    # They are shown to lose more than is lost in any SAFE translation
    if bounds.upper < MARGIN:
        return []
    text = (
        "the grades look unrelated to the rankings: the judged documents in random order score "
        f"{bounds.estimate:.2f} times what the full re-embed does (at most {bounds.upper:.2f}), so that these "
        "judgements could not show a loss: check the grades of some queries"
    )
    return [doubt(text)]


def contradicted(judged: Bounds, agreement: Bounds) -> list[Finding]:
    """Return a doubt where bounds of retention, `judged`, are above what those of agreement@10 leave possible.

    Judgements that came from the answers of a store that the translated one resembles, as the old store's may, favour
    it over the full re-embed; what the target model scores knows nothing of them.
    """
    most = 1 - LOSS_AT_LEAST * (1 - agreement.upper)
    if judged.lower <= most:
        return []
    text = (
        f"the judgements show a retention of at least {percent(judged.lower)}, where agreement@10 with the full "
        f"re-embed, which needs none ({agreement.estimate:.3f}), allows {percent(most)} at most: clicks on what this "
        "store or the old one showed look like that; judge what both rankings find"
    )
    return [doubt(text)]


def of_true_vectors(
    evidence: Evidence,
    subjects: Mapping[str, str],
    choosers: Choosers,
    true: frozenset[str],
    unexplained: Set[str],
    held_out: HeldOut | None,
) -> Iterator[Finding]:
    """Yield doubts where the verdict may rest on documents with `true` vectors, unless it is SAFE without them."""
    is_safe = held_out is not None and held_out.verdict.outcome is Outcome.SAFE
    experiment = evidence.experiment
    if not is_safe and len(experiment.query_set.distinct) >= FEWEST_QUERIES:
        yield from choosers_in_other_words(evidence, subjects, true | unexplained)
    if unexplained and not is_safe:
        text = (
            f"{len(unexplained):,} documents have true vectors of which nothing says who chose them, and without them "
            "the store is not shown to be SAFE: if it was for these very queries, they cannot judge; audit the store "
            "that `translate` or `backfill` has written, with its manifest"
        )
        yield doubt(text, "store")
    manifest = experiment.stores[TRANSLATED].store.info.manifest
    if manifest is not None and manifest.store.filled_in is None and UNKNOWN_QUERY in manifest.chosen_by:
        text = (
            "the store that it was translated from held true vectors of the new model already, and nothing says who "
            "chose them: if it was these very queries, they cannot judge; translate the store of before they were put "
            "in"
        )
        yield doubt(text, "source")
    # Documents that other queries chose are those that users want, and many of the relevant ones may be among them; but
    # where all are, or where judges look for them so often, these are the choosers in other words
    least = 0.5
    if choosers.queries:
        least = 0.95
    relevant = experiment.stores[TRANSLATED].keys.documents.present(experiment.query_set.relevant)
    yield from sampled(relevant, true, experiment.n_documents, least=least, is_safe_without=is_safe)


def choosers_in_other_words(evidence: Evidence, subjects: Mapping[str, str], true: frozenset[str]) -> list[Finding]:
    """Return a doubt where judges look for what has `true` vectors so often that they, in other words, chose it.

    To be used where the store is not SAFE without these documents.
    """
    judges = evidence.experiment.query_set.distinct
    n_wanting = sum(subjects.get(query.id) in true for query in judges)
    n_first = sum(not true.isdisjoint(evidence.runs.full.top(query.id, 1)) for query in judges)
    # A log of clicks may say what was wanted, or only what was found: whichever is more often a document with a true
    # vector
    count = max(n_wanting, n_first)
    share = len(true) / evidence.experiment.n_documents
    is_often = look_for_the_chosen(count / max(len(judges), 1), share)
    # Of few queries, half may by chance
    if not is_often or _tail(count, len(judges), share) >= _BY_LUCK:
        return []
    text = (
        f"{count:,} of {len(judges):,} queries look for a document with a true vector, where {percent(share, 0)} of "
        "all documents have one: these queries, or some that ask the same in other words, chose what was embedded, and "
        "without it the store is not shown to be SAFE: judge by queries that have nothing to do with the choice"
    )
    return [doubt(text)]


def subjects_of(evidence: Evidence) -> Mapping[str, str]:
    """Return the document that says what a query is about: its relevant one that the full re-embed ranks first.

    Where that retrieves none of them, the relevant one of the highest grade; without judgements, its first document.
    A query without relevant documents has none.
    """
    query_set = evidence.experiment.query_set
    present = evidence.experiment.stores[FULL].keys.documents.present(query_set.relevant)
    subjects = {}
    for query_id in query_set.query_ids:
        ranking = evidence.runs.full.rankings.get(query_id, ())
        grades = {d: grade for d, grade in query_set.grades(query_id).items() if grade > 0 and d in present}
        if query_set.is_judged:
            ranking = tuple(d for d in ranking if d in grades)
        best = next(iter(ranking), None) or max(sorted(grades), key=grades.__getitem__, default=None)
        if best is not None:
            subjects[query_id] = best
    return subjects


def sampled(
    relevant: Set[str], true: Set[str], count: int, *, least: float = 0.5, is_safe_without: bool
) -> list[Finding]:
    """Return a doubt where more than `least`, 0-1, of the relevant documents have `true` vectors, unlike all `count`.

    Whoever judged the documents that were embedded has judged the sample, not the translation. `is_safe_without` says
    that the store is SAFE without the true vectors too, which leaves no doubt.
    """
    lucky = len(relevant & true)
    share = len(true) / count
    # Judges who were shown the sample find it relevant; by chance its share of the relevant documents is that of all
    if is_safe_without or lucky <= least * len(relevant) or _tail(lucky, len(relevant), share) >= _BY_LUCK:
        return []
    text = (
        f"{lucky:,} of the {len(relevant):,} relevant documents have true vectors, and {percent(share, 0)} of all "
        "documents: these judgements are of the sample, not of the translation; judge what both rankings find, "
        "or queries of other documents"
    )
    return [doubt(text)]


def _tail(successes: int, trials: int, chance: float) -> float:
    """Return how likely so many successes or more are, of independent trials with this chance each."""
    if not successes:
        return 1.0
    from scipy.special import betainc

    # Regularised incomplete beta function, the exact tail of a binomial (Abramowitz & Stegun 1964, 26.5.24)
    return float(betainc(successes, trials - successes + 1, chance))
