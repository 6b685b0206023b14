"""Whether records and passwords cross the network in clear, for ``outbox check``; without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outbox_sdk import Finding
from outbox_sdk.tls import Protection, transport_finding

_OFF = ("false", "f", "0")


def transport_findings(settings: Mapping[str, Any], subject: str) -> Sequence[Finding]:
    """Judges the connections of a client by its settings.

    Args:
        settings: The client's settings by librdkafka's names, as text.
        subject: The subject of the finding.

    Returns:
        One finding; none if all brokers are on this machine.
    """
    protocol = str(settings.get("security.protocol") or "plaintext").lower()
    sasl = protocol.startswith("sasl")
    protection, setting, cure = _judged(settings, protocol, encrypted="sasl_ssl" if sasl else "ssl")
    crossing = "records and what proves the password cross" if sasl else "records cross"
    return transport_finding(_hosts(settings), protection, setting, cure, subject=subject, crossing=crossing)


def _judged(settings: Mapping[str, Any], protocol: str, encrypted: str) -> tuple[Protection, str, str]:
    """Returns what protects the connections, the setting because of which it is no more, and the cure."""
    authority = "set ssl.ca.location to the file of the authority that signed the brokers' certificates"
    if protocol in ("plaintext", "sasl_plaintext"):
        cure = f"set security.protocol to {encrypted}, and {authority}"
        return Protection.NONE, f"security.protocol is {protocol}", cure
    name = "enable.ssl.certificate.verification"
    if str(settings.get(name, "true")).lower() in _OFF:
        return Protection.ENCRYPTED, f"{name} is false", f"remove {name}, and {authority}"
    name = "ssl.endpoint.identification.algorithm"
    if str(settings.get(name, "https")).lower() == "none":
        cure = f"remove {name}; the brokers need certificates for the names that they advertise"
        return Protection.AUTHORITY, f"{name} is none", cure
    return Protection.VERIFIED, "", ""


def _hosts(settings: Mapping[str, Any]) -> Sequence[str]:
    """Returns the hosts of ``bootstrap.servers``, each once, in their order."""
    addresses = str(settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or "")
    return list(dict.fromkeys(_host(each.strip()) for each in addresses.split(",") if each.strip()))


def _host(address: str) -> str:
    address = address.rpartition("://")[2]
    if address.startswith("["):
        return address[1:].partition("]")[0]
    # An IPv6 address without brackets has no port.
    return address if address.count(":") > 1 else address.partition(":")[0]
