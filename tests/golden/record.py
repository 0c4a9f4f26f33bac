"""Runs the commands on a store of each kind and compares all that they give with the golden files beside this one.

    python tests/golden/record.py [--write] [KIND ...]

A golden file has a line for each fact: `data` are exit codes, numbers and what the kind's own client reads of a new
store; `words` is what is said to people. Vectors stand as four weighted sums, which name the document and the place of
each number, and are compared with a tolerance, so that a processor that rounds differently is no difference; what no
command may change stands as a hash of its bits. With `--write` golden files are written anew: CHANGELOG.md says why.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
if __name__ == "__main__":
    rooms = (HERE, *(HERE.parent / name for name in ("kinds", "stores", "embedders")), HERE.parents[1])
    sys.path[:0] = [str(path) for path in rooms]

import numpy as np  # noqa: E402

LONGEST = 8
"""Items of a list that stand in a golden file one by one."""

_SKIPPED = re.compile(
    r"(^|_)(wall|created|updated|version|schema_version|seconds|sha256|hash|duration|pid)($|_)|_s$|_at$"
)
_NORMAL = (
    (r"postgresql://[^\s'\"#,]*", "<server>"),
    (r"(http://)?127\.0\.0\.1:\d+", "<server>"),
    (r"(?<![0-9A-Za-z])(?=\d*[a-f])[0-9a-f]{12,}(?![0-9A-Za-z])|(?<=lead_migrate_)[0-9a-f]{12}", "<hash>"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?", "<time>"),
    (r"\b\d+(\.\d+)?(e-\d+)? ?(ms|s|min|h)\b(?!-)", "<duration>"),
    (r"\b\d+(\.\d+)? (bytes|[kKMG]i?B)\b", "<size>"),
)


class Facts:
    """Facts by name; `words` are what is said to people, `data` all else."""

    def __init__(self):
        self.data, self.words = {}, {}

    def put(self, name, value):
        """A value of any depth, a line for each leaf."""
        if isinstance(value, dict) and "spec" in value and "dim" in value:
            self.put(name, f"{value['spec']}, {value['dim']}")
        elif isinstance(value, dict):
            for key, one in value.items():
                if not _SKIPPED.search(str(key)) and one is not None:
                    self.put(normal(f"{name}.{key}"), one)
        elif isinstance(value, list | tuple):
            self._put_list(name, list(value))
        else:
            self._put_leaf(name, value)

    def _put_list(self, name, items):
        if len(items) <= LONGEST and not any(isinstance(one, dict | list | str) for one in items):
            self.data[name] = [plain(one) for one in items]
        elif len(items) <= LONGEST:
            self.put(f"{name}.count", len(items))
            for number, one in enumerate(items):
                self.put(f"{name}.{number}", one)
        elif all(isinstance(one, dict) for one in items):
            self.put(f"{name}.count", len(items))
            for key in sorted({key for one in items for key in one if not _SKIPPED.search(key)}):
                column = [one.get(key) for one in items]
                if any(isinstance(one, dict | list) for one in column):
                    self.put(f"{name}.*.{key}", {str(row): one for row, one in enumerate(column)})
                else:
                    self.put(f"{name}.*.{key}", column)
        elif all(isinstance(one, int | float | None) for one in items):
            numbers = np.array([0 if one is None else float(one) for one in items])
            self.put(name, {"count": len(items), "sums": weighted(numbers[:, None], map(str, range(len(items))))})
        else:
            text = json.dumps(items, sort_keys=True, default=str)
            self.put(name, {"count": len(items), "all": digest(normal(text))})

    def _put_leaf(self, name, value):
        value = normal(value) if isinstance(value, str) else plain(value)
        is_said = isinstance(value, str) and value.count(" ") > 2
        (self.words if is_said else self.data)[name] = value


def plain(value):
    """A value as JSON has it, numbers with six digits."""
    value = value.item() if isinstance(value, np.generic) else value
    return float(f"{value:.6g}") if isinstance(value, float) else value


def normal(text):
    """The text without what changes from run to run."""
    text = text.replace(str(Path.cwd()), "<root>").replace(str(Path.cwd().parent), "<root>")
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}/[\w.-]+", "<temporary>", text)
    for pattern, word in _NORMAL:
        text = re.sub(pattern, word, text)
    return text


def weighted(vectors, names):
    """Four sums over all numbers, each weighted by the name of its row and by its column."""
    columns = np.random.default_rng(0).uniform(-1, 1, (4, vectors.shape[1]))
    rows = np.array([[random.Random(f"{part} {name}").uniform(-1, 1) for part in range(4)] for name in names])
    values = np.nan_to_num(vectors.astype(np.float64), nan=7, posinf=8, neginf=9)
    return [float(f"{value:.5f}") for value in np.einsum("nd,np,pd->p", values, rows.reshape(-1, 4), columns)]


def digest(value):
    """A short hash of values of any type, types included."""
    found = hashlib.sha256(typed(value).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{found[:8]}-{found[8:16]}"


def typed(value):
    """What tells a value from any other."""
    if isinstance(value, dict):
        return repr({key: typed(one) for key, one in sorted(value.items(), key=repr)})
    if isinstance(value, list | tuple):
        return repr([typed(one) for one in value])
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.tolist()!r}"
    return f"{type(value).__name__}:{value!r}"


class Recorder:
    """Runs commands on the stores of one kind, in the current folder."""

    def __init__(self, golden, stores):
        self.golden, self.stores, self.facts = golden, stores, Facts()

    def run(self, step, *arguments, of_json=None):
        """Run a command; its exit code, what it says, and the JSON that it prints, or some of it."""
        from migrate.cli.main import run

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(argument) for argument in arguments])
        self.facts.put(f"{step}.exit", code)
        self._put_output(f"{step}.out", out.getvalue(), of_json)
        for number, line in enumerate(sentences(err.getvalue())):
            self.facts.words[f"{step}.err.{number}"] = normal(line)
        return code

    def _put_output(self, name, text, of_json):
        try:
            found = json.loads(text)
        except ValueError:
            for number, line in enumerate(sentences(text)):
                self.facts.words[f"{name}.{number}"] = normal(line)
            return
        if of_json is not None:
            found = {key: found[key] for key in of_json if key in found}
        self.facts.put(name, found)

    def look(self, step, location, *, bits=False):
        """All that the kind's own client reads of a store, and the files that it lies in."""
        try:
            records, facts = self.stores.kind.read(location)
        except Exception as error:  # its client says in its own way that nothing is there
            self.facts.put(f"{step}.store", type(error).__name__)
            return
        self.facts.put(f"{step}.store", facts)
        ids = [doc_id for doc_id, _, _ in records]
        self.facts.put(f"{step}.ids", {"count": len(ids), "order": digest(ids)})
        self.facts.put(f"{step}.ids.first", [repr(one)[:40] for one in ids[:5]])
        for name in sorted({name for _, fields, _ in records for name in fields}):
            values = [(doc_id, fields[name]) for doc_id, fields, _ in records if name in fields]
            kinds = Counter(type(value).__name__ for _, value in values)
            found = {"types": " ".join(f"{kind}:{count}" for kind, count in sorted(kinds.items())).replace(" ", ",")}
            found |= {"values": digest(values), "first": typed(values[0][1])[:60]}
            self.facts.put(f"{step}.fields.{name}", found)
        self._put_vectors(f"{step}.vectors", records, bits=bits)
        self.list_files(step, self.stores.kind.files(location))

    def _put_vectors(self, name, records, *, bits):
        kept = [(doc_id, np.asarray(vector)) for doc_id, _, vector in records if vector is not None]
        vectors = np.array([vector for _, vector in kept])
        self.facts.put(name, {"none": len(records) - len(kept), "dtype": str(vectors.dtype), "dim": vectors.shape[1]})
        self.facts.put(f"{name}.sums", weighted(vectors, [doc_id for doc_id, _ in kept]))
        self.facts.put(f"{name}.first", [round(float(value), 4) for value in vectors[0][:4]])
        if bits:
            pairs = sorted((str(doc_id), vector.tobytes().hex()) for doc_id, vector in kept)
            self.facts.put(f"{name}.bits", digest(pairs))

    def list_files(self, step, folder):
        """The files of a folder, and what those of ours in it say."""
        if folder is None or not folder.is_dir():
            return
        names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        names = sorted({re.sub(r"[0-9a-f]{8}[-0-9a-f]{8,}|\d{6,}", "<name>", name) for name in names})
        self.facts.put(f"{step}.files", dict.fromkeys(names, True))
        if (folder / "_lead-migrate").is_dir():
            folder = folder / "_lead-migrate"
        if (folder / "lead-migrate.json").is_file():
            manifest = json.loads((folder / "lead-migrate.json").read_text())
            self.facts.put(f"{step}.manifest", manifest)
        for name in ("confidence.npy", "sources.npy"):
            if (folder / name).is_file():
                values = np.load(folder / name)
                names = [str(row) for row in range(len(values))]
                self.facts.put(f"{step}.{name}", {"dtype": str(values.dtype), "count": len(values)})
                exact = values.dtype.kind != "f"
                found = digest(values.tolist()) if exact else weighted(values.reshape(len(values), -1), names)
                self.facts.put(f"{step}.{name}.values", found)


