"""The settings that the lanes of one leadership share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outbox_sdk import Affinity, Dialect, Publisher

from outbox_core.config.logs import KeyNames
from outbox_core.config.settings import Choice, Delivery, Failures, Limits
from outbox_core.lanes.permitted_topics import PermittedTopics


@dataclass(frozen=True)
class Plan:
    """The settings that the lanes of one leadership share; sent to the processes where they run.

    Attributes:
        outbox: The outbox's name; names lanes to the broker.
        token: The fence token of the leadership.
        lanes: How many lanes share the outbox.
        dialect: The database.
        affinity: Which rows may be marked.
        publisher: The broker.
        limits: Bounds and times of one lane.
        failures: What happens after a failed delivery.
        delivery: At-least-once or exactly-once.
        topics: To which topics records may be published.
        about: What heartbeats say besides the lane's metrics, for ``outbox status``.
        key_names: What log lines call keys.
        taken_over: The clusters whose rows are taken over at once, as an operator said.
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
    topics: PermittedTopics = field(default_factory=PermittedTopics)
    about: Mapping[str, object] = field(default_factory=dict)
    key_names: KeyNames = field(default_factory=KeyNames)
    taken_over: tuple[int, ...] = ()
