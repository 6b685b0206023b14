"""Chooses a driver for each seam, and gives its options the settings that seams share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from outbox_sdk.affinity import Affinity
from outbox_sdk.dialect import Dialect
from outbox_sdk.errors import PluginError
from outbox_sdk.file_text import FileText
from outbox_sdk.lease import Lease
from outbox_sdk.registry import Seam, find

from outbox_core.config.decode import camel, decode
from outbox_core.config.document import Items, Node, Scalar, Section
from outbox_core.config.identity import default_leader_topic
from outbox_core.config.problems import Place, Problems, join
from outbox_core.config.settings import Choice

DEFAULT_DRIVERS = {
    Seam.DIALECT: "postgres",
    Seam.ELECTOR: "neli-kafka",
    Seam.AFFINITY: "none",
    Seam.PUBLISHER: "kafka",
    Seam.ENGINE: "spark",
}

KafkaSettings = Mapping[str, str | FileText | list[str]]
"""Settings of a Kafka client by their own names."""


@dataclass(frozen=True)
class Shared:
    """Settings of the harvest that drivers of several seams need.

    Attributes:
        table: The outbox table.
        data_source: Where the database is; ``None`` for the driver's own default.
        password: The password for the database; ``None`` if the data source has it, or none is needed.
        base_kafka: Client settings of everything that talks to Kafka.
        producer_kafka: Client settings on top, for the publisher.
        leader_group_id: The group of the competing processes; ``None`` for the outbox's own default, which
            only the database knows.
        leader_topic: The topic of the election; ``None`` for the group's own default.
        min_poll_interval: Seconds.
        heartbeat_timeout: Seconds.
        stop_after: Seconds.
        topics: The topics that records may name, with wildcards.
        affinity: The affinity; ``None`` until it is chosen, or if it cannot be.
        dialect: Likewise.
    """

    table: str
    data_source: str | FileText | None = field(repr=False)
    password: str | FileText | None = field(repr=False)
    base_kafka: KafkaSettings = field(repr=False)
    producer_kafka: KafkaSettings = field(repr=False)
    leader_group_id: str | None
    leader_topic: str | None
    min_poll_interval: float
    heartbeat_timeout: float
    stop_after: float
    topics: tuple[str, ...] = ("*",)
    affinity: Choice[Affinity] | None = None
    dialect: Choice[Dialect] | None = None

    def defaults(self, seam: Seam) -> dict[str, Any]:
        """Returns option name → value for the drivers of ``seam``."""
        topic = self.leader_topic
        if topic is None and self.leader_group_id is not None:
            topic = default_leader_topic(self.leader_group_id)
        kafka = {**self.base_kafka, **(self.producer_kafka if seam is Seam.PUBLISHER else {})}
        shared: dict[str, Any] = {
            "table": self.table,
            "kafka": kafka,
            "leader_group_id": self.leader_group_id,
            "leader_topic": topic,
            "min_poll_interval": self.min_poll_interval,
            "heartbeat_timeout": self.heartbeat_timeout,
            "stop_after": self.stop_after,
            "topics": self.topics,
            "origin": self.affinity and self.affinity.create().origin(),
            "lease": self.dialect and partial(_lease, self.dialect),
        }
        if self.data_source is not None:
            shared["data_source"] = self.data_source
        if self.password is not None and seam is Seam.DIALECT:  # others have passwords of their own
            shared["password"] = self.password
        return shared


def driver_of(seam: Seam, node: Node | None) -> str | None:
    """Returns the name of the driver chosen in ``node``; ``None`` if the node is not valid."""
    if isinstance(node, Section):
        node = node.entries["driver"][1] if "driver" in node.entries else None
    if node is None or (isinstance(node, Scalar) and node.text is None):
        return DEFAULT_DRIVERS[seam]
    return node.text if isinstance(node, Scalar) else None


def choose(
    seam: Seam, node: Node | None, at: tuple[Place, str], shared: Shared, problems: Problems
) -> Choice[Any] | None:
    """Chooses the driver of one seam, and decodes its options.

    Args:
        seam: The seam.
        node: What was written for it: nothing, a driver's name, or ``driver:`` with options.
        at: Where the outbox is configured, for problems of a driver that is used by default, and the dotted
            path of its section.
        shared: The settings that are defaults of options.
        problems: Collects what is wrong.

    Returns:
        The choice, or ``None`` if a problem was added.
    """
    place, path = node.place if node else at[0], join(at[1], seam)
    name = driver_of(seam, node)
    if isinstance(node, Items) or name is None:
        problems.add(
            place, path, "expected the name of a driver, or a mapping with 'driver:' and its options"
        )
        return None
    section = node if isinstance(node, Section) else Section(place)
    if "driver" in section.entries:
        place = section.entries["driver"][1].place
    try:
        driver = find(seam, name)
        known = {camel(option.name) for option in fields(driver.options)}
        options = {key: entry for key, entry in section.entries.items() if key != "driver"}
        defaults = shared.defaults(seam) | _group_defaults(options, shared)
        if "kafka" in known and "kafka" in options:
            written = decode(
                _Kafka, Section(options["kafka"][0], {"kafka": options.pop("kafka")}), path, problems
            )
            defaults["kafka"] = {**defaults["kafka"], **(written.kafka if written else {})}
        if "password" in defaults and "password" not in known:
            message = f"the dialect '{name}' has no password; leave it out"
            problems.add(at[0], join(at[1], "password"), message)
        chosen = decode(driver.options, Section(place, options), path, problems, defaults)
    except PluginError as error:
        problems.add(place, join(path, "driver"), str(error), plugin=True)
        return None
    return None if chosen is None else Choice(seam, name, chosen)


def _lease(dialect: Choice[Dialect]) -> Lease:
    """Connects to the lease in the outbox's own database."""
    return dialect.create().lease()


def _group_defaults(options: Mapping[str, tuple[Place, Node]], shared: Shared) -> dict[str, Any]:
    """Returns the default topic of an election whose group is written among the elector's options."""
    group = options["leaderGroupID"][1] if "leaderGroupID" in options else None
    if shared.leader_topic is None and isinstance(group, Scalar) and group.text:
        return {"leader_topic": default_leader_topic(group.text)}
    return {}


@dataclass(frozen=True)
class _Kafka:
    kafka: KafkaSettings = field(default_factory=dict, repr=False)
