"""Write a text as the comment of a pull request, or edit the one that is there: `comment.py FILE MARK`.

MARK, which is not shown, says which comment is edited; another job has another one. The environment is that of a job
of GitHub Actions, with its token in GITHUB_TOKEN.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

MOST_CHARS = 60_000
"""GitHub takes 65,536 characters."""

PAGE = 100
TIMEOUT_S = 30


def call(method: str, url: str, body: dict[str, str] | None = None) -> Any:
    """Call the API, and return what it answers."""
    data = None
    if body is not None:
        data = json.dumps(body).encode()
    headers = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}"}
    with urlopen(Request(url, data, headers, method=method), timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def comments(url: str) -> Iterator[dict[str, Any]]:
    """All comments of a pull request, page by page."""
    number = 1
    while page := call("GET", f"{url}?per_page={PAGE}&page={number}"):
        yield from page
        number += 1


def write_comment(text: str, mark: str) -> str:
    """Write or edit the comment; return its address."""
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_bytes())
    issues = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    here = f"{issues}/{event['pull_request']['number']}/comments"
    hidden = f"<!-- lead-migrate: {mark} -->"
    body = {"body": f"{hidden}\n{text[:MOST_CHARS]}"}
    for comment in comments(here):
        if comment["body"].startswith(hidden):
            return str(call("PATCH", f"{issues}/comments/{comment['id']}", body)["html_url"])
    return str(call("POST", here, body)["html_url"])


if __name__ == "__main__":
    try:
        print(write_comment(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2]))
    except HTTPError as error:
        # A fork's token may only read; the verdict must not hang on whether it can be told here
        print(
            f"::warning title=lead-migrate::no comment was written: {error.code} {error.reason}; give the job "
            "`permissions: pull-requests: write`"
        )
