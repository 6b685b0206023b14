"""The options of ``format("outbox-kafka")``; without PySpark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from outbox_api import ConfigError

from pyspark_outbox_kafka.java import librdkafka_settings

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,150}")
_OWN: Final = {each.lower(): each for each in ("checkpointTopic", "replacesQuery", "sinkName", "topic")}
_SPARKS: Final = frozenset({"checkpointlocation", "includeheaders", "path", "queryname"})
"""What Spark hands over of its own, or Kafka's sink of Spark takes and needs not."""
_KAFKA: Final = "kafka."

CHECKPOINT_TOPIC: Final = "outbox.spark.checkpoints"
PREFIX: Final = "outbox.spark."
"""The prefix of transactional ids, and of the keys of checkpoints."""


@dataclass(frozen=True)
class SinkOptions:
    """What the options say.

    Attributes:
        kafka: The settings, by librdkafka's names.
        topic: The topic of all rows; ``None`` if rows have one each.
        sink_name: By what the sink recognises what it has published; ``None`` for the query's id.
        replaces_query: The id of the query that had this name before; ``None`` if there is none.
        checkpoint_topic: The topic of the sink's checkpoints.
    """

    kafka: Mapping[str, Any] = field(repr=False)
    topic: str | None = None
    sink_name: str | None = None
    replaces_query: str | None = None
    checkpoint_topic: str = CHECKPOINT_TOPIC


def read_options(given: Mapping[str, str]) -> SinkOptions:
    """Reads options, whose names are case-insensitive; connects to nothing."""
    kafka, own = dict[str, str](), dict[str, str]()
    for name, value in given.items():
        lower = name.lower()
        if lower.startswith(_KAFKA):
            kafka[lower.removeprefix(_KAFKA)] = value
        elif lower in _OWN:
            own[_OWN[lower]] = value
        elif lower not in _SPARKS:
            raise ConfigError(
                f"the sink has no option '{name}'; there are {', '.join(sorted(_OWN.values()))}, and kafka.*"
            )
    if not kafka.get("bootstrap.servers"):
        raise ConfigError("the option 'kafka.bootstrap.servers' names the brokers, and is missing")
    sink_name = own.get("sinkName")
    if sink_name is not None and not _NAME.fullmatch(sink_name):
        raise ConfigError(f"the option 'sinkName' is {sink_name!r}; it has letters, digits, '.', '_' and '-'")
    if "replacesQuery" in own and sink_name is None:
        raise ConfigError("the option 'replacesQuery' concerns a 'sinkName', which is missing")
    return SinkOptions(
        librdkafka_settings(kafka),
        own.get("topic"),
        sink_name,
        own.get("replacesQuery"),
        own.get("checkpointTopic", CHECKPOINT_TOPIC),
    )
