"""Reads ``harvest:``: the keys of one outbox, and for each seam a driver with its options."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from outbox_api import Dialect
from outbox_api.application.registry import Seam, find
from outbox_api.base.errors import ConfigError, PluginError
from outbox_api.seams.lease import Lease
from outbox_api.support.file_text import FileText

from outbox_core.config.decode import Raw, camel, decode
from outbox_core.config.document import Items, Node, Scalar, Section, is_null
from outbox_core.config.problems import Problems, join
from outbox_core.settings import Choice, Delivery, Failures, HarvestSettings, Limits
from outbox_core.settings.election import default_leader_topic, instance_name

DEFAULT_BROKERS = {"bootstrap.servers": "localhost:9092"}
DEFAULT_DATA_SOURCE = "host=localhost port=5432 user=postgres password= dbname=postgres sslmode=disable"
"""goharvest's local Postgres; used only with the default dialect."""

DEFAULT_DRIVERS = {
    Seam.AFFINITY: "none",
    Seam.DIALECT: "postgres",
    Seam.ELECTOR: "neli-kafka",
    Seam.PUBLISHER: "kafka",
    Seam.ENGINE: "spark",
}
"""In the order of choice: the dialect is told where rows come from, and an elector may use the dialect."""

WITHOUT_EFFECT = frozenset({"maxPollInterval", "sendBuffer", "markQueryRecords", "markBackoff"})
"""Keys that goharvest's files may have below ``limits``: they are accepted without effect."""

KafkaSettings = Mapping[str, str | FileText | list[str]]
"""Settings of a Kafka client by their own names."""


@dataclass(frozen=True)
class HarvestKeys:
    """The keys below ``harvest:``, as users write them."""

    base_kafka_config: KafkaSettings = field(default_factory=dict, repr=False)
    producer_kafka_config: KafkaSettings = field(default_factory=dict, repr=False)
    leader_topic: str | None = None
    leader_group_id: str | None = None
    data_source: str | FileText | None = field(default=None, repr=False)
    password: str | FileText | None = field(default=None, repr=False)
    outbox_table: str = "outbox"
    name: str | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    limits: Limits = field(default_factory=Limits)
    failures: Failures = field(default_factory=Failures)
    topics: tuple[str, ...] = ("*",)
    coalesce: tuple[str, ...] = ()
    dialect: Raw = None
    elector: Raw = None
    affinity: Raw = None
    publisher: Raw = None
    engine: Raw = None
    transform: Raw = None
    listener: Raw = None

    def __post_init__(self) -> None:
        if not self.topics or not all(self.topics):
            raise ConfigError("topics names no topic; leave it out to permit all, or list patterns")
        if not all(self.coalesce):
            raise ConfigError("coalesce has an empty pattern; list the topics, with * and ? as wildcards")


def read_harvest(section: Section, path: str, problems: Problems) -> HarvestSettings | None:
    """Returns the settings of one outbox, or ``None`` if a problem was added."""
    before = len(problems.found)
    section = _with_effect(section)
    keys = decode(HarvestKeys, section, path, problems)
    # Drivers are chosen even if the rest is wrong, so that one message lists everything.
    drivers = _Drivers(section, path, keys or HarvestKeys(data_source=DEFAULT_DATA_SOURCE), problems)
    for seam in DEFAULT_DRIVERS:
        drivers.chosen[seam] = drivers.choose(seam)
    transforms = drivers.transforms()
    listened = not is_null(section.value(Seam.LISTENER))
    listener = drivers.choose(Seam.LISTENER) if listened else None
    if keys is None or len(problems.found) > before:
        return None
    return HarvestSettings(
        name=keys.name or instance_name(),
        outbox=keys.outbox_table,
        delivery=keys.delivery,
        limits=keys.limits,
        failures=keys.failures,
        topics=keys.topics,
        coalesce=keys.coalesce,
        transforms=transforms,
        listener=listener,
        **drivers.chosen,
    )


def _with_effect(section: Section) -> Section:
    limits = section.value("limits")
    if not isinstance(limits, Section):
        return section
    some = {key: entry for key, entry in limits.entries.items() if key not in WITHOUT_EFFECT}
    entry = (section.entries["limits"][0], replace(limits, entries=some))
    return replace(section, entries={**section.entries, "limits": entry})


def driver_of(seam: Seam, node: Node | None) -> str | None:
    """Returns the name of the driver chosen in ``node``; ``None`` if it is not valid, or names none."""
    if isinstance(node, Section):
        node = node.value("driver")
    if is_null(node):
        return DEFAULT_DRIVERS.get(seam)
    return node.text if isinstance(node, Scalar) else None


@dataclass(frozen=True)
class _Kafka:
    kafka: KafkaSettings = field(default_factory=dict, repr=False)


