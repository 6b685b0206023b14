"""Looks for the records of an attempt in the log: which of them are committed, and which may have been.

Nothing says that a partition has committed all of a transaction or nothing: a request that arrives late may
end it between two records. But a partition takes the records of a key in their order. So one that is missing,
and is followed by one that is not, was committed, and has been replaced or changed since. Any other that is
missing was aborted or refused, unless the broker has deleted it since: with its topic, by its age, or by
compaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, Message
from outbox_api import DriverError, Found, MarkedRecord

from outbox_kafka.client.admin import EARLIEST, LATEST, NEWEST, KafkaAdmin
from outbox_kafka.errors import driver_error
from outbox_kafka.log_reader import COMMITTED, LogReader, Partition, Range
from outbox_kafka.matches import Key, LoggedRecord, Matches, key_of, octets
from outbox_kafka.trace import Trace

log = logging.getLogger("outbox.kafka")

_TIMEOUT: Final = 10.0
_MARGIN_MS: Final = 3_600_000
"""Milliseconds that a record is kept less than its topic's retention says, as clocks differ."""


class LogSearch:
    """Finds an attempt's records."""

    def __init__(self, settings: Mapping[str, Any], lane: str, reader: LogReader) -> None:
        self._lane = lane
        self._reader = reader
        self._admin = KafkaAdmin(settings, driver_error)

    def find(self, records: Sequence[MarkedRecord], trace: Trace) -> Found:
        """Looks for records; see :meth:`outbox_api.TransactionalSender.find`.

        Reads what has been written since the attempt began, or less if it finds all of them sooner.
        """
        if not records:
            return Found((), committed=self._is_committed(trace))
        topics = {record.topic for record in records}
        ends = self._offsets(topics, LATEST)
        starts = self._starts(topics, trace, ends)
        earliest = self._offsets(topics, EARLIEST)
        ranges = {
            place: Range(max(start, earliest.get(place, 0)), ends[place]) for place, start in starts.items()
        }
        log.info(
            "%s: looks for %d records of an unfinished transaction in %d partitions",
            *(self._lane, len(records), sum(start < end for start, end in ranges.values())),
        )
        matches = Matches(records, trace.time_ms, trace.ends)
        for message in self._reader.read(ranges, COMMITTED):
            topic, key = str(message.topic()), octets(message.key()) or b""
            if matches.concerns(topic, key):
                matches.see(_seen(message, topic, key))
            if matches.complete and not trace.ends:
                break
        cut = {place[0] for place, start in starts.items() if start <= earliest.get(place, 0) > 0}
        return self._found(matches, trace, cut, {topic for topic, _ in starts})

    def _starts(
        self, topics: Collection[str], trace: Trace, ends: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """Returns from where on the attempt's records may be: an offset that is not behind the first.

        A look-up by time may end at a segment whose records were deleted, and find nothing although there are
        records behind it. Then a partition's newest record is not older than the attempt, unlike where
        there is nothing to find.
        """
        timed = topics - trace.ends.keys()
        found = self._offsets(timed, trace.time_ms)
        newest = self._newest({topic for (topic, _), start in found.items() if start < 0})
        starts = {}
        for (topic, number), end in ends.items():
            if topic in trace.ends:
                starts[topic, number] = trace.ends[topic].get(number, 0)  # 0: the partition is younger
            elif (start := found.get((topic, number), -1)) >= 0:
                starts[topic, number] = start
            else:
                starts[topic, number] = (
                    end if newest.get((topic, number), trace.time_ms) < trace.time_ms else 0
                )
        return starts

    def _newest(self, topics: Collection[str]) -> dict[Partition, int]:
        """Returns the greatest timestamp of each partition, or nothing if the broker does not tell."""
        try:
            found = self._admin.offsets(topics, NEWEST, _TIMEOUT)
        except DriverError:
            return {}
        return {place: each.timestamp for place, each in found.items()}

    def _offsets(self, topics: Collection[str], when: int) -> dict[Partition, int]:
        found = self._admin.offsets(topics, when, _TIMEOUT)
        return {place: each.offset for place, each in found.items()}

    def _found(self, matches: Matches, trace: Trace, cut: Collection[str], present: Collection[str]) -> Found:
        """Returns what is certain, and what is not; topics in ``cut`` may have deleted old records."""
        configs = {
            topic: self._config(topic) for topic in {each.topic for each in matches.missing} & {*present}
        }
        is_committed = bool(matches.doubtful) and self._is_committed(trace)
        published, undecided, reason = [], list[int](), ""
        committed = dict[
            tuple[Key, int | None], int
        ]()  # key, with the partition where rows name one → last place
        for record in matches.found:
            key = key_of(record)
            if key in matches.repeated or (key in matches.doubtful and not is_committed):
                undecided.append(record.id)
                reason = f"topic '{record.topic}' may have such records of others"
            else:
                published.append(record.id)
                at = key, record.partition
                committed[at] = max(matches.place(record), committed.get(at, 0))
        for record in matches.missing:
            if matches.place(record) < committed.get((key_of(record), record.partition), 0):
                # A later record has replaced it, or its row was changed since.
                published.append(record.id)
            elif why := self._why_undecided(record, matches, trace, cut, configs):
                undecided.append(record.id)
                reason = why
        if not undecided:
            return Found(published)
        return Found(published, undecided, is_committed or self._is_committed(trace), reason)

    def _why_undecided(
        self,
        record: MarkedRecord,
        matches: Matches,
        trace: Trace,
        cut: Collection[str],
        configs: Mapping[str, Mapping[str, str]],
    ) -> str:
        """Returns why a record that was not seen may have been in the log; empty if it was not."""
        topic, config = record.topic, configs.get(record.topic)
        if config is None:
            return f"topic '{topic}' does not exist"
        age_ms = time.time() * 1000 - trace.time_ms + _MARGIN_MS
        if "compact" in config.get("cleanup.policy", "compact"):
            others = key_of(record) in matches.others or matches.has_equal(record)
            replaced = others or record.value is None
            if replaced or age_ms > int(config.get("delete.retention.ms", 0)):
                return f"topic '{topic}' is compacted"
        if topic in cut and _may_be_expired(config, age_ms):
            return f"topic '{topic}' has deleted old records"
        return ""

    def _config(self, topic: str) -> Mapping[str, str]:
        try:
            return self._admin.topic_config(topic, _TIMEOUT)
        except KafkaException:  # not permitted: then everything may have happened
            return {}

    def _is_committed(self, trace: Trace) -> bool:
        """Returns whether the attempt's checkpoint was committed."""
        topic, number, offset = trace.at
        ranges = {(topic, number): Range(offset, offset + 1)}
        return any(True for _ in self._reader.read(ranges, COMMITTED))


def _may_be_expired(config: Mapping[str, str], age_ms: float) -> bool:
    """Returns whether a topic may have deleted records of an age because of it, or of its size."""
    if "delete" not in config.get("cleanup.policy", "delete"):
        return False
    kept = int(config.get("retention.ms", 0))
    return int(config.get("retention.bytes", 0)) >= 0 or 0 <= kept < age_ms


def _seen(message: Message, topic: str, key: bytes) -> LoggedRecord:
    try:
        headers: Any = message.headers() or ()
    except (SystemError, ValueError):  # a name that is not UTF-8, so it is none of ours
        headers = (("", b"unreadable"),)
    return LoggedRecord(
        topic=topic,
        partition=message.partition() or 0,
        key=key,
        value=octets(message.value()),
        headers=tuple((name, octets(value)) for name, value in headers),
        timestamp=message.timestamp(),
    )
