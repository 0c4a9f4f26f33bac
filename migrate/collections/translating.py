"""Translations of many collections: each is a store of its own, and what is finished is left as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.collections.members import Collection, Collections
from migrate.errors import StitchError, StoreError, UsageError
from migrate.files import clear_lock
from migrate.locations import hide_secrets
from migrate.steps.base import RunContext
from migrate.steps.translate import Translate
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.all_true import note_content
from migrate.stores.registry import names_kind

if TYPE_CHECKING:
    from migrate.stitch.fitted import FittedStitch
    from migrate.vectors import Progress


@dataclass(frozen=True, slots=True)
class TranslatedCollection:
    """A collection that is translated: its new location, and whether an earlier run has done it."""

    name: str
    location: str
    vectors: int
    true_vectors: int
    earlier: bool

    @property
    def is_all_true(self) -> bool:
        """True if every vector is the new model's own, so that there is nothing to judge."""
        return self.vectors == self.true_vectors

    @property
    def sentence(self) -> str:
        """The vectors that are there now, in words."""
        true = "all" if self.is_all_true else f"{self.true_vectors:,}"
        sentence = f"{self.location}: {self.vectors:,} vectors, {true} of them true ones"
        if self.earlier:
            sentence += ", as an earlier run left it"
        return sentence


def new_location(output: str, member: Collection) -> str:
    """Return where the new store of a collection lies: in a folder, or by what the `*` of the output stands for."""
    output = hide_secrets(output)
    if "*" in output:
        return output.replace("*", member.meant)
    if names_kind(output):
        raise UsageError(f"{output}: each collection gets a store of its own; put a * where its name goes")
    return str(Path(output) / member.file_name)


def load_stitches(folder: Path, collections: Collections) -> dict[str, FittedStitch]:
    """Load the stitch of each collection; StitchError where one has none."""
    fitted = {}
    for member in collections.members:
        path = folder / member.file_name
        if not path.is_dir():
            raise StitchError(
                f"{folder}: there is no stitch for {member.name}; run `collections fit` again, on all of them"
            )
        fitted[member.name] = load_stitch(path)
    return fitted


def translate_collections(
    collections: Collections,
    stitches: dict[str, FittedStitch],
    output: str,
    *,
    force: bool,
    progress: Progress,
) -> Iterator[TranslatedCollection]:
    """Translate one collection after the other, and yield each when it is complete.

    A run that was killed is continued by the same call. Raises as `migrate.translate`.
    """
    locations = {member.name: new_location(output, member) for member in collections.members}
    if len(set(locations.values())) < len(locations):
        raise UsageError(f"{output}: two collections would be one store; put a * where their names differ")
    for member in collections.members:
        fitted = stitches[member.name]
        location = locations[member.name]
        done = None
        if not force:
            done = _finished(member, fitted, location)
        if done is None:
            if not names_kind(location):
                Path(location).parent.mkdir(parents=True, exist_ok=True)
            step = Translate(member.store, fitted, location, force=force)
            step.check()
            result = step.open(RunContext(progress=progress)).execute()
            # `switch` knows a collection that is embedded whole by what is noted of it
            note_content(location)
            done = TranslatedCollection(member.name, location, result.count, result.n_true, earlier=False)
        yield done


def _finished(member: Collection, fitted: FittedStitch, location: str) -> TranslatedCollection | None:
    """Return what an earlier run has made of this collection by this stitch; None where it has not."""
    if not names_kind(location) and not Path(location).exists():
        return None
    try:
        manifest = open_store(location).info.manifest
    except StoreError:
        return None
    # The same rows by the same stitch give the same store, so that nothing else has to be compared
    expected = {"source rows": member.store.snapshot().rows_sha256, **(fitted.manifest.stitch.files or {})}
    if manifest is None or manifest.inputs != expected:
        return None
    if manifest.store.content is None:
        # A run that was killed may not have come to it
        note_content(location)
    # The run that made it was killed between its last file and its lock
    clear_lock(Path(location))
    counts = manifest.counts
    return TranslatedCollection(member.name, location, counts["documents"], counts["true vectors"], earlier=True)
