"""Moves a store of ten million rows by the command line, kills it, and measures it from outside.

    python benchmarks/ten_million.py make FOLDER [--rows 10000000] [--kind parquet|ivf] [--files 10]
    python benchmarks/ten_million.py fit FOLDER [--stitch KIND]
    python benchmarks/ten_million.py translate FOLDER --by one|two [--to faiss|ivf]
    python benchmarks/ten_million.py kills FOLDER --by one|two [--kills 20] [--seed 0]
    python benchmarks/ten_million.py audit FOLDER
    python benchmarks/ten_million.py table FOLDER

`make` writes a store of 384 dimensions, as Parquet or as an index of FAISS with 1,024 lists and a docs.jsonl. Each
document has a place in a space of 48 dimensions, in one of 2,000 clusters; old and new vectors are two bent images of
that space with noise of their own, so that no linear map leads from one to the other. A local server with OpenAI's
protocol computes the new vector of a text from its number. Queries lie near documents, which judge them.

The other parts run `lead-migrate` in processes of their own and look at these ten times a second: seconds by the clock
and of all cores, the most memory that all of them had at once, the bytes that they wrote, and the most space that the
output and its work folder took. `two` is `--workers 2`. One output is there at a time: `translate` removes the one
before, and `audit` takes the last. Outputs have to be equal, byte for byte, whoever made them. `kills` kills one of the
processes (SIGKILL), whichever comes up, at random moments of the first half of a run, runs the same command again,
begins anew once it has come to its end, and goes on to the last kill.

Everything is under FOLDER: for ten million rows 15 GiB for the store and twice that for the translation. Figures are
added to FOLDER/figures.jsonl, which `table` prints. Exit code 1 if a command failed by itself or an output differs.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

DIM, NEW_DIM = 384, 384
LATENT, CLUSTERS, LISTS, QUERIES = 48, 2_000, 1_024, 300
BLOCK = 1_000
"""Rows that are drawn together."""

GROUP_BLOCKS = 100
"""Blocks of a row group of Parquet."""

SPREAD, NOISE, BEND, QUERY_SPREAD = 0.6, 0.25, 0.7, 0.15
LOOK_S = 0.1
_PAGE, _TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
_GIB = float(1 << 30)
_WORDS = (
    "vector", "store", "index", "query", "model", "text", "term", "rank", "score", "batch", "token", "layer", "space",
    "norm", "cosine", "sample",
)  # fmt: skip
Matrix = NDArray[np.float32]


# The documents.


def _drawn(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@lru_cache(1)
def _centers() -> Matrix:
    return _drawn(0).standard_normal((CLUSTERS, LATENT), np.float32)


@lru_cache(2)
def _images(dim: int, space: int) -> tuple[Matrix, Matrix]:
    """Matrices of a space: one bends the latent places, the other spreads them and what is bent over all dimensions."""
    rng = _drawn(1, space)
    bend = rng.standard_normal((LATENT, LATENT), np.float32) / LATENT**0.5
    return bend, rng.standard_normal((2 * LATENT, dim), np.float32) / dim**0.5


def clusters_of(block: int) -> NDArray[np.int64]:
    """The cluster of each document of a block."""
    return _drawn(2, block).integers(CLUSTERS, size=BLOCK)


def latent_places(block: int) -> Matrix:
    """Where the documents of a block lie, (BLOCK, LATENT)."""
    own = _drawn(3, block).standard_normal((BLOCK, LATENT), np.float32)
    return _centers()[clusters_of(block)] + SPREAD * own


def image_of(latent: Matrix, dim: int, space: int, noise: np.random.Generator) -> Matrix:
    """Unit vectors of a space for latent places."""
    bend, spread = _images(dim, space)
    vectors = np.concatenate([latent, BEND * np.tanh(2 * latent @ bend)], axis=1) @ spread
    scale = NOISE * np.linalg.norm(vectors, axis=1, keepdims=True) / dim**0.5
    vectors += scale * noise.standard_normal(vectors.shape, np.float32)
    unit: Matrix = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def old_vectors(block: int) -> Matrix:
    """The old model's vectors of a block."""
    return image_of(latent_places(block), DIM, 0, _drawn(4, block))


@lru_cache(64)
def new_vectors(block: int) -> Matrix:
    """The new model's vectors of a block."""
    return image_of(latent_places(block), NEW_DIM, 1, _drawn(5, block))


