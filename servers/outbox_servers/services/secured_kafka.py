"""A broker with authentication and authorization, for tests."""

from __future__ import annotations

from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.process import free_port


class SecuredKafka(KafkaBroker):
    """A broker with a second listener: its clients need a password, and have no permissions by default.

    Clients of the first listener need no password and may do everything.

    Attributes:
        secured: The address of the second listener.
    """

    secured: str

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self.secured = f"127.0.0.1:{free_port()}"
        own = f"PLAINTEXT://{self.bootstrap},SECURED://{self.secured}"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self._properties |= {
            "listeners": f"{own},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": own,
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT"
            ),
            "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": f'{plain} required user_app="right";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def settings(self, password: str) -> dict[str, str]:
        """Returns the settings of a client of the second listener; the valid password is ``right``."""
        return {
            "bootstrap.servers": self.secured,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "app",
            "sasl.password": password,
        }
