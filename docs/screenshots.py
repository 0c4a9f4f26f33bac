"""Takes a picture of a page, as docs/images has them, with the Chromium that is installed.

python docs/screenshots.py PAGE.html PICTURE.png [--width 1100] [--height 800] [--section ID] [--dark]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
NARROWEST = 500
"""Chromium has no narrower window; a frame in it has."""


def take_picture(page: Path, picture: Path, *, width: int, height: int, section: str = "", dark: bool = False) -> None:
    """Write a PNG of a page at a width and height in pixels, from a section on."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"none of {', '.join(BROWSERS)} was found; install Chromium")
    with TemporaryDirectory() as folder:
        frame = Path(folder) / "frame.html"
        frame.write_text(
            '<!doctype html><body style="margin:0"><iframe style="border:0;display:block;'
            f'width:{width}px;height:{height}px" srcdoc="{escape(page.read_text(encoding="utf-8"))}"></iframe>'
            f'<script>onload = () => frames[0].document.getElementById("{section}")?.scrollIntoView()</script>',
            encoding="utf-8",
        )
        window = f"--window-size={max(width, NARROWEST)},{height}"
        look = ["--blink-settings=preferredColorScheme=0"] if dark else []
        into = [f"--screenshot={picture.absolute()}", f"--user-data-dir={folder}/profile"]
        subprocess.run([browser, *OPTIONS, window, *look, *into, frame.as_uri()], check=True, capture_output=True)


def main() -> None:
    """Take one picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1100)
    parser.add_argument("--height", type=int, default=800)
    parser.add_argument("--section", default="")
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args()
    take_picture(
        given.page, given.picture, width=given.width, height=given.height, section=given.section, dark=given.dark
    )


if __name__ == "__main__":
    main()
