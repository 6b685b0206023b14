"""Whether records and passwords cross the network in clear, for ``outbox check``; without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outbox_sdk import Finding, Level
from outbox_sdk.hosts import is_local

_OFF = ("false", "f", "0")


def transport_findings(settings: Mapping[str, Any], subject: str) -> Sequence[Finding]:
    """Judges the connections of a client by its settings.

    Args:
        settings: The client's settings by librdkafka's names, as text.
        subject: The subject of the finding.

    Returns:
        One finding; none if all brokers are on this machine.
    """
    remote = [host for host in _hosts(settings) if not is_local(host)]
    if not remote:
        return []
    problem = _problem(settings, f"the network to {', '.join(remote)}")
    if problem is None:
        return [Finding(Level.OK, subject, "encrypted, and the brokers' certificates are verified")]
    return [Finding(Level.WARNING, subject, *problem)]


def _problem(settings: Mapping[str, Any], network: str) -> tuple[str, str] | None:
    """Returns what is wrong, and the cure."""
    authority = "set ssl.ca.location to the file of the authority that signed the brokers' certificates"
    protocol = str(settings.get("security.protocol") or "plaintext").lower()
    if protocol in ("plaintext", "sasl_plaintext"):
        sasl = protocol == "sasl_plaintext"
        what = "records and what proves the password cross" if sasl else "records cross"
        message = f"{what} {network} in clear: security.protocol is {protocol}"
        return message, f"set security.protocol to {'sasl_ssl' if sasl else 'ssl'}, and {authority}"
    name = "enable.ssl.certificate.verification"
    if str(settings.get(name, "true")).lower() in _OFF:
        message = f"{name} is false: whoever controls {network} can pose as a broker"
        return message, f"remove {name}, and {authority}"
    name = "ssl.endpoint.identification.algorithm"
    if str(settings.get(name, "https")).lower() == "none":
        message = f"{name} is none: others with a certificate of the same authority can pose as a broker"
        return message, f"remove {name}; the brokers need certificates for the names that they advertise"
    return None


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
