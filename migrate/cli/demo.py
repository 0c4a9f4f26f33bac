"""`lead-migrate demo`: the whole path on a store that comes with the package."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.audit.locations import Locations
from migrate.audit.query_set import QuerySet
from migrate.cli.next_step import advise_next, advise_recommendation
from migrate.cli.outputs import summary_text
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import advise, show
from migrate.cli.unread import with_unread
from migrate.datasets.beir import write_beir
from migrate.datasets.stdlib import LARGE, SMALL, stdlib_beir, vectors_of
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.files import (
    atomic_file,
    clear_lock,
    copy_file,
    free_path,
    hidden_sibling,
    is_of_killed_run,
    refuse_file,
)
from migrate.pipeline import Run
from migrate.pipeline.job import PAGE, inputs_of, judging_queries, run_job
from migrate.report.audit_sections import audit_sections
from migrate.report.fit import candidates_rows
from migrate.report.terminal import report_text, table
from migrate.steps.base import RunContext
from migrate.stores import open_store

if TYPE_CHECKING:
    from migrate.datasets.stdlib import DemoSet
    from migrate.embedders.base import Embedder
    from migrate.vectors import Progress


# As `benchmarks/large_store.py` prints it; the demo has no room for such a store
_OF_A_LARGE_STORE = (
    "4. a larger store costs less: 50,000 docstrings on the same move are SAFE with 10 % of them embedded"
)


def command(
    hard: bool,
    source_spec: str | None,
    output: Path | None,
    docs: int | None,
    sample: int | None,
    seed: int,
    force: bool,
    verbose: bool,
) -> None:
    """Move a store that comes along, offline, and judge it."""
    old = SMALL
    new = LARGE
    # To the smaller model, where staying is the better deal
    if hard or source_spec:
        old = LARGE
        new = SMALL
    with _folder(output) as folder, progress_bar() as progress:
        for model in (old, new):
            refuse_file(folder / f"{model}.npz", force=force)
        corpus = stdlib_beir(max_docs=docs, seed=seed, with_vectors=True)
        source = _write_inputs(folder, (old, new), corpus, source_spec, force=force, progress=progress)
        spec = f"file:{folder / f'{new}.npz'}"
        target = load_embedder(spec)
        store = open_store(folder / "source")
        size = sample or min(500, store.info.count // 3)
        advise(
            f"1. the store: {store.info.count:,} docstrings of Python's standard library, embedded with "
            f"{source_spec or old} ({store.info.dim} dimensions)",
        )
        advise(
            f"2. the move to {new} ({target.identity.dim} dimensions): embed {size:,} of them again, fit, translate "
            "all, audit",
        )
        questions = QuerySet(corpus.queries, corpus.qrels, "docstrings of the standard library")
        # Not warned of here, as the report has it
        judges = with_unread(questions, store, target, seed=seed, warned=())
        step = Run(
            store,
            target,
            folder,
            judged=judges,
            reference="pool",
            source_model=source,
            sample=size,
            seed=seed,
            force=force,
        )
        step.check()
        inputs = inputs_of(step, store, target, source, RunContext(progress=progress))
        # The model's own name lacks the folder
        locations = Locations(target=("--target", spec))
        done = run_job(inputs, judging_queries(inputs, judges), locations).run()
        page = folder / PAGE
        if output is None:
            # Its commands are of what the demo leaves where it is told to keep something: this folder goes away
            kept_page = page.read_text("utf-8").replace(str(folder), str(free_path(Path("demo"))))
            page = Path("lead-migrate-demo.html")
            page.write_text(kept_page, "utf-8")
    pool = done.report.audit.pool
    if pool is not None and pool.exact:
        advise(
            f"3. the proof: in a store this small, {len(corpus.queries):,} queries at depth {pool.depth} touch every "
            "document; `run` would embed it in full",
        )
    if not (hard or source_spec):
        advise(_OF_A_LARGE_STORE)
    show(summary_text(done.report, page), verdict=True)
    if verbose:
        show(f"\n{table(candidates_rows(done.stitch.selection))}\n")
        show(report_text(audit_sections(done.report)), verdict=True)
    if output is None:
        advise_next("demo", "-o", free_path(Path("demo")), also=("hard", "source_spec", "docs", "sample", "seed"))
    else:
        advise_recommendation(done.report.recommendation)


def _write_inputs(
    folder: Path, models: tuple[str, str], corpus: DemoSet, source_spec: str | None, *, force: bool, progress: Progress
) -> Embedder:
    """Write into a folder what the demo runs on, and return the model of the store that is moved.

    What a killed demo has made stays, as what it ran goes on from there.
    """
    old, _ = models
    resumes = not force and is_of_killed_run(folder / f"{old}.npz")
    store = folder / "source"
    is_embedded = resumes and _is_complete(store)
    source = load_embedder(source_spec or f"file:{vectors_of(old)}", state=store if is_embedded else None)
    for model in models:
        path = folder / f"{model}.npz"
        if not (resumes and _is_complete(path)):
            with atomic_file(path, force=force) as unfinished:
                copy_file(vectors_of(model), unfinished)
    if not is_embedded:
        embed_corpus(lambda: corpus.documents, source, store, force=force, progress=progress)
    if not (resumes and _is_complete(folder / "beir")):
        write_beir(folder / "beir", corpus.documents, corpus.queries, corpus.qrels, force=force)
    return source


def _is_complete(path: Path) -> bool:
    """Return whether an output of a killed demo is there, and nothing is left to do for it."""
    is_there = path.exists() and not hidden_sibling(path, "work").exists()
    if is_there:
        clear_lock(path)
    return is_there


@contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    if output is not None:
        yield output
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
