"""Locations of stores and stitches: what is secret in one, and the parts of one that names a table or a collection.

A password is taken out of a location before anything else sees it, and remembered for this process alone: what is
printed, noted in a manifest or compared between runs never has it. Whoever connects asks `secrets_of`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode

_USER: Final = re.compile(r"(://[^/?#@:]*):([^/?#]*)@")
_UNQUOTED: Final = re.compile(r"(://[^/?#@:]*):(?!\d+(?:[/?#]|$))([^@]*)@")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SETTING: Final = re.compile(r"([?&])(password|sslpassword|api[_-]?key|token)=([^&#]*)(&?)", re.IGNORECASE)

_USER_INFO: Final = re.compile(
    r"^([a-z][a-z0-9+.-]*://|(?![a-z][a-z0-9+.-]*://))([^/?#]*|[^/?#@:]*:(?!\d+(?:[/?#]|$)).*)@", re.IGNORECASE
)
_PARAMETER: Final = re.compile(r"(?<=[?&])([^=&#]*)=([^&#]+)")
_SECRET_NAME: Final = re.compile(r"key|token|secret|passw|pwd|sig|auth|cred", re.IGNORECASE)
MASK: Final = "***"
"""In the place of a secret."""

_secrets: dict[str, dict[str, str]] = {}
"""By the location without them, up to the name of table or collection: one server, one password."""


def hide_secrets(location: str) -> str:
    """Return the location without password and keys, which `secrets_of` knows from now on.

    >>> hide_secrets("pgvector:postgresql://ann:secret@db.example/shop?sslmode=require#items")
    'pgvector:postgresql://ann@db.example/shop?sslmode=require#items'
    """
    secrets: dict[str, str] = {}

    def take_password(match: re.Match[str]) -> str:
        secrets["password"] = unquote(match[2])
        return f"{match[1]}@"

    def take_setting(match: re.Match[str]) -> str:
        name = match[2].lower()
        secrets["api_key" if name.startswith("api") else name] = unquote(match[3])
        return match[1] if match[4] else ""

    if "://" not in location:
        return location
    hidden, count = _USER.subn(take_password, location, count=1)
    if not count:  # a password with a slash in it, which no server would understand, is one all the same
        hidden = _UNQUOTED.sub(take_password, location, count=1)
    while (shorter := _SETTING.sub(take_setting, hidden)) != hidden:  # behind the # too, where other options stand
        hidden = shorter
    if secrets:
        _secrets.setdefault(hidden.partition("#")[0], {}).update(secrets)
    return hidden


def mask_url(url: str) -> str:
    """Return the URL of a server without user, password and keys; `scrub` knows them from now on.

    >>> mask_url("https://ann:secret@models.example/v1?api-version=1&subscription-key=0123")
    'https://***@models.example/v1?api-version=1&subscription-key=***'
    """
    values: list[str] = []

    def mask_user(match: re.Match[str]) -> str:
        values.extend([match[2], *match[2].split(":", 1)[1:]])
        return f"{match[1]}{MASK}@"

    def mask_value(match: re.Match[str]) -> str:
        if not _SECRET_NAME.search(match[1]):
            return match[0]
        values.append(match[2])
        return f"{match[1]}={MASK}"

    masked = _PARAMETER.sub(mask_value, _USER_INFO.sub(mask_user, url, count=1))
    if values and masked != url:
        secrets = {value for typed in values for value in (typed, unquote(typed))}
        _secrets.setdefault(masked, {}).update({value: value for value in secrets})
    return masked


def place_of(location: str | Path) -> Path | str:
    """Return a path of this machine, or a URL such as `s3://bucket/folder` without what is secret in it.

    >>> place_of("s3://bucket/stitch/"), place_of("my-stitch"), place_of("file:///tmp/stitch")
    ('s3://bucket/stitch', PosixPath('my-stitch'), PosixPath('/tmp/stitch'))
    """
    if isinstance(location, Path) or not _URL.match(location):
        return Path(location)
    url = hide_secrets(location).rstrip("/")
    scheme, _, path = url.partition("://")
    return Path(unquote(path)) if scheme in ("file", "local") and path.startswith("/") else url


def secrets_of(location: str) -> Mapping[str, str]:
    """Return the secrets of locations of the same server: `password`, `api_key`, `token` ..."""
    return _secrets.get(location.partition("#")[0], {})


def known_secrets() -> dict[str, dict[str, str]]:
    """Return all of them, for another process of the same run."""
    return {server: dict(secrets) for server, secrets in _secrets.items()}


def remember_secrets(secrets: Mapping[str, Mapping[str, str]]) -> None:
    """Take over what another process knows."""
    for server, secrets_of_server in secrets.items():
        _secrets.setdefault(server, {}).update(secrets_of_server)


def scrub(text: str) -> str:
    """Return a text, such as the message of a server, without any secret that is known."""
    values = {value for secrets in _secrets.values() for value in secrets.values() if len(value) > 3}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def options_text(options: Mapping[str, str]) -> str:
    """Return options as they stand in a location, `?NAME=VALUE&...`; nothing where there are none."""
    return f"?{urlencode(options, safe='*')}" if options else ""


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a location after its kind, `PLACE#NAME?OPTION=VALUE&...`.

    `place` is a file, a folder or the URL of a server, `name` a table or a collection, empty where none is named.
    """

    place: str
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Take a location apart.

        >>> Address.parse("shop.db#items?text=title")
        Address(place='shop.db', name='items', options={'text': 'title'})
        """
        ends = [match.start() for match in re.finditer("#", text)]
        if not ends:
            return cls(text)
        # a name may have a # too, and so may a path: of several, the last one after a place that is there
        is_there = (end for end in reversed(ends) if Path(text[:end]).exists())
        end = ends[0]
        if len(ends) > 1 and "://" not in text:
            end = next(is_there, ends[-1])
        location, fragment = text[:end], text[end + 1 :]
        name, _, options = fragment.partition("?")
        return cls(location, name, dict(parse_qsl(options, keep_blank_values=True)))
