"""Chromium, for tests of pages; those are skipped where it is not installed."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from typing import NamedTuple

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--enable-logging=stderr",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,2000",
)  # fmt: skip

with_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


def browse(tmp_path, path, *arguments):
    options = [*QUIET, f"--user-data-dir={tmp_path / 'profile'}", *arguments, path.as_uri()]
    return subprocess.run([CHROMIUM, *options], capture_output=True, text=True, timeout=120, check=True)


class Question(NamedTuple):
    """What a function of a page's window gives, in a frame of some width."""

    page: str
    script: str
    width: int = 1200
    sandbox: str = "allow-same-origin allow-scripts"

    @property
    def frame(self):
        style = f"border:0;width:{self.width}px;height:2000px"
        return f'<iframe sandbox="{self.sandbox}" style="{style}" srcdoc="{escape(self.page)}"></iframe>'


def ask_browser(tmp_path, questions):
    """The answers to questions by name, of one browser: it takes a second to start."""
    scripts = ",".join(f"({question.script})" for question in questions.values())
    path = tmp_path / "frames.html"
    path.write_text(
        f"<!doctype html>{''.join(question.frame for question in questions.values())}<pre></pre>"
        f"<script>onload = () => {{ const scripts = [{scripts}];"
        "const said = scripts.map((script, place) => script(frames[place].document, frames[place]));"
        'document.querySelector("pre").textContent = JSON.stringify(said); }</script>',
        encoding="utf-8",
    )
    shown = browse(tmp_path, path, "--dump-dom").stdout
    said = json.loads(unescape(re.search(r"<pre>(.*)</pre>", shown, re.DOTALL)[1]))
    return dict(zip(questions, said, strict=True))
