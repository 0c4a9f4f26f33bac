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
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.audit.keys import Keys
from migrate.audit.verdict import Finding, doubt
from migrate.check.facts import manifest_finding
from migrate.digests import function_of
from migrate.display import percent
from migrate.embed.corpus import COMMAND as EMBED
from migrate.embed.reference import MADE_BY as FULL_REEMBED
from migrate.embedders.abilities import needs_texts
from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.embedders.kinds import split_spec
from migrate.errors import InputError, StoreError
from migrate.manifest import ModelIdentity
from migrate.selection.model_match import (
    SAME,
    SPOT_CHECKS,
    agree,
    claim_of_rows,
    claim_of_store,
    matches,
    pairwise,
    tolerance_of,
)
from migrate.selection.sample import distinct_texts
from migrate.stores.added_fields import are_of_same_records
from migrate.stores.base import Store
from migrate.stores.confidence import stored_confidence
from migrate.stores.file_store import as_files, index_is_verified
from migrate.vectors import Document, Progress, Vectors, check_vectors, no_progress, summarize_norms

_SAME_SHARE: Final = 0.01
"""Share of the rows, 0-1, above which vectors that equal translated ones are copies of these."""

_COPIED: Final = 1 - 1e-6
"""Cosine from which on a vector is a copy, and not only near: a good translation may be within `SAME` of the truth."""

_MATCHED: Final = 10_000
"""Rows that are compared at most, of those with true vectors and of the others each."""

_LOST_SHARE: Final = 0.05
"""Share of the most certain translations, 0-1, above which those with nothing in common are no accident."""

_SPOILED_SHARE: Final = 0.1
"""Share of the true vectors, 0-1, that a lossy index may have spoiled beyond recognition."""

