"""Passwords and keys in the URL of a server: nothing that is printed or written has them, and what is printed runs."""

import re
from pathlib import Path

import pytest
from openai_server import do_not_wait, status

SECRETS = ("pw-of-ann", "key-of-ann")
TARGET = "openai:text-embedding-3-small,dimensions=24"
JUDGED_RUN = "run store --judged judged -o made --reference pool --kind ridge --sample 60"


@pytest.fixture(autouse=True)
def _here(store, judged, server, monkeypatch):
    """The server is named by an option alone."""
    monkeypatch.delenv("OPENAI_BASE_URL")


@pytest.fixture
def url(server):
    """The URL with a user and a password in it."""
    return server.url.replace("://", f"://ann:{SECRETS[0]}@")


def leaks(*texts):
    """The texts and files with a secret."""
    files = [path for path in Path().rglob("*") if path.is_file()]
    found = [path for path in files for secret in SECRETS if secret.encode() in path.read_bytes()]
    return [*found, *(text for text in texts for secret in SECRETS if secret in text)]


@pytest.mark.parametrize(
    "command",
    [
        "fit store --kind ridge --sample 60 -o made",
        "reembed store -o made",
        "assess store",
        "run store --judged judged -o made",
        pytest.param(f"{JUDGED_RUN} --report report.html", marks=pytest.mark.slow),
        pytest.param(f"{JUDGED_RUN} --json", marks=pytest.mark.slow),
        "embed judged --no-chunks -o made",
    ],
)
def test_no_output_has_them_and_the_next_command_runs(command, url, server, monkeypatch, lead_migrate):
    named = command.replace("embed judged", f"embed judged --model {TARGET}")
    named = named if "--model" in named else f"{named} --target {TARGET}"
    ended = lead_migrate(named, "--base-url", url, "--yes" if "assess" not in command else "--seed=0", code=(0, 1, 3))
    assert server.requests or command == "assess store"
    assert leaks(ended.out, ended.err) == []
    if ended.next is not None and TARGET in ended.next:
        assert "set OPENAI_BASE_URL to it" in ended.told and "--base-url" not in ended.next
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        again = lead_migrate(ended.next, code=(0, 1, 3))
        assert leaks(again.out, again.err) == []


@pytest.mark.parametrize(
    ("change", "code", "shown"),
    [
        (
            lambda url: f"{re.sub(r':[0-9]+/', ':1/', url)}?subscription-key={SECRETS[1]}&api-version=2",
            7,
            "?subscription-key=***&api-version=2",
        ),
        (lambda url: re.sub(r":\d+/", ":1/", url), 7, "http://***@127.0.0.1:1/v1 failed"),
        (lambda url: url.removeprefix("http://"), 2, "'***@127.0.0.1:"),
        (lambda url: re.sub(r":\d+/v1", f":1/v1;token={SECRETS[1]}", url), 7, "/v1;token=*** failed"),
        (lambda url: f"{url}#{SECRETS[1]}", 2, "/v1#***'"),
        (lambda url: url.replace(SECRETS[0], f"a#b{SECRETS[0]}"), 2, "write / as %2F, ? as %3F and # as %23"),
        (lambda url: url.replace(SECRETS[0], f"12/{SECRETS[0]}"), 2, "'http://***@127.0.0.1:"),
    ],
)
def test_no_error_has_them(change, code, shown, url, monkeypatch, lead_migrate):
    do_not_wait(monkeypatch)
    ended = lead_migrate(f"fit store --target {TARGET} --sample 60 -o made --base-url", change(url), code=code)
    assert shown in ended.complaint and leaks(ended.err) == []


def test_what_the_server_says_is_searched_for_them_too(url, server, lead_migrate):
    server.faults += 8 * [status(400, f"no such user as ann:{SECRETS[0]}")]  # whatever it is asked
    told = lead_migrate(f"fit store --target {TARGET} --sample 60 -o made --base-url", url, code=7).complaint
    assert "no such user as ***" in told and leaks(told) == []
