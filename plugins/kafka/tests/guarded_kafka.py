"""A broker that wants a password and permits nothing by itself."""

from __future__ import annotations

from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.process import free_port


class GuardedKafka(KafkaBroker):
    """A broker with a second listener, where clients must know a password and may do nothing."""

    guarded: str

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self.guarded = f"127.0.0.1:{free_port()}"
        own = f"PLAINTEXT://{self.bootstrap},GUARDED://{self.guarded}"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self._properties |= {
            "listeners": f"{own},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": own,
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT"
            ),
            "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": f'{plain} required user_app="right";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def settings(self, password: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.guarded,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "app",
            "sasl.password": password,
        }