def texts_of(block: int) -> list[str]:
    """Texts of a block: words of the cluster, and the number of the row."""
    first, texts = block * BLOCK, []
    for place, cluster in enumerate(clusters_of(block).tolist()):
        words = " ".join(_WORDS[(cluster >> shift) % len(_WORDS)] for shift in (0, 4, 7))
        texts.append(f"{words} of topic {cluster}, passage {first + place}")
    return texts


def query_row(number: int, rows: int) -> int:
    """The document that a query asks for."""
    return int(_drawn(6, number).integers(rows))


def query_vector(number: int, rows: int) -> Matrix:
    """The new model's vector of a query."""
    row, rng = query_row(number, rows), _drawn(7, number)
    place = latent_places(row // BLOCK)[row % BLOCK] + QUERY_SPREAD * rng.standard_normal(LATENT, np.float32)
    vector: Matrix = image_of(place[None], NEW_DIM, 1, rng)[0]
    return vector


class OldRows:
    """All old vectors, made when they are read."""

    def __init__(self, rows: int) -> None:
        self.shape = (rows, DIM)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Matrix:
        start, stop, _ = rows.indices(len(self))
        first = start // BLOCK
        vectors = np.concatenate([old_vectors(block) for block in range(first, -(-stop // BLOCK))])
        return vectors[start - first * BLOCK : stop - first * BLOCK]


# The store.


@dataclass(frozen=True)
class Setting:
    """Where all is, and what the store is."""

    folder: Path
    rows: int
    kind: str

    @classmethod
    def read(cls, folder: Path) -> Setting:
        """As `make` has left it."""
        content = json.loads((folder / "setting.json").read_text())
        return cls(folder, content["rows"], content["kind"])

    @property
    def source(self) -> str:
        """Location of the store."""
        return f"{'parquet:' if self.kind == 'parquet' else ''}{self.folder / 'store'}"

    @property
    def output(self) -> Path:
        """The folder of the translated store."""
        return self.folder / "new"

    def output_space(self) -> int:
        """Bytes that the output and what is unfinished of it take."""
        total = 0
        for folder in (*self.folder.glob("new"), *self.folder.glob(".new*")):
            for path in folder.rglob("*"):
                with suppress(FileNotFoundError):
                    total += path.stat().st_blocks * 512
        return total

    def remove_output(self) -> None:
        """Remove the output and what is unfinished of it."""
        for path in (*self.folder.glob("new"), *self.folder.glob(".new*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def make_store(setting: Setting, files: int) -> None:
    """Write store and queries."""
    (setting.folder / "store").mkdir(parents=True)
    begun = time.perf_counter()
    if setting.kind == "parquet":
        write_parquet(setting, files)
    else:
        write_ivf(setting)
    write_queries(setting)
    content = json.dumps({"rows": setting.rows, "kind": setting.kind})
    (setting.folder / "setting.json").write_text(content)
    (setting.folder / "figures.jsonl").touch()
    size = sum(path.stat().st_size for path in (setting.folder / "store").iterdir())
    print(f"{setting.rows:,} rows, {size / _GIB:.1f} GiB, {time.perf_counter() - begun:.0f} s")


def write_parquet(setting: Setting, files: int) -> None:
    """Files of equally many rows, each block by block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), DIM))])
    of_file = setting.rows // BLOCK // files
    for number in range(files):
        path = setting.folder / "store" / f"part-{number:03d}.parquet"
        with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
            for first in range(number * of_file, (number + 1) * of_file, GROUP_BLOCKS):
                blocks = range(first, min(first + GROUP_BLOCKS, (number + 1) * of_file))
                ids = [f"doc-{row:08d}" for row in range(blocks.start * BLOCK, blocks.stop * BLOCK)]
                texts = [text for block in blocks for text in texts_of(block)]
                numbers = pa.array(np.concatenate([old_vectors(block) for block in blocks]).ravel())
                vectors = pa.FixedSizeListArray.from_arrays(numbers, DIM)
                writer.write_table(pa.table([pa.array(ids), pa.array(texts), vectors], schema=schema))


def write_ivf(setting: Setting) -> None:
    """An index of FAISS with lists, as FAISS writes one that fits into memory, and the documents beside it."""
    import faiss

    from migrate.stores.faiss.lists import append_lists

    index, vectors = faiss.index_factory(DIM, f"IVF{LISTS},Flat", faiss.METRIC_INNER_PRODUCT), OldRows(setting.rows)
    index.train(vectors[: 64 * LISTS])
    path = setting.folder / "store" / "index.faiss"
    path.touch()
    append_lists(path, index, cast("Any", vectors), np.arange(setting.rows))
    with (path.parent / "docs.jsonl").open("w") as file:
        for block in range(setting.rows // BLOCK):
            for row, text in enumerate(texts_of(block), block * BLOCK):
                file.write(json.dumps({"id": f"doc-{row:08d}", "text": text, "metadata": {}}) + "\n")


def write_queries(setting: Setting) -> None:
    """A BEIR folder; each query is judged by the document near which it lies."""
    folder = setting.folder / "judged"
    (folder / "qrels").mkdir(parents=True)
    with (folder / "queries.jsonl").open("w") as queries, (folder / "qrels" / "test.tsv").open("w") as qrels:
        qrels.write("query-id\tcorpus-id\tscore\n")
        for number in range(QUERIES):
            row = query_row(number, setting.rows)
            words = texts_of(row // BLOCK)[row % BLOCK].partition(",")[0]
            queries.write(json.dumps({"_id": f"q{number}", "text": f"query for {words}, number {number}"}) + "\n")
            qrels.write(f"q{number}\tdoc-{row:08d}\t1\n")


# The new model, in a process of its own.


def vector_of(text: str, rows: int) -> Matrix:
    """The new model's vector of a text, found by the number that it ends with."""
    number = text.rpartition(" ")[2]
    if text.startswith("query for "):
        return query_vector(int(number), rows)
    row = int(number) if number.isdecimal() else 0  # the client asks for a word first
    vector: Matrix = new_vectors(row // BLOCK)[row % BLOCK]
    return vector


def serve_model(rows: int) -> None:
    """Answer OpenAI's protocol, and print at which port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            texts = [texts] if isinstance(texts, str) else texts
            vectors = [base64.b64encode(vector_of(text, rows).tobytes()).decode() for text in texts]
            data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
            tokens = sum(len(text.split()) for text in texts)
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            body = json.dumps({"object": "list", "data": data, "model": "made-up", "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


@contextmanager
def model_server(rows: int) -> Iterator[str]:
    """The URL of the model."""
    command = [sys.executable, __file__, "serve", str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.kill()


# Runs, and what they take.


@dataclass(frozen=True)
class Figures:
    """What a command took."""

    run: str
    rows: int
    code: int
    wall_s: float
    cpu_s: float
    memory_bytes: int
    written_bytes: int
    space_bytes: int
    output_bytes: int


class Tree:
    """A command with all processes that come of it, looked at again and again."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL)
        self._cpu_s: dict[int, float] = {}
        self._written: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        self._of_children: dict[int, int] = {}
        self.peak_bytes = 0

    def look(self) -> list[int]:
        """Note what each process has used so far; return those that are there."""
        fields_of: dict[int, list[str]] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with suppress(OSError):
                    fields_of[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
        parents = {pid: int(fields[1]) for pid, fields in fields_of.items()}
        own = {pid for pid, fields in fields_of.items() if int(fields[3]) == self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in own} - own:
            own |= more
        self._hand_over(gone=self._parents.keys() - fields_of.keys())
        present = sorted(pid for pid in own if pid in fields_of and fields_of[pid][0] != "Z")
        memory = 0
        for pid in present:
            fields = fields_of[pid]
            self._parents[pid] = parents[pid]
            self._cpu_s[pid] = (int(fields[11]) + int(fields[12])) / _TICK
            memory += int(fields[21]) * _PAGE
            with suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/io").read_text().splitlines()
                self._written[pid] = next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
        self.peak_bytes = max(self.peak_bytes, memory)
        return present

    def _hand_over(self, gone: set[int]) -> None:
        """Leave out of what a process has written what Linux adds to it of a child that has ended."""
        for pid in gone:
            parent = self._parents.pop(pid)
            if parent in self._parents:
                self._of_children[parent] = self._of_children.get(parent, 0) + self._written.get(pid, 0)

    @property
    def cpu_s(self) -> float:
        """Seconds of all cores."""
        return sum(self._cpu_s.values())

    @property
    def written_bytes(self) -> int:
        """Bytes for the disk."""
        return sum(self._written.values()) - sum(self._of_children.values())


def environment_of(setting: Setting) -> dict[str, str]:
    """The variables of all commands: one thread a process, a cache of their own, and dates that stay."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    own = {"XDG_CACHE_HOME": str(setting.folder / "cache"), "OPENAI_API_KEY": "none"}
    return {**os.environ, **threads, **own, "SOURCE_DATE_EPOCH": "1700000000"}


def measured(setting: Setting, run: str, arguments: Sequence[str]) -> Figures:
    """Run `lead-migrate` with these arguments to its end."""
    begun, space = time.perf_counter(), 0
    tree = Tree([sys.executable, "-m", "migrate", *arguments], environment_of(setting))
    next_look = begun
    while tree.process.poll() is None:
        tree.look()
        if time.perf_counter() > next_look:
            space, next_look = max(space, setting.output_space()), next_look + 1.0
        with suppress(subprocess.TimeoutExpired):
            tree.process.wait(LOOK_S)
    wall_s = time.perf_counter() - begun
    output_bytes = setting.output_space()
    return Figures(
        run, setting.rows, tree.process.returncode, wall_s, tree.cpu_s, tree.peak_bytes, tree.written_bytes,
        max(space, output_bytes), output_bytes,
    )  # fmt: skip


def note(setting: Setting, figures: Figures, **more: Any) -> None:
    """Add figures to the file, and print them."""
    with (setting.folder / "figures.jsonl").open("a") as file:
        file.write(json.dumps({**asdict(figures), **more}) + "\n")
    print_table([figures])


def print_table(lines: Sequence[Figures]) -> None:
    """A line for each run."""
    print(
        "run                          rows  code     wall s      CPU s  rows/s of wall  memory MiB  written GiB  "
        "space GiB  output GiB"
    )
    for one in lines:
        print(
            f"{one.run:22} {one.rows:10,} {one.code:5} {one.wall_s:10.1f} {one.cpu_s:10.1f} "
            f"{one.rows / one.wall_s:15,.0f} {one.memory_bytes / (1 << 20):11,.0f} {one.written_bytes / _GIB:12.2f} "
            f"{one.space_bytes / _GIB:10.2f} {one.output_bytes / _GIB:11.2f}",
            flush=True,
        )


def fit(setting: Setting, stitch: str) -> bool:
    """Fit a stitch by the server's vectors."""
    shutil.rmtree(setting.folder / "stitch", ignore_errors=True)
    with model_server(setting.rows) as url:
        options = ["--target", "openai:made-up", "--base-url", url, "--price", "0.02", "--yes", "--kind", stitch]
        figures = measured(setting, "fit", ["fit", setting.source, *options, "-o", str(setting.folder / "stitch")])
    note(setting, figures)
    return not figures.code


PROCESSES = {"one": "1", "two": "2"}


def translation(setting: Setting, by: str, to: str) -> list[str]:
    """The arguments of `translate`."""
    output = {"": "{}", "faiss": "faiss:{}", "ivf": f"faiss:{{}}#?index=IVF{LISTS},Flat"}[to].format(setting.output)
    return ["translate", setting.source, str(setting.folder / "stitch"), "-o", output, "--workers", PROCESSES[by], "-q"]


def translate(setting: Setting, by: str, to: str) -> bool:
    """Translate once, undisturbed, and compare with what other runs have made."""
    setting.remove_output()
    figures = measured(setting, f"{to or setting.kind}, {by}", translation(setting, by, to))
    digest = digest_of(setting.output)
    is_equal = has_digest(setting, to, digest)
    note(setting, figures, digest=digest, to=to)
    return not figures.code and is_equal


def digest_of(folder: Path) -> str:
    """A hash of all files of a folder, at any depth; "" where it is not there."""
    hashes = []
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        with path.open("rb") as file:
            hashes.append(f"{path.relative_to(folder)} {hashlib.file_digest(file, 'sha256').hexdigest()}")
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest() if hashes else ""


def undisturbed(setting: Setting, to: str) -> list[dict[str, Any]]:
    """What is noted of translations that came to their end by themselves."""
    lines = map(json.loads, (setting.folder / "figures.jsonl").read_text().splitlines())
    return [line for line in lines if line.get("digest") and line["to"] == to and not line["code"]]


def has_digest(setting: Setting, to: str, digest: str) -> bool:
    """Whether an output is that of the runs before, byte for byte."""
    different = sorted({line["run"] for line in undisturbed(setting, to) if line["digest"] != digest})
    if different:
        print(f"the output differs from that of: {'; '.join(different)}")
    return not different


def kill_at_random(setting: Setting, by: str, kills: int, seed: int) -> bool:
    """Kill translations, run them again, and compare each that comes to its end with the undisturbed one."""
    usual_s = [line["wall_s"] for line in undisturbed(setting, "") if line["run"].endswith(f", {by}")]
    if not usual_s:
        raise SystemExit(f"run `translate {setting.folder} --by {by}` first, for its seconds and its output")
    setting.remove_output()
    rng, killed, completed, failed, lingering_s = random.Random(seed), 0, 0, 0, 0.0
    command, unfinished = [sys.executable, "-m", "migrate", *translation(setting, by, "")], False
    begun, peak = time.perf_counter(), 0
    while killed < kills or unfinished:
        moment = rng.uniform(0, usual_s[0] / 2) if killed < kills else None
        tree, started = Tree(command, environment_of(setting)), time.perf_counter()
        while tree.process.poll() is None:
            present = tree.look()
            if moment is not None and present and time.perf_counter() - started > moment:
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(present), signal.SIGKILL)
                    killed, moment = killed + 1, None
            with suppress(subprocess.TimeoutExpired):
                tree.process.wait(LOOK_S)
        ended = time.perf_counter()
        while tree.look():  # workers notice that their command is gone
            time.sleep(LOOK_S)
        lingering_s, peak = max(lingering_s, time.perf_counter() - ended), max(peak, tree.peak_bytes)
        unfinished = not setting.output.is_dir()  # a run may be killed when all is done
        # a worker that was killed ends the command with a line that says to run it again
        failed += unfinished and tree.process.returncode not in (-signal.SIGKILL, 5, 7)
        if not unfinished:
            completed += 1
            if not has_digest(setting, "", digest_of(setting.output)):
                return False
            setting.remove_output()
    print(
        f"{killed} kills, {completed} runs that came to their end, each with the output of the undisturbed one; "
        f"{failed} that failed by themselves; memory {peak / (1 << 20):,.0f} MiB at most; a process outlived its "
        f"command by {lingering_s:.1f} s at most; {time.perf_counter() - begun:.0f} s"
    )
    return not failed


def audit(setting: Setting) -> bool:
    """Audit the last output by a pool."""
    report = setting.folder / "report.json"
    report.unlink(missing_ok=True)
    with model_server(setting.rows) as url:
        options = ["--base-url", url, "--price", "0.02", "--yes", "--judged", str(setting.folder / "judged")]
        figures = measured(setting, "audit", ["audit", str(setting.output), *options, "--report", str(report)])
    note(setting, figures)
    return figures.code in (0, 1, 3)


def main() -> None:
    """Do one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    if sys.argv[1:2] == ["serve"]:
        serve_model(int(sys.argv[2]))
    make = parts.add_parser("make")
    make.add_argument("--rows", type=int, default=10_000_000, help="a multiple of 1,000 for each file")
    make.add_argument("--files", type=int, default=10)
    make.add_argument("--kind", choices=["parquet", "ivf"], default="parquet")
    fitting = parts.add_parser("fit")
    fitting.add_argument("--stitch", default="auto")
    translating, killing = parts.add_parser("translate"), parts.add_parser("kills")
    translating.add_argument("--to", choices=["faiss", "ivf"], default="")
    translating.add_argument("--by", choices=list(PROCESSES), required=True)
    killing.add_argument("--by", choices=list(PROCESSES), required=True)
    killing.add_argument("--kills", type=int, default=20)
    killing.add_argument("--seed", type=int, default=0)
    for part in (make, fitting, translating, killing, parts.add_parser("audit"), parts.add_parser("table")):
        part.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.part == "make":
        if arguments.rows % (arguments.files * BLOCK):
            parser.error(f"--rows: not a multiple of {arguments.files * BLOCK:,}")
        make_store(Setting(folder, arguments.rows, arguments.kind), arguments.files)
        return
    setting = Setting.read(folder)
    if arguments.part == "table":
        names = Figures.__dataclass_fields__.keys()
        lines = map(json.loads, (folder / "figures.jsonl").read_text().splitlines())
        print_table([Figures(**{name: line[name] for name in names}) for line in lines])
        return
    is_good = {
        "fit": lambda: fit(setting, arguments.stitch),
        "translate": lambda: translate(setting, arguments.by, arguments.to),
        "kills": lambda: kill_at_random(setting, arguments.by, arguments.kills, arguments.seed),
        "audit": lambda: audit(setting),
    }[arguments.part]()
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
