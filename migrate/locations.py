"""Locations of stores and stitches: what is secret in one, and the parts of one that names a table or a collection.

A password is taken out of a location before anything else sees it, and remembered for this process alone: what is
printed, noted in a manifest or compared between runs never has it. Whoever connects asks `secrets_of`.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from migrate.errors import UsageError

_USER: Final = re.compile(r"(://[^/?#@:]*):([^/?#]*)@")
# A password that is a port, as far as one can see, is none; what stands in a parameter is no part of one
_UNQUOTED: Final = re.compile(r"(://[^/?#@:]*):(?!\d+(?:[/?#]|$))([^@]*)@")
_UNQUOTED_AT: Final = re.compile(
    r"(://[^/?#@:]*):(?!\d+(?:[/?#]|$))((?:(?![?&;][\w-]+=).)*@(?:(?![?&;][\w-]+=).)*)@(?=[^@]*#)"
)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SETTING: Final = re.compile(r"([?&;])(password|sslpassword|api[_-]?key|token)=([^&;#]*)([&;]?)", re.IGNORECASE)

_BEHIND_PATH: Final = re.compile(r"[?;](?=[\w.%-]+=)|#")
_IS_PASSWORD: Final = re.compile(r"(?!\[)[^/?#@:]*:(?!\d+(?:[/?#]|$))")
_PARAMETER: Final = re.compile(r"(?<=[?&;])([\w.%-]+)=")
_NEXT_PARAMETER: Final = re.compile(r"&(?=[\w.%-]+=)")
_SECRET_NAME: Final = re.compile(r"key|token|secret|pass|pwd|sig|auth|cred|jwt|session|^code$", re.IGNORECASE)
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
        # Clients get it by itself, not as it has to be spelled in a URL.
        secrets["password"] = unquote(match[2])
        return f"{match[1]}@"

    def take_setting(match: re.Match[str]) -> str:
        name = match[2].lower()
        secrets["api_key" if name.startswith("api") else name] = unquote(match[3])
        if not match[4]:
            return ""
        return match[1]

    # A path may have `:` and `@` in it.
    if "://" not in location:
        return location
    hidden, count = _UNQUOTED_AT.subn(take_password, location, count=1)
    if not count:
        hidden, count = _USER.subn(take_password, location, count=1)
    if not count:  # a password with a slash in it, which no server would understand, is one all the same
        hidden = _UNQUOTED.sub(take_password, location, count=1)
    # Once is not enough: two settings side by side share the mark between them, and matches do not overlap.
    while (shorter := _SETTING.sub(take_setting, hidden)) != hidden:  # behind the # too, where other options stand
        hidden = shorter
    if secrets:
        _secrets.setdefault(hidden.partition("#")[0], {}).update(secrets)
    return hidden


def mask_url(url: str) -> str:
    """Return the URL of a server without user, password, keys and fragment; `scrub` knows them from now on.

    Characters that should be escaped are taken as they were meant: a password ends at the last `@` before the
    parameters, and the value of a key at the next `&NAME=`. In doubt more is hidden.

    >>> mask_url("https://ann:secret@models.example/v1?api-version=1&subscription-key=0123")
    'https://***@models.example/v1?api-version=1&subscription-key=***'
    """
    scheme = match[0] if (match := _URL.match(url)) else ""
    user, address = _without_user(url.removeprefix(scheme))
    address, mark, fragment = address.partition("#")
    values = [user, *user.split(":", 1)[1:], fragment]
    masked = f"{scheme}{MASK}@" if user else scheme
    done = 0
    for name in _PARAMETER.finditer(address):
        if name.start() < done or not _SECRET_NAME.search(unquote(name[1])):
            continue
        masked += address[done : name.end()]
        following = _NEXT_PARAMETER.search(address, name.end())  # a `;` may be a part of the value
        done = following.start() if following else len(address)
        value = address[name.end() : done]
        values.append(value)
        masked += MASK if value else ""
    masked += address[done:]
    masked += f"#{MASK}" if fragment else mark
    forms = {form for value in values if value for form in (value, unquote(value), quote(value, safe=""), quote(value))}
    if user:  # as a client puts it into a header, which a server may quote
        forms.add(b64encode(unquote(user).encode()).decode())
    if forms and masked != url:
        _secrets.setdefault(masked, {}).update({form: form for form in forms})
    return masked


def _without_user(address: str) -> tuple[str, str]:
    """Return user and password of a URL without its scheme, and the rest."""
    head = _BEHIND_PATH.split(address, maxsplit=1)[0]
    user, mark, _ = head.rpartition("@")
    whole, _, behind = address.rpartition("@")
    is_cut = "/" not in head and "/" in behind
    if whole and (is_cut or (not mark and _IS_PASSWORD.match(head))):
        user = whole  # what looks like parameters is in the password
    if not user or user.endswith("/"):  # a folder may be called @NAME
        return "", address
    return user, address[len(user) + 1 :]


def is_escaped(url: str) -> bool:
    """Return whether a client takes a URL as it was meant: it cuts the server at the first `/`, `?` or `#`.

    >>> is_escaped("https://ann:a%23b@models.example/v1"), is_escaped("https://ann:a#b@models.example/v1")
    (True, False)
    """
    _, _, address = url.partition("://")
    user, rest = _without_user(address)
    return not re.search(r"[/?#]", user) and "#" not in rest


def place_of(location: str | Path) -> Path | str:
    """Return a path of this machine, or a URL such as `s3://bucket/folder` without what is secret in it.

    >>> place_of("s3://bucket/stitch/"), place_of("my-stitch"), place_of("file:///tmp/stitch")
    ('s3://bucket/stitch', PosixPath('my-stitch'), PosixPath('/tmp/stitch'))
    """
    if isinstance(location, Path) or not _URL.match(location):
        return Path(location)
    url = hide_secrets(location).rstrip("/")
    scheme, _, path = url.partition("://")
    if scheme in ("file", "local") and path.startswith("/"):
        return Path(unquote(path))
    return url


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
    # A secret of up to three characters would blank out parts of ordinary words, and hide nothing.
    values = {value for secrets in _secrets.values() for value in secrets.values() if len(value) > 3}
    # The longest first: where a shorter one is a part of it, the rest of it would stay to be read.
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def path_remedy(place: str) -> str:
    """Return what to do where nothing is at the path of a location.

    >>> path_remedy("app.db"), path_remedy("app.db?text=body")
    ('check the path', 'options go after a #: write app.db#?text=body')
    """
    path, separator, options = place.partition("?")
    if separator and "=" in options:
        return f"options go after a #: write {path}#?{options}"
    return "check the path"


def options_text(options: Mapping[str, str]) -> str:
    """Return options as they stand in a location, `?NAME=VALUE&...`; nothing where there are none."""
    if not options:
        return ""
    return f"?{urlencode(options, safe='*')}"


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a location after its kind, `PLACE#NAME?OPTION=VALUE&...`.

    `place` is a file, a folder or the URL of a server, `name` a table or a collection, empty where none is named.
    """

    place: str
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_path(cls, text: str) -> Address:
        """Take the location of files apart: what is there under the whole text has neither a name nor options.

        Raises a UsageError where something in the files is named.
        """
        if os.path.lexists(text):
            return cls(text)
        address = cls.parse(text)
        if address.name and os.path.lexists(address.place):
            raise UsageError(f"{text}: a store in files has no tables or collections; leave #{address.name} out")
        return address

    @classmethod
    def parse(cls, text: str) -> Address:
        """Take a location apart.

        >>> Address.parse("shop.db#items?text=title")
        Address(place='shop.db', name='items', options={'text': 'title'})
        """
        ends = [match.start() for match in re.finditer("#", text)]
        if not ends:
            return cls(text)
        # A name may have a # too, and so may a path: of several, the last one after a place that is there, or else the
        # first one behind all folders
        is_there = (end for end in reversed(ends) if Path(text[:end]).exists())
        end = ends[0]
        if len(ends) > 1 and "://" not in text:
            last_folder = text.partition("?")[0].rfind("/")
            end = next(is_there, next((end for end in ends if end > last_folder), ends[-1]))
        location = text[:end]
        fragment = text[end + 1 :]
        name, _, options = fragment.partition("?")
        # An empty value means something: `?metadata=` asks for no column of metadata.
        return cls(location, name, dict(parse_qsl(options, keep_blank_values=True)))
