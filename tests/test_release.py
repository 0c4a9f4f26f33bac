"""What stands beside the package says the same as its metadata: bounds, versions of Python, workflow, container."""

import configparser
import re
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
    stage = (ROOT / "Dockerfile").read_text().split("\nFROM ")[-1]
    users = re.findall(r"^USER (\w+)$", stage, re.MULTILINE)
    assert len(users) == 1 and users[0] != "root" and re.search(rf"useradd .*\b{users[0]}\b", stage)
    (entry,) = re.findall(r'^ENTRYPOINT \["(\S+)"\]$', stage, re.MULTILINE)
    assert entry in config["options.entry_points"]["console_scripts"]
