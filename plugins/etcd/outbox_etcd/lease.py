"""The key for which processes compete, as a lease."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from outbox_api import DriverError, OutboxError

from outbox_etcd.client import CONNECT_TIMEOUT, connect, translated
from outbox_etcd.options import EtcdOptions

_CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Found:
    """What the key says: who holds it, the number of the leadership, and etcd's lease behind it."""

    holder: str
    number: int
    lease: int


class Connector:
    """Connects to one member after the other, so that a member that is down costs one attempt only."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._next = 0
        self._timeout = CONNECT_TIMEOUT
        """Of a connection's first request; a leader that connects again has no time to lose."""

    def __call__(self) -> EtcdLease:
        """Returns a lease over the next member that answers; used by one thread at a time."""
        endpoints = self._options.endpoints
        for attempt in range(1, len(endpoints) + 1):
            endpoint = endpoints[self._next % len(endpoints)]
            self._next += 1
            try:
                lease = EtcdLease(self._options, endpoint, self._timeout)
            except DriverError as error:
                if not error.retryable or attempt == len(endpoints):
                    raise
            else:
                self._timeout = self._options.request_timeout
                return lease
        raise AssertionError("there is at least one endpoint")


class EtcdLease:
    """A connection to the key; see :class:`outbox_api.election.WatchedLease`.

    What it knows it reads from the key, so a new connection goes on where a former one has failed.
    """

    def __init__(self, options: EtcdOptions, endpoint: str, timeout: float) -> None:
        """Connects, and reads the key once."""
        self._key, self._ttl, self._endpoint = options.key, options.whole_seconds, endpoint
        self._lease: int | None = None
        """etcd's lease behind the key, while this process holds it."""
        self._revision = 0
        """The revision of the last answer; the watch begins behind it."""
        self._changed = Event()
        self._watching = False
        self._watcher: Thread | None = None
        self._client: Any = connect(options, endpoint, timeout)
        try:
            self._look()
            self._client.timeout = options.request_timeout
        except OutboxError:
            self.close()
            raise

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes or renews the lease; see :meth:`outbox_api.Lease.take`.

        A renewal alone is no proof, since the member that leads the cluster answers it without the others.
        The read after it needs a quorum.
        """
        del seconds  # the options have it, in etcd's whole seconds
        with translated(self._endpoint):
            renewed = self._lease is not None and self._renew(self._lease)
            found = self._look()
            if found is None:
                return self._create(holder)
            if found.holder != holder:
                self._lease = None
                return None
            if renewed and found.lease == self._lease:
                return found.number
            # A former connection created the key, and perhaps did not hear of it.
            self._lease = found.lease
            return found.number if self._renew(found.lease) else None

    def wait(self, seconds: float) -> None:
        """Waits until the key is deleted; see :meth:`outbox_api.election.WatchedLease.wait`."""
        if not self._watching:
            self._changed.clear()
            with translated(self._endpoint):
                self._client.add_watch_callback(self._key, self._notice, start_revision=self._revision + 1)
            self._watching = True
            self._watcher = self._client.watcher._callback_thread  # noqa: SLF001 - nothing else tells its end
        if self._changed.wait(seconds):
            self._changed.clear()

    def release(self, holder: str) -> None:
        """Deletes the key, if ``holder`` has it; see :meth:`outbox_api.Lease.release`."""
        with translated(self._endpoint):
            found = self._look()
            if found is not None and found.holder == holder:
                self._client.revoke_lease(found.lease)

    def close(self) -> None:
        """Disconnects; see :meth:`outbox_api.Lease.close`."""
        with suppress(Exception):
            self._client.close()
        if self._watcher is not None:
            self._watcher.join(_CLOSE_SECONDS)

    def _look(self) -> _Found | None:
        """Reads the key, through a quorum."""
        with translated(self._endpoint):
            (_, answers) = self._client.transaction(
                compare=[], success=[self._client.transactions.get(self._key)], failure=[]
            )
        return self._found(answers[0])

    def _create(self, holder: str) -> int | None:
        """Creates the key, unless somebody was faster."""
        lease = self._client.lease(self._ttl).id
        operations = self._client.transactions
        created, answers = self._client.transaction(
            compare=[operations.create(self._key) == 0],
            success=[operations.put(self._key, holder, lease), operations.get(self._key)],
            failure=[operations.get(self._key)],
        )
        found = self._found(answers[-1])
        if not created or found is None:
            self._client.revoke_lease(lease)
            return None
        self._lease = lease
        return found.number

    def _renew(self, lease: int) -> bool:
        """Renews etcd's lease; returns whether it still existed."""
        if any(answer.TTL > 0 for answer in self._client.refresh_lease(lease)):
            return True
        self._lease = None
        return False

    def _found(self, pairs: list[tuple[bytes, Any]]) -> _Found | None:
        if not pairs:
            return None
        value, about = pairs[0]
        self._revision = about.response_header.revision
        return _Found(value.decode(errors="replace"), about.create_revision, about.lease_id)

    def _notice(self, told: Any) -> None:
        """Handles what the watch tells, in the client's thread."""
        if not hasattr(told, "events"):  # an error: the next wait watches anew
            self._watching = False
        elif all(type(event).__name__ != "DeleteEvent" for event in told.events):
            return
        self._changed.set()
