"""The options of the elector, as users write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from outbox_api import ConfigError, FileText
from outbox_api.election import LeaseTimes, required_group


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

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.root.startswith("/"):
            raise ConfigError(f"root must be the path of a node, such as /outbox, not '{self.root}'")
        if (self.user is None) != (self.password is None):
            raise ConfigError("user and password belong together: set both or none")
        if self.authentication == "sasl" and self.user is None:
            raise ConfigError("authentication: sasl needs a user and a password")
        files = (self.ca_file, self.certificate_file, self.key_file)
        if not self.tls and any(file is not None for file in files):
            raise ConfigError("caFile, certificateFile and keyFile have no effect without tls: true")

    @property
    def election(self) -> str:
        """The path of the election's node.

        Raises:
            ConfigError: The election has no name.
        """
        return f"{self.root.rstrip('/')}/{quote(required_group(self.leader_group_id), safe=':')}"