def sentences(text):
    """Lines as they were before they were wrapped, without bars of progress."""
    found = []
    for line in text.replace("\r", "\n").splitlines():
        if line.startswith("  ") and found:
            found[-1] = f"{found[-1]} {line.strip()}"
        elif line.strip():
            found.append(" ".join(line.split()))
    return found


def compare(golden, now, tolerance):
    """A line for each fact that differs."""
    found = []
    for section in ("data", "words"):
        before, after = golden[section], now[section]
        for name in sorted(before.keys() | after.keys()):
            if name not in after or name not in before:
                found.append(f"{name}: {'gone' if name in before else 'new'}, {before.get(name, after.get(name))!r}")
            elif not alike(before[name], after[name], tolerance):
                found.append(f"{name}: was {before[name]!r}, is {after[name]!r}")
    return found


def alike(before, after, tolerance):
    """Whether two facts are the same; numbers with a fraction may differ a little."""
    if isinstance(before, list) and isinstance(after, list):
        pairs = zip(before, after, strict=False)
        return len(before) == len(after) and all(alike(one, other, tolerance) for one, other in pairs)
    if isinstance(before, bool) or isinstance(after, bool) or before is None or after is None:
        return before is after
    if isinstance(before, float) or isinstance(after, float):
        if not isinstance(before, int | float) or not isinstance(after, int | float):
            return False
        return abs(before - after) <= tolerance + 1e-4 * abs(before)
    return before == after


