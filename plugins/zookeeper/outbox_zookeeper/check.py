"""Checks the election's settings, the servers and their permissions, for ``outbox check``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from outbox_api import AccessDenied, Finding, Level, OutboxError
from outbox_api.election import NO_GROUP
from outbox_api.support.tls import Protection, host_of, transport_finding

from outbox_zookeeper.client import Client, required
from outbox_zookeeper.options import ZooKeeperOptions

_SERVER = "ZooKeeper"
_NODE = "election node"
_SESSION = "election session"


def findings(options: ZooKeeperOptions) -> Sequence[Finding]:
    """Checks times, connection, session and permissions; raises nothing."""
    found = [*options.findings(), *_transport(options)]
    if options.authentication == "sasl" and find_spec("puresasl") is None:
        cure = "install outbox-zookeeper with its extra: sasl"
        return [*found, Finding(Level.ERROR, _SERVER, "SASL needs the package pure-sasl", cure)]
    try:
        client = Client(options)
    except AccessDenied as error:
        return [*found, Finding(Level.ERROR, _SERVER, str(error), required(options))]
    except OutboxError as error:
        cure = "start ZooKeeper, or correct hosts and the settings of TLS"
        return [*found, Finding(Level.ERROR, _SERVER, str(error), cure)]
    try:
        found.append(_node(client, options))
        found.append(Finding(Level.OK, _SERVER, f"reached at {options.hosts}"))
        found.append(_session(client, options))
    finally:
        client.stop()
    return found


def _transport(options: ZooKeeperOptions) -> Sequence[Finding]:
    """Judges the connections to other machines: a client with TLS always verifies the servers."""
    servers = options.hosts.partition("/")[0].split(",")
    return transport_finding(
        [host_of(each.strip()) for each in servers],
        Protection.VERIFIED if options.tls else Protection.NONE,
        "tls is false",
        "set tls to true, with the servers' port for TLS, and caFile to the authority that signed their "
        "certificates",
        subject="ZooKeeper transport",
        crossing="the election crosses",
    )


def _session(client: Client, options: ZooKeeperOptions) -> Finding:
    granted, wanted = client.log.session, options.session_timeout
    message = f"the session timeout is {wanted:g} s, the server grants {granted:g} s"
    if granted < wanted:
        cure = "lower sessionTimeout for all processes, or raise maxSessionTimeout on the servers"
        return Finding(Level.ERROR, _SESSION, message, cure)
    if granted > wanted:
        cure = "raise sessionTimeout, or lower minSessionTimeout on the servers, for the takeover expected"
        return Finding(Level.WARNING, _SESSION, message, cure)
    return Finding(Level.OK, _SESSION, message)


def _node(client: Client, options: ZooKeeperOptions) -> Finding:
    """Checks the permissions on the election's node, and on the nearest one that exists."""
    if not options.leader_group_id:
        return NO_GROUP
    path = options.election
    try:
        while client.ask("exists", path) is None:
            path = path.rpartition("/")[0] or "/"
        client.ask("get_children", path)
        if path != options.election:
            message = f"'{options.election}' does not exist yet; it is created at the start below '{path}'"
            return Finding(Level.OK, _NODE, message)
        client.probe(path)
    except AccessDenied as error:
        return Finding(Level.ERROR, _NODE, str(error), required(options))
    except OutboxError as error:
        return Finding(Level.ERROR, _NODE, str(error), "check again: the connection was lost meanwhile")
    return Finding(Level.OK, _NODE, f"'{path}' can be used")
