"""What the lanes of one term of leadership need to know."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_sdk import Affinity, Dialect, Publisher

from outbox_core.config.settings import Choice, Delivery, Failures, Limits


@dataclass(frozen=True)
class Plan:
    """What the lanes of one term of leadership need to know; travels to wherever they run.

    Attributes:
        outbox: The outbox's name; names lanes to the broker.
        token: The fence token of the term.
        lanes: How many lanes share the outbox.
        dialect: The database.
        affinity: Which rows may be marked.
        publisher: The broker.
        limits: Bounds and times of one lane.
        failures: What happens after an error.
        delivery: What a consumer may see of one record.
    """

    outbox: str
    token: int
    lanes: int
    dialect: Choice[Dialect]
    affinity: Choice[Affinity]
    publisher: Choice[Publisher]
    limits: Limits
    failures: Failures
    delivery: Delivery = Delivery.AT_LEAST_ONCE
