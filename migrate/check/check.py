"""Checks whether a store's vectors come from a model. Nothing is written; a small sample is embedded again.

dimension ── differs ──▶ not compatible
    │
manifest, if trusted and its hash matches the index ──▶ answered without embedding
    │
texts ── none ──▶ norms only
    │
embed a sample ──▶ diagnose ──▶ norms
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from migrate.check.comparison import Reembedded, draw, reembedded, share_of
from migrate.check.diagnose import Diagnosis, diagnose
from migrate.check.facts import (
    are_comparable,
    dimension_finding,
    fitting_models,
    manifest_finding,
    norms_by_model,
    norms_by_vectors,
    sampled_norms,
    unchanged_finding,
)
from migrate.check.model import Agreement, Cause, Compatibility, Example, Found, Observation
from migrate.check.retrieval import RetrievalCost
from migrate.embedders import special_options
from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.errors import MissingVectorError, RemoteError, UsageError
from migrate.manifest import ModelIdentity
from migrate.selection.model_match import FEW, SPOT_CHECKS, claim_of_cache, compare, matches
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, no_progress

ManifestUse = Literal["trust", "compare", "ignore"]

Measure = Callable[[Reembedded], RetrievalCost | None]

SAMPLE_SIZE = SPOT_CHECKS

_MOSTLY = 0.9
"""Share of translated vectors, 0-1, above which they are as near the model's as was promised."""

_CAUSES = {"norms": Cause.NORMS, "manifest": Cause.MANIFEST, "unchanged": Cause.CHANGED}
"""The cause by the name of a finding that is not as expected, the weightiest first."""


def check_store(
    store: Store,
    embedder: Embedder,
    *,
    sample: int = SAMPLE_SIZE,
    manifest: ManifestUse = "trust",
    seed: int = 0,
    progress: Progress = no_progress,
    measure: Measure | None = None,
) -> Compatibility:
    """Say whether a store's vectors are those that a model gives to its texts, or why not.

    "trust" lets a `manifest` answer whose hash is that of the index, "compare" holds it against what is found, "ignore"
    does not look at it. `measure` gets vectors that are near the model's but not the same, and returns their cost.

    Raises VectorError: the model gives other vectors than the cache has.
    """
    model = embedder.quick_identity()
    dimension = dimension_finding(store, model)
    if not dimension.ok:
        return _other_dimension(store, embedder, dimension, seed)
    findings = [dimension]
    unchanged = None
    recorded = store.info.manifest
    if manifest != "ignore" and recorded is not None and recorded.model is not None:
        unchanged = unchanged_finding(store)
        by_name = manifest_finding(recorded, model)
        if not by_name.ok and not are_comparable(recorded.model, model):
            by_name = Observation("manifest", True, f"names {recorded.model.spec}, which may be {model.spec} or not")
        findings += filter(None, (by_name, unchanged))
    # A manifest is believed as far as its hash is that of the index: whoever copies one beside another index is found
    # out
    if manifest == "trust" and unchanged is not None and unchanged.ok and _is_named(store, model):
        return _by_manifest(store, model, findings)
    if not store.info.has_texts:
        return _by_facts(store, model, (*findings, norms_by_model(store, model, seed)))
    try:
        result, compared = _by_sample(store, embedder, findings, sample, seed, progress)
    except MissingVectorError as error:
        # A file that the vectors of the store are from has them all
        findings.append(Observation("texts", False, str(error)))
        return Compatibility(store.info.location, model, Cause.NOT_IN_FILE, str(error), "facts", tuple(findings))
    if measure is None or result.cause is not Cause.NEAR:
        return result
    return replace(result, retrieval=measure(compared))


def sample_size(sample: int | str | None, store: Store) -> int:
    """Return how many documents of a store are embedded again: some, or `all`."""
    if sample is None:
        return SAMPLE_SIZE
    if isinstance(sample, int):
        return sample
    if sample != "all":
        raise UsageError(f"`sample={sample}` is neither a number of documents nor `all`; give one of these")
    return store.info.count