_MADE_RIGHT: Final = (EMBED, FULL_REEMBED)
_MADE_ELSE: Final = "make a reference with `audit --reference build`, or `reembed` the store with the target model"


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
    """Rows of the translated store beside those of the reference with the same ids, and which of them are true.

    `expected` is the confidence of each translated row, (n,): the cosine to expect; `cosines` are those that they have.
    """

    ids: Sequence[str]
    rows: NDArray[np.int64]
    translated: Vectors
    reference: Vectors
    true: NDArray[np.bool_]
    expected: Vectors | None
    cosines: NDArray[np.float64]

    def chance(self) -> float:
        """Return the cosine that 5 % of pairs of different documents exceed: what nothing in common looks like."""
        # Half way round: rows that lie next to each other may be chunks of one document
        turned = np.roll(self.reference, max(len(self.ids) // 2, 1), axis=0)
        return float(np.percentile(pairwise(self.translated, turned), 95))

    def equal(self, least: float) -> NDArray[np.bool_]:
        """Return which translated rows have at least this cosine with those they are held against."""
        return ~self.true & (self.cosines >= least)


def prove_target(translated: Store, embedder: Embedder, *, seed: int = 0) -> None:
    """Make sure that a model gives the true vectors of a store, and those in the cache, past the cache.

    What is known of the model may be older than the model behind its name. Nothing is asked of one that runs here.
    """
    claim = claim_of_store(translated, embedder, seed=seed)
    matches(claim, embedder, past_cache=True).require(translated.info.location)


def prove_reference(
    translated: Store,
    reference: Store,
    embedder: Embedder,
    keys: tuple[Keys, Keys],
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> ReferenceProof:
    """Check a reference against everything that says what it should be; may embed 40 documents.

    `keys` are those of the translated store and of the reference. That both are stores of their own, and that the
    model is the target, is for `refuse_same_stores` and `check_target` to check before.
    """
    _refuse_same_bytes(translated, reference)
    is_trusted, origin = _by_manifest(translated, reference, embedder)
    rows = _matching_rows(translated, reference, keys, seed)
    _check_norms(reference, rows, embedder)
    # The translated store has true vectors of its sample, which cost nothing to compare with
    n_true = _check_true_rows(translated, reference, rows)
    evidence = [origin]
    if n_true:
        evidence.append(_agreement(n_true))
    doubts = _doubts_of_form(translated, reference, keys)
    # Whatever costs nothing is refused by now: a model behind an API is paid for each text
    prove_target(translated, embedder, seed=seed)
    # With both, a manifest of an embedding and true vectors that agree, nothing needs to be embedded for the proof
    if not is_trusted or not n_true:
        checked = _spot_check(reference, embedder, _spot_order(reference, rows, seed), progress)
        if checked is None:
            doubts.append(_unproven(reference, rows))
        elif _vouches(translated, embedder) or _is_of_target(translated, reference):
            evidence.append(checked)
        else:
            doubts += _only_a_file(translated, embedder, n_true, reference.info.count)
        doubts += _lost(rows)
    return ReferenceProof(tuple(evidence), tuple(doubts))


def _doubts_of_form(translated: Store, reference: Store, keys: tuple[Keys, Keys]) -> list[Finding]:
    """Return doubts where the reference is kept in shorter codes, or in other chunks, than the translated store."""
    doubts = []
    code = reference.info.details.get("factory")
    tolerance = tolerance_of(reference.info)
    # Codes lose what the translated store keeps: whatever is measured against them comes out too high
    if (tolerance.coded or tolerance.loose) and code != translated.info.details.get("factory"):
        text = (
            f"the reference keeps its vectors as short codes ({code}) and the translated store does not, which makes "
            "it a lower standard than a full re-embed in the translated store's own kind of index"
        )
        doubts.append(doubt(text, "reference"))
    translated_keys, reference_keys = keys
    # What a model reads of documents then differs too
    if not translated_keys.has_ids_of(reference_keys):
        text = "the documents of the reference are cut into other chunks than those of the translated store"
        doubts.append(doubt(text, "reference"))
    return doubts


def prove_pool(
    translated: Store, pool: Store, embedder: Embedder, keys: tuple[Keys, Keys], *, seed: int = 0
) -> ReferenceProof:
    """Check that a pool, which `embedder` has just embedded, is of the model that the store was translated for.

    `keys` are those of the translated store and of the pool. That manifests name this model is for `check_target` to
    check before.
    """
    spec = embedder.identity.spec
    # A file is named by its hash
    is_named = target_of(translated) == embedder.identity
    evidence = [f"embedded now by {spec}"]
    if is_named:
        evidence = [f"embedded now by {spec}, which the store was translated for"]
    rows = _matching_rows(translated, pool, keys, seed)
    _check_norms(pool, rows, embedder)
    remedy = "name the model that the store was translated for: --target"
    n_true = _check_true_rows(translated, pool, rows, remedy=remedy)
    if n_true:
        evidence.append(_agreement(n_true))
    doubts: list[Finding] = []
    if not _vouches(translated, embedder):
        doubts += _only_a_file(translated, embedder, n_true, pool.info.count)
    elif not n_true and not is_named:
        text = (
            f"nothing shows that {spec} is the model that the store was translated for, as it holds no true vectors "
            "and no manifest names its model"
        )
        doubts.append(doubt(text, "reference"))
    if not is_named and is_file(embedder.identity):
        doubts += _exported(rows, spec)
    if not n_true:
        doubts += _lost(rows)
    return ReferenceProof(tuple(evidence), tuple(doubts))


def _exported(rows: _Pairs | None, spec: str) -> list[Finding]:
    """Return a doubt where a file of true vectors has the very ones of the translated store."""
    if rows is None or rows.true.all():
        return []
    copied = rows.equal(SAME).sum() / (~rows.true).sum()
    if copied <= _SAME_SHARE:
        return []
    text = (
        f"{percent(copied, 0)} of the vectors of {spec} that the pool needs are those of the translated store, "
        "whose true ones they should be: is the file an export of that store?"
    )
    return [doubt(text, "target")]


def check_source(source: Store, embedder: Embedder, *, seed: int = 0, progress: Progress = no_progress) -> None:
    """Make sure that the source store is of the model that is to answer it: the arm `stay` is worth nothing else.

    A manifest that names this very model is believed; otherwise 32 documents are embedded again, where they can be.
    """
    manifest = source.info.manifest
    if manifest is not None and manifest.model == embedder.identity:
        return
    order = _random_order(source, seed)
    _spot_check(source, embedder, order, progress, remedy="name the model that it was built with: --source-model")


def check_target(translated: Store, embedder: Embedder) -> None:
    """Make sure that a store was translated for the model that is to answer it, as far as its manifest says."""
    manifest = translated.info.manifest
    if manifest is None or manifest.model is None or is_file(manifest.model) or is_file(embedder.identity):
        return
    finding = manifest_finding(manifest, embedder.identity)
    if not finding.ok:
        raise StoreError(
            f"{translated.info.location} was not translated for {embedder.identity.spec} as it is used here: "
            f"{finding.message}; leave out --target, or audit another store"
        )


def target_of(store: Store) -> ModelIdentity | None:
    """Return the model whose space a store is in, as its manifest says."""
    manifest = store.info.manifest
    if manifest is None:
        return None
    return manifest.model


def spot_documents(reference: Store, *, seed: int = 0) -> list[Document]:
    """Return about what `prove_reference` may embed of a store, for an estimate of its cost."""
    return [drawn.document for drawn in distinct_texts(reference, _random_order(reference, seed), SPOT_CHECKS)]


def _random_order(store: Store, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(store.info.count).astype(np.int64)


def refuse_same_stores(translated: Store, reference: Store | None, source: Store | None = None) -> None:
    """Make sure that the stores of an audit, those that are there, are different ones."""
    if reference is not None:
        for name, store in (("the audited store", translated), ("the source store", source)):
            if store is not None and _is_same_place(reference, store):
                raise StoreError(f"{reference.info.location} is {name} itself, not a full re-embed; {_MADE_ELSE}")
    if source is not None and _is_same_place(source, translated):
        raise StoreError(
            f"{source.info.location} is the audited store itself, not the one from before the migration; name the old "
            "store with --source"
        )


def _is_same_place(store: Store, counterpart: Store) -> bool:
    if are_of_same_records(store, counterpart):
        return False
    first = as_files(store)
    second = as_files(counterpart)
    if first is None or second is None:
        return store.info.location == counterpart.info.location
    return first.index_path.samefile(second.index_path)


def _refuse_same_bytes(translated: Store, reference: Store) -> None:
    """Refuse a copy of the reference, which is no translation, however well it scores."""
    # What `translate` or `backfill` has written may come to the same bytes, where all vectors are true ones
    if _has_same_bytes(translated, reference) and _made_by(translated) in (*_MADE_RIGHT, None):
        raise StoreError(
            f"{translated.info.location} has the same vectors as the reference {reference.info.location}, and is no "
            "translation; audit what `translate` has written"
        )


def _has_same_bytes(translated: Store, reference: Store) -> bool:
    """Return whether the manifests have one hash of the vectors; those of two functions are compared by the file."""
    translated_hash = _index_hash(translated)
    reference_hash = _index_hash(reference)
    if translated_hash is None or reference_hash is None:
        return False
    function = function_of(reference_hash, f"{reference.info.location}: the manifest")
    files = as_files(translated)
    if files is not None and function != function_of(translated_hash, f"{translated.info.location}: the manifest"):
        translated_hash = files.hash_of(files.index_path.name, function)
    return translated_hash == reference_hash


def _index_hash(store: Store) -> str | None:
    manifest = store.info.manifest
    if manifest is None:
        return None
    return manifest.store.index_hash


def _made_by(store: Store) -> str | None:
    manifest = store.info.manifest
    if manifest is None:
        return None
    return manifest.store.made_by


def _by_manifest(translated: Store, reference: Store, embedder: Embedder) -> tuple[bool, str]:
    """Return whether the manifest shows that the reference was embedded with this model, and the evidence in words."""
    manifest = reference.info.manifest
    location = reference.info.location
    if manifest is None:
        return False, "it has no manifest that says how it was made"
    maker = manifest.store.made_by
    is_translated = maker == "translate" or manifest.source_model is not None
    if is_translated and manifest.counts.get("true vectors", 0) < reference.info.count:
        raise StoreError(f"{location} is a translated store, not a full re-embed; {_MADE_ELSE}")
    if manifest.model is None:
        return False, "its manifest names no model"
    models = [target_of(translated), embedder.identity]
    other_models = [model for model in models if model is not None and model != manifest.model]
    # Files of vectors may be of one model all the same
    for model in other_models:
        finding = manifest_finding(manifest, model)
        if not (finding.ok or is_file(manifest.model) or is_file(model)):
            raise StoreError(
                f"{location} was not embedded by {model.spec} as it is used here: {finding.message}; {_MADE_ELSE}"
            )
    if other_models and any(is_file(model) for model in (manifest.model, *other_models)):
        return False, f"its manifest names {manifest.model.spec}, and a file does not tell its model"
    if not index_is_verified(reference):
        return False, "its manifest has no hash of its index"
    if maker not in _MADE_RIGHT:
        return False, f"its manifest was written by {maker}, which embeds nothing"
    return True, f"made by {maker} with {manifest.model.spec}, its index unchanged"


def is_file(model: ModelIdentity) -> bool:
    """Return whether a model is a file of vectors, which does not say what made them."""
    return split_spec(model.spec)[0] == "file"


def _vouches(translated: Store, embedder: Embedder) -> bool:
    """Return whether vectors of the embedder are evidence: a model's, and those of the file that was moved to.

    Another file gives what is in it, whatever that is, and cannot embed a text again.
    """
    model = target_of(translated)
    if not is_file(embedder.identity):
        return True
    return model is not None and is_file(model) and model.revision == embedder.identity.revision


def _is_of_target(translated: Store, reference: Store) -> bool:
    """Return whether manifests say that a command embedded the reference with the translated store's model."""
    manifest = reference.info.manifest
    model = target_of(translated)
    is_made = _made_by(reference) in _MADE_RIGHT and index_is_verified(reference)
    return manifest is not None and model is not None and is_made and manifest.model == model


def _only_a_file(translated: Store, embedder: Embedder, n_true: int, count: int) -> list[Finding]:
    """Return a doubt where a file that nothing vouches for says what is true of more than the rows that are known."""
    if n_true == count:
        return []
    spec = embedder.identity.spec
    agreeing = "no vector agrees"
    if n_true:
        agreeing = f"{n_true:,} of {count:,} vectors agree"
    unknown = (
        f"{agreeing} with what the store has of true ones: nothing shows what the others are, as a file cannot embed a "
        "text again"
    )
    if target_of(translated) is None:
        text = (
            f"no manifest names the model that the store was translated for, and of {spec} {unknown}; audit the store "
            "that `translate` has written, with its manifest, or with the model itself (--target)"
        )
        return [doubt(text, "store")]
    text = (
        f"{spec} is not the file that the store was translated for, and {unknown}; audit with the model itself, or "
        "with the very file (--target)"
    )
    return [doubt(text, "target")]


def _matching_rows(translated: Store, reference: Store, keys: tuple[Keys, Keys], seed: int) -> _Pairs | None:
    """Return up to 10,000 true rows and as many others; None where the stores have no ids in common."""
    translated_ids, reference_ids = (store_keys.ids for store_keys in keys)
    # Of two rows of one id nobody knows which is which
    if not (translated_ids.is_unique and reference_ids.is_unique):
        return None
    reference_rows = translated_ids.matches(reference_ids)
    values = stored_confidence(translated)
    is_true = np.zeros(translated.info.count, dtype=bool)
    if values is not None:
        is_true = values == 1
    shared = reference_rows >= 0
    rng = np.random.default_rng(seed)
    drawn = [rng.permutation(np.flatnonzero(shared & group))[:_MATCHED] for group in (is_true, ~is_true)]
    rows = np.sort(np.concatenate(drawn))
    if not len(rows):
        return None
    batch = translated.get(rows)
    ids = list(batch.ids)
    vectors = batch.vectors.copy()
    matched_rows = reference_rows[rows]
    true_vectors = reference.get(matched_rows).vectors
    check_vectors(ids, vectors, source=translated.info.location)
    check_vectors(ids, true_vectors, source=reference.info.location)
    if translated.info.has_texts and reference.info.has_texts:
        _refuse_other_texts(translated, rows, reference, matched_rows)
    expected = None
    if values is not None:
        expected = values[rows]
    return _Pairs(
        ids=ids,
        rows=matched_rows,
        translated=vectors,
        reference=true_vectors,
        true=is_true[rows],
        expected=expected,
        cosines=pairwise(vectors, true_vectors),
    )


def _refuse_other_texts(
    translated: Store, rows: NDArray[np.int64], reference: Store, matched_rows: NDArray[np.int64]
) -> None:
    """Make sure that equal ids mean equal texts: the vectors of other texts would speak against any model."""
    pairs = zip(translated.documents(rows), reference.documents(matched_rows), strict=True)
    different = [document.id for document, counterpart in pairs if document.text != counterpart.text]
    if different:
        raise StoreError(
            f"{reference.info.location} has other texts than {translated.info.location} under the same ids "
            f"({len(different):,} of {len(rows):,} that were compared, such as {different[0]!r}); {_MADE_ELSE}"
        )


def _check_norms(reference: Store, rows: _Pairs | None, embedder: Embedder) -> None:
    if rows is None or not (reference.info.exact and embedder.identity.normalized):
        return
    norms = summarize_norms(rows.reference)
    if not norms.is_unit and norms.maximum > 1.01 * norms.minimum:
        raise StoreError(
            f"{reference.info.location} has vectors of lengths from {norms.minimum:.3g} to {norms.maximum:.3g}, but "
            f"{embedder.identity.spec} gives length 1; {_MADE_ELSE}"
        )


def _check_true_rows(translated: Store, reference: Store, rows: _Pairs | None, *, remedy: str = _MADE_ELSE) -> int:
    """Return how many true vectors of the translated store the reference shares; it must have all of them."""
    if rows is None or not rows.true.any():
        return 0
    cosines = rows.cosines
    true = rows.true
    n_true = int(true.sum())
    if translated.info.exact and reference.info.exact:
        wrong = true & ~agree(rows.translated, rows.reference, tolerance_of(reference.info))
        is_enough = not wrong.any()
    else:
        # What two lossy indexes have kept of one vector may be far apart, but not as far as two documents are
        wrong = true & (cosines <= rows.chance())
        is_enough = bool(wrong.sum() <= _SPOILED_SHARE * n_true)
    if not is_enough:
        worst = int(np.argmin(np.where(true, cosines, np.inf)))
        raise StoreError(
            f"{reference.info.location} differs from {int(wrong.sum()):,} of {n_true:,} true vectors of "
            f"{translated.info.location}, such as {rows.ids[worst]!r} (cosine {cosines[worst]:.3f}): not embedded by "
            f"the same model; {remedy}"
        )
    return n_true


def _agreement(n_true: int) -> str:
    return f"{n_true:,} true vectors of the translated store agree with it"


def _spot_check(
    store: Store, embedder: Embedder, order: NDArray[np.int64], progress: Progress, *, remedy: str = _MADE_ELSE
) -> str | None:
    """Return that the first texts of `order`, embedded again, have the store's vectors; None where they cannot be."""
    if not store.info.has_texts and needs_texts(embedder):
        return None
    claim = claim_of_rows(store, order, SPOT_CHECKS)
    try:
        # No query has chosen these documents, so none is kept from judging by them
        match = matches(claim, with_choosers(embedder, ()), SPOT_CHECKS, progress=progress)
    except InputError:  # a file of vectors that has others
        return None
    if not match.count:
        return None
    location = store.info.location
    stored_dim = store.info.dim
    dim = match.vectors.shape[1]
    if dim != stored_dim:
        raise StoreError(f"{location} has vectors of dimension {stored_dim}, and {match.model} gives {dim}; {remedy}")
    if not match.is_right:
        raise StoreError(
            f"{location} differs from {match.model} in the vectors of {match.count - match.agreeing} of {match.count} "
            f"documents that were embedded again, such as {match.claim.texts[match.worst].id!r} (cosine "
            f"{match.cosines[match.worst]:.3f}): not embedded by this model; {remedy}, or ask `check` what it is"
        )
    return match.evidence


def _spot_order(reference: Store, rows: _Pairs | None, seed: int) -> NDArray[np.int64]:
    """Return rows of the reference to look at: half of those suspiciously equal to translated ones first, true last."""
    order = _random_order(reference, seed)
    if rows is None:
        return order
    # A reference that was made from the translated store in part shows in these rows alone
    suspicious = rows.rows[rows.equal(SAME)][: SPOT_CHECKS // 2]
    true = rows.rows[rows.true]  # which have been compared already
    between = order[~np.isin(order, np.concatenate([suspicious, true]))]
    return np.concatenate([suspicious, between, true])


def _unproven(reference: Store, rows: _Pairs | None) -> Finding:
    """Return that the reference is unproven; it is refused if it holds translated vectors."""
    if rows is not None:
        n_equal = int(rows.equal(_COPIED).sum())
        if n_equal > _SAME_SHARE * (~rows.true).sum():
            raise StoreError(
                f"{reference.info.location} has {n_equal:,} rows equal to translated ones, so it is not a full "
                f"re-embed; {_MADE_ELSE}"
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
    chance = rows.chance()
    halfway = (1 + chance) / 2
    certain = ~rows.true & (rows.expected > halfway)
    # Too few to speak of a share
    if certain.sum() <= SPOT_CHECKS:
        return []
    share = float((rows.cosines[certain] <= chance).mean())
    if share <= _LOST_SHARE:
        return []
    text = (
        f"{percent(share, 0)} of the most certain translations have nothing in common with the reference, as if it was "
        "of another model or of other documents"
    )
    return [doubt(text, "reference")]
