"""The tables of an outbox in MySQL and MariaDB."""

from __future__ import annotations

from typing import Final

KEY_BYTES: Final = 65_535
"""How long a key may be: as long as ``TEXT``."""

LINE: Final = "LONGTEXT"
"""The type of a column for a short text."""

# A binary collation; the dialect's statements compare keys byte for byte whatever the collation is.
TABLE_END: Final = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
# With a default as long as a leader id, a mark updates rows in place, which takes half the time.
_LEADER: Final = "CHAR(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT ''"


def outbox(table: str, *, binary: bool) -> str:
    """Returns the statement that creates the outbox; ``table`` is quoted."""
    return f"""CREATE TABLE {table} (
    id BIGINT NOT NULL AUTO_INCREMENT,
    create_time DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key TEXT NOT NULL,
    kafka_value {"LONGBLOB" if binary else "LONGTEXT"},
    kafka_header_keys JSON,
    kafka_header_values JSON,
    leader_id {_LEADER},
    PRIMARY KEY (id)
) {TABLE_END}"""
