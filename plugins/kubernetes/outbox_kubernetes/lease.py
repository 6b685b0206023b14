"""The Lease of Kubernetes for which processes compete, as a lease of outbox-api."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from outbox_api import DriverError, OutboxError
from outbox_api.election import LeaseWatch

from outbox_kubernetes.client import Client, Conflict
from outbox_kubernetes.options import KubernetesOptions

_ATTEMPTS = 3


class KubernetesLease:
    """A connection to the Lease; see :class:`outbox_api.Lease`.

    A renewal is one conditional write, of what the last one has returned. What else stands in the Lease,
    such as labels, stays.
    """

    def __init__(self, options: KubernetesOptions, watch: LeaseWatch) -> None:
        """Connects, and reads the Lease once."""
        self._name, self._length, self._watch = options.lease_name, options.whole_seconds, watch
        self._client = Client(options)
        self._path = f"{self._client.leases}/{self._name}"
        self._known: Any = None
        """The Lease as the last answer had it, if nobody else is likely to have changed it."""
        try:
            self._known = self._client.ask("GET", self._path)
            self._client.timeout = options.request_timeout
        except OutboxError:
            self.close()
            raise

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes or renews the lease; see :meth:`outbox_api.Lease.take`."""
        del seconds  # the options have it, in Kubernetes' whole seconds
        for _ in range(_ATTEMPTS):
            found, self._known = self._known or self._client.ask("GET", self._path), None
            if found is not None and not self._may_write(found, holder):
                return None
            try:
                self._known = self._write(found, holder)
            except Conflict:
                continue
            return int(self._known["spec"]["leaseTransitions"])
        raise DriverError(f"the Lease '{self._name}' changes all the time", retryable=True)

    def release(self, holder: str) -> None:
        """Gives the lease up, if ``holder`` has it; see :meth:`outbox_api.Lease.release`."""
        found = self._client.ask("GET", self._path)
        if found is None or _spec(found).get("holderIdentity") != holder:
            return
        spec = {**_spec(found), "holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": _now()}
        try:
            self._client.ask("PUT", self._path, {**found, "spec": spec})
        except Conflict:  # somebody else has it, or an operator has deleted it
            return

    def close(self) -> None:
        """Disconnects; see :meth:`outbox_api.Lease.close`."""
        self._client.close()

    def _may_write(self, found: Any, holder: str) -> bool:
        """Returns whether the Lease is the holder's own, free, or has run out by this process's clock."""
        spec = _spec(found)
        length = max(spec.get("leaseDurationSeconds") or 0, self._length)
        left = self._watch.left(found["metadata"]["resourceVersion"], length)
        return spec.get("holderIdentity") in (holder, None, "") or left <= 0

    def _write(self, found: Any, holder: str) -> Any:
        now, former = _now(), {} if found is None else _spec(found)
        spec = {**former, "leaseDurationSeconds": self._length, "renewTime": now}
        if former.get("holderIdentity") != holder:
            number = (former.get("leaseTransitions") or 0) + 1
            spec |= {"holderIdentity": holder, "acquireTime": now, "leaseTransitions": number}
        if found is not None:
            return self._client.ask("PUT", self._path, {**found, "spec": spec})
        made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
        return self._client.ask("POST", self._client.leases, {**made, "spec": spec})


def _spec(lease: Any) -> dict[str, Any]:
    return lease.get("spec") or {}


def _now() -> str:
    """Returns the time as a Lease has it; nobody's decision depends on it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
