"""Whether a request comes from a page of this server, or from one of another site: without I/O.

A browser adds cookies, and what a proxy knows a user by, to requests that pages of other sites make.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from outbox_api.support.tls import is_local

_PORTS = {"http": 80, "https": 443}


def is_same_origin(headers: Mapping[str, str], own: str | None) -> bool:
    """Returns whether a page of this server made a request, as far as a browser can be believed.

    Args:
        headers: The request's; none of those that count is there twice.
        own: The origin that browsers reach the server at through a proxy; ``None`` if there is none.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = _split(headers.get("origin", ""))
    if origin is None or not origin.scheme:
        return False
    if own is not None and origin.hostname == (here := urlsplit(own)).hostname:
        # A page in clear text of this name may be anybody's who is on the way.
        return (origin.scheme, _place(origin)) == (here.scheme, _place(here))
    host = _split(f"{origin.scheme}://{headers.get('host', '')}")
    return host is not None and bool(host.hostname) and _place(host) == _place(origin)


def is_own_host(host: str, own: str | None) -> bool:
    """Returns whether no page of another site can have a browser ask for this host.

    Such a page can give its own name the address of this server, but it cannot give an address another one.

    Args:
        host: The header ``Host``.
        own: The origin that browsers reach the server at through a proxy; ``None`` if there is none.
    """
    name = host_name(host)
    if own is not None and name == urlsplit(own).hostname:
        return True
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return bool(name) and is_local(name)
    return True


def host_name(host: str) -> str:
    """Returns the name or the address in a header ``Host``; empty if there is none."""
    parts = _split(f"http://{host}")
    return (parts.hostname or "") if parts is not None else ""


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return None if "@" in parts.netloc else parts


def _place(parts: SplitResult) -> tuple[str | None, int | None]:
    return parts.hostname, parts.port or _PORTS.get(parts.scheme)
