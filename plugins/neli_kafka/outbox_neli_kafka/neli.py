"""An election for programs other than outbox's harvester."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from typing import Self

from outbox_sdk.election import LeadershipEvent

from outbox_neli_kafka.elector import NeliElector
from outbox_neli_kafka.options import NeliOptions

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
        """Returns for how many more seconds leadership is confirmed; see :meth:`outbox_sdk.Elector.lease`."""
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
