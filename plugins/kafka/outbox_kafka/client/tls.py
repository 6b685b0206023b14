"""Finds out why a TLS connection to a broker fails: librdkafka only says that it could not be verified."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from outbox_api.support.tls import CertificateFault

_TIMEOUT: Final = 3.0
_ADDRESS = re.compile(r"ssl://(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:/]+)):(?P<port>\d+)")

_NOT_VERIFIED: Final = "certificate verify failed"
_REFUSED: Final = re.compile(r"alert (?:bad certificate|certificate|unknown ca|handshake failure)")


def why_refused(errors: Iterable[str], settings: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with a certificate, and the cure; ``None`` if the errors do not speak of one.

    Connects to the broker to see its certificate, if that is what could not be verified.
    """
    for error in errors:
        if _NOT_VERIFIED in error and (address := _ADDRESS.search(error)) is not None:
            host, port = address["ipv6"] or address["host"], int(address["port"])
            return broker_problem(host, _verification(host, port, settings))
        if _REFUSED.search(error):
            return client_problem(shown=_shows_certificate(settings))
    return None


def broker_problem(host: str, error: ssl.SSLCertVerificationError | None) -> str:
    """Returns what is wrong with the certificate of a broker, and the cure; ``None`` if it was not seen."""
    whose = f"the certificate of the broker at {host}"
    fault = CertificateFault.of(None if error is None else error.verify_code)
    if fault is CertificateFault.WRONG_NAME:
        return (
            f"{whose} is for another host name: use a name that it contains in bootstrap.servers and in the "
            "brokers' advertised.listeners, or have the broker's certificate issued for this one"
        )
    if fault is CertificateFault.EXPIRED:
        return f"{whose} has expired: renew it on the broker"
    if fault is CertificateFault.NOT_YET_VALID:
        return f"{whose} is not valid yet: correct the clock of this machine, or the broker's certificate"
    if fault is CertificateFault.UNKNOWN_AUTHORITY:
        return (
            f"an unknown authority has signed {whose}: set ssl.ca.location to the file with the authority "
            "that signed it"
        )
    reason = f" ({error.verify_message})" if error is not None else ""
    return (
        f"{whose} cannot be verified{reason}: check its host names, its expiry, and that ssl.ca.location "
        "names the authority that signed it"
    )


def client_problem(*, shown: bool) -> str:
    """Returns why a broker refuses this client's certificate, and the cure; brokers do not tell which."""
    if not shown:
        return (
            "the broker wants a certificate of this client: set ssl.certificate.location and ssl.key.location"
        )
    return (
        "the broker refuses this client's certificate: renew the one of ssl.certificate.location if it has "
        "expired, and make sure that the broker trusts the authority that signed it"
    )


def _shows_certificate(settings: Mapping[str, Any]) -> bool:
    names = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
    return any(settings.get(name) for name in names)


def _verification(host: str, port: int, settings: Mapping[str, Any]) -> ssl.SSLCertVerificationError | None:
    """Connects with the settings' authorities; returns why the broker's certificate cannot be verified."""
    try:
        context = ssl.create_default_context(cadata=settings.get("ssl.ca.pem"))
        if location := settings.get("ssl.ca.location"):
            folder = location if Path(location).is_dir() else None
            context.load_verify_locations(None if folder else location, folder)
        context.check_hostname = settings.get("ssl.endpoint.identification.algorithm") != "none"
        with (
            socket.create_connection((host, port), _TIMEOUT) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return error
    except (OSError, ValueError):
        return None
