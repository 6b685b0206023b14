"""A client of one member of etcd, what its errors mean, and what ``outbox check`` reports with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import grpc
from outbox_api import (
    AccessDenied,
    ConfigError,
    DriverError,
    Finding,
    Level,
    OutboxError,
)
from outbox_api.election import NO_GROUP, present_secret
from outbox_api.support.tls import Protection, transport_finding

from outbox_etcd.options import EtcdOptions, address

try:
    import pyetcd as etcd
    from pyetcd.exceptions import Etcd3Exception
except ImportError:  # python-etcd3, from which it was forked, has the same interface
    import etcd3 as etcd
    from etcd3.exceptions import Etcd3Exception

_CHANNEL = (
    # Channels to one address share connection and backoff otherwise: a new one would not connect at once.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

_REFUSED = (
    "etcdserver: user name is empty",
    "etcdserver: authentication failed",
    "authentication is not enabled",
)


CONNECT_TIMEOUT = 5.0
"""Seconds that a request may take before there is anything to lose by waiting."""


def connect(options: EtcdOptions, endpoint: str, timeout: float = CONNECT_TIMEOUT) -> Any:
    """Returns a client of the member ``endpoint``, authenticated if there is a user."""
    host, port = address(endpoint)
    password = None if options.password is None else present_secret(options.password)
    with translated(endpoint):
        try:
            client = etcd.client(
                host=host,
                port=port,
                ca_cert=options.ca_cert,
                cert_cert=options.client_cert,
                cert_key=options.client_key,
                timeout=timeout,
                user=options.user,
                password=password,
                grpc_options=_CHANNEL,
            )
        except OSError as error:
            raise ConfigError(f"etcd: cannot read '{error.filename}': {error.strerror}") from error
        if options.user is not None and options.ca_cert is None:
            # gRPC sends no call credentials without TLS; the client has the token in its metadata, too.
            client.call_credentials = None
            client.watcher._credentials = None  # noqa: SLF001 - python-etcd3 has made it already
        return client


@contextmanager
def translated(endpoint: str) -> Iterator[None]:
    """Raises errors of the client, and of gRPC below it, as ours; they have no secrets."""
    try:
        yield
    except (Etcd3Exception, grpc.RpcError) as error:
        raise _translation(error, endpoint) from error


def _translation(error: Exception, endpoint: str) -> DriverError:
    # The client raises its own errors without a message, while it handles gRPC's.
    cause = error if isinstance(error, grpc.RpcError) else error.__context__
    if not isinstance(cause, grpc.RpcError):
        return DriverError(f"etcd at {endpoint}: {type(error).__name__} {error}", retryable=True)
    code, details = cause.code(), cause.details()
    message = f"etcd at {endpoint}: {details or code.name}"
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return AccessDenied(f"{message}; grant the user's role readwrite on the election's key")
    if any(refusal in (details or "") for refusal in _REFUSED):
        return AccessDenied(f"{message}; correct user and password")
    # An invalid token among them: a restarted member has forgotten it, and the next connection gets another.
    return DriverError(message, retryable=True)


def findings(options: EtcdOptions) -> Sequence[Finding]:
    """Checks each member, and at the first that answers the permissions and the session; raises nothing."""
    found, asked = [*options.findings(), *_transport(options)], False
    if options.user is not None and options.ca_cert is None:
        message = "the password is sent over the network in clear"
        found.append(Finding(Level.WARNING, "etcd password", message, "turn TLS on: set caCert"))
    for endpoint in options.endpoints:
        subject = f"etcd {endpoint}"
        client: Any = None
        try:
            client = connect(options, endpoint)
            with translated(endpoint):
                granted = client.lease(options.whole_seconds)
                found.append(Finding(Level.OK, subject, "reached, and the cluster has a leader"))
                if not asked:
                    asked = True
                    found.append(_session(options, granted.ttl))
                client.revoke_lease(granted.id)
                found.append(_permissions(options, client, endpoint))
        except AccessDenied as error:
            cure = "correct user and password, or enable authentication in etcd"
            found.append(Finding(Level.ERROR, subject, str(error), cure))
        except OutboxError as error:
            cure = "start this member, or correct endpoints and the TLS settings"
            found.append(Finding(Level.ERROR, subject, str(error), cure))
        finally:
            with suppress(Exception):
                client.close()
    return found


def _transport(options: EtcdOptions) -> Sequence[Finding]:
    """Judges the connections to other machines: a client with TLS always verifies the servers."""
    return transport_finding(
        [address(each)[0] for each in options.endpoints],
        Protection.NONE if options.ca_cert is None else Protection.VERIFIED,
        "TLS is off",
        "set caCert to the file of the authority that signed the servers' certificates",
        subject="etcd transport",
        crossing="the election crosses",
    )


def _session(options: EtcdOptions, granted: int) -> Finding:
    subject = "election session"
    if granted <= options.session_timeout:
        return Finding(Level.OK, subject, f"etcd grants leases of {granted} s")
    return Finding(
        Level.WARNING,
        subject,
        f"etcd grants a lease of {granted} s, not {options.session_timeout:g} s; a takeover takes that long",
        f"set sessionTimeout to {granted}s, or lower etcd's --election-timeout if it grants none shorter",
    )


def _permissions(options: EtcdOptions, client: Any, endpoint: str) -> Finding:
    """Asks for all that the election needs, in a transaction whose condition is never met."""
    if options.leader_group_id is None:
        return NO_GROUP
    operations = client.transactions
    try:
        with translated(endpoint):
            client.transaction(
                compare=[operations.version(options.key) < 0],
                success=[operations.put(options.key, "")],
                failure=[operations.get(options.key)],
            )
    except AccessDenied as error:
        cure = f"etcdctl role grant-permission ROLE readwrite '{options.key}'"
        return Finding(Level.ERROR, "election key", str(error), cure)
    return Finding(Level.OK, "election key", f"'{options.key}' may be read and written")
