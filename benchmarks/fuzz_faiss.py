"""Spoils FAISS indexes at random and opens them: each is read to the bit as its bytes say, or refused in a sentence.

    python benchmarks/fuzz_faiss.py [COUNT] [SEED] [--case FACTORY NUMBER]

What is read is held, metric, ids and vectors, to the bit, against what FAISS reads from the same spoiled bytes, vector
by vector, in a process of its own (`faiss_judge`), and, for the kinds whose vectors lie plain in the file, against a
second reader of the bytes (`faiss_plain`). A judge that cannot read the bytes says nothing. The outcomes:

- *as written*: the harm fell elsewhere; the vectors are those of the sound index, and no judge sees others;
- *as the file says*: the harm fell on vectors, ids or what decodes them; a judge reads the same, and none others;
- *refused*: one line that names the file, what is wrong and what to do.

Anything else is a defect and is printed with its case: another error, 60 s without an answer, other vectors, or vectors
that no judge vouches for. Prints a line a kind of index and the totals; exits 1 if there was a defect. The largest
child is the one of most resident memory (RUSAGE_CHILDREN; this process's own is the least that the figure can be).
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np
from faiss_judge import Judge
from faiss_plain import Content, UnreadableError, read_plain
from faiss_spoil import FACTORIES, sample, spoiled_case

from migrate.errors import StoreError, VectorError
from migrate.stores import open_store
from migrate.stores.child import end_server

LONGEST_S = 60
AS_WRITTEN, AS_SPOILED, REFUSED = "as written", "as the file says", "refused"
GOOD = (AS_WRITTEN, AS_SPOILED, REFUSED)
METRICS = {"ip": 0, "l2": 1}


class HangError(BaseException):
    """No answer for too long; no Exception, which somebody might take for an answer."""


@dataclass
class Tally:
    """What became of spoiled indexes."""

    outcomes: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    longest_s: float = 0.0

    def add(self, outcome: str, case: str, wall_s: float) -> None:
        """Count an outcome; what is no good one is kept with its case."""
        kind = outcome.partition(":")[0]
        self.outcomes[kind] += 1
        self.longest_s = max(self.longest_s, wall_s)
        if kind not in GOOD:
            self.defects.append(f"{case}: {outcome}")

    def __add__(self, other: Tally) -> Tally:
        longest_s = max(self.longest_s, other.longest_s)
        return Tally(self.outcomes + other.outcomes, self.defects + other.defects, longest_s)


def read(path: Path) -> Content:
    """What the package reads, in batches; rows asked for one by one must be the same."""
    store = open_store(path)
    vectors = [batch.vectors.copy() for batch in store.scan(batch_size=64)]
    rows = np.concatenate([np.empty((0, store.info.dim), np.float32), *vectors])
    taken = store.get(np.arange(store.info.count))
    if rows.tobytes() != taken.vectors.tobytes():
        raise AssertionError("batches and take differ")
    return Content(METRICS[store.info.metric], np.array(list(map(int, taken.ids)), np.int64), rows)


def outcome(path: Path, written: Content, judge: Judge) -> str:
    """Open and read a store: one of the good outcomes, or what is wrong."""
    signal.signal(signal.SIGALRM, hang)
    signal.alarm(LONGEST_S)
    try:
        found = read(path)
    except (StoreError, VectorError) as error:
        clear = "\n" not in str(error) and all(word in str(error) for word in (f"{path}: ", "; "))
        return REFUSED if clear else f"bad message: {error}"
    except HangError:
        return "hang"
    except Exception as error:
        return f"crash: {error!r}"
    finally:
        signal.alarm(0)
    return verdict(found, written, [opinion for opinion in opinions(path, judge) if opinion is not None])


def opinions(path: Path, judge: Judge) -> Iterator[Content | None]:
    """What others find in the same bytes."""
    with suppress(UnreadableError):
        yield read_plain(path.read_bytes())
    yield judge.read(path)


def verdict(found: Content, written: Content, others: list[Content]) -> str:
    """Whether what was found is what the bytes say."""
    if not all(found.same(other) for other in others):
        return "wrong: a judge reads other vectors"
    if found.same(written):
        return AS_WRITTEN
    return AS_SPOILED if others else "wrong: not what was written, and no judge can read it"


def sound(content: bytes, factory: str, path: Path, judge: Judge) -> Content:
    """What a sound index holds by all accounts; where it keeps whole vectors, those that were added."""
    path.write_bytes(content)
    written = judge.read(path)
    if written is None or outcome(path, written, judge) != AS_WRITTEN:
        raise SystemExit(f"{factory}: the sound index is not read as written")
    ids, rows = sample()
    added = Content(written.metric, ids if factory.startswith("IDMap") else ids // 3, rows)
    if factory.endswith("Flat") and not written.same(added):
        raise SystemExit(f"{factory}: the sound index does not hold what was added")
    return written


def fuzz(count: int, seed: int, folder: Path, judge: Judge) -> Iterator[tuple[str, Tally]]:
    """Spoil `count` indexes, equally many of each kind."""
    contents = {factory: judge.build(factory) for factory in FACTORIES}
    path = folder / "index.faiss"
    for factory in FACTORIES:
        tally, written = Tally(), sound(contents[factory], factory, path, judge)
        for number in range(count // len(FACTORIES)):
            path.write_bytes(spoiled_case(contents, factory, seed, number))
            started = time.perf_counter()
            tally.add(
                outcome(path, written, judge), f"{factory} {number} of seed {seed}", time.perf_counter() - started
            )
        yield factory, tally


def totals(tally: Tally) -> str:
    """All of it in a line."""
    end_server()  # children are counted when they have ended
    seen, (written, spoiled, refused) = tally.outcomes, map(tally.outcomes.__getitem__, GOOD)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    return (
        f"{seen.total():,} spoiled: {written} read as written, {spoiled} read as the spoiled file says, "
        f"{refused} refused; {seen['crash']} crashes, {seen['hang']} hangs, {seen['wrong']} wrong, "
        f"{seen['bad message']} unclear; longest {tally.longest_s:.1f} s, largest child {largest} MB"
    )


def hang(_signal: int, _frame: FrameType | None) -> None:
    """End a wait."""
    raise HangError


def replay(factory: str, number: int, seed: int, judge: Judge) -> str:
    """The outcome of one case, whose file is left in the current folder."""
    contents = {factory: judge.build(factory) for factory in FACTORIES}
    path = Path("spoiled.faiss").resolve()
    written = sound(contents[factory], factory, path, judge)
    path.write_bytes(spoiled_case(contents, factory, seed, number))
    return f"{path}: {outcome(path, written, judge)}"


def main() -> None:
    """Fuzz and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=2000)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--case", nargs=2, metavar=("FACTORY", "NUMBER"))
    arguments = parser.parse_args()
    total = Tally()
    with tempfile.TemporaryDirectory() as folder, closing(Judge()) as judge:
        if arguments.case:
            print(replay(arguments.case[0], int(arguments.case[1]), arguments.seed, judge))
            return
        for factory, tally in fuzz(arguments.count, arguments.seed, Path(folder), judge):
            counts = "  ".join(f"{name} {tally.outcomes[name]:4}" for name in GOOD)
            print(f"{factory:18} {counts}  longest {tally.longest_s:5.2f} s", flush=True)
            print("".join(f"  {defect}\n" for defect in tally.defects), end="", flush=True)
            total += tally
        print(f"{totals(total)}; the judge died {judge.deaths} times")
    sys.exit(bool(total.defects))


if __name__ == "__main__":
    main()
