"""The elector: takes part in the election as a group's member."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outbox_api import Candidate, Finding
from outbox_kafka.client.settings import client_settings

from outbox_neli_kafka.settings import NeliOptions, refuse_reserved

if TYPE_CHECKING:
    from outbox_neli_kafka.member import Member

log = logging.getLogger("outbox.neli_kafka")


class NeliElector:
    """Takes part in a NELI election; see :class:`outbox_api.Elector` for the contract."""

    def __init__(self, options: NeliOptions) -> None:
        """Checks the options; does not connect.

        Raises:
            ConfigError: A setting contradicts the election.
        """
        refuse_reserved(options.kafka)
        self._options = options
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
        self._member = Member(self._options, candidate)
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
