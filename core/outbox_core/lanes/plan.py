"""The settings that the lanes of one leadership share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Self

from outbox_api import Affinity, Dialect, Elector, PermittedTopics, Publisher, Transform

from outbox_core.settings import Choice, Delivery, Failures, HarvestSettings, Limits
from outbox_core.settings.election import election_of, own_topics
from outbox_core.settings.logs import KeyNames


@dataclass(frozen=True)
class Plan:
    """The settings that the lanes of one leadership share; sent to the processes where they run."""

    outbox: str  # the outbox's name; names lanes to the broker
    token: int  # the fence token of the leadership
    lanes: int
    dialect: Choice[Dialect]
    affinity: Choice[Affinity]  # which rows may be marked
    publisher: Choice[Publisher]
    limits: Limits  # bounds and times of one lane
    failures: Failures
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    topics: PermittedTopics = field(default_factory=PermittedTopics)
    coalesce: tuple[str, ...] = ()  # patterns of topics of which a backlog sends only the newest of each key
    transforms: tuple[Choice[Transform], ...] = ()  # what changes records on their way out
    about: Mapping[str, object] = field(default_factory=dict)
    """What heartbeats say besides the lane's metrics, for ``outbox status``."""
    key_names: KeyNames = field(default_factory=KeyNames)
    taken_over: tuple[int, ...] = ()  # the clusters whose rows are taken over at once, as an operator said

    @classmethod
    def of(
        cls,
        settings: HarvestSettings,
        election: Choice[Elector],
        token: int,
        silence: float | None,
        taken_over: tuple[int, ...],
        *,
        member: str = "",
    ) -> Self:
        """Returns the plan of a new leadership.

        ``election`` names its group, whose topic takes no records. ``silence``: seconds since the former
        leader's lanes were last heard of; ``None`` if there was none. ``member``: how the process that leads
        notes itself.
        """
        lanes = settings.limits.send_concurrency
        share = ceil(settings.limits.max_in_flight_records / lanes)
        return cls(
            outbox=settings.outbox,
            token=token,
            lanes=lanes,
            dialect=settings.dialect,
            affinity=settings.affinity,
            publisher=settings.publisher,
            limits=replace(settings.limits, max_in_flight_records=share),
            failures=settings.failures,
            delivery=settings.delivery,
            topics=PermittedTopics(
                settings.topics, settings.own_topics | own_topics(election, settings.publisher)
            ),
            coalesce=settings.coalesce,
            transforms=settings.transforms,
            about={
                "elector": settings.elector.driver,
                "election": election_of(election),
                "silence_before": silence,
                "member": member,
            },
            key_names=settings.key_names,
            taken_over=taken_over,
        )
