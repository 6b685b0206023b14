"""The options of the elector, as users write them, and what the service account of a pod adds to them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from outbox_api import ConfigError, FileText
from outbox_api.election import LeaseTimes, required_group

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds token, authority and namespace of its service account."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_LONGEST_NAME = 253
_HASH_DIGITS = 10


@dataclass(frozen=True)
class KubernetesOptions(LeaseTimes):
    """Where the API server is, and how to take part in the election.

    Attributes:
        leader_group_id: The name of the election, which the competing processes share; required for an
            election.
        server: The API server's address, ``https://host:port``; by default that of the cluster that the
            process runs in, with its service account.
        token_file: The file with the token, read anew at each request; outside of a cluster none by default.
        ca_file: The file with the authority of the server's certificate, read anew at each connect; outside
            of a cluster those of the system by default.
        namespace: The Lease's namespace; by default the pod's own.
    """

    leader_group_id: str | None = None
    server: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    namespace: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server is None:
            return
        parts = urlsplit(self.server)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ConfigError("server is written as https://host:port, without a user")
        if self.namespace is None:
            raise ConfigError("with server, namespace must say where the Lease is")

    @property
    def lease_name(self) -> str:
        """The Lease's name: the election's, made a name that Kubernetes permits, and distinct.

        Raises:
            ConfigError: The election has no name.
        """
        group = required_group(self.leader_group_id)
        if _NAME.fullmatch(group) and len(group) <= _LONGEST_NAME:
            return group
        readable = re.sub(r"[^a-z0-9]+", "-", group.lower())[:50].strip("-")
        return f"{readable or 'outbox'}-{sha256(group.encode()).hexdigest()[:_HASH_DIGITS]}"


def located(options: KubernetesOptions, environment: Mapping[str, str] = os.environ) -> KubernetesOptions:
    """Returns the options, completed by the service account if they name no server."""
    if options.server is not None:
        return replace(options, server=options.server.rstrip("/"))
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError(
            "this process runs in no pod of Kubernetes (KUBERNETES_SERVICE_HOST is not set): set server, "
            "tokenFile, caFile and namespace"
        )
    return replace(
        options,
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        token_file=options.token_file or str(SERVICE_ACCOUNT / "token"),
        ca_file=options.ca_file or str(SERVICE_ACCOUNT / "ca.crt"),
        namespace=options.namespace or FileText((SERVICE_ACCOUNT / "namespace",)).read().strip(),
    )
