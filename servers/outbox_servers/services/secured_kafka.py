"""A broker with authentication, authorization and TLS, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outbox_servers.services.cache import Progress, logged
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.process import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from outbox_servers.certificates import Certificate


@dataclass(frozen=True)
class TlsListener:
    """A listener whose connections are encrypted.

    Attributes:
        certificate: The certificate that the broker shows.
        clients: The authority whose certificates clients must show; ``None`` if they need none.
        proxy_port: A port of 127.0.0.1 where the caller forwards connections to the listener, and which
            clients get as the broker's address; ``None`` for the listener's own.
    """

    certificate: Certificate
    clients: Path | None = None
    proxy_port: int | None = None


class SecuredKafka(KafkaBroker):
    """A broker with a second listener: its clients need a password, and have no permissions by default.

    Clients of the first listener need no password and may do everything. So may those of TLS listeners who
    show no certificate. There, the user with the certificate of ``app`` is called ``CN=app``.

    Attributes:
        secured: The address of the second listener.
        encrypted: Name → address of each TLS listener.
    """

    secured: str
    encrypted: Mapping[str, str]

    def __init__(
        self,
        tls: Mapping[str, TlsListener] | None = None,
        properties: Mapping[str, str] | None = None,
        progress: Progress = logged,
    ) -> None:
        """Does not start yet.

        Args:
            tls: Name, in lower case, → listener.
            properties: Server properties, in addition to or instead of those set here.
            progress: Receives lines of text while jars are fetched and the broker starts.
        """
        super().__init__(progress=progress)
        self._tls, self._wanted = dict(tls or {}), dict(properties or {})

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self.secured = f"127.0.0.1:{free_port()}"
        self.encrypted = {name: f"127.0.0.1:{free_port()}" for name in self._tls}
        own = {"PLAINTEXT": self.bootstrap, "SECURED": self.secured}
        bound = own | {name.upper(): address for name, address in self.encrypted.items()}
        shown = bound | {
            name.upper(): f"127.0.0.1:{listener.proxy_port}"
            for name, listener in self._tls.items()
            if listener.proxy_port is not None
        }
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", "SECURED": "SASL_PLAINTEXT"}
        protocols |= dict.fromkeys((name.upper() for name in self._tls), "SSL")
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        self._properties |= {
            "listeners": _listeners(bound | {"CONTROLLER": f"127.0.0.1:{self._controller_port}"}),
            "advertised.listeners": _listeners(shown),
            "listener.security.protocol.map": ",".join(":".join(each) for each in protocols.items()),
            "listener.name.secured.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.secured.plain.sasl.jaas.config": f'{plain} required user_app="right";',
            "listener.name.secured.scram-sha-256.sasl.jaas.config": f"{scram} required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        for name, listener in self._tls.items():
            self._properties |= {
                f"listener.name.{name}.ssl.{key}": value for key, value in _tls(listener).items()
            }
        self._properties |= self._wanted

    def settings(self, password: str) -> dict[str, str]:
        """Returns the settings of a client of the second listener; the valid password is ``right``."""
        return {
            "bootstrap.servers": self.secured,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "app",
            "sasl.password": password,
        }


def _listeners(addresses: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())


def _tls(listener: TlsListener) -> Mapping[str, str]:
    own = {"keystore.type": "PEM", "keystore.location": str(listener.certificate.both)}
    if listener.clients is None:
        return own
    trusted = {"truststore.type": "PEM", "truststore.location": str(listener.clients)}
    return {**own, **trusted, "client.auth": "required"}
