"""Checks the election's settings, the API server and the permissions, for ``outbox check``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from outbox_api import AccessDenied, Finding, Level, OutboxError
from outbox_api.election import NO_GROUP
from outbox_api.support.tls import Protection, transport_finding

from outbox_kubernetes.client import Client, Conflict
from outbox_kubernetes.options import KubernetesOptions

_SERVER = "Kubernetes"
_LEASE = "election lease"
_VERBS = ("get", "create", "update")


def findings(options: KubernetesOptions) -> Sequence[Finding]:
    """Checks times, connection, namespace and permissions; raises nothing."""
    found = [*options.findings()]
    try:
        client = Client(options)
    except OutboxError as error:
        cure = "run in a pod with a service account, or set server, tokenFile, caFile and namespace"
        return [*found, Finding(Level.ERROR, _SERVER, str(error), cure)]
    try:
        found += _transport(client)
        if options.leader_group_id is None:
            return [*found, NO_GROUP]
        return [*found, *_permissions(client, options.lease_name)]
    except AccessDenied as error:
        return [
            *found,
            Finding(Level.ERROR, _SERVER, str(error), "give the process a valid token, and a Role"),
        ]
    except OutboxError as error:
        cure = "see that the API server runs, or correct server, caFile and namespace"
        return [*found, Finding(Level.ERROR, _SERVER, str(error), cure)]
    finally:
        client.close()


def _transport(client: Client) -> Sequence[Finding]:
    address = urlsplit(client.server)
    return transport_finding(
        [address.hostname or ""],
        Protection.VERIFIED if address.scheme == "https" else Protection.NONE,
        "server begins with http:",
        "set server to the address that begins with https:, and caFile to the cluster's authority",
        subject="Kubernetes transport",
        crossing="the token crosses",
    )


def _permissions(client: Client, name: str) -> Sequence[Finding]:
    """Asks whether each verb is permitted, and for the namespace, which a review does not look at."""
    missing = [verb for verb in _VERBS if not _is_allowed(client, verb, name)]
    if missing:
        verbs = ", ".join(missing)
        message = f"may not {verbs} the Lease '{name}' in the namespace '{client.namespace}'"
        return [Finding(Level.ERROR, _LEASE, message, client.grant(verbs))]
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
    with suppress(Conflict):  # it exists already
        client.ask("POST", f"{client.leases}?dryRun=All", body)
    reached = Finding(Level.OK, _SERVER, f"reached at {client.server}")
    used = f"the Lease '{name}' in the namespace '{client.namespace}' may be read and written"
    return [reached, Finding(Level.OK, _LEASE, used)]


def _is_allowed(client: Client, verb: str, name: str) -> bool:
    lease = {
        "group": "coordination.k8s.io",
        "resource": "leases",
        "namespace": client.namespace,
        "verb": verb,
    }
    asked = lease if verb == "create" else {**lease, "name": name}  # a creation is permitted for all names
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    answer = client.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
