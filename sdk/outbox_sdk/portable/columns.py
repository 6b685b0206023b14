"""The columns of the tables of an outbox, and the rows of its fence that are no lanes."""

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
    "name", "lane", "lanes", "token", "attempt", "holder", "since", "beat", "reading", "transacting",
    "identity", "sender", "marker_place",
)  # fmt: skip

ADDED_FENCE_COLUMNS = ("sender", "marker_place")
"""Columns that the fence of an earlier version lacks."""

DEAD_LETTER_COLUMNS = ("name", *COLUMNS, "fate", "reason", "attempts", "since")

JOURNAL_COLUMNS = (
    "name", "id", "begun", "ended", "operator", "via", "verb", "subject", "reason", "outcome",
)  # fmt: skip

JOURNAL_INDEX = ("name", "begun", "id")
"""The columns of the journal's index, by which the last entries of an outbox are found."""

JOURNAL_TEXTS = {"operator": 400, "via": 40, "verb": 160, "subject": 2000, "reason": 2000, "outcome": 2000}
"""The texts of a journal, the fields of a ``Deed`` and the outcome, with the bytes of UTF-8 that each has."""

GUARD = -1
"""The lane of the fence's row that bumps and operators lock first. It carries the outbox's identity."""

LEASE = -2
"""The lane of the fence's row that is the lease of ``outbox_sdk.lease``.

The row holds when the lease was taken (``since``), for how many milliseconds (``token``), by whom
(``holder``), and the number of the leadership (``attempt``). In PostgreSQL ``since`` and ``token`` are of
the first time, and a sequence says until when.
"""

MEMBER = -3
"""The lane of the fence's rows that are the members of ``outbox_sdk.members``.

Such a row has the member's name (``name``), its group (``holder``), how many outboxes it leads (``token``,
negative once it has left), and when it noted itself last (``since``).
"""

SCHEMA_LANE = -4
"""The lane of the fence's row that notes the version of an outbox's tables, see ``outbox_sdk.schema``.

Such a row has ``schema_name`` of the outbox as its name, which no harvester of an earlier version raises. It
holds the version (``token``), the oldest one that works with the tables (``attempt``), who noted it
(``holder``), and when (``since``).
"""

TAKEOVER = -1_000_000
"""The lane of the fence's row that is a deliberate takeover is this minus the cluster's number.

Such a row has the outbox's name, why the takeover was begun (``holder``), when (``since``), and 1 as
``token``, or 0 once it has ended.
"""


def schema_name(outbox: str) -> str:
    """Returns the name of the fence's row that notes the version of an outbox's tables."""
    return f"schema:{outbox}"
