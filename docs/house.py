"""Print the size, the concepts and the circles of a package, read off its syntax trees.

    python docs/house.py [[TITLE:]FOLDER ...]

Prints a Markdown table with a column for each package folder (`migrate` where none is named), under TITLE where there
is one. The table in docs/architecture.md comes from

    git archive --prefix before/ d376f28 migrate | tar -x -C /tmp
    python docs/house.py d376f28:/tmp/before/migrate now:migrate

Only the syntax trees are read; nothing is imported.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles

VAGUE = frozenset(
    (
        "after", "again", "anew", "answers", "aside", "asked", "asking", "before", "beside", "fact", "facts", "found",
        "fresh", "given", "gone", "here", "home", "homes", "hurt", "kept", "known", "lately", "later", "left", "made",
        "marks", "mine", "noted", "one", "other", "others", "own", "part", "parts", "place", "places", "rest", "said",
        "seen", "some", "such", "taken", "there", "thing", "told", "wanted", "what", "where", "words",
    )
)  # fmt: skip
"""Words that say nothing of what is held; a name counts if it is one of them, but for a leading underscore."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Package:
    """The syntax trees of a package, by path."""

    folder: Path
    trees: dict[Path, ast.Module]

    @classmethod
    def read(cls, folder: Path) -> Package:
        """Parse every module below a folder."""
        return cls(folder, {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))})

    @cached_property
    def lines(self) -> list[int]:
        """Lines of each module."""
        return [len(path.read_text().splitlines()) for path in self.trees]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of every module."""
        return [node for tree in self.trees.values() for node in ast.walk(tree)]

    @cached_property
    def functions(self) -> list[Function]:
        """Every function and method, nested ones included."""
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def classes(self) -> Counter[str]:
        """The names of all classes, and how many classes have each."""
        return Counter(node.name for node in self.nodes if isinstance(node, ast.ClassDef))

    def statements(self) -> int:
        """Count statements; imports and texts that stand alone, such as docstrings, are left out."""
        return sum(
            isinstance(node, ast.stmt) and not isinstance(node, (ast.Import, ast.ImportFrom)) and not is_text(node)
            for node in self.nodes
        )

    def constants(self) -> int:
        """Count the constants of modules: names in capitals that are assigned at the top level."""
        targets = [
            target
            for tree in self.trees.values()
            for node in tree.body
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        ]
        return sum(isinstance(target, ast.Name) and target.id.isupper() for target in targets)

    def uses(self, *, types: bool = False) -> dict[str, set[str]]:
        """The modules of the package that each module imports, inside functions too; for types alone if `types`."""
        names = {self._dotted(path): path for path in self.trees}
        used: dict[str, set[str]] = {}
        for name, path in names.items():
            imports = imported_names(self.trees[path], types=types)
            used[name] = {module for imported in imports if (module := resolve(imported, names))} - {name}
        return used

    def circles(self, *, types: bool = False) -> list[list[str]]:
        """Return the groups of modules that import each other in a circle, functions' own imports included."""
        return circles_in(self.uses(types=types))

    def inner_imports(self) -> int:
        """Count imports of the package's own modules inside functions."""
        inside = {id(node): node for function in self.functions for node in ast.walk(function)}
        return sum(
            isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == self.folder.name
            for node in inside.values()
        )

    def largest_folder(self) -> str:
        """The folder with the most modules of its own, and how many these are."""
        name, count = Counter(path.parent for path in self.trees).most_common(1)[0]
        return f"{count} ({name.relative_to(self.folder.parent).as_posix()}/)"

    def parameters(self) -> list[int]:
        """Parameters of each function, without `self` and `cls`."""
        return [count_parameters(function) for function in self.functions]

    def single_importer_modules(self) -> int:
        """Modules, `__init__` left aside, that exactly one other module of the package imports."""
        names = {self._dotted(path): path for path in self.trees}
        importers: Counter[str] = Counter()
        for path, tree in self.trees.items():
            modules = {resolve(imported, names) for imported in imported_names(tree)}
            importers.update(name for name in modules if name and names[name] != path)
        return sum(importers[name] == 1 for name, path in names.items() if path.stem != "__init__")

    def _dotted(self, path: Path) -> str:
        parts = path.relative_to(self.folder.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def vague_share(self) -> float:
        """Share of all bound names that are vague."""
        bound = [name.lstrip("_") for node in self.nodes for name in bound_names(node)]
        return sum(name in VAGUE for name in bound) / len(bound)

    def one_caller_functions(self) -> int:
        """Functions of a module or a class, overridden and special ones left aside, that are named in one place."""
        uses = Counter(name for node in self.nodes for name in used_names(node))
        defined = Counter(function.name for function in self.functions)
        return sum(defined[name] == 1 and uses[name] == 1 and not name.startswith("__") for name in defined)


def count_parameters(function: Function) -> int:
    """How many parameters a function has, without `self` and `cls`."""
    given = function.args
    named = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")]) + sum(map(bool, (given.vararg, given.kwarg)))


def is_text(node: ast.AST) -> bool:
    """Tell whether a statement is a text that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def circles_in(uses: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node, each sorted, of a graph of names."""
    reached = {name: reachable(name, uses) for name in uses}
    components = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in uses}
    return sorted(list(component) for component in components if len(component) > 1)


