"""The elector: its options, and outbox-api's elector over a lease of ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from outbox_api import ConfigError, FileText, Finding, Lease
from outbox_api.election import LeaseElector, LeaseTimes, required_group


@dataclass(frozen=True)
class ZooKeeperOptions(LeaseTimes):
    """How to reach ZooKeeper, and how to take part in the election.

    Attributes:
        hosts: The servers, ``host:port`` with commas in between.
        root: The node below which elections have their nodes. It is created if it is missing.
        user: Who authenticates; ``None`` for nobody. With a user, only that user may access the election's
            nodes.
        password: The user's password. Passwords in files are read anew at each connect.
        authentication: ``digest`` for ZooKeeper's own scheme, ``sasl`` for SASL with DIGEST-MD5.
        tls: Whether connections are encrypted.
        ca_file: The authorities that certify servers, in PEM; ``None`` for those of the system.
        certificate_file: This client's certificate, in PEM.
        key_file: Its private key, in PEM.
        key_password: The password of the private key.
        leader_group_id: The election's name, which the competing processes share; required for an election.
    """

    hosts: str = "localhost:2181"
    root: str = "/outbox"
    user: str | None = None
    password: str | FileText | None = field(default=None, repr=False)
    authentication: Literal["digest", "sasl"] = "digest"
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | FileText | None = field(default=None, repr=False)
    leader_group_id: str | None = None

    @property
    def election(self) -> str:
        """The path of the election's node.

        Raises:
            ConfigError: The election has no name.
        """
        return f"{self.root.rstrip('/')}/{quote(required_group(self.leader_group_id), safe=':')}"

    @property
    def request_timeout(self) -> float:
        """Seconds that one request may take: a leader can try again before its lease ends."""
        return self.lease_duration / 3


def refuse_contradictions(options: ZooKeeperOptions) -> None:
    """Checks the options without a connection.

    Raises:
        ConfigError: They cannot be used; the message says why.
    """
    if options.lease_duration <= 0:
        raise ConfigError("the election's heartbeat timeout and session timeout must be longer than 0")
    if not options.root.startswith("/"):
        raise ConfigError(f"root must be the path of a node, such as /outbox, not '{options.root}'")
    if (options.user is None) != (options.password is None):
        raise ConfigError("user and password belong together: set both or none")
    if options.authentication == "sasl" and options.user is None:
        raise ConfigError("authentication: sasl needs a user and a password")
    files = (options.ca_file, options.certificate_file, options.key_file)
    if not options.tls and any(file is not None for file in files):
        raise ConfigError("caFile, certificateFile and keyFile have no effect without tls: true")


def zookeeper_elector(options: ZooKeeperOptions) -> LeaseElector:
    """Makes the elector; does not connect.

    Raises:
        ConfigError: The options contradict each other.
    """
    refuse_contradictions(options)

    def connect() -> Lease:
        from outbox_zookeeper.lease import ZooKeeperLease  # noqa: PLC0415 - the client is imported late

        return ZooKeeperLease(options)

    def check() -> Sequence[Finding]:
        from outbox_zookeeper.check import findings  # noqa: PLC0415 - likewise

        return findings(options)

    return LeaseElector(connect, options, options.leader_group_id or "", check=check)