def planned_texts(
    store: Store, embedder: Embedder, *, sample: int = SAMPLE_SIZE, manifest: ManifestUse = "trust", seed: int = 0
) -> Sequence[Document]:
    """Return the texts that `check_store` embeds at first; where they disagree, it tries some of them in other ways."""
    model = embedder.quick_identity()
    info = store.info
    is_answered = False
    if manifest == "trust" and info.manifest is not None and info.manifest.model is not None:
        unchanged = unchanged_finding(store)
        is_answered = unchanged is not None and unchanged.ok and _is_named(store, model)
    if not info.has_texts or is_answered or info.dim > model.dim:
        return ()
    # Only if these are the model's first dimensions is looked at
    if info.dim < model.dim:
        sample = FEW
    return draw(store, sample, seed)[0].documents


def _is_named(store: Store, model: ModelIdentity) -> bool:
    """Return whether the manifest names a model that can be compared with this one by name."""
    manifest = store.info.manifest
    if manifest is None or manifest.model is None:
        return False
    return are_comparable(manifest.model, model)


def _translated(store: Store) -> tuple[str, ...]:
    manifest = store.info.manifest
    if manifest is None:
        return ()
    if manifest.source_model is not None:
        origin = manifest.source_model.spec
    elif manifest.store.made_by == "translate":
        origin = "another model"  # which a store of somebody else may not say
    else:
        return ()
    return (f"translated from {origin}: in the space of the model, but not its vectors; an audit says how good",)


def _by_manifest(store: Store, model: ModelIdentity, findings: list[Observation]) -> Compatibility:
    """Judge by the manifest alone, whose hash is that of the index; it is the second finding."""
    by_name = findings[1]
    cause = Cause.MANIFEST
    sentence = by_name.message
    if by_name.ok:
        cause = Cause.COMPATIBLE
        sentence = f"the manifest {by_name.message}, and the index is unchanged"
    notes = _translated(store)
    return Compatibility(store.info.location, model, cause, sentence, "manifest", tuple(findings), notes=notes)


def _by_facts(store: Store, model: ModelIdentity, findings: tuple[Observation, ...]) -> Compatibility:
    """Judge without texts: nothing can be proved, but much refuted."""
    wrong = next((finding for finding in findings if not finding.ok), None)
    if wrong is not None:
        cause = _CAUSES[wrong.name]
        sentence = f"{wrong.name}: {wrong.message}"
    else:
        names = " and ".join(finding.name for finding in findings)
        cause = Cause.COMPATIBLE
        sentence = f"nothing speaks against it: {names} fit"
    note = "the store has no texts, so whether the vectors are the model's could not be checked"
    return Compatibility(store.info.location, model, cause, sentence, "facts", findings, notes=(note,))


def _other_dimension(store: Store, embedder: Embedder, dimension: Observation, seed: int) -> Compatibility:
    """Judge vectors of another dimension: of another model, or the first part of this one's."""
    model = embedder.quick_identity()
    dim = store.info.dim
    notes = (fitting_models(store, model, seed),)
    result = Compatibility(
        store.info.location, model, Cause.DIMENSION, dimension.message, "facts", (dimension,), notes=notes
    )
    if dim > model.dim or not store.info.has_texts:
        return result
    try:
        _, claim = draw(store, FEW, seed)
        # Matryoshka models are cut to their first dimensions, and their lengths with them: cosines are compared
        vectors = with_choosers(embedder, ()).embed_documents(claim.texts)[:, :dim]
        if not compare(claim, np.ascontiguousarray(vectors), embedder.profile.spec).is_right:
            return result
    except MissingVectorError:
        return result
    except (RemoteError, ModuleNotFoundError) as error:  # no key, or a light installation
        untried = f"whether these are the first {dim:,} dimensions of the model's could not be tried: {error}"
        return replace(result, notes=(*notes, untried))
    sentence = f"the store has the first {dim:,} of the model's {model.dim:,} dimensions; ask the model for as many"
    return replace(result, cause=Cause.SHORTENED, sentence=sentence, basis="sample", notes=())


