"""Folders of this machine with what belongs to a store on a server and has no place there, found by a token.

The token is a random text that the server keeps with the table or collection, and that lies in a file among what
belongs to it; so a store that somebody else has put in its place has none of it.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final
from uuid import uuid4

from migrate.files import atomic_folder, output_errors, read_file, state_folder, sync_path, write_bytes

_NAME: Final = ".token"


def new_token(content: Path) -> str:
    """Make a token for the store whose files are in `content`, and write it there."""
    token = uuid4().hex
    with output_errors(content):
        write_bytes(content / _NAME, token.encode())
    return token


def token_in(content: Path) -> str | None:
    """Return the token in `content`; None if there is none."""
    path = content / _NAME
    if not path.is_file():
        return None
    return read_file(path).decode()


def keep(content: Path, token: str) -> None:
    """Copy the files in `content` to where `kept_folder` finds them; they stay where they are, too."""
    token_folder = _folder_of(token)
    with output_errors(token_folder), atomic_folder(token_folder, force=True) as folder:
        shutil.copytree(content, folder, dirs_exist_ok=True)
        sync_tree(folder)


def kept_folder(token: object) -> Path | None:
    """Return the folder of a store; None if it is not of this tool, or was made on another machine."""
    # The token comes from a server and becomes a path, which `forget` deletes: it must not lead elsewhere.
    if not isinstance(token, str) or not re.fullmatch(r"[0-9a-f]{32}", token):
        return None
    folder = _folder_of(token)
    if not folder.is_dir():
        return None
    return folder


def forget(token: object) -> None:
    """Remove what was kept for a store that is gone."""
    folder = kept_folder(token)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def sync_tree(folder: Path) -> None:
    """Make all files in a folder and below durable, as other libraries leave them."""
    with output_errors(folder):
        for parent, _, names in os.walk(folder):
            for name in names:
                sync_path(Path(parent) / name)
            # The names in it, too: a file is lost to a power cut with its name.
            sync_path(Path(parent))


def _folder_of(token: str) -> Path:
    return state_folder() / "stores" / token
