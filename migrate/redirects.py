"""Decides whether to follow a server's redirect. The callers send the requests."""

from __future__ import annotations

from urllib.parse import SplitResult, urljoin, urlsplit

from migrate.errors import RemoteError


def check_redirect(address: str, location: str) -> None:
    """Make sure that a redirect stays with the server that was named: texts and keys are meant for it alone.

    Another path is the same server, and so is HTTPS in place of HTTP. Another port is another server.
    """
    try:
        source = urlsplit(address)
        # A server may name the path alone.
        target = urlsplit(urljoin(address, location))
        same = _server(source) == _server(target)
        upgrade = (source.scheme, target.scheme) == ("http", "https") and source.hostname == target.hostname
        names = _name(source), _name(target)
    except ValueError as error:
        raise RemoteError(
            f"{urlsplit(address).netloc} redirects to something that is not an address; try again later"
        ) from error
    if not same and not upgrade:
        raise RemoteError(
            f"{names[0]} redirects to {names[1]}; nothing was sent there: if that is right, name its address instead"
        )


def _server(address: SplitResult) -> tuple[str, str | None, int | None]:
    default = {"http": 80, "https": 443}.get(address.scheme)
    return address.scheme, address.hostname, address.port or default


def _name(address: SplitResult) -> str:
    """Scheme, host and port, without what else an address may hold, such as a password."""
    port = f":{address.port}" if address.port else ""
    return f"{address.scheme}://{address.hostname}{port}"
