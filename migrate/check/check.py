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

from dataclasses import replace
from typing import Final, Literal

import numpy as np

from migrate.check.comparison import Comparison, agree, compare, draw, share_of, tolerance_of
from migrate.check.diagnose import Diagnosis, diagnose
from migrate.check.facts import (
    dimension_finding,
    fitting_models,
    keeps_order,
    manifest_finding,
    norms_by_model,
    norms_by_vectors,
    unchanged_finding,
)
from migrate.check.model import Cause, Compatibility, Example, Figures, Finding, Found
from migrate.embedders import special_options
from migrate.embedders.base import Embedder
from migrate.errors import RemoteError
from migrate.manifest import ModelIdentity
from migrate.stores.base import Store
from migrate.vectors import Progress, no_progress

ManifestUse = Literal["trust", "compare", "ignore"]

SAMPLE_SIZE: Final = 32

_SHORTENED_SIZE: Final = 8
_EXAMPLES: Final = 5
_MOST: Final = 0.9


def check_store(
    store: Store,
    embedder: Embedder,
    *,
    sample: int = SAMPLE_SIZE,
    manifest: ManifestUse = "trust",
    seed: int = 0,
    progress: Progress = no_progress,
) -> Compatibility:
    """Say whether a store's vectors are those that a model gives to its texts, or why not.

    Parameters
    ----------
    sample
        Documents to embed again, at least 1; all of them where the store has no more.
    manifest
        "trust" lets a manifest answer whose hash is that of the index; "compare" holds it against what is found;
        "ignore" does not look at it.
    seed
        Of the sample, and of the permutations that tell another model from other texts.

    Raises
    ------
    VectorError
        A vector that was looked at is zero or not finite.
    StoreError
        The store has texts, but none that is not blank.
    RemoteError, InputError
        As the embedder.
    """
    model = embedder.quick_identity()
    dimension = dimension_finding(store, model)
    if not dimension.ok:
        return _other_dimension(store, embedder, dimension, seed)
    manifest_findings = () if manifest == "ignore" else _from_manifest(store, model)
    if (
        manifest == "trust"
        and manifest_findings
        and manifest_findings[-1].name == "unchanged"
        and manifest_findings[-1].ok
    ):
        return _by_manifest(store, model, (dimension, *manifest_findings))
    if not store.info.has_texts:
        return _by_facts(store, model, (dimension, *manifest_findings, norms_by_model(store, model, seed)))
    return _by_sample(store, embedder, (dimension, *manifest_findings), sample, seed, progress)


def _from_manifest(store: Store, model: ModelIdentity) -> tuple[Finding, ...]:
    """The findings from the manifest; the last one, where it has a hash, is whether it belongs to this index."""
    manifest = store.info.manifest
    if manifest is None or manifest.model is None:
        return ()
    unchanged = unchanged_finding(store)
    return (manifest_finding(manifest, model), *([] if unchanged is None else [unchanged]))


def _by_manifest(store: Store, model: ModelIdentity, findings: tuple[Finding, ...]) -> Compatibility:
    wrong = [finding for finding in findings if not finding.ok]
    cause = Cause.MANIFEST if wrong else Cause.COMPATIBLE
    sentence = wrong[0].message if wrong else f"the manifest {findings[1].message}, and the index is unchanged"
    return Compatibility(store.info.location, model, cause, sentence, "manifest", findings, notes=_translated(store))


def _translated(store: Store) -> tuple[str, ...]:
    source = store.info.manifest.source_model if store.info.manifest else None
    if source is None:
        return ()
    return (f"translated from {source.spec}: in the space of the model, but not its vectors; an audit says how good",)


def _by_facts(store: Store, model: ModelIdentity, findings: tuple[Finding, ...]) -> Compatibility:
    """Without texts: nothing can be proved, but much refuted."""
    wrong = [finding for finding in findings if not finding.ok]
    causes = {"manifest": Cause.MANIFEST, "unchanged": Cause.CHANGED, "norms": Cause.NORMS}
    if wrong:
        cause, sentence = causes[wrong[0].name], f"{wrong[0].name}: {wrong[0].message}"
    else:
        names = " and ".join(finding.name for finding in findings)
        cause, sentence = Cause.COMPATIBLE, f"nothing speaks against it: {names} fit"
    note = "the store has no texts, so whether the vectors are the model's could not be checked"
    return Compatibility(store.info.location, model, cause, sentence, "facts", findings, notes=(note,))


def _other_dimension(store: Store, embedder: Embedder, dimension: Finding, seed: int) -> Compatibility:
    """Another dimension: another model, or the first part of this one's vectors."""
    model, dim = embedder.quick_identity(), store.info.dim
    notes = (fitting_models(store, model, seed),)
    result = Compatibility(
        store.info.location, model, Cause.DIMENSION, dimension.message, "facts", (dimension,), notes=notes
    )
    if dim > model.dim or not store.info.has_texts:
        return result
    try:
        shortened = _is_shortened(store, embedder, seed)
    except (RemoteError, ModuleNotFoundError) as error:  # no key, or a light installation
        untried = f"whether these are the first {dim:,} dimensions of the model's could not be tried: {error}"
        return replace(result, notes=(*notes, untried))
    sentence = f"the store has the first {dim:,} of the model's {model.dim:,} dimensions; ask the model for as many"
    return replace(result, cause=Cause.SHORTENED, sentence=sentence, basis="sample", notes=()) if shortened else result


