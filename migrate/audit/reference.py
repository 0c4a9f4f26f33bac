"""The proof that a reference is what it claims to be: a full re-embed of the same documents by the target model.

A verdict is worth what it is measured against, so a reference proves itself before anything is scored:

    the same file as another store, or a translation ──▶ refused
    a manifest of another model, another hash         ──▶ refused
    rows against the true vectors of the translated store (its sample, what was re-embedded): other ──▶ refused
    no such rows, or no manifest of `embed` or of a full re-embed with the hash of the index
        ──▶ 32 documents are embedded again and compared; where they cannot be, the reference is unproven
    the model is a file, and not the one that the store was translated for ──▶ it embeds nothing again: unproven

Against a reference that is unproven, or odd, no verdict is SAFE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Scores
from migrate.audit.query_set import Keys
from migrate.audit.verdict import Finding, Weighting, difference_bounds, doubt, retention_bounds
from migrate.check.again import prove_model
from migrate.check.comparison import agree, pairwise, tolerance_of
from migrate.check.facts import manifest_finding
from migrate.embed.corpus import COMMAND as EMBED
from migrate.embed.reference import MADE_BY as FULL_REEMBED
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import split_spec
from migrate.embedders.prefix import whole_model
from migrate.errors import InputError, StoreError
from migrate.manifest import ModelIdentity
from migrate.selection.sample import distinct_texts
from migrate.stores.base import Store
from migrate.stores.confidence import stored_confidence
from migrate.stores.file_store import as_files, index_is_verified
from migrate.vectors import Document, Progress, Vectors, check_vectors, no_progress, summarize_norms

SPOT_CHECKS: Final = 32
"""Documents that are embedded again: with all of them equal, less than 9 % of the store differs (95 % confidence)."""

_NEARLY_EQUAL, _SAME_SHARE = 1 - 1e-3, 0.01
_MADE_RIGHT: Final = (EMBED, FULL_REEMBED)
_MADE_ELSE: Final = "make one with `audit --reference build`, or `embed` with the target model"


@dataclass(frozen=True, slots=True)
class ReferenceProof:
    """The proof that a reference is a full re-embed; `doubts` are why it was not."""

    evidence: tuple[str, ...]
    doubts: tuple[Finding, ...] = ()

    @property
    def proven(self) -> bool:
        """True where a verdict may rest on the reference."""
        return not self.doubts

    @property
    def findings(self) -> tuple[Finding, ...]:
        """A note of all of it, and the doubts."""
        text = "the reference: " + "; ".join([*self.evidence, *(finding.text for finding in self.doubts)])
        return (Finding("note", text), *self.doubts)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Rows of the translated store beside those of the reference with the same ids, and which of them are true."""

    ids: Sequence[str]
    places: NDArray[np.int64]
    translated: Vectors
    reference: Vectors
    true: NDArray[np.bool_]
    expected: Vectors | None
    """The confidence of each translated row, (n,): the cosine to expect."""

    @cached_property
    def cosines(self) -> NDArray[np.float64]:
        return pairwise(self.translated, self.reference)

    @property
    def copied(self) -> float:
        """The share of the translated rows that are as good as equal to those they are held against."""
        return float((self.cosines[~self.true] >= _NEARLY_EQUAL).mean()) if (~self.true).any() else 0.0

    @cached_property
    def chance(self) -> float:
        """The cosine that 5 % of pairs of different documents exceed: what nothing in common looks like."""
        turned = np.roll(self.reference, max(len(self.ids) // 2, 1), axis=0)
        return float(np.percentile(pairwise(self.translated, turned), 95))


def prove_reference(
    translated: Store,
    reference: Store,
    embedder: Embedder,
    keys: tuple[Keys, Keys],
    *,
    source: Store | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> ReferenceProof:
    """Check a reference against everything that says what it should be; may embed 40 documents.

    `keys` are those of the translated store and of the reference, in the order of their rows.

    Raises
    ------
    StoreError
        It is not a full re-embed by this model of these documents.
    VectorError
        The model is not what it was when the store was translated.
    RemoteError
        A document could not be embedded.
    """
    check_target(translated, embedder)
    for name, named in (("the store that is audited", translated), ("the source store", source)):
        if named is not None and _is_same_place(reference, named):
            raise StoreError(
                f"{reference.info.location}: expected a full re-embed as reference, found {name} itself; {_MADE_ELSE}"
            )
    refuse_same_source(source, translated)
    _refuse_same_bytes(translated, reference)
    trusted, origin = _by_manifest(translated, reference, embedder)
    rows = _matching_rows(translated, reference, keys, seed)
    _check_norms(reference, rows, embedder)
    n_true, agreeing = _check_true_rows(translated, reference, rows)
    evidence = [origin, *agreeing]
    doubts = _coarseness(translated, reference)
    if keys[0].keys() != keys[1].keys():  # what a model reads of documents then differs too
        text = "the documents of the reference are cut into other chunks than those of the translated store"
        doubts.append(doubt(text, "reference"))
    prove_model(translated, embedder, seed=seed)
    if not (trusted and n_true):
        checked = _spot_check(reference, embedder, _spot_order(reference, rows, seed), progress)
        if not checked:
            doubts.append(_unproven(reference, rows))
        elif _vouches(translated, embedder) or _is_of_target(translated, reference):
            evidence.append(checked)
        else:
            doubts += _only_a_file(embedder, n_true, reference.info.count)
        doubts += _lost(rows)
    return ReferenceProof(tuple(evidence), tuple(doubts))


def prove_pool(
    translated: Store,
    pool: Store,
    embedder: Embedder,
    keys: tuple[Keys, Keys],
    *,
    seed: int = 0,
) -> ReferenceProof:
    """Check that a pool, which `embedder` has just embedded, is of the model that the store was translated for.

    `keys` are those of the translated store and of the pool, in the order of their rows.
    """
    check_target(translated, embedder)
    model = target_of(translated)
    named = model is not None and model == embedder.identity  # of a file: by its hash
    evidence = [f"embedded now by {embedder.identity.spec}" + (", which the store was translated for" if named else "")]
    rows = _matching_rows(translated, pool, keys, seed)
    _check_norms(pool, rows, embedder)
    n_true, agreeing = _check_true_rows(
        translated, pool, rows, remedy="name the model that the store was translated for: --target"
    )
    doubts: list[Finding] = []
    if not _vouches(translated, embedder):
        doubts += _only_a_file(embedder, n_true, pool.info.count)
    elif not n_true and not named:
        text = (
            f"nothing shows that {embedder.identity.spec} is the model that the store was translated for, as it holds "
            "no true vectors and no manifest names its model"
        )
        doubts.append(doubt(text, "reference"))
    if not named and rows is not None and _is_file(embedder.identity) and (share := rows.copied) > _SAME_SHARE:
        text = (
            f"{share:.0%} of the vectors of {embedder.identity.spec} that the pool needs are those of the translated "
            "store, whose true ones they should be: is the file an export of that store?"
        )
        doubts.append(doubt(text, "target"))
    if not n_true:
        doubts += _lost(rows)
    return ReferenceProof((*evidence, *agreeing), tuple(doubts))


def check_source(source: Store, embedder: Embedder, *, seed: int = 0, progress: Progress = no_progress) -> None:
    """Make sure that the source store is of the model that is to answer it: the arm `stay` is worth nothing else.

    A manifest that names this very model is believed; otherwise 32 documents are embedded again, where they can be.
    """
    manifest = source.info.manifest
    if manifest is None or manifest.model != embedder.identity:
        order = np.random.default_rng(seed).permutation(source.info.count).astype(np.int64)
        _spot_check(source, embedder, order, progress, remedy="name the model that it was built with: --source-model")


def check_target(translated: Store, embedder: Embedder) -> None:
    """Make sure that a store was translated for the model that is to answer it, as far as its manifest says."""
    manifest, model = translated.info.manifest, target_of(translated)
    if manifest is None or model is None or _is_file(model) or _is_file(embedder.identity):
        return
    finding = manifest_finding(replace(manifest, model=model), embedder.identity)
    if not finding.ok:
        raise StoreError(
            f"{translated.info.location}: expected the model that the store was translated for, found that "
            f"{finding.message}; leave out --target, or audit another store"
        )


def target_of(store: Store) -> ModelIdentity | None:
    """The model whose space a store is in, as its manifest says."""
    model = store.info.manifest.model if store.info.manifest else None
    return None if model is None else whole_model(model)


def spot_documents(reference: Store, *, seed: int = 0) -> list[Document]:
    """About what `prove_reference` may embed of a store, for an estimate of its cost."""
    order = np.random.default_rng(seed).permutation(reference.info.count).astype(np.int64)
    return [candidate.document for candidate in distinct_texts(reference, order, SPOT_CHECKS)]


def odd_scores(
    arm: Scores,
    full: Scores,
    words: Scores | None,
    stay: Scores | None,
    chance: Scores,
    *,
    seed: int,
    resamples: int,
    weighting: Weighting | None = None,
) -> tuple[Finding, ...]:
    """Return a doubt for scores that are too good or too bad to be true; they are nDCG@10, one value a query.

    `chance` are those of documents drawn at random.
    """
    doubts = []
    lower = retention_bounds(arm, full, seed=seed, resamples=resamples, weighting=weighting).lower
    if lower > 1.05:
        text = (
            f"the translated store scores at least {lower:.2f} times what the full re-embed does, which a translation "
            "cannot: is the reference of these documents and this model?"
        )
        doubts.append(doubt(text, "reference"))
    named = ("staying with the source model", stay), ("BM25", words)
    others = [(name, scores) for name, scores in named if scores is not None]
    beats_chance = partial(scores_more, chance, seed=seed, resamples=resamples, weighting=weighting)
    if not beats_chance(full):
        event = (
            f"the full re-embed (nDCG@10 {full.mean():.3f}) is not significantly better than documents drawn at random "
            f"({chance.mean():.3f}), so that no share of it means anything"
        )
        better = next((f"{name} ({scores.mean():.3f})" for name, scores in others if beats_chance(scores)), None)
        if better is not None:
            text = f"{event}, and {better} is: check the target model, its prefixes and its vectors"
            doubts.append(doubt(text, "model"))
        else:
            doubts.append(doubt(f"{event}: these judgements cannot tell good vectors from bad ones"))
    for name, scores in reversed(others):
        if scores_more(full, scores, seed=seed, resamples=resamples, weighting=weighting):
            text = (
                f"the full re-embed is significantly worse than {name} (nDCG@10 {full.mean():.3f} against "
                f"{scores.mean():.3f}): check the reference and the target model's prefixes, or do not move"
            )
            doubts.append(doubt(text, "model"))
    return tuple(doubts)


def scores_more(less: Scores, more: Scores, *, seed: int, resamples: int, weighting: Weighting | None = None) -> bool:
    """Return whether scores are significantly higher than others of the same queries, (n,) each."""
    return difference_bounds(more, less, seed=seed, resamples=resamples, weighting=weighting).lower > 0


def refuse_same_source(source: Store | None, translated: Store) -> None:
    """Make sure that the store before the migration is not the one after it."""
    if source is not None and _is_same_place(source, translated):
        raise StoreError(
            f"{source.info.location}: expected the store before the migration as source, found the store that is "
            "audited itself; name the old store with --source"
        )


def _is_same_place(store: Store, other: Store) -> bool:
    files = [as_files(store), as_files(other)]
    if None in files:
        return store.info.location == other.info.location
    first, second = (opened.index_path for opened in files if opened is not None)
    return first.samefile(second)


def _refuse_same_bytes(translated: Store, reference: Store) -> None:
    """A copy of the reference is not a translation, however well it scores."""
    manifests = [store.info.manifest for store in (translated, reference)]
    hashes = [manifest.store.index_sha256 if manifest else None for manifest in manifests]
    if hashes[0] is not None and hashes[0] == hashes[1] and made_by(translated) in (*_MADE_RIGHT, None):
        raise StoreError(
            f"{translated.info.location}: expected a translated store to audit, found the same vectors as in the "
            f"reference {reference.info.location}; audit what `translate` has written"
        )


def made_by(store: Store) -> str | None:
    """The command that made a store, where its manifest says so."""
    return store.info.manifest.store.made_by if store.info.manifest else None


def _by_manifest(translated: Store, reference: Store, embedder: Embedder) -> tuple[bool, str]:
    """Return whether the manifest shows that the reference was embedded with this model, and the evidence in words."""
    manifest = reference.info.manifest
    if manifest is None:
        return False, "it has no manifest that says how it was made"
    n_true = manifest.counts.get("true vectors", 0)
    if (made_by(reference) == "translate" or manifest.source_model is not None) and n_true < reference.info.count:
        raise StoreError(
            f"{reference.info.location}: expected a full re-embed as reference, found a translated store; {_MADE_ELSE}"
        )
    if manifest.model is None:
        return False, "its manifest names no model"
    models = [target_of(translated), embedder.identity]
    other_models = [model for model in models if model is not None and model != manifest.model]
    for model in other_models:  # files of vectors may be of one model all the same
        finding = manifest_finding(manifest, model)
        if not (finding.ok or _is_file(manifest.model) or _is_file(model)):
            raise StoreError(
                f"{reference.info.location}: expected a reference embedded by {model.spec} as it is used here, found "
                f"that {finding.message}; {_MADE_ELSE}"
            )
    if other_models and any(_is_file(model) for model in (manifest.model, *other_models)):
        return False, f"its manifest names {manifest.model.spec}, and a file does not tell its model"
    if not index_is_verified(reference):
        return False, "its manifest has no hash of its index"
    if made_by(reference) not in _MADE_RIGHT:
        return False, f"its manifest was written by {made_by(reference)}, which embeds nothing"
    return True, f"made by {made_by(reference)} with {manifest.model.spec}, its index unchanged"


def _is_file(model: ModelIdentity) -> bool:
    return split_spec(model.spec)[0] == "file"


def _vouches(translated: Store, embedder: Embedder) -> bool:
    """Return whether vectors of the embedder are evidence: a model's, and those of the file that was moved to.

    Another file gives what is in it, whatever that is, and cannot embed a text again.
    """
    model = target_of(translated)
    if not _is_file(embedder.identity):
        return True
    return model is not None and _is_file(model) and model.revision == embedder.identity.revision


def _is_of_target(translated: Store, reference: Store) -> bool:
    """Return whether manifests say that a command embedded the reference with the translated store's model."""
    manifest, model = reference.info.manifest, target_of(translated)
    is_made = made_by(reference) in _MADE_RIGHT and index_is_verified(reference)
    return manifest is not None and model is not None and is_made and manifest.model == model


def _only_a_file(embedder: Embedder, n_true: int, count: int) -> list[Finding]:
    """Return a doubt where a file that nothing vouches for says what is true of more than the rows that are known."""
    if n_true == count:
        return []
    agreeing = f"{n_true:,} of {count:,} vectors agree" if n_true else "no vector agrees"
    text = (
        f"{embedder.identity.spec} is not the file that the store was translated for, and {agreeing} with what the "
        "store has of true ones: nothing shows what the others are, as a file cannot embed a text again; audit with "
        "the model itself, or with the very file (--target)"
    )
    return [doubt(text, "target")]


def _matching_rows(translated: Store, reference: Store, keys: tuple[Keys, Keys], seed: int) -> _Pairs | None:
    """Up to 10,000 true rows and as many others; None where the stores have no ids in common."""
    translated_ids, reference_ids = keys
    if len(translated_ids) != translated.info.count or len(reference_ids) != reference.info.count:
        return None  # two rows of one id: nobody knows which is which
    row_of = {doc_id: row for row, doc_id in enumerate(reference_ids)}
    values = stored_confidence(translated)
    is_true = np.zeros(translated.info.count, dtype=bool) if values is None else values == 1
    shared = np.fromiter((doc_id in row_of for doc_id in translated_ids), dtype=bool, count=len(translated_ids))
    rng = np.random.default_rng(seed)
    drawn = [rng.permutation(np.flatnonzero(shared & group))[:10_000] for group in (is_true, ~is_true)]
    rows = np.sort(np.concatenate(drawn))
    if not len(rows):
        return None
    batch = translated.get(rows)
    ids = list(batch.ids)
    vectors = batch.vectors.copy()
    places = np.array([row_of[doc_id] for doc_id in ids], dtype=np.int64)
    true_vectors = reference.get(places).vectors
    check_vectors(ids, vectors, source=translated.info.location)
    check_vectors(ids, true_vectors, source=reference.info.location)
    _check_texts(translated, reference, rows, places)
    return _Pairs(ids, places, vectors, true_vectors, is_true[rows], None if values is None else values[rows])


def _check_texts(translated: Store, reference: Store, rows: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    """Equal ids must mean equal texts."""
    if not (translated.info.has_texts and reference.info.has_texts):
        return
    pairs = zip(translated.documents(rows), reference.documents(places), strict=True)
    different = [ours.id for ours, theirs in pairs if ours.text != theirs.text]
    if different:
        raise StoreError(
            f"{reference.info.location}: expected the texts of {translated.info.location}, found others under the same "
            f"ids ({len(different):,} of {len(rows):,} that were compared, such as {different[0]!r}); {_MADE_ELSE}"
        )


def _check_norms(reference: Store, rows: _Pairs | None, embedder: Embedder) -> None:
    if rows is None or not (reference.info.exact and embedder.identity.normalized):
        return
    norms = summarize_norms(rows.reference)
    if not norms.is_unit and norms.maximum > 1.01 * norms.minimum:
        raise StoreError(
            f"{reference.info.location}: expected vectors of length 1, as {embedder.identity.spec} gives, found "
            f"lengths from {norms.minimum:.3g} to {norms.maximum:.3g}; {_MADE_ELSE}"
        )


def _check_true_rows(
    translated: Store, reference: Store, rows: _Pairs | None, *, remedy: str = _MADE_ELSE
) -> tuple[int, list[str]]:
    """Return how many true vectors the reference shares, also in words; it must have all of the translated store."""
    if rows is None or not rows.true.any():
        return 0, []
    cosines, true = rows.cosines, rows.true
    if translated.info.exact and reference.info.exact:
        wrong = true & ~agree(rows.translated, rows.reference, tolerance_of(reference.info))
        enough = not wrong.any()
    else:  # what two lossy indexes have kept of one vector may be far apart, but not as far as two documents are
        wrong = true & (cosines <= rows.chance)
        enough = wrong.sum() <= 0.1 * true.sum()
    if not enough:
        worst = int(np.argmin(np.where(true, cosines, np.inf)))
        raise StoreError(
            f"{reference.info.location}: expected the true vectors of {translated.info.location}, found "
            f"{int(wrong.sum()):,} of {int(true.sum()):,} to be others, such as {rows.ids[worst]!r} (cosine "
            f"{cosines[worst]:.3f}): not embedded by the same model; {remedy}"
        )
    return int(true.sum()), [f"{int(true.sum()):,} true vectors of the translated store agree with it"]


def _spot_check(
    store: Store, embedder: Embedder, order: NDArray[np.int64], progress: Progress, *, remedy: str = _MADE_ELSE
) -> str | None:
    """Return that the first texts of `order`, embedded again, have the store's vectors; None where they cannot be."""
    if not store.info.has_texts and embedder.needs_texts:
        return None
    drawn = list(distinct_texts(store, order, SPOT_CHECKS))
    if not drawn:
        return None
    stored = store.get(np.array([candidate.row for candidate in drawn], dtype=np.int64)).vectors
    try:
        documents = [candidate.document for candidate in drawn]
        fresh = embedder.chosen_by(()).embed_documents(documents, progress=progress)
    except InputError:  # a file of vectors that has others
        return None
    if fresh.shape != stored.shape:
        raise StoreError(
            f"{store.info.location}: expected vectors of dimension {fresh.shape[1]}, as {embedder.identity.spec} "
            f"gives, found {stored.shape[1]}; {remedy}"
        )
    right = agree(stored, fresh, tolerance_of(store.info))
    if not right.all():
        cosines = pairwise(stored, fresh)
        worst = int(np.argmin(cosines))
        raise StoreError(
            f"{store.info.location}: expected vectors of {embedder.identity.spec}, found others for "
            f"{int((~right).sum())} of {len(drawn)} documents that were embedded again, such as "
            f"{drawn[worst].document.id!r} (cosine {cosines[worst]:.3f}): not embedded by this model; "
            f"{remedy}, or ask `check` what it is"
        )
    return f"{len(drawn)} of {len(drawn)} documents that were embedded again have its vectors"


def _coarseness(translated: Store, reference: Store) -> list[Finding]:
    """Return a doubt where the reference is rounded more than what is held against it: the standard would be lower."""
    tolerance, code = tolerance_of(reference.info), reference.info.details.get("factory")
    if not (tolerance.coded or tolerance.loose) or code == translated.info.details.get("factory"):
        return []
    text = (
        f"the reference keeps its vectors as short codes ({code}) and the translated store does not, which makes it a "
        "lower standard than a full re-embed in the translated store's own kind of index"
    )
    return [doubt(text, "reference")]


def _spot_order(reference: Store, rows: _Pairs | None, seed: int) -> NDArray[np.int64]:
    """Rows of the reference to look at: half of those suspiciously equal to translated ones first, true ones last."""
    order = np.random.default_rng(seed).permutation(reference.info.count).astype(np.int64)
    if rows is None:
        return order
    suspicious = rows.places[~rows.true & (rows.cosines >= _NEARLY_EQUAL)][: SPOT_CHECKS // 2]
    late = np.concatenate([suspicious, rows.places[rows.true]])
    return np.concatenate([suspicious, order[~np.isin(order, late)], rows.places[rows.true]])


def _unproven(reference: Store, rows: _Pairs | None) -> Finding:
    """Return that the reference is unproven; it is refused if it holds translated vectors."""
    equal = 0 if rows is None else int((~rows.true & (rows.cosines >= 1 - 1e-6)).sum())
    if rows is not None and equal > _SAME_SHARE * (~rows.true).sum():
        raise StoreError(
            f"{reference.info.location}: expected a full re-embed as reference, found {equal:,} rows equal to "
            f"translated ones; {_MADE_ELSE}"
        )
    text = (
        "nothing proves the reference, as no document can be embedded again to compare; `stamp` cannot help, "
        "`audit --reference build` can"
    )
    return doubt(text, "reference")


def _lost(rows: _Pairs | None) -> list[Finding]:
    """Return a doubt where translated rows of which much was expected are no nearer to theirs than others are."""
    if rows is None or rows.expected is None:
        return []
    certain = ~rows.true & (rows.expected > (1 + rows.chance) / 2)
    share = float((rows.cosines[certain] <= rows.chance).mean()) if certain.sum() > SPOT_CHECKS else 0.0
    if share <= 0.05:
        return []
    text = (
        f"{share:.0%} of the most certain translations have nothing in common with the reference, as if it was of "
        "another model or of other documents"
    )
    return [doubt(text, "reference")]
