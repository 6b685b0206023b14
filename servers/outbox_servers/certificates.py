"""Certificates for TLS in tests: an authority of one's own, and what it certifies.

Everything is written as PEM, keys without a password and readable by their owner only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOCAL = ("localhost", "127.0.0.1")
"""The hosts under which the servers of this package are reached."""

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, as files.

    Attributes:
        certificate: The certificate.
        key: Its private key (PKCS 8).
        both: The key and the certificate in one file, as Kafka's brokers read them.
    """

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Certifies servers and clients.

    Attributes:
        certificate: The file with the authority's own certificate, for those that are to trust it.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        """Creates the authority.

        Args:
            folder: An existing folder, for all files. Authorities with different names can share it.
            name: The authority's name, which begins the names of its files.
        """
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = _builder(name, name, self._key.public_key(), self._key.public_key(), expired=False)
        signs = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        signed = own.add_extension(signs, critical=True).sign(self._key, hashes.SHA256())
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, hosts: Sequence[str] = LOCAL, *, expired: bool = False) -> Certificate:
        """Issues a certificate for a server or a client, and writes its files over earlier ones.

        Each call makes a new key. A certificate is valid from yesterday until tomorrow.

        Args:
            name: The common name, which databases and brokers take as the name of a client's user; also in
                the names of the files.
            hosts: The names and IP addresses for which it is valid.
            expired: Whether it was valid until yesterday only.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, self._name, key.public_key(), self._key.public_key(), expired=expired)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(uses, critical=False)
        if hosts:
            alternatives = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        stem = f"{self._name}-{name}"
        return Certificate(
            self._write(f"{stem}.crt", certificate),
            self._write(f"{stem}.key", private),
            self._write(f"{stem}.both", private + certificate),
        )

    def _write(self, name: str, content: bytes) -> Path:
        """Replaces a file at once, as programs that renew certificates do; returns its path."""
        path, new = self._folder / name, self._folder / f"{name}.new"
        new.touch(mode=0o600)
        new.write_bytes(content)
        return new.replace(path)


def _builder(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    *,
    expired: bool,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now - _DAY if expired else now + _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
