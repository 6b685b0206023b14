"""Which hosts are this machine itself: a connection to one of them crosses no network."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def is_local(host: str) -> bool:
    """Returns whether a connection to ``host`` stays on this machine; resolves no names.

    Loopback addresses, the name ``localhost`` and names below it, and Unix sockets are local. Any other name
    is remote, even if it resolves to this machine: what it resolves to can change.

    Args:
        host: A name or an IP address without a port, an IPv6 address with or without brackets; or the path of
            a Unix socket or of its folder, or ``@`` and an abstract socket's name. An empty host stands for a
            client's default, a local one.
    """
    name = host.strip().removeprefix("[").removesuffix("]").rstrip(".").lower()
    if not name or name.startswith(("/", "@")):
        return True
    if name in ("localhost", "localhost.localdomain") or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
