"""Connections to other machines: which are not safe, and what is wrong with a certificate; without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from outbox_api.base.finding import Finding, Level

if TYPE_CHECKING:
    import ssl


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


def host_of(address: str) -> str:
    """Returns the host of ``host``, ``host:port`` or ``scheme://host:port``; IPv6 loses its brackets."""
    address = address.rpartition("://")[2]
    if address.startswith("["):
        return address[1:].partition("]")[0]
    # An IPv6 address without brackets has no port.
    return address if address.count(":") > 1 else address.partition(":")[0]


WRONG_HOST = 62
"""OpenSSL's code for a certificate that is for another host name; all codes: x509_vfy.h."""


class CertificateFault(Enum):
    """Why a certificate cannot be verified; the values are OpenSSL's codes."""

    WRONG_NAME = frozenset({WRONG_HOST, 64})
    EXPIRED = frozenset({10})
    NOT_YET_VALID = frozenset({9})
    UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
    OTHER = frozenset[int]()

    @classmethod
    def of(cls, code: int | None) -> CertificateFault:
        """Returns the fault that OpenSSL calls by this code (``verify_code``); ``OTHER`` for all others."""
        return next((fault for fault in cls if code in fault.value), cls.OTHER)


class Protection(Enum):
    """What protects a connection; the texts say what can still happen to it."""

    NONE = "{crossing} the network to {hosts} in clear"
    ENCRYPTED = (
        "whoever controls the network to {hosts} can pose as the server: its certificate is not verified"
    )
    AUTHORITY = (
        "others with a certificate of the same authority can pose as the server at {hosts}: its name is not "
        "verified"
    )
    VERIFIED = "encrypted, and the server's certificate and name are verified"


def transport_finding(
    hosts: Sequence[str],
    protection: Protection,
    setting: str,
    cure: str,
    *,
    subject: str = "transport",
    crossing: str = "records, and what proves the password, cross",
) -> Sequence[Finding]:
    """Returns what ``outbox check`` says of a client's connections: a finding, or none within this machine.

    Args:
        hosts: The hosts that it may connect to.
        protection: What protects the connections.
        setting: What it is set to, for the reader of a warning: ``sslmode is prefer``.
        cure: What verifies the server.
        subject: The subject of the finding.
        crossing: What crosses the network, with the verb.
    """
    remote = [host for host in hosts if not is_local(host)]
    if not remote:
        return []
    if protection is Protection.VERIFIED:
        return [Finding(Level.OK, subject, protection.value)]
    message = f"{protection.value.format(hosts=', '.join(remote), crossing=crossing)}; {setting}"
    return [Finding(Level.WARNING, subject, message, cure)]


def verification_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Returns why a server's certificate could not be verified, if that is among the causes of an error."""
    import ssl  # noqa: PLC0415 - not every Python has it, and few need it

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error
        seen.add(id(error))
        # PyMySQL keeps the cause in an attribute.
        error = getattr(error, "original_exception", None) or error.__cause__ or error.__context__
    return None


def certificate_cure(code: int | None, authority: str, reason: str = "") -> str:
    """Returns what is wrong with a server's certificate, and what to do about it.

    Args:
        code: OpenSSL's code (``verify_code``); ``None`` if it is not known.
        authority: The setting that names the file of the trusted authorities.
        reason: OpenSSL's own words (``verify_message``), if there are any.
    """
    fault = CertificateFault.of(code)
    if fault is CertificateFault.WRONG_NAME:
        return (
            "the server's certificate is for another host name: connect by a name that it contains, or have "
            "it issued for this one"
        )
    if fault is CertificateFault.EXPIRED:
        return "the server's certificate has expired: renew it on the server"
    if fault is CertificateFault.NOT_YET_VALID:
        return (
            "the server's certificate is not valid yet: correct the clock of this machine, or the certificate"
        )
    if fault is CertificateFault.UNKNOWN_AUTHORITY:
        return (
            f"an unknown authority has signed the server's certificate: set {authority} to the file with the "
            "certificate of the authority that signed it"
        )
    why = f" ({reason})" if reason else ""
    return (
        f"the server's certificate cannot be verified{why}: check its host names, its expiry, and that "
        f"{authority} names the authority that signed it"
    )


def cure_of(error: BaseException, authority: str) -> str:
    """Returns :func:`certificate_cure` for an error of a driver; empty if it is not about a certificate."""
    found = verification_error(error)
    return certificate_cure(found.verify_code, authority, found.verify_message) if found else ""
