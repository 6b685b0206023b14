"""The elector, for the harvester and for other programs: takes part in the election as a group's member."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Condition
from typing import TYPE_CHECKING, Self

from outbox_api import Candidate, ConfigError, Finding
from outbox_api.election import LeadershipEvent, elapsed
from outbox_kafka_client.settings import client_settings

from outbox_neli_kafka.settings import NeliOptions, refuse_reserved

if TYPE_CHECKING:
    from outbox_neli_kafka.member import Member

log = logging.getLogger(__name__)


class NeliElector:
    """Takes part in a NELI election; see :class:`outbox_api.Elector` for the contract."""

    def __init__(self, options: NeliOptions, clock: Callable[[], float] = elapsed) -> None:
        """Checks the options; does not connect.

        Args:
            options: How to reach Kafka, and the names and times of the election.
            clock: Returns seconds; never goes back.

        Raises:
            ConfigError: A setting contradicts the election.
        """
        refuse_reserved(options.kafka)
        if options.lease_duration <= 0:
            raise ConfigError("the election's heartbeat timeout and session timeout must be longer than 0")
        self._options = options
        self._clock = clock
        self._member: Member | None = None

    def start(self, candidate: Candidate) -> None:
        """Creates the topic if it is missing, and joins the group; see :meth:`outbox_api.Elector.start`.

        Waits up to ten seconds for the broker, and up to thirty for the group's coordinator. A refusal at the
        start is an error; a later one ends the candidacy once it has lasted for ``stop_after``.

        Raises:
            ConfigError: The options name no group.
            DriverError: The broker cannot be reached or refuses.
        """
        from outbox_neli_kafka.member import Member  # noqa: PLC0415 - the client is imported late
        from outbox_neli_kafka.permissions import ensure_group, ensure_topic  # noqa: PLC0415 - likewise

        log.info("election: group '%s', topic '%s'", self._options.group, self._options.topic)
        settings = client_settings(self._options.kafka)
        admin = ensure_topic(settings, self._options.topic)
        ensure_group(admin.client, self._options, settings)
        self._member = Member(self._options, candidate, self._clock)
        self._member.start()

    def lease(self) -> float:
        """Returns the seconds left of the lease; see :meth:`outbox_api.Elector.lease`."""
        return self._member.lease() if self._member is not None else 0.0

    def stop(self) -> None:
        """Drains, then leaves the group so that a standby takes over; see :meth:`outbox_api.Elector.stop`."""
        if self._member is not None:
            self._member.stop()

    def check(self) -> Sequence[Finding]:
        """Checks the times, the broker and its permissions; see the contract."""
        from outbox_neli_kafka.check import findings  # noqa: PLC0415 - the client is imported late

        return findings(self._options)


EventHandler = Callable[[LeadershipEvent], None]


class Neli:
    """Takes part in a NELI election; a context manager, which joins at its beginning and leaves at its end.

    The handler is called on another thread, one event at a time: ``ACQUIRED`` once this process leads;
    ``REVOKED`` when leadership is to be handed over, where it may block, within the session, until the work
    in hand is done; ``FENCED`` when leadership is gone already, where it must not block.
    """

    def __init__(self, options: NeliOptions, on_event: EventHandler | None = None) -> None:
        """Checks the options; does not connect.

        Args:
            options: How to reach Kafka, and the names and times of the election.
            on_event: Receives the events of this process's leadership. An error that it raises ends the
                candidacy.

        Raises:
            ConfigError: A setting contradicts the election.
        """
        self._elector = NeliElector(options)
        self._on_event = on_event
        self._leads = False
        self._failure: Exception | None = None
        self._changed = Condition()

    @property
    def is_leader(self) -> bool:
        """Whether this process leads, by a confirmation that is valid still. May be read from any thread."""
        return self._leads and self.lease() > 0

    def lease(self) -> float:
        """Returns for how many more seconds leadership is confirmed; see :meth:`outbox_api.Elector.lease`."""
        return self._elector.lease()

    def pulse(self, timeout: float = 0.0) -> bool:
        """Waits until this process leads; returns whether it does. May be called from any thread.

        There is no need to call it regularly: the election goes on by itself.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            Exception: What ended the candidacy: the broker refuses, or the handler has raised an error.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.is_leader or self._failure is not None, timeout)
            if self._failure is not None:
                raise self._failure
            return self.is_leader

    def __enter__(self) -> Self:
        """Joins the election.

        Raises:
            ConfigError: The options name no group.
            DriverError: The broker cannot be reached or refuses.
        """
        self._elector.start(self)
        return self

    def __exit__(self, *error: object) -> None:
        """Hands leadership over, and leaves."""
        self._elector.stop()

    # --- what the elector tells -----------------------------------------------------------------------

    def acquired(self) -> None:
        """Handles that this process leads; called by the elector."""
        self._tell(LeadershipEvent.ACQUIRED)
        self._change(leads=True)

    def revoked(self) -> None:
        """Handles that leadership is handed over; called by the elector."""
        self._change(leads=False)
        self._tell(LeadershipEvent.REVOKED)

    def fenced(self) -> None:
        """Handles that leadership is gone; called by the elector."""
        self._change(leads=False)
        self._tell(LeadershipEvent.FENCED)

    def failed(self, error: Exception) -> None:
        """Handles the end of the candidacy; called by the elector."""
        self._failure = error
        self._change(leads=False)

    def _tell(self, event: LeadershipEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _change(self, *, leads: bool) -> None:
        with self._changed:
            self._leads = leads
            self._changed.notify_all()
