"""Quality of a store's own search beside exact search, and the setting that would keep more.

The verdict is of what the index of a store finds; this tells how much that misses.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrate.audit.bounds import Outcome
from migrate.audit.evidence import Evidence
from migrate.audit.experiment import Experiment
from migrate.audit.measures import CUT, Scores
from migrate.audit.results import STAY, TRANSLATED
from migrate.audit.retrieval import asks_index, search_by_index, setting_of
from migrate.audit.verdict import Finding
from migrate.audit_report.records import OwnSearch
from migrate.display import percent
from migrate.stores.base import SearchSetting, StoreInfo

ENOUGH = 0.99
"""Share of what exact search scores, 0-1, that an index keeps where nobody needs to be told more."""

_NAMES = {TRANSLATED: "the translated store", STAY: "the old store"}

_REBUILD = "write it with another index, such as -o 'faiss:NEW-STORE#?index=HNSW32'"


def own_searches(evidence: Evidence) -> tuple[OwnSearch, ...]:
    """Return the own searches of the translated and the old store, of those that have an index."""
    experiment = evidence.experiment
    names = [name for name in (TRANSLATED, STAY) if name in experiment.stores and asks_index(experiment, name)]
    return tuple(_own_search(name, evidence) for name in names)


def searched_exactly(experiment: Experiment) -> list[Finding]:
    """Return a note on the stores that have no index of their own."""
    names = [name for name in (TRANSLATED, STAY) if name in experiment.stores and not asks_index(experiment, name)]
    if not names:
        return []
    subject = f"{' and '.join(_NAMES[name] for name in names)} have"
    if len(names) == 1:
        subject = f"{_NAMES[names[0]]} has"
    return [Finding("note", f"{subject} no index that could miss something: searched exactly")]


def findings_of(searches: tuple[OwnSearch, ...]) -> list[Finding]:
    """Return a caveat for each index that misses much, a note for others."""
    findings = []
    for search in searches:
        if search.remedy is None:
            findings.append(Finding("note", search.sentence))
        else:
            findings.append(Finding("caveat", search.sentence))
    return findings


def _own_search(name: str, evidence: Evidence) -> OwnSearch:
    runs = evidence.runs
    full = evidence.scores(runs.full)
    exact = evidence.scores(runs.exact[name].run)
    scores = evidence.scores(runs.by_store[name].run)
    stay = None
    if name == TRANSLATED and STAY in runs.by_store:
        stay = evidence.scores(runs.by_store[STAY].run)
    by_index = evidence.rules.verdict(scores, full)
    exactly = evidence.rules.verdict(exact, full, stay)
    kept_share = _share_of_exact(scores, exact)
    setting = setting_of(evidence.experiment, name)
    value = None
    share = None
    remedy = None
    if kept_share < ENOUGH:
        if setting is not None and not setting.is_stored:
            value, share = _smallest_enough(name, evidence, setting, exact)
        remedy = _remedy(setting, value, share)
    index = _index_name(evidence.experiment.stores[name].store.info, setting)
    scale = exactly.scale
    keeps = "keeps"
    if scale.provisional:
        keeps = f"has {scale.measured}"
    sentence = (
        f"{_NAMES[name]} {keeps} {scale.figure(exactly.retention.estimate)} exactly, "
        f"{scale.figure(by_index.retention.estimate)} by its own search ({index})"
    )
    if remedy is not None:
        sentence += f": {remedy}"
    return OwnSearch(
        arm=name,
        index=index,
        exactly=exactly.retention.estimate,
        by_index=by_index.retention.estimate,
        of_exact=kept_share,
        is_safe_exactly=exactly.outcome is Outcome.SAFE,
        sentence=sentence,
        setting=value,
        setting_keeps=share,
        remedy=remedy,
    )


def _smallest_enough(
    name: str, evidence: Evidence, setting: SearchSetting, exact: Scores
) -> tuple[int | None, float | None]:
    """Return the smallest value tried that keeps enough of exact search, and what it keeps."""
    # The smallest first: each search takes as much longer as its value is greater
    for value in _values(setting):
        scores = evidence.scores(search_by_index(evidence.experiment, name, effort=value, depths=(CUT,)).run)
        share = _share_of_exact(scores, exact)
        if share >= ENOUGH:
            return value, share
    return None, None


def _share_of_exact(scores: Scores, exact: Scores) -> float:
    """Return the mean score over that of exact search; 1 where that finds nothing."""
    exact_mean = float(exact.mean())
    if not exact_mean:
        return 1.0
    return float(scores.mean()) / exact_mean


def _values(setting: SearchSetting) -> Iterator[int]:
    """Yield the powers of two above the value of a setting, and the most that it can be."""
    value = 1
    while value <= setting.value:
        value *= 2
    while value < setting.most:
        yield value
        value *= 2
    if setting.most > setting.value:
        yield setting.most


def _index_name(info: StoreInfo, setting: SearchSetting | None) -> str:
    name = str(info.details.get("factory", info.index_type))
    if name == "none":
        name = "no index"
    if setting is None:
        return name
    return f"{name}, {setting.name} {setting.value}"


def _remedy(setting: SearchSetting | None, value: int | None, share: float | None) -> str:
    """Return what to do about an index that misses much."""
    if setting is None or setting.value >= setting.most:
        return f"no setting of its search finds more; {_REBUILD}"
    if setting.is_stored:
        more = setting.code.replace("{}", str(min(2 * setting.value, setting.most)))
        return f"a greater {setting.name} finds more, and is a part of the store: {more}, open it anew and audit again"
    if value is not None and share is not None:
        keeps = f"{setting.name} {value} keeps {percent(share)} of exact search"
        return f"{keeps}: {setting.code.replace('{}', str(value))}, and audit again with --search-effort {value}"
    return f"no {setting.name} up to {setting.most:,} keeps {percent(ENOUGH, 0)} of exact search; {_REBUILD}"
