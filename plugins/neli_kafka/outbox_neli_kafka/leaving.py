"""How a member leaves its group, and how its client ends."""

from __future__ import annotations

import logging
import time
from contextvars import copy_context
from threading import Thread
from typing import Final

from confluent_kafka import Consumer, KafkaException

log = logging.getLogger("outbox.neli_kafka")

_LEAVE_SECONDS: Final = 3.0
"""How long to wait for the request to leave; it is sent at once if the group has a coordinator."""

CLOSE_SECONDS = 10.0
"""How long to wait for the client's end; without a broker librdkafka may never end."""


def leave(consumer: Consumer) -> None:
    """Leaves the group, which closing alone does not: a member with a name keeps its place for a session.

    The callbacks of the subscription may run. Without a coordinator the session ends the membership instead.
    """
    deadline = time.monotonic() + _LEAVE_SECONDS
    try:
        consumer.unsubscribe()
        # The client forgets its member's id when it sends the request.
        while consumer.memberid() and time.monotonic() < deadline:
            consumer.poll(0.01)
    except KafkaException as error:
        log.debug("the client could not leave its group: %s", error.args[0].name())


def close(consumer: Consumer, group: str) -> None:
    """Closes the consumer; waits for ``CLOSE_SECONDS`` at most."""
    closing = Thread(target=copy_context().run, args=(consumer.close,), name="neli-close", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
    if closing.is_alive():
        log.warning(
            "election '%s': the client did not end within %g s; its session expires instead",
            *(group, CLOSE_SECONDS),
        )
