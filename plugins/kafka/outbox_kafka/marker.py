"""The marker of a lane: which batches are in the log, as the metadata of an offset that nobody reads from.

A transaction commits offsets of a consumer group together with its records, all or nothing, and with an
offset goes a short text. The group is named as the lane's transactional id, nobody ever joins it, and the
offset itself is always 0. So the markers need no storage of their own, and are read in one request.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from outbox_sdk import AccessDenied, Batch, DriverError

from outbox_kafka.client_log import ClientLog
from outbox_kafka.settings import redact
from outbox_kafka.verdict import is_refusal, reason

LENGTH_MAX: Final = 4096
"""Characters that a broker stores with an offset, unless its ``offset.metadata.max.bytes`` says otherwise."""

_FORM = "1"
"""How a marker is written; the first word of each."""

_BATCH = re.compile(r"([0-9a-f]{32}):(-?[0-9]+):(-?[0-9]+)")
_REACH = 15.0
"""Seconds to wait for a marker; a broker that is completing a transaction with it takes its time."""

_SLICE = 2.0
"""Seconds of one try; a coordinator that has just moved or started is asked for anew."""

_PAUSE = 0.05
"""Seconds between two tries."""


def encode(batches: Sequence[Batch]) -> str:
    """Returns the text of a marker, in ASCII; also that of no batches is some text.

    Raises:
        ValueError: There are too many batches, more than 50, for a marker to hold.
    """
    text = f"{_FORM} " + ",".join(f"{batch.leader_id.hex}:{batch.first}:{batch.last}" for batch in batches)
    if len(text) > LENGTH_MAX:
        raise ValueError(f"{len(batches)} batches make a marker of {len(text)} characters, {LENGTH_MAX} fit")
    return text


def decode(text: str) -> list[Batch]:
    """Returns the batches that :func:`encode` made ``text`` of.

    Raises:
        ValueError: It was not made so.
    """
    form, _, rest = text.partition(" ")
    if form != _FORM:
        raise ValueError(f"it has the form {form!r}")
    batches = []
    for part in rest.split(",") if rest else []:
        match = _BATCH.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} names no batch")
        batches.append(Batch(UUID(match[1]), int(match[2]), int(match[3])))
    return batches


class MarkerPlace:
    """Where the marker of one lane is kept.

    Attributes:
        name: Names the place: the cluster's id, a slash, and the topic.
        group: The group, as the client describes it.
    """

    def __init__(self, settings: Mapping[str, Any], cluster: str, topic: str, group: str) -> None:
        """Connects to nothing for longer than it takes to learn how the client describes the group.

        Args:
            settings: The user's settings.
            cluster: The id of the cluster that they lead to.
            topic: A topic that exists.
            group: A consumer group of this lane's own.
        """
        # Static membership is a setting of the elector's, and would be part of the description.
        rest = {name: value for name, value in settings.items() if name != "group.instance.id"}
        # A reader of committed messages is told of an offset only once no transaction is about to change it.
        own = {"group.id": group, "isolation.level": "read_committed", "enable.auto.commit": "false"}
        self._settings = rest | own | {"client.id": f"{group}.marker"}
        self._cluster = cluster
        self._topic = topic
        self.name = f"{cluster}/{topic}"
        consumer = self._consumer()
        self.group = consumer.consumer_group_metadata()
        consumer.close()

    def offsets(self, text: str) -> list[TopicPartition]:
        """Returns what a transaction commits for ``text`` to become the marker."""
        return [TopicPartition(self._topic, 0, 0, text)]

    def read(self, place: str = "") -> list[Batch] | None:
        """Returns the marker that was committed last; ``None`` when the broker has none.

        Args:
            place: The name of another place of the same group; empty for this one.

        Raises:
            DriverError: The broker cannot be reached or refuses, or holds what is no marker; or the place is
                in another cluster.
        """
        group = self._settings["group.id"]
        cluster, _, topic = (place or self.name).partition("/")
        if cluster != self._cluster:
            raise DriverError(
                f"the marker of group '{group}' is in the Kafka cluster {cluster}, and this is "
                f"{self._cluster}. Let a harvester publish there once more and stop it in peace; or, if that "
                "cluster is no more, let 'outbox fence forget' take what is marked for unpublished",
                retryable=False,
            )
        what = f"cannot read the marker of group '{group}'"
        consumer = self._consumer()
        deadline = time.monotonic() + _REACH
        try:
            while True:
                try:
                    [found] = consumer.committed([TopicPartition(topic, 0)], timeout=_SLICE)
                    trouble = found.error
                except KafkaException as error:
                    # Why the group's coordinator is not to be found is told only here.
                    told = consumer.poll(0)
                    trouble = (told and told.error()) or error.args[0]
                if trouble is None:
                    return None if found.offset < 0 else decode(found.metadata or "")
                message = f"{what}: {redact(reason(trouble), self._settings)}"
                if is_refusal(trouble) or trouble.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise AccessDenied(message)
                if time.monotonic() > deadline:
                    raise DriverError(message, retryable=True)
                time.sleep(_PAUSE)
        except ValueError as error:
            message = f"{what}: {error}; was it written by another version of outbox?"
            raise DriverError(message, retryable=False) from error
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer({**self._settings, "logger": ClientLog(), "error_cb": lambda _error: None})
