"""Users whom a proxy has authenticated, and names in headers."""

from __future__ import annotations

import logging
from collections.abc import Collection
from ipaddress import IPv6Address, ip_address

from outbox_core.settings.http import EVERYBODY, ProxySettings, is_name
from starlette.requests import Request

from outbox_console.clients import Client, Means, Role
from outbox_console.origins import is_own_host
from outbox_console.requests import RefusedError

log = logging.getLogger("outbox.console")

_BLANKS = " \t"
"""What HTTP permits around a value. Another blank beside a name makes it that of another user."""


class TrustedProxy:
    """Believes a proxy's headers, and nobody else's."""

    def __init__(self, settings: ProxySettings, origin: str | None) -> None:
        self.headers = tuple(filter(None, (settings.user_header, settings.groups_header)))
        self._settings = settings
        self._origin = origin
        self._networks = settings.networks

    def client(self, request: Request) -> Client | None:
        """Returns the user whom the proxy names; ``None`` if there is none, or somebody else names one."""
        if doubt := self.doubt(request):
            log.warning("from %s: %s", _peer(request), doubt)
            return None
        user = _text(request, self._settings.user_header)
        if not user:
            return None
        if not is_own_host(request.headers.get("host", ""), self._origin):
            raise RefusedError(
                403, "the header Host is of another site: have the proxy send the host of http.origin"
            )
        if not is_name(user):
            raise RefusedError(403, f"what {self._settings.user_header} holds can be no user's name")
        return Client(user, role_of(self._settings, user, self._groups(request)), Means.PROXY)

    def doubt(self, request: Request) -> str:
        """Returns why the header with the user does not count; empty if it is not there, or does count."""
        header = self._settings.user_header
        if header not in request.headers or self._trusts(_peer(request)):
            return ""
        return f"{header} does not count, as this address is none of http.proxy.addresses"

    def silence(self, request: Request) -> str:
        """Returns that the proxy has named no user; empty if it has, or if the proxy does not ask."""
        header = self._settings.user_header
        if _text(request, header) or not self._trusts(_peer(request)):
            return ""
        return f"the proxy has named no user in the header {header} (http.proxy.userHeader)"

    def _trusts(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network for network in self._networks)

    def _groups(self, request: Request) -> Collection[str]:
        header = self._settings.groups_header
        groups = "" if header is None else _text(request, header)
        return {group.strip(_BLANKS) for group in groups.split(",")} - {""}


def role_of(settings: ProxySettings, user: str, groups: Collection[str]) -> Role:
    """Returns what a user may do."""
    if {user, EVERYBODY} & set(settings.operators) or set(groups) & set(settings.operator_groups):
        return Role.OPERATOR
    return Role.VIEWER


def _text(request: Request, header: str) -> str:
    """Returns a header's text, in which a proxy may send UTF-8, without the blanks of HTTP around it."""
    return request.headers.get(header, "").encode("latin-1").decode("utf-8", "replace").strip(_BLANKS)


def _peer(request: Request) -> str:
    """Returns the address that the connection comes from, whatever headers say."""
    return request.client.host if request.client is not None else ""
