"""What the site has besides the pages of this folder: those at the top of the repository, every option, every function.

MkDocs calls the functions `on_...` while it builds; `.ci/mkdocs.yml` names this file.
"""

from __future__ import annotations

import inspect
import posixpath
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrate.cli.main import cli, leaf_commands

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages at the top of the repository, and what they are called in the site."""


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages of `PAGES`."""
    from mkdocs.structure.files import File

    for path, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn the links of a page into those of the site, and add what is printed from the code."""
    references = {"commands.md": command_reference, "library.md": function_reference, "stores.md": store_reference}
    if reference := references.get(page.file.src_uri):
        markdown += "\n" + reference()
    return site_links(markdown, page.file.src_uri)


def site_links(markdown: str, page: str) -> str:
    """Turn the links of a page, named as in the site, from those between files into those between pages of the site."""
    files = {name: path for path, name in PAGES.items()}
    names = {path: name for name, path in files.items()}
    here = posixpath.dirname(files.get(page, f"docs/{page}"))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, link[2]))
        name = names.get(target, target.removeprefix("docs/"))
        return link[1] + posixpath.relpath(name, posixpath.dirname(page) or ".")

    return re.sub(r"(\]\(|src=\")(?!http|#)([^)\s#\"]+)", moved, markdown)


def command_reference() -> str:
    """Return every command as its `--help` describes it, in Markdown."""
    root = click.Context(cli, info_name="lead-migrate", **cli.context_settings)
    contexts = [root]
    contexts += [click.Context(command, info_name=name, parent=root) for name, command in leaf_commands().items()]
    return "\n\n".join(part for context in contexts for part in _described(context)) + "\n"


def function_reference() -> str:
    """Every function of `migrate` as `help` describes it, in Markdown."""
    import migrate

    parts = ["## Functions"]
    for name in migrate.__all__:
        function = getattr(migrate, name)
        if inspect.isfunction(function):
            signature = inspect.signature(function)
            parameters = [
                parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()
            ]
            call = re.sub(r"<function (\w+) at \w+>", r"\1", str(inspect.Signature(parameters)))
            text = f"migrate.{name}{call} -> {signature.return_annotation}\n\n{inspect.getdoc(function)}"
            parts += [f"### migrate.{name}", _code(text)]
    return "\n\n".join(parts) + "\n"


def store_reference() -> str:
    """Return what each kind of store keeps, and how each kind of index is read, as tables in Markdown."""
    from migrate.stores import registry

    kept = [
        "| store | of other kinds' documents | kept exactly | not kept, or refused | memory |",
        "|---|---|---|---|---|",
    ]
    kinds: Any = registry.built_in_kinds()
    for support, kind in {kind.support: kind for kind in kinds}.items():
        is_written = "yes" if isinstance(kind, registry.WritableKind) else "no"
        cells = (support.store, is_written, support.kept, support.not_kept, support.memory)
        kept.append(f"| {' | '.join(cells)} |")
    indexes = runpy.run_path(str(ROOT / "tests" / "stores" / "faiss_support.py"))["render_table"]()
    return "\n".join(["## What each kind keeps", "", *kept, "", "## How each index is read", "", indexes, ""])


def _described(context: click.Context) -> Iterator[str]:
    command = context.command
    yield f"## {context.command_path}"
    yield inspect.cleandoc(command.help or "")
    yield _code(" ".join([context.command_path, *command.collect_usage_pieces(context)]))
    options = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    rows = [f"| `{names}` | {_cell(text)} |" for names, text in records]
    yield "\n".join(["| option | does |", "|---|---|", *rows])
    _, _, example = (command.epilog or "").partition("Example:\n")
    if example:
        yield f"Example:\n\n{_code(inspect.cleandoc(example))}"


def _cell(text: str) -> str:
    """A text in a table, where a bar would end the cell and `<` begin a tag."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def _code(text: str) -> str:
    return f"```\n{text}\n```"
