"""Chromium, for tests of pages; those are skipped where it is not installed."""

import json
import re
import shutil
import subprocess
from html import escape

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


def ask_browser(tmp_path, page, script, *, width=1200, sandbox="allow-same-origin allow-scripts"):
    """What a function of the page's window gives, in a frame of some width."""
    path = tmp_path / "frame.html"
    path.write_text(
        f'<!doctype html><iframe sandbox="{sandbox}" style="border:0;width:{width}px;height:2000px" '
        f'srcdoc="{escape(page)}"></iframe><pre></pre><script>onload = () => {{'
        f"const page = frames[0].document, say = ({script})(page, frames[0]);"
        'document.querySelector("pre").textContent = JSON.stringify(say); }</script>',
        encoding="utf-8",
    )
    shown = browse(tmp_path, path, "--dump-dom").stdout
    return json.loads(re.search(r"<pre>(.*)</pre>", shown, re.DOTALL)[1].replace("&amp;", "&").replace("&lt;", "<"))
