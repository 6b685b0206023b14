"""How the stasher writes into a PostgreSQL outbox."""

from __future__ import annotations

from collections.abc import Mapping

from outbox_sdk import Insert, Record
from outbox_sdk.portable.rows import header_text

from outbox_postgres.names import QuotedName


def insert(table: str) -> Insert:
    """Returns the statement that stashes one record into ``table``, with or without a schema.

    The creation time is the statement's, not the transaction's, so that an age is never older than the
    wait in the outbox.

    Raises:
        ConfigError: ``table`` is not a table name.
    """
    columns = "create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
    values = "clock_timestamp(), {topic}, {key}, {value}, {header_names}, {header_values}"
    name = str(QuotedName.parse(table)).replace("{", "{{").replace("}", "}}")
    # The name is quoted, the rest is constant.
    return Insert(sql=f"INSERT INTO {name} ({columns}) VALUES ({values})", bind=bind)  # noqa: S608 - quoted


def bind(record: Record) -> Mapping[str, object]:
    """Makes the parameters of a record.

    Raises:
        ValueError: PostgreSQL cannot hold it.
    """
    names = [name for name, _ in record.headers]
    values = [header_text(name, value) for name, value in record.headers]
    for text in (record.topic, record.key, record.value, *names, *values):
        if not isinstance(text, str):
            continue
        if "\0" in text:
            raise ValueError(
                "PostgreSQL's text types hold no NUL character; stash the value as bytes into a bytea column"
            )
        text.encode()  # raises for half of a surrogate pair
    return {
        "topic": record.topic,
        "key": record.key,
        "value": record.value,
        "header_names": names,
        "header_values": values,
    }
