"""The settings of a harvest: frozen, picklable dataclasses whose repr contains no secrets."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, cast

from annotated_types import Ge, Gt
from outbox_api import Dialect
from outbox_api.application.registry import Seam, find
from outbox_api.base.bounds import NO_TOPIC, Bounds, PermittedTopics, is_topic
from outbox_api.base.errors import ConfigError
from outbox_api.seams.affinity import Affinity
from outbox_api.seams.elector import Elector
from outbox_api.seams.engine import Engine
from outbox_api.seams.hooks import Duration
from outbox_api.seams.listener import Listener
from outbox_api.seams.parking import FailureClass
from outbox_api.seams.publisher import Publisher
from outbox_api.seams.transform import Transform

from outbox_core.settings.logs import KeyNames, LoggingSettings

if TYPE_CHECKING:
    from outbox_core.settings.http import HttpSettings

MIN_HEARTBEAT_SECONDS = 1.0
"""The least time between two heartbeats of a lane, each of which is a transaction."""
LANE_GROUPS = 2
"""Tasks of an engine for the lanes of one outbox when the settings name no number."""

Made_co = TypeVar("Made_co", covariant=True)

Seconds = Annotated[Duration, Gt(0)]
"""Seconds, more than none."""

Pause = Annotated[Duration, Ge(0)]
"""Seconds, possibly none."""

Count = Annotated[int, Ge(1)]
"""A number of things, at least one."""


class Delivery(StrEnum):
    """What a consumer may see of one record."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Undecided(StrEnum):
    """What becomes of a row of an unfinished transaction if the log does not tell whether it is published."""

    CHECKPOINT = "checkpoint"
    PUBLISH = "publish"
    PURGE = "purge"


@dataclass(frozen=True)
class Limits:
    """The bounds and intervals of one harvest; their names are goharvest's.

    So are the defaults, but for those that docs/algorithm.md ("Defaults that differ") explains. Files do not
    set ``mark_backoff``, ``send_buffer`` and ``mark_query_records``: a harvest has their defaults.

    Attributes:
        min_poll_interval: Seconds between two polls of the elector, at least.
        heartbeat_timeout: Seconds without a confirmation before the leader steps down.
        queue_timeout: Seconds that records may wait behind a key that does not move, before the lane marks
            everything anew.
        mark_backoff: Seconds to wait after a mark that was not full; doubles with each that finds nothing.
        max_mark_backoff: The longest such wait, once the outbox has been empty for some seconds.
        rest_after: Seconds without a record after which an outbox rests, where a process harvests several;
            0 if it never does.
        io_error_backoff: Seconds to wait after the database refused a mark, purge or reset.
        max_in_flight_records: Records published but not yet acknowledged and purged, in all lanes.
        send_concurrency: Lanes; each has its own connection to the database and to the broker.
        send_buffer: Records that a lane may have marked beyond those it may have in flight.
        mark_query_records: Records one mark may return.
        max_run_records: Records of one key that may be published and not yet acknowledged and purged, with
            at-least-once delivery: a lost leader repeats so many of a key at most. With 1, each record of a
            key waits for the purge of the one before.
        max_batch_records: Records that one batch of exactly-once delivery may have, in each lane.
        max_lane_bytes: Bytes of topics, keys, values and headers that a lane holds in memory. One mark or
            batch has half of it at most, and a record that alone has more is parked without being read.
        min_metrics_interval: Seconds between two reports of metrics, at least.
        drain_interval: Seconds that a leader waits for records in flight before it hands over.
    """

    min_poll_interval: Pause = 0.1
    heartbeat_timeout: Seconds = 5.0
    queue_timeout: Seconds = 30.0
    mark_backoff: Pause = 0.002
    max_mark_backoff: Seconds = 0.1
    rest_after: Pause = 30.0
    io_error_backoff: Pause = 0.5
    max_in_flight_records: Count = 8000
    send_concurrency: Count = 1
    send_buffer: Annotated[int, Ge(0)] = 5000
    mark_query_records: Count = 5000
    max_run_records: Count = 1000
    max_batch_records: Count = 10_000
    max_lane_bytes: Annotated[int, Ge(1024)] = 64 * 1024 * 1024
    min_metrics_interval: Pause = 5.0
    drain_interval: Pause = 3.0


