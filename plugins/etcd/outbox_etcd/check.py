"""Checks times, members and permissions, for ``outbox check``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from outbox_sdk import AccessDenied, Finding, Level, OutboxError
from outbox_sdk.election import NO_GROUP
from outbox_sdk.tls import Protection, transport_finding

from outbox_etcd.client import connect, translated
from outbox_etcd.options import EtcdOptions, address


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
                granted = client.lease(options.ttl)
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