def reachable(name: str, uses: dict[str, set[str]]) -> set[str]:
    """Return every node that a path leads to from `name`, `name` among them where one leads back."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = uses.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


def imported_names(tree: ast.Module, *, types: bool = False) -> Iterator[str]:
    """Yield the dotted names that a module imports when it runs, and, if `types`, those that only its types need.

    Of `from a import b` it is `a.b`.
    """
    for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test).endswith("TYPE_CHECKING")
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in for_types and not types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def resolve(imported: str, modules: dict[str, Path]) -> str | None:
    """The module that an imported name is, or is in; None for one outside the package."""
    if imported in modules:
        return imported
    parent = imported.rpartition(".")[0]
    return parent if parent in modules else None


def bound_names(node: ast.AST) -> Iterator[str]:
    """The name that a node gives to something."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
        yield node.arg
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name


def used_names(node: ast.AST) -> Iterator[str]:
    """The name that a node refers to; imports do not count."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr


def p90(values: list[int]) -> float:
    """The 90th percentile."""
    return quantiles(values, n=10, method="inclusive")[-1]


def figures(package: Package) -> dict[str, str]:
    """Every figure of the table by its name."""
    lines, parameters = package.lines, package.parameters()
    return {
        "modules": str(len(lines)),
        "lines": f"{sum(lines):,}",
        "statements": f"{package.statements():,}",
        "largest folder, in modules": package.largest_folder(),
        "lines a module, median": f"{median(lines):.0f}",
        "lines a module, p90": f"{p90(lines):.0f}",
        "parameters a function, p90": f"{p90(parameters):.0f}",
        "parameters a function, largest": str(max(parameters)),
        "modules with a single importer": str(package.single_importer_modules()),
        "vague names per 1,000 names": f"{1000 * package.vague_share():.1f}",
        "classes": f"{package.classes.total():,}",
        "class names with several meanings": str(sum(count > 1 for count in package.classes.values())),
        "module constants per 1,000 lines": f"{1000 * package.constants() / sum(lines):.1f}",
        "imports of the package inside functions": str(package.inner_imports()),
        "circles of imports": str(len(package.circles())),
        "circles of imports, types included": str(len(package.circles(types=True))),
        "one-caller functions per 1,000 lines": f"{1000 * package.one_caller_functions() / sum(lines):.1f}",
    }


def main(arguments: list[str]) -> None:
    """Print the table."""
    columns = {}
    for argument in arguments or ["migrate"]:
        title, _, folder = argument.rpartition(":")
        columns[title or folder] = figures(Package.read(Path(folder).resolve()))
    print("|", " | ".join(("", *columns)), "|")
    print("|---|" + "---:|" * len(columns))
    for name in next(iter(columns.values())):
        print("|", " | ".join((name, *(column[name] for column in columns.values()))), "|")


if __name__ == "__main__":
    main(sys.argv[1:])
