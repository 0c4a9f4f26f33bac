"""What stands beside the package says the same as its metadata: bounds, versions of Python, workflow, container."""

import configparser
import re
import runpy
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
OF_DEVELOPMENT = {"docs", "engines", "frameworks", "lint", "test"}
"""Extras that no user of the package asks for."""


@pytest.fixture(scope="module")
def config():
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "setup.cfg")
    return parsed


@pytest.fixture(scope="module")
def jobs():
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]


def bounds(text):
    """Package and lowest version of each requirement of a text."""
    requirements = [line for line in text.split("\n") if line and not line.startswith("#")]
    return {re.match(r"([\w.-]+)(?:\[\w+\])?[>=]=([\d.]+)", line).groups() for line in requirements}


def test_the_lower_bounds_that_are_tested_are_those_of_the_metadata(config):
    extras = config["options.extras_require"]
    texts = [config["options"]["install_requires"], *(extras[name] for name in extras if name not in OF_DEVELOPMENT)]
    assert bounds((ROOT / ".ci" / "lower-bounds.txt").read_text()) == set.union(*map(bounds, texts))


def test_a_light_installation_has_the_bounds_of_a_full_one(config):
    assert bounds((ROOT / "light.txt").read_text()) < bounds(config["options"]["install_requires"])


def test_each_python_of_the_metadata_is_tested(config, jobs):
    versions = re.findall(r"Python :: (3\.\d+)", config["metadata"]["classifiers"])
    matrix = jobs["quick"]["strategy"]["matrix"]
    assert [setup_python(jobs["check"]), *matrix["python"]] == versions
    assert {entry["python"] for entry in matrix["include"]} <= set(versions)
    assert config["options"]["python_requires"] == f">={versions[0]}"
    assert setup_python(jobs["lower-bounds"]) == versions[0]


def setup_python(job):
    (version,) = [step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    return version


def test_every_job_runs_tiers_that_are_there(jobs):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, job in jobs.items():
        script, *tiers = job["steps"][-1]["run"].split()
        assert script == ".ci/run", name
        assert set(tiers) <= targets, name
    (constraints,) = jobs["lower-bounds"]["env"].values()
    assert (ROOT / constraints.removeprefix("${{ github.workspace }}/")).is_file()


def test_the_container_is_made_of_files_that_it_is_given(config):
    instructions = [line.split() for line in (ROOT / "Dockerfile").read_text().split("\n") if re.match("[A-Z]+ ", line)]
    copied = {name for word, *names in instructions if word == "COPY" for name in names[:-1]}
    copied = {name for name in copied if not name.startswith(("--from", "/"))}
    ignored, *given = (ROOT / ".dockerignore").read_text().split("\n")[1:-1]
    assert ignored == "*"
    assert copied == {name.removeprefix("!") for name in given if name.startswith("!")}
    read = {line.partition(": ")[2] for line in config["metadata"].values() if line.startswith("file: ")}
    licences = config["metadata"]["license_files"].split(", ")
    assert [n for n in ("light.txt", *read, *licences) if not any(fnmatch(n, f"{c}*") for c in copied)] == []


def test_the_container_runs_the_command_as_a_user_without_rights(config):
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1:]
    named = {re.search(r" AS (\S+)", stage)[1]: stage for stage in stages}
    assert list(named)[-1] == "light", "what is built without --target"
    assert named["light"].startswith("base ") and named["full"].startswith("base ")
    stage = named["base"]
    users = re.findall(r"^USER (\w+)$", stage, re.MULTILINE)
    assert len(users) == 1 and users[0] != "root" and re.search(rf"useradd .*\b{users[0]}\b", stage)
    (entry,) = re.findall(r'^ENTRYPOINT \["(\S+)"\]$', stage, re.MULTILINE)
    assert entry in config["options.entry_points"]["console_scripts"]


@pytest.fixture(scope="module")
def notes_of():
    return runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))["notes_of"]


CHANGES = "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- New.\n\n## 0.1.0 (unreleased)\n\n- Old.\n"


def test_the_notes_of_a_release_are_its_section(notes_of):
    assert notes_of("v0.2.0", "0.2.0", CHANGES) == "- New."


@pytest.mark.parametrize(
    ("tag", "version", "told"),
    [
        ("0.2.0", "0.2.0", "should be v0.2.0"),
        ("v0.3.0", "0.2.0", "should be v0.2.0"),
        ("v0.1.0", "0.1.0", "give 0.1.0 its date"),
        ("v0.4.0", "0.4.0", "no section"),
    ],
)
def test_nothing_is_released_by_a_wrong_tag_or_without_a_date(tag, version, told, notes_of):
    with pytest.raises(SystemExit, match=told):
        notes_of(tag, version, CHANGES)


def test_nothing_of_the_repository_runs_where_there_is_a_right_to_publish():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert "permissions" not in jobs["build"]
    publish = jobs["publish"]
    assert publish["permissions"]["id-token"] == "write"
    assert not [step for step in publish["steps"] if "checkout" in step.get("uses", "")]
    assert publish["needs"] == "build"
