"""The pages: what they link to and the files that they name are there, in the repository and in the site.

The figures of the house are counted right.
"""

import re
import subprocess
import sys
from inspect import isfunction
from pathlib import Path

import click
import house
import mkdocs_hooks
import pytest
import yaml
from browser import CHROMIUM, QUIET, with_browser

import migrate
from migrate.cli.main import leaf_commands
from migrate.cli.verdict import EXIT_CODES
from migrate.outcome import Outcome
from migrate.report.fit import WITHOUT_TEXTS

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request):
    return request.param


def anchors(page):
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head).lower().replace(" ", "-") for head in heads}


def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        if not target.startswith("http"):
            other = page.parent / target if target else page
            assert other.exists(), target
            assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


def test_files_that_are_named_are_there(page):
    today = page.read_text().partition("## Where it is going")[0]
    named = set(re.findall(r"`((?:migrate|tests|benchmarks|docs|examples)/[\w/.]+)`", today))
    assert [name for name in sorted(named) if "NAME" not in name and not (ROOT / name).exists()] == []


SKILL = ROOT / "docs" / "skill" / "SKILL.md"
LLMS = ROOT / "docs" / "llms.txt"


def test_the_commands_that_assistants_are_told_are_there_with_their_options():
    commands = leaf_commands()
    text = SKILL.read_text() + LLMS.read_text()
    told = re.findall(r"^ {4}lead-migrate (.+)$", text, re.MULTILINE) + re.findall(r"`lead-migrate ([^`]+)`", text)
    assert len(told) > 8
    for line in told:
        name, *words = line.split()
        options = {name for option in commands[name].params for name in option.opts} | {"-h"}
        assert [word for word in words if word.startswith("-") and word not in options] == [], line


def test_a_skill_says_what_it_is_for_and_what_the_exit_codes_are():
    _, head, text = SKILL.read_text().split("---\n", 2)
    described = yaml.safe_load(head)
    assert described["name"] == "lead-migrate"
    assert 100 < len(described["description"]) < 1024
    for outcome in Outcome:
        assert f"| {EXIT_CODES[outcome]}, {outcome} |" in text


def test_what_is_listed_for_language_models_is_there():
    listed = re.findall(r"\]\(([^)]+)\)", LLMS.read_text())
    assert len(listed) > 8
    assert [name for name in listed if not (LLMS.parent / name).exists()] == []


def test_every_page_can_be_reached_from_the_readme():
    readme = PAGES[0].read_text()
    assert [p.name for p in PAGES[1:] if f"({p.relative_to(ROOT).as_posix()})" not in readme] == []


def test_every_page_is_in_the_navigation_of_the_site():
    def pages(entries):
        for entry in entries:
            ((_, content),) = entry.items()
            yield from [content] if isinstance(content, str) else pages(content)

    nav = yaml.safe_load((ROOT / ".ci" / "mkdocs.yml").read_text())["nav"]
    docs = ROOT / "docs"
    there = {p.relative_to(docs).as_posix() for p in docs.rglob("*.md")} | set(mkdocs_hooks.PAGES.values())
    assert sorted(pages(nav)) == sorted(there)