@dataclass(frozen=True)
class Failures:
    """What happens after an error.

    After a temporary error the lane tries again, after an error of the record it parks the key, and after an
    error in the configuration of the database or broker it stops the harvest.

    Attributes:
        first_backoff: Seconds that a key is held after its first failure; doubles with every further one, and
            varies at random by up to a fifth.
        longest_backoff: The longest of these holds, in seconds.
        park_after: Attempts at a record that sending again cannot cure (too large, not permitted, no such
            topic, not serializable) before its key is parked.
        park_retryable_after: The same for a temporary failure; ``None`` to try for ever.
        most_parked_keys: The number of parked keys from which on no more are parked: with so many, no record
            is the cause, and failing keys are held and tried again. Between two counts of the whole outbox
            each lane counts its own.
        keep_skipped: Seconds for which dead letters are kept after they were skipped; ``None`` for ever.
        stop_after: Seconds for which a database or broker may refuse this harvester (a missing table, an
            expired password) before the harvest ends with that error; meanwhile its lanes try again.
        undecided: For exactly-once delivery: what becomes of rows whose transaction had an unknown outcome,
            if the log does not tell of them, as when their topic was deleted: the fate of the transaction's
            checkpoint, or published again (perhaps twice), or purged (perhaps lost).
        topic: The topic that gets a copy of each dead letter; ``{class}`` in it is the class of its failure.
            Empty for none.
    """

    first_backoff: Seconds = 0.1
    longest_backoff: Seconds = 10.0
    park_after: Count = 5
    park_retryable_after: Count | None = None
    most_parked_keys: Annotated[int, Ge(0)] = 1000
    keep_skipped: Pause | None = None
    stop_after: Pause = 60.0
    undecided: Undecided = Undecided.CHECKPOINT
    topic: str = ""

    def __post_init__(self) -> None:
        if self.longest_backoff < self.first_backoff:
            raise ConfigError(
                f"longestBackoff is {self.longest_backoff:g}s and firstBackoff {self.first_backoff:g}s; "
                "it cannot be less"
            )
        for name in self.topics:
            if why := PermittedTopics().refusal(name) or ("" if is_topic(name) else NO_TOPIC):
                raise ConfigError(f"topic is '{self.topic}', and dead letters cannot go to '{name}': {why}")

    def topic_of(self, failure: FailureClass) -> str:
        """Returns the topic for the dead letters of a class."""
        return self.topic.replace("{class}", failure)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics for dead letters of all classes; none if there are none."""
        return tuple(dict.fromkeys(map(self.topic_of, FailureClass))) if self.topic else ()


@dataclass(frozen=True)
class Choice(Generic[Made_co]):
    """The driver chosen for one seam, with its options; is sent to the process that creates the driver.

    Attributes:
        seam: The seam it serves.
        driver: The entry-point name.
        options: An instance of the plugin's options class; left out of the repr, as it may contain secrets.
    """

    seam: Seam
    driver: str
    options: Any = field(repr=False)

    def create(self) -> Made_co:
        """Creates the driver; does not connect.

        Raises:
            PluginError: The driver is not installed here.
        """
        return cast("Made_co", find(self.seam, self.driver).create(self.options))


@dataclass(frozen=True)
class HarvestSettings:
    """One outbox and everything needed to harvest it.

    Attributes:
        name: The name of this process in logs and in the fence; is not compared.
        outbox: The outbox table; it names the fence and the lanes too.
        dialect: The database.
        elector: Who leads.
        affinity: Which rows this cluster may mark.
        publisher: The broker.
        engine: In which processes lanes run.
        delivery: What a consumer may see of one record.
        limits: The bounds and intervals.
        failures: What happens after an error.
        topics: The topics that records may name, with ``*`` and ``?`` as wildcards.
        coalesce: The topics of which a backlog sends only the newest record of each key, with wildcards.
        transforms: What changes records on their way out, in this order.
        listener: What is told of events; ``None`` for nothing.
        label: What the file calls it, where it names several outboxes; empty otherwise.
        key_names: What log lines call keys.
        own_topics: The topics that outboxes of the same file use themselves, to which none publishes records.
    """

    name: str
    outbox: str
    dialect: Choice[Dialect]
    elector: Choice[Elector]
    affinity: Choice[Affinity]
    publisher: Choice[Publisher]
    engine: Choice[Engine]
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    limits: Limits = field(default_factory=Limits)
    failures: Failures = field(default_factory=Failures)
    topics: tuple[str, ...] = ("*",)
    coalesce: tuple[str, ...] = ()
    transforms: tuple[Choice[Transform], ...] = ()
    listener: Choice[Listener] | None = None
    label: str = ""
    key_names: KeyNames = field(default_factory=KeyNames)
    own_topics: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if own := self.own_topics.intersection(self.failures.topics):
            raise ConfigError(f"dead letters cannot go to '{min(own)}', which outbox itself uses")

    @property
    def title(self) -> str:
        """What users call this outbox: its label, or its table."""
        return self.label or self.outbox

    @property
    def bounds(self) -> Bounds:
        """What of a record this outbox's harvester delivers, for a stasher to refuse the rest.

        With transforms the size of a message is not known before.
        """
        largest = None if self.transforms else getattr(self.publisher.options, "max_message_bytes", None)
        return Bounds(largest, PermittedTopics(self.topics, self.own_topics))

    @property
    def lane_groups(self) -> int:
        """How many tasks the lanes are spread over, if the engine has processes of its own."""
        wanted = getattr(self.engine.options, "lane_groups", None)
        return min(self.limits.send_concurrency, wanted or LANE_GROUPS)

    @property
    def table_identity(self) -> tuple[str, object, object]:
        """Driver, database and table, as they are spelled; other options make no other outbox."""
        options = self.dialect.options
        database = getattr(options, "data_source", self.title)
        return self.dialect.driver, database, getattr(options, "table", self.outbox)


@dataclass(frozen=True)
class Template:
    """Settings for every outbox whose table matches a pattern, as those of tenants do.

    Attributes:
        label: What the file calls it.
        pattern: The tables, with ``*`` for any characters.
        settings_for: Returns the settings for a table of that name.
    """

    label: str
    pattern: str
    settings_for: Callable[[str], HarvestSettings]

    def with_common(self, key_names: KeyNames, own_topics: frozenset[str]) -> "Template":
        """Returns the same template, for outboxes with what all of the file have in common."""
        made = self.settings_for
        return replace(
            self,
            settings_for=lambda table: replace(made(table), key_names=key_names, own_topics=own_topics),
        )

    @property
    def probe(self) -> HarvestSettings:
        """Settings for some table whose name matches, whether or not there is such a table."""
        return self.settings_for(self.pattern.replace("*", "x"))


@dataclass(frozen=True)
class Settings:
    """The contents of a configuration file.

    Attributes:
        outboxes: The outboxes that it names, in its order; the one of ``harvest:`` if there is no
            ``outboxes:``.
        http: What the process serves over HTTP.
        templates: The templates among ``outboxes:``.
        several: Whether there is ``outboxes:``, of however many outboxes.
        logging: What is logged.
    """

    outboxes: tuple[HarvestSettings, ...]
    http: "HttpSettings"
    templates: tuple[Template, ...] = ()
    several: bool = False
    logging: LoggingSettings = field(default_factory=LoggingSettings)

    @property
    def process(self) -> HarvestSettings:
        """Settings of any outbox, for what all have in common: the process's name and the engine."""
        return (*self.outboxes, *(template.probe for template in self.templates))[0]

    @property
    def harvest(self) -> HarvestSettings:
        """The only outbox.

        Raises:
            ConfigError: The file names several.
        """
        if self.several:
            raise ConfigError("the configuration names several outboxes: choose one")
        return self.outboxes[0]
