"""The lease on ZooKeeper: whoever owns the leader's ephemeral node has it."""

from __future__ import annotations

from threading import Event
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from outbox_api import ConfigError, OutboxError

from outbox_zookeeper.client import Client
from outbox_zookeeper.options import ZooKeeperOptions

LEADER = "leader"
_GRANULARITY = 0.002
"""Seconds by which a session may seem shorter, as ZooKeeper counts in milliseconds."""


class ZooKeeperLease:
    """The ``Lease`` of ZooKeeper, and a ``SessionLease`` of outbox-api.

    While the connection is suspended, every request fails, so nothing is confirmed. If the session is lost,
    ZooKeeper has deleted the node, and a new one has another number.
    """

    def __init__(self, options: ZooKeeperOptions) -> None:
        """Connects, and creates the election's node if it is missing."""
        self._election = options.election
        self._path = f"{options.election}/{LEADER}"
        self._session = options.session_timeout
        self._changed = Event()
        """Unset while ZooKeeper watches the election's node for us, and another process leads."""
        self._changed.set()
        self._client = Client(options)
        try:
            self._check_session()
            self._client.ask("ensure_path", self._election, acl=self._client.acl)
            self._client.request_timeout = options.request_timeout  # a new server may take longer before
        except BaseException:
            self.close()
            raise

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes or renews the lease; see :class:`outbox_api.Lease`.

        A standby asks ZooKeeper only after its watch has told that something has changed.
        """
        del seconds  # the session's
        self._check_session()
        if not self._changed.is_set():
            self._client.check_connected()
            return None
        state = self._client.ask("exists", self._path)
        if state is None:
            number = self._create(holder)
        elif state.ephemeralOwner == self._client.session:
            number = self._renew(holder, state.version)
        else:
            number = None
        if number is None:
            self._watch()
        return number

    def wait(self, seconds: float) -> None:
        """Waits until the leader's node was deleted or the connection has changed, at most ``seconds``."""
        self._changed.wait(seconds)

    def release(self, holder: str) -> None:
        """Deletes the leader's node, if it is this session's."""
        del holder  # the session's
        state = self._client.ask("exists", self._path)
        if state is not None and state.ephemeralOwner == self._client.session:
            self._client.ask("delete", self._path, state.version)

    def recover(self) -> None:
        """Goes on with the session after an error; see :class:`outbox_api.election.SessionLease`."""
        self._client.recover()

    def close(self) -> None:
        """Ends the session, so that ZooKeeper deletes its node, and disconnects."""
        self._client.stop()

    def _create(self, holder: str) -> int | None:
        try:
            _, state = self._client.ask(
                "create",
                self._path,
                holder.encode(),
                acl=self._client.acl,
                ephemeral=True,
                makepath=True,
                include_data=True,
            )
        except NodeExistsError:
            return None
        return int(state.czxid)

    def _renew(self, holder: str, version: int) -> int | None:
        """Writes the node, which proves that the session lives and that a quorum agrees.

        A read would not: a server that is cut off from the others may answer it. Nor would ``sync``, which
        a former leader of the servers may still answer.
        """
        try:
            state = self._client.ask("set", self._path, holder.encode(), version)
        except (NoNodeError, BadVersionError):  # somebody else has deleted it, and perhaps created another
            return None
        return int(state.czxid) if state.ephemeralOwner == self._client.session else None

    def _watch(self) -> None:
        if not self._changed.is_set():
            return  # the watch is in place
        self._changed.clear()
        try:
            children = self._client.ask("get_children", self._election, watch=self._on_change)
        except (OutboxError, NoNodeError) as error:
            self._changed.set()
            if isinstance(error, OutboxError):
                raise
            return
        if LEADER not in children:
            self._changed.set()

    def _on_change(self, _event: Any) -> None:
        self._changed.set()

    def _check_session(self) -> None:
        granted = self._client.log.session
        if 0 < granted < self._session - _GRANULARITY:
            raise ConfigError(
                f"ZooKeeper grants a session of at most {granted:g} s, not of {self._session:g} s: "
                "lower sessionTimeout for all processes, or raise maxSessionTimeout on the servers"
            )