@pytest.mark.parametrize(
    ("page", "of_the_repository", "of_the_site"),
    [
        ("index.md", "[a](docs/stores.md#b) [c](CHANGELOG.md)", "[a](stores.md#b) [c](changelog.md)"),
        ("index.md", "[a](docs/developers/adding.md)", "[a](developers/adding.md)"),
        ("index.md", '<img src="docs/page.png"> ![h](docs/page.png)', '<img src="page.png"> ![h](page.png)'),
        ("stores.md", "[a](../README.md#f) [b](models.md) `docs/x`", "[a](index.md#f) [b](models.md) `docs/x`"),
        ("developers/adding.md", "[a](../stores.md) [b](formats.md)", "[a](../stores.md) [b](formats.md)"),
        ("developers/adding.md", "[a](../../CONTRIBUTING.md#b)", "[a](../contributing.md#b)"),
        ("stores.md", "[a](https://x.org/a) [b](#c)", "[a](https://x.org/a) [b](#c)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(page, of_the_repository, of_the_site):
    assert mkdocs_hooks.site_links(of_the_repository, page) == of_the_site


def test_every_option_of_every_command_is_in_the_site():
    head, *parts = re.split(r"^## lead-migrate ", mkdocs_hooks.command_reference(), flags=re.MULTILINE)
    assert "| `--config FILE` |" in head
    sections = {part.partition("\n")[0]: part for part in parts}
    commands = leaf_commands()
    assert list(sections) == list(commands)
    for name, section in sections.items():
        options = [p for p in commands[name].params if isinstance(p, click.Option) and not p.hidden]
        rows = re.findall(r"^\| `(.*?)` \| .+ \|$", section, re.MULTILINE)
        assert len(rows) - len(options) in (1, 2)  # and --help, and --help-all where it shows more
        assert [option.opts for option in options if not any(option.opts[-1] in row for row in rows)] == []
        assert f"\nlead-migrate {name}" in section.partition("Example:")[2]


def test_every_function_is_in_the_site():
    reference = mkdocs_hooks.function_reference()
    functions = [name for name in migrate.__all__ if isfunction(getattr(migrate, name))]
    assert "fit" in functions
    assert [name for name in functions if f"### migrate.{name}\n\n```\nmigrate.{name}(" not in reference] == []
    assert "max_cost=5" in reference
    assert " at 0x" not in reference


@pytest.mark.slow
@with_browser
def test_the_search_of_the_site_works_from_disk(tmp_path):
    pytest.importorskip("material")
    site = tmp_path / "site"
    build = ["mkdocs", "build", "--strict", "--quiet", "--config-file", ROOT / ".ci" / "mkdocs.yml", "--site-dir", site]
    subprocess.run([sys.executable, "-m", *build], check=True, capture_output=True, cwd=ROOT)
    options = [*QUIET, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", "--dump-dom"]
    for page in ("index.html", "developers/adding.html"):
        address = f"{(site / page).as_uri()}?q=pgvector"
        shown = subprocess.run([CHROMIUM, *options, address], capture_output=True, text=True, timeout=120, check=True)
        assert re.search(r"\d+ matching documents", shown.stdout)


def test_every_benchmark_has_a_line():
    table = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [p.name for p in (ROOT / "benchmarks").glob("*.py") if f"`{p.name}" not in table] == []


def test_what_fit_says_of_a_store_without_texts_is_what_the_page_prints():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    weak_models = page.partition("From weak models")[2]
    heads = re.search(r"^set and source +(.*)$", weak_models, re.MULTILINE)
    means = re.search(r"^mean {2,}(.*)$", weak_models, re.MULTILINE)
    assert heads and means
    printed = dict(zip(heads[1].split(), means[1].split(), strict=True))
    assert f"{WITHOUT_TEXTS['vectors_alone']:.3f}" == printed["vectors"]
    assert f"{WITHOUT_TEXTS['with_texts_and_tokens']:.3f}" == printed["auto"]
    assert f"mean of `auto` is {WITHOUT_TEXTS['with_texts']:.3f} with `--no-tokens`" in page


def test_the_house_is_counted_right(tmp_path):
    package = tmp_path / "package"
    (package / "room").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "room" / "__init__.py").write_text("from package.room.used import helper\n")
    (package / "room" / "used.py").write_text(
        "def helper(self, one, /, b, *, c, **rest):\n    found = b\n    return found\n"
    )
    (package / "room" / "user.py").write_text("from package.room import used\n\nresult = used.helper(1, 2, c=3)\n")
    (package / "alone.py").write_text("import package.room.user\n\n\ndef main(): ...\n")
    (package / "first.py").write_text(
        "if TYPE_CHECKING:\n    import package.alone\n\nLIMIT = 2\n\n\nclass Part:\n    from package import second\n"
    )
    (package / "second.py").write_text(
        'class Part:\n    """Text."""\n\n\ndef late():\n    from package.first import Part\n\n    return Part\n'
    )
    figures = house.figures(house.Package.read(package))
    assert figures["modules"] == "7"
    assert figures["lines"] == "27"
    assert figures["statements"] == "12"
    assert figures["classes"] == "2"
    assert figures["class names with several meanings"] == "1"
    assert figures["module constants per 1,000 lines"] == f"{1000 * 1 / 27:.1f}"
    assert figures["imports of the package inside functions"] == "1"
    assert figures["circles of imports"] == "1"  # by an import inside a function; one for types alone is none
    assert figures["largest folder, in modules"] == "4 (package/)"
    assert figures["lines a module, median"] == "3"
    assert figures["parameters a function, largest"] == "4"
    assert figures["modules with a single importer"] == "3"  # user, first and second; used has two, alone none
    assert figures["vague names per 1,000 names"] == f"{1000 * 3 / 12:.1f}"  # one, rest, found
    assert figures["one-caller functions per 1,000 lines"] == f"{1000 / 27:.1f}"