@dataclass
class _Drivers:
    """Chooses the drivers of one outbox, one after the other."""

    section: Section  # where the outbox is configured
    path: str
    keys: HarvestKeys  # the keys that it has besides those of seams
    problems: Problems
    chosen: dict[Seam, Any] = field(default_factory=dict)
    """The drivers chosen so far; ``None`` for one that cannot be."""

    def choose(self, seam: Seam) -> Choice[Any] | None:
        """Chooses the driver of a seam, and decodes its options; returns ``None`` if a problem was added."""
        return self._choice(seam, self.section.value(seam), join(self.path, seam))

    def transforms(self) -> tuple[Any, ...]:
        """Chooses the transforms; has a ``None`` for each that cannot be."""
        node, path = self.section.value(Seam.TRANSFORM), join(self.path, Seam.TRANSFORM)
        if isinstance(node, Items):
            chosen = enumerate(node.values)
            return tuple(self._choice(Seam.TRANSFORM, each, f"{path}[{at}]") for at, each in chosen)
        if node is not None and not is_null(node):
            message = "expected a list, whose items name drivers, in the order in which they are applied"
            self.problems.add(node.place, path, message)
        return ()

    def _choice(self, seam: Seam, node: Node | None, path: str) -> Choice[Any] | None:
        place, name = (node or self.section).place, driver_of(seam, node)
        if isinstance(node, Items) or name is None:
            message = "expected the name of a driver, or a mapping with 'driver:' and its options"
            self.problems.add(place, path, message)
            return None
        entries = dict(node.entries) if isinstance(node, Section) else {}
        if "driver" in entries:
            place = entries.pop("driver")[1].place
        section = Section(place, entries)
        try:
            driver = find(seam, name)
            if driver.require:
                driver.require()
            kind = driver.options
            known = {camel(option.name) for option in fields(kind)}
            defaults = self.defaults(seam, section.value("leaderGroupID"))
            if "kafka" in known and "kafka" in entries:
                written = Section(entries["kafka"][0], {"kafka": entries.pop("kafka")})
                if own := decode(_Kafka, written, path, self.problems):
                    defaults["kafka"] |= own.kafka
            if "password" in defaults and "password" not in known:
                message = f"the dialect '{name}' has no password; leave it out"
                self.problems.add(self.section.place, join(self.path, "password"), message)
            options = decode(kind, section, path, self.problems, defaults)
        except PluginError as error:
            self.problems.add(place, join(path, "driver"), str(error), plugin=True)
            return None
        return None if options is None else Choice(seam, name, options)

    def defaults(self, seam: Seam, own_group: Node | None) -> dict[str, Any]:
        """Returns option name → value for the driver of ``seam``; its own group names its default topic."""
        keys, limits = self.keys, self.keys.limits
        affinity, dialect = self.chosen.get(Seam.AFFINITY), self.chosen.get(Seam.DIALECT)
        publisher = self.chosen.get(Seam.PUBLISHER)
        kafka = {**DEFAULT_BROKERS, **keys.base_kafka_config}
        if seam is Seam.LISTENER and publisher:
            kafka |= getattr(publisher.options, "kafka", {})
        group = (isinstance(own_group, Scalar) and own_group.text) or keys.leader_group_id
        shared: dict[str, Any] = {
            "table": keys.outbox_table,
            "kafka": kafka | dict(keys.producer_kafka_config if seam is Seam.PUBLISHER else {}),
            "leader_group_id": keys.leader_group_id or None,
            "leader_topic": keys.leader_topic or (default_leader_topic(group) if group else None),
            "min_poll_interval": limits.min_poll_interval,
            "heartbeat_timeout": limits.heartbeat_timeout,
            "stop_after": keys.failures.stop_after,
            "topics": keys.topics,
            "dead_letter_topics": keys.failures.topics,
            "origin": affinity and affinity.create().origin(),
            "by_day": False,
            "lease": dialect and partial(_lease, dialect),
            "dataset": dialect and partial(_dataset, dialect),
            "identity": "",
        }
        if keys.data_source is not None:
            shared["data_source"] = keys.data_source
        elif driver_of(Seam.DIALECT, self.section.value(Seam.DIALECT)) == DEFAULT_DRIVERS[Seam.DIALECT]:
            shared["data_source"] = DEFAULT_DATA_SOURCE
        if keys.password is not None and seam is Seam.DIALECT:  # others have passwords of their own
            shared["password"] = keys.password
        return shared


def _lease(dialect: Choice[Dialect]) -> Lease:
    return dialect.create().lease()


def _dataset(dialect: Choice[Dialect]) -> tuple[str, str]:
    return dialect.create().dataset
