"""The options of the elector, as users write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outbox_api import ConfigError, FileText
from outbox_api.election import LeaseTimes, required_group

_LEAST_SESSION = 2.0
"""Seconds: with its default settings, etcd grants no shorter lease."""


@dataclass(frozen=True)
class EtcdOptions(LeaseTimes):
    """Where etcd is, and how to take part in the election.

    Attributes:
        leader_group_id: The name of the election, which the competing processes share; required for an
            election.
        endpoints: The members of the cluster, ``host:port`` each.
        key_prefix: What precedes the election's name in the key.
        user: The user, if etcd has authentication enabled.
        password: The user's password. One in a file is read anew at each connect, as certificates are.
        ca_cert: The file with the authority that signed the servers' certificates. It turns TLS on.
        client_cert: The file with this client's certificate.
        client_key: The file with its key.
    """

    leader_group_id: str | None = None
    endpoints: Sequence[str] = ("localhost:2379",)
    key_prefix: str = "outbox/leader/"
    user: str | None = None
    password: str | FileText | None = field(default=None, repr=False)
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.session_timeout < _LEAST_SESSION:
            raise ConfigError(
                f"etcd grants leases of {_LEAST_SESSION:g} s or more: set sessionTimeout to that or more"
            )
        if not self.endpoints:
            raise ConfigError("endpoints must name at least one member of the cluster, as host:port")
        for endpoint in self.endpoints:
            address(endpoint)
        if (self.user is None) != (self.password is None):
            raise ConfigError("user and password must be set together")
        if (self.client_cert is None) != (self.client_key is None):
            raise ConfigError("clientCert and clientKey must be set together")
        if self.client_cert is not None and self.ca_cert is None:
            raise ConfigError("clientCert needs TLS, which caCert turns on")

    @property
    def key(self) -> str:
        """The key for which the processes compete.

        Raises:
            ConfigError: The election has no name.
        """
        return f"{self.key_prefix}{required_group(self.leader_group_id)}"


def address(endpoint: str) -> tuple[str, int]:
    """Returns host and port of an endpoint."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        shown = endpoint.rpartition("@")[2]  # before it is a password
        raise ConfigError(
            f"an endpoint is written as host:port, not '{shown}'; user and password are options"
        )
    return host, int(port)
