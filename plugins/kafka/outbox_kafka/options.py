"""The options of the Kafka publisher, as users write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox_sdk.hooks import GIVEN


@dataclass(frozen=True)
class KafkaOptions:
    """How to reach Kafka, and how to produce to it.

    Attributes:
        kafka: librdkafka settings by their own names (``bootstrap.servers``, ``linger.ms``, …). Values may
            be text, numbers, booleans, or lists (joined by commas); a setting without a value keeps its
            default. Consumer settings are ignored, so that the mapping can be shared with an elector.
        checkpoint_topic: The compacted topic in which exactly-once delivery stores its checkpoints. It is
            created if it is missing, and must not be deleted: the checkpoints would be deleted with it.
        topics: The topics that records may name, with ``*`` and ``?`` as wildcards; core gives them.
    """

    kafka: Mapping[str, Any] = field(
        default_factory=lambda: {"bootstrap.servers": "localhost:9092"}, repr=False
    )
    checkpoint_topic: str = "outbox.checkpoints"
    topics: Sequence[str] = field(default=("*",), metadata=GIVEN)
