"""What the own search of a store keeps of exact search, and the setting that would keep more.

An index may miss what its vectors would find: the verdict is of what it finds, this tells how much it misses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from migrate.audit.measures import CUT, Scores
from migrate.audit.results import FULL, STAY, TRANSLATED
from migrate.audit.retrieval import Retriever
from migrate.audit.rules import Rules
from migrate.audit.verdict import Finding, Outcome
from migrate.display import percent
from migrate.stores.base import SearchSetting, StoreInfo

ENOUGH = 0.99
"""Share of what exact search scores, 0-1, that an index keeps where nobody needs to be told more."""

_NAMES = {TRANSLATED: "the translated store", STAY: "the old store"}

_REBUILD = "write it with another index, such as -o 'faiss:NEW-STORE#?index=HNSW32'"


@dataclass(frozen=True, slots=True)
class OwnSearch:
    """The own search of a store beside exact search, by the deciding measure.

    `arm` is the arm that asks the store, `index` its index with the setting that is stored. `exactly` and `by_index`
    are what either search keeps of the full re-embed (retention, or agreement@10), `kept` is the mean score by the
    index over that by exact search. `remedy` says what keeps at least `ENOUGH` of exact search, with the line of code
    or the option; None where the index does. `setting` is the smallest value of those that were tried that does so, and
    `setting_keeps` what it keeps; None where none does. `is_safe_exactly` says that exact search would be SAFE.
    """

    arm: str
    index: str
    exactly: float
    by_index: float
    kept: float
    is_safe_exactly: bool
    setting: int | None = None
    setting_keeps: float | None = None
    remedy: str | None = None

    @property
    def is_enough(self) -> bool:
        """True where the index keeps nearly all that exact search finds."""
        return self.kept >= ENOUGH

    @property
    def sentence(self) -> str:
        """Both figures, and the remedy where one is needed."""
        figures = f"{percent(self.exactly)} exactly, {percent(self.by_index)} by its own search ({self.index})"
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"{_NAMES[self.arm]} keeps {figures}{remedy}"


def own_searches(retriever: Retriever, rules: Rules) -> tuple[OwnSearch, ...]:
    """Return the own searches of the translated and the old store, of those that have an index."""
    names = [name for name in (TRANSLATED, STAY) if name in retriever.stores and retriever.asks_index(name)]
    return tuple(_own_search(name, retriever, rules) for name in names)


def searched_exactly(retriever: Retriever) -> list[Finding]:
    """Return a note on the stores that have no index of their own."""
    names = [name for name in (TRANSLATED, STAY) if name in retriever.stores and not retriever.asks_index(name)]
    if not names:
        return []
    have = "has" if len(names) == 1 else "have"
    stores = " and ".join(_NAMES[name] for name in names)
    return [Finding("note", f"{stores} {have} no index that could miss something: searched exactly")]


def findings_of(searches: tuple[OwnSearch, ...]) -> list[Finding]:
    """Return a caveat for each index that misses much, a note for others."""
    return [Finding("note" if search.is_enough else "caveat", search.sentence) for search in searches]


def _own_search(name: str, retriever: Retriever, rules: Rules) -> OwnSearch:
    full = retriever.deciding_scores(retriever.search(FULL).run)
    own = retriever.deciding_scores(retriever.search(name).run)
    exact = retriever.deciding_scores(retriever.exactly(name).run)
    exact_verdict = rules.verdict(exact, full)
    store = retriever.stores[name]
    kept = _kept(own, exact, rules)
    setting, value, share = store.setting, None, None
    if kept < ENOUGH and setting is not None:
        for tried in _values(setting):
            scores = retriever.deciding_scores(retriever.by_index(name, effort=tried, depths=(CUT,)).run)
            if (tried_share := _kept(scores, exact, rules)) >= ENOUGH:
                value, share = tried, tried_share
                break
    return OwnSearch(
        arm=name,
        index=_index_name(store.info, setting),
        exactly=exact_verdict.retention.estimate,
        by_index=rules.verdict(own, full).retention.estimate,
        kept=kept,
        is_safe_exactly=exact_verdict.outcome is Outcome.SAFE,
        setting=value,
        setting_keeps=share,
        remedy=None if kept >= ENOUGH else _remedy(setting, value, share),
    )


def _kept(own: Scores, exact: Scores, rules: Rules) -> float:
    """Return the mean score over that of exact search; 1 where that finds nothing."""
    weighting = rules.bootstrap().weighting
    found = float(np.mean(weighting.of(exact)))
    return float(np.mean(weighting.of(own))) / found if found else 1.0


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
    return name if setting is None else f"{name}, {setting.name} {setting.value}"


def _remedy(setting: SearchSetting | None, value: int | None, share: float | None) -> str:
    """Return what to do about an index that misses much."""
    if setting is None:
        return f"no setting of its search finds more; {_REBUILD}"
    if value is not None and share is not None:
        keeps = f"{setting.name} {value} keeps {percent(share)} of exact search"
        return f"{keeps}: {setting.code.replace('{}', str(value))}"
    if setting.most > setting.value:
        return f"no {setting.name} up to {setting.most:,} keeps {percent(ENOUGH, 0)} of exact search; {_REBUILD}"
    more = setting.code.replace("{}", str(2 * setting.value))
    return f"a greater {setting.name} finds more, and is a part of the store: {more}, then audit again"
