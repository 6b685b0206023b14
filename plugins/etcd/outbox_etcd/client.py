"""A client of one member of etcd, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from outbox_sdk import AccessDenied, ConfigError, DriverError, FileText, present_text

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
    """Returns a client of the member ``endpoint``, authenticated if there is a user.

    Args:
        options: The options.
        endpoint: The member.
        timeout: Seconds that each request may take.

    Raises:
        DriverError: etcd cannot be reached, or refuses.
        ConfigError: A file with a certificate cannot be read.
    """
    host, port = address(endpoint)
    password = None if options.password is None else present(options.password)
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


def present(password: str | FileText) -> str:
    """Returns the password as it is now.

    Raises:
        DriverError: Its file cannot be read (retryable), perhaps because it is just replaced.
    """
    try:
        return present_text(password)
    except ConfigError as error:
        raise DriverError(str(error), retryable=True) from None


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