def _by_sample(
    store: Store, embedder: Embedder, findings: list[Observation], size: int, seed: int, progress: Progress
) -> tuple[Compatibility, Reembedded]:
    sample, claim = draw(store, size, seed)
    # What the cache has may be of the host that made the store
    matches(claim_of_cache(embedder, sample.documents), embedder, past_cache=True).require(store.info.location)
    # Kept in the cache as texts that no query chose, so that these may judge a store that is filled in from it
    match = matches(claim, with_choosers(embedder, ()), size, progress=progress)
    compared = reembedded(sample, match)
    figures = _figures(store, compared, size)
    diagnosis = diagnose(store, embedder, compared, figures.disagreeing, progress)
    model = embedder.identity
    translated = _translated(store)
    if translated and not compared.agreeing.all() and compared.near.mean() > _MOSTLY:
        # Translated vectors are near those of the model, which is all that they promise
        sentence = (
            f"{figures.sampled - figures.agreeing} of {figures.sampled} sampled vectors are translated, and near the "
            f"model's (median cosine {figures.median_cosine:.3f}); the others are its own"
        )
        diagnosis = replace(diagnosis, cause=Cause.COMPATIBLE, sentence=sentence)
    findings.append(Observation("vectors", diagnosis.cause is Cause.COMPATIBLE, diagnosis.sentence))
    best = diagnosis.best
    if best is None:
        agreeing = compared.agreeing
        vectors = match.vectors
        way = embedder
        has_spec = bool(agreeing.all())
    else:
        agreeing = best.agreeing
        vectors = best.vectors
        way = best.hypothesis.embedder
        has_spec = best.hypothesis.has_spec
    finding = None
    if agreeing.any():
        rows = np.flatnonzero(agreeing)
        norms = norms_by_vectors(claim.vectors[rows], vectors[rows], exact=not compared.match.claim.tolerance.loose)
        findings.append(norms)
        # A translated store has a manifest that says so, which a stamp would replace
        if has_spec and norms.ok and not translated:
            options = special_options(way.identity)
            finding = Found(way.profile.spec, options, way.identity, len(compared), int(agreeing.sum()), seed)
    cause, sentence = _answer(diagnosis, findings)
    notes = [*translated, *_doubts(store, compared, model)]
    if cause is Cause.OTHER_MODEL:
        notes.insert(0, fitting_models(store, model, seed))
    result = Compatibility(
        store.info.location,
        model,
        cause,
        sentence,
        "sample",
        tuple(findings),
        figures=figures,
        trials=diagnosis.trials,
        examples=_examples(compared, diagnosis),
        notes=tuple(notes),
        found=finding,
        # A query finds the same documents in the same order, however long its vector is
        suits_queries=cause is Cause.NORMS and (store.info.metric == "ip" or sampled_norms(store, seed).is_unit),
    )
    return result, compared


def _answer(diagnosis: Diagnosis, findings: list[Observation]) -> tuple[Cause, str]:
    """Return the cause by the vectors; where these agree, by the first other finding that is not as expected."""
    if diagnosis.cause is Cause.COMPATIBLE:
        advice = {"manifest": "; the vectors agree, so stamp the store again", "unchanged": "; the vectors agree"}
        for name, cause in _CAUSES.items():
            for finding in findings:
                if finding.name == name and not finding.ok:
                    return cause, finding.message + advice.get(name, "")
    return diagnosis.cause, diagnosis.sentence


def _figures(store: Store, compared: Reembedded, size: int) -> Agreement:
    n = len(compared)
    agreeing = int(compared.agreeing.sum())
    population = store.info.count
    # The store has no more different texts
    if n < size:
        population = n
    return Agreement(
        sampled=n,
        agreeing=agreeing,
        disagreeing=share_of(n - agreeing, n, population),
        tolerance=compared.match.claim.tolerance.allowed,
        median_cosine=float(np.median(compared.match.cosines)),
        chance_cosine=compared.chance(),
    )


def _examples(compared: Reembedded, diagnosis: Diagnosis) -> tuple[Example, ...]:
    """Return the documents that disagree most."""
    # Stable, so that the same sample names the same documents
    order = np.argsort(compared.match.cosines, kind="stable").tolist()
    rows = [row for row in order if diagnosis.taken_for[row] != "agrees"][:5]
    documents = compared.documents
    cosines = compared.match.cosines.tolist()
    return tuple(
        Example(documents[row].id, int(compared.rows[row]), cosines[row], diagnosis.taken_for[row]) for row in rows
    )


def _doubts(store: Store, compared: Reembedded, model: ModelIdentity) -> list[str]:
    doubts = []
    prefix = model.document_prefix
    if prefix and all(document.text.startswith(prefix) for document in compared.documents):
        doubts.append(f"the stored texts begin with the prefix {prefix!r} already, and the model puts it before them")
    if compared.match.claim.tolerance.loose:
        factory = store.info.details.get("factory", store.info.index_type)
        doubts.append(f"the index ({factory}) is lossy: small changes, such as of few texts, look the same as its loss")
    return doubts
