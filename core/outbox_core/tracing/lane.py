"""Puts spans in front of a lane's sender, if this process is traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_sdk import Sender, TransactionalSender

from outbox_core.tracing import conventions
from outbox_core.tracing.provider import tracer

if TYPE_CHECKING:
    from outbox_core.tracing.spans import DeliverySpans


class LaneTracing:
    """Traces one lane, or does nothing: an untraced lane calls its sender directly.

    Args:
        outbox: The outbox's name.
        lane: The lane's number.
        token: The fence token of the leadership.
        system: The broker's kind, such as ``kafka``.
    """

    def __init__(self, outbox: str, lane: int, token: int, system: str) -> None:
        self._system = system
        self._attributes: dict[str, str | int] = {
            conventions.OUTBOX: outbox,
            conventions.LANE: lane,
            conventions.TOKEN: token,
        }

    def sender(self, sender: Sender) -> Sender:
        """Returns the sender that the lane is to use in place of this one."""
        spans = self._spans()
        if spans is None:
            return sender
        from outbox_core.tracing.senders import TracedSender  # noqa: PLC0415 - imports OpenTelemetry

        return TracedSender(sender, spans)

    def transactional(self, sender: TransactionalSender) -> TransactionalSender:
        """Returns the sender that the lane is to use in place of this one."""
        spans = self._spans()
        if spans is None:
            return sender
        from outbox_core.tracing.senders import TracedTransactionalSender  # noqa: PLC0415 - likewise

        return TracedTransactionalSender(sender, spans)

    def _spans(self) -> DeliverySpans | None:
        making = tracer()
        if making is None:
            return None
        from outbox_core.tracing.spans import DeliverySpans  # noqa: PLC0415 - likewise

        return DeliverySpans(making, self._system, self._attributes)
