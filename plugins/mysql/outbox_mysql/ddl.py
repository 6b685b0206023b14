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


def fence(table: str) -> str:
    """Returns the statement that creates the fence; ``table`` is quoted."""
    return f"""CREATE TABLE {table} (
    name VARCHAR(160) NOT NULL,
    lane INT NOT NULL,
    lanes INT NOT NULL,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    holder VARCHAR(1000) NOT NULL,
    since DATETIME(6) NOT NULL,
    beat DATETIME(6),
    reading LONGTEXT NOT NULL,
    transacting INT NOT NULL,
    identity VARCHAR(100) NOT NULL,
    sender {LINE},
    marker_place {LINE},
    PRIMARY KEY (name, lane)
) {TABLE_END}"""


def find(table: str) -> str:
    """Returns the statement that creates the table of dead letters; ``table`` is quoted.

    It can hold every row that an outbox can hold, faulty ones included.
    """
    return f"""CREATE TABLE {table} (
    name VARCHAR(160) NOT NULL,
    id BIGINT NOT NULL,
    kafka_topic LONGTEXT,
    kafka_key LONGBLOB,
    kafka_value LONGBLOB,
    kafka_header_keys LONGTEXT,
    kafka_header_values LONGTEXT,
    fate VARCHAR(10) NOT NULL,
    reason LONGTEXT NOT NULL,
    attempts INT NOT NULL,
    since DATETIME(6) NOT NULL,
    PRIMARY KEY (name, id)
) {TABLE_END}"""