@contextlib.contextmanager
def own_place(folder):
    """A home, caches and a state of its own, and the current folder."""
    own = {name: str(folder / "home" / name) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    own |= {"HOME": str(folder / "home"), "SOURCE_DATE_EPOCH": "1700000000", "COLUMNS": "100", "LANCE_LOG": "error"}
    before, here = dict(os.environ), Path.cwd()
    (folder / "home").mkdir()
    (folder / "work").mkdir()
    os.environ.update(own)
    os.chdir(folder / "work")
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)


def record(name, folder):
    """All facts of a kind; `folder` is there and empty."""
    import golden_steps
    from golden_kinds import KINDS, Stores

    with contextlib.ExitStack() as ends:
        ends.enter_context(own_place(folder))
        recorder = Recorder(KINDS[name], Stores(KINDS[name], ends))
        golden_steps.take(recorder)
    # as they come out of a file
    return json.loads(json.dumps({"data": recorder.facts.data, "words": recorder.facts.words}))


def golden_path(name):
    """The file of a kind."""
    return HERE / f"{name}.json"


def differences(name, facts):
    """What differs from the golden file."""
    from golden_kinds import KINDS

    return compare(json.loads(golden_path(name).read_text(encoding="utf-8")), facts, KINDS[name].tolerance)


def write(name, facts):
    """Write the golden file."""
    sections = []
    for section in ("data", "words"):
        lines = (f"{json.dumps(fact)}: {json.dumps(value)}" for fact, value in sorted(facts[section].items()))
        sections.append(f'"{section}": {{\n' + ",\n".join(lines) + "\n}")
    golden_path(name).write_text("{" + ",\n".join(sections) + "}\n", encoding="utf-8")


def main():
    """Print what differs."""
    from golden_kinds import KINDS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"all of {', '.join(KINDS)} by default")
    parser.add_argument("--write", action="store_true", help="write the golden files anew")
    parser.add_argument("--keep", action="store_true", help="keep the folders, and say where they are")
    arguments = parser.parse_args()
    if unknown := set(arguments.kinds) - set(KINDS):
        parser.error(f"unknown kind {sorted(unknown)[0]!r}; choose from {', '.join(KINDS)}")
    warnings.simplefilter("ignore")
    good = True
    for name in arguments.kinds or KINDS:
        if (reason := KINDS[name].entry.lacks()) is not None:
            print(f"{name}: skipped, {reason}", flush=True)
            continue
        folder, started = Path(tempfile.mkdtemp(prefix="lead-migrate-golden-")), os.times()
        facts = record(name, folder)
        took = [now - then for now, then in zip(os.times(), started, strict=True)]
        took = f"{sum(map(len, facts.values()))} facts, {took[4]:.1f} s, {sum(took[:4]):.1f} s of a core"
        if arguments.keep:
            print(f"{name}: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        if arguments.write:
            write(name, facts)
            print(f"{name}: written, {took}", flush=True)
            continue
        found = differences(name, facts)
        good = good and not found
        print(f"{name}: {f'{len(found)} differ' if found else 'equal'}, {took}", flush=True)
        for line in found:
            print(f"  {line}", flush=True)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
