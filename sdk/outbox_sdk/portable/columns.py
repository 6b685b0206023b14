"""The columns of the tables of an outbox."""

COLUMNS = ("id", "kafka_topic", "kafka_key", "kafka_value", "kafka_header_keys", "kafka_header_values")
"""What is read of a row; in portable outboxes headers are two JSON arrays of equal length, or null."""

EXTRAS = ("kafka_partition", "kafka_timestamp")
"""Columns of an outbox whose intake tells partition and timestamp (milliseconds)."""

MAX_TOPIC_BYTES = 1000
"""A row with a longer topic is not read; Kafka takes 249."""

MAX_KEY_BYTES = 65_536
"""A row with a longer key is not read: lanes hold the keys of failing records in memory."""

BEGINNING = 250
"""How many characters of such a topic or key are read. Rows that begin alike are treated as rows of one key,
which does no harm: none of them is ever sent."""

OUTBOX_COLUMNS = (*COLUMNS, "create_time", "leader_id")

FENCE_COLUMNS = (
    "name", "lane", "lanes", "token", "epoch", "holder", "since", "heartbeat_at", "metrics", "transacting",
    "identity", "sender", "location",
)  # fmt: skip
"""The fence has one row for each lane of each outbox."""

NOTE_COLUMNS = ("name", "identity", "version", "oldest", "noted_by", "noted_at", "takeovers")
"""What is noted of each outbox: its identity, the version of its tables, and the takeovers under way."""

LEASE_COLUMNS = ("name", "holder", "term", "length_ms", "renewed_at")
"""The lease of each outbox, see :mod:`outbox_sdk.lease`; one that was released has no holder."""

MEMBER_COLUMNS = ("member", "member_group", "leads", "seen_at")
"""The members of :mod:`outbox_sdk.members`; one that has left leads null."""

DEAD_LETTER_COLUMNS = ("name", *COLUMNS, "status", "reason", "attempts", "since")

JOURNAL_COLUMNS = (
    "name", "id", "begun", "ended", "operator", "via", "verb", "subject", "reason", "outcome",
)  # fmt: skip

JOURNAL_INDEX = ("name", "begun", "id")
"""The columns of the journal's index, by which the last entries of an outbox are found."""

JOURNAL_TEXTS = {"operator": 400, "via": 40, "verb": 160, "subject": 2000, "reason": 2000, "outcome": 2000}
"""The texts of a journal, the fields of an ``Action`` and the outcome, with the bytes of UTF-8 of each."""