def _is_shortened(store: Store, embedder: Embedder, seed: int) -> bool:
    sample, stored = draw(store, _SHORTENED_SIZE, seed)
    fresh = np.ascontiguousarray(embedder.chosen_by(()).embed_documents(sample.documents)[:, : store.info.dim])
    return bool(agree(stored, fresh, tolerance_of(store.info)).all())


def _by_sample(
    store: Store, embedder: Embedder, manifest_findings: tuple[Finding, ...], size: int, seed: int, progress: Progress
) -> Compatibility:
    sample, stored = draw(store, size, seed)
    compared = compare(sample, stored, embedder, tolerance_of(store.info), progress)
    figures = _figures(store, compared, size)
    diagnosis = diagnose(store, embedder, compared, figures.disagreeing, seed, progress)
    if _translated(store) and not compared.agreeing.all() and compared.near.mean() > _MOST:
        diagnosis = _accept_translated(diagnosis, figures)
    findings = (*manifest_findings, Finding("vectors", diagnosis.cause is Cause.COMPATIBLE, diagnosis.sentence))
    best = diagnosis.best
    agreeing, fresh = (compared.agreeing, compared.fresh) if best is None else (best.agreeing, best.fresh)
    found = None
    if agreeing.any():
        rows = np.flatnonzero(agreeing)
        norms = norms_by_vectors(compared.stored[rows], fresh[rows], exact=not compared.tolerance.loose)
        findings = (*findings, norms)
        way = embedder if best is None else best.hypothesis.embedder
        # A translated store has a manifest that says so, which a stamp would replace
        if way is not None and norms.ok and (best is not None or agreeing.all()) and not _translated(store):
            found = _found(way, len(compared), int(agreeing.sum()), seed)
    cause, sentence = _answer(diagnosis, findings)
    return Compatibility(
        store.info.location,
        embedder.identity,
        cause,
        sentence,
        "sample",
        findings,
        figures=replace(figures, structure=diagnosis.structure),
        trials=diagnosis.trials,
        examples=_examples(compared, diagnosis),
        notes=(
            *_other_models(store, embedder.identity, cause, seed),
            *_translated(store),
            *_doubts(store, compared, embedder.identity),
        ),
        found=found,
        suits_queries=cause is Cause.TEXT_FORM or (cause is Cause.NORMS and keeps_order(store, seed)),
    )


def _found(embedder: Embedder, sampled: int, agreeing: int, seed: int) -> Found:
    model = embedder.identity
    return Found(embedder.profile.spec, special_options(model), model, sampled, agreeing, seed)


def _other_models(store: Store, model: ModelIdentity, cause: Cause, seed: int) -> tuple[str, ...]:
    return (fitting_models(store, model, seed),) if cause is Cause.OTHER_MODEL else ()


def _accept_translated(diagnosis: Diagnosis, figures: Figures) -> Diagnosis:
    """Translated vectors are near those of the model, which is all that they promise."""
    translated = f"{figures.sampled - figures.agreeing} of {figures.sampled} sampled vectors are translated"
    sentence = f"{translated}, and near the model's (median cosine {figures.median_cosine:.3f}); the others are its own"
    return replace(diagnosis, cause=Cause.COMPATIBLE, sentence=sentence)


def _answer(diagnosis: Diagnosis, findings: tuple[Finding, ...]) -> tuple[Cause, str]:
    """The cause by the vectors; where these agree, the first other finding that is not as expected."""
    if diagnosis.cause is not Cause.COMPATIBLE:
        return diagnosis.cause, diagnosis.sentence
    causes = {"norms": Cause.NORMS, "manifest": Cause.MANIFEST, "unchanged": Cause.CHANGED}
    agree = "; the vectors agree"
    advice = {"norms": "", "manifest": f"{agree}, so stamp the store anew", "unchanged": agree}
    for name, cause in causes.items():
        for finding in findings:
            if finding.name == name and not finding.ok:
                return cause, finding.message + advice[name]
    return diagnosis.cause, diagnosis.sentence


def _figures(store: Store, compared: Comparison, size: int) -> Figures:
    n, agreeing = len(compared), int(compared.agreeing.sum())
    # fewer than requested: the store has no more different texts
    population = n if n < size or n == store.info.count else store.info.count
    return Figures(
        sampled=n,
        agreeing=agreeing,
        disagreeing=share_of(n - agreeing, n, population),
        tolerance=compared.tolerance.allowed,
        median_cosine=float(np.median(compared.cosines)),
        chance_cosine=compared.chance,
    )


def _examples(compared: Comparison, diagnosis: Diagnosis) -> tuple[Example, ...]:
    """The documents that disagree most."""
    order = np.argsort(compared.cosines, kind="stable").tolist()
    rows = [row for row in order if diagnosis.taken_for[row] != "agrees"]
    return tuple(
        Example(
            compared.documents[row].id, int(compared.rows[row]), float(compared.cosines[row]), diagnosis.taken_for[row]
        )
        for row in rows[:_EXAMPLES]
    )


def _doubts(store: Store, compared: Comparison, model: ModelIdentity) -> list[str]:
    doubts = []
    prefix = model.document_prefix
    if prefix and all(document.text.startswith(prefix) for document in compared.documents):
        doubts.append(f"the stored texts begin with the prefix {prefix!r} already, and the model puts it before them")
    if compared.tolerance.loose:
        factory = store.info.details.get("factory", store.info.index_type)
        doubts.append(f"the index ({factory}) is lossy: small changes, such as of few texts, look the same as its loss")
    return doubts
